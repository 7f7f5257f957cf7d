"""How many cores a program may use here: what it is bound to, and what its group is granted."""

from __future__ import annotations

import os
from pathlib import Path

_PROC = Path("/proc/self/cgroup")
_ROOT = Path("/sys/fs/cgroup")


def cores() -> int:
    """Return how many cores this process may use, at least 1.

    The smaller of the cores it may be scheduled on and the CPU quota of its control group; a
    quota of 2.5 cores is 2.
    """
    bound = len(os.sched_getaffinity(0))
    granted = quota()
    return bound if granted is None else max(1, min(bound, int(granted)))


def quota(proc: Path = _PROC, root: Path = _ROOT) -> float | None:
    """Return the CPU quota in cores (control groups v1 or v2), None if there is none.

    Source: Documentation/admin-guide/cgroup-v2.rst (cpu.max) and scheduler/sched-bwc.rst of Linux.
    """
    try:
        lines = proc.read_text().splitlines()
    except OSError:
        return None
    found = []
    bases: tuple[Path, ...]
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            bases, read = (root, root / "unified"), _quota_v2
        elif "cpu" in controllers.split(","):
            bases, read = (root / controllers, root / "cpu", root / "cpu,cpuacct"), _quota_v1
        else:
            continue
        for base in bases:
            # A group is bound by its ancestors too. In a container the path may be one of
            # the host: then only the root is there.
            parts = [part for part in path.split("/") if part not in ("", "..")]
            folders = [base.joinpath(*parts[:depth]) for depth in range(len(parts) + 1)]
            found += [value for value in map(read, folders) if value is not None]
    return min(found, default=None)


def _quota_v2(folder: Path) -> float | None:
    try:
        limit, period = (folder / "cpu.max").read_text().split()
        return None if limit == "max" else int(limit) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None


def _quota_v1(folder: Path) -> float | None:
    try:
        limit = int((folder / "cpu.cfs_quota_us").read_text())
        period = int((folder / "cpu.cfs_period_us").read_text())
        return limit / period if limit > 0 else None
    except (OSError, ValueError, ZeroDivisionError):
        return None
