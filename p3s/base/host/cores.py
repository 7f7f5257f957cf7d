"""How many cores a program may use here: what it is bound to, and what its group is granted."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from p3s.base.errors import UsageError
from p3s.base.host import mpi
from p3s.base.host.command import Command

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
    quotas = []
    for line in text_of(proc).splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            bases: tuple[Path, ...] = (root, root / "unified")
        elif "cpu" in controllers.split(","):
            bases = (root / controllers, root / "cpu", root / "cpu,cpuacct")
        else:
            continue
        for base in bases:
            # A group is bound by its ancestors too. In a container the path may be one of
            # the host: then only the root is there.
            parts = [part for part in path.split("/") if part not in ("", "..")]
            folders = [base.joinpath(*parts[:depth]) for depth in range(len(parts) + 1)]
            quotas += [value for value in map(_quota_of, folders) if value is not None]
    return min(quotas, default=None)


def _quota_of(folder: Path) -> float | None:
    """Return the quota of a control group of v2 or v1 itself."""
    old = (text_of(folder / f"cpu.cfs_{quantity}_us") for quantity in ("quota", "period"))
    try:
        limit, period = map(int, text_of(folder / "cpu.max").split() or old)
        return limit / period if limit > 0 else None
    except (ValueError, ZeroDivisionError):  # max: there is none
        return None


# ---- hardware threads, as sysfs describes them -----------------------------------------------
CPUS = Path("/sys/devices/system/cpu")
_NODE = re.compile(r"node(\d+)")
_LEVELS = ("package", "domain", "l3", "l2", "core", "number")


@dataclass(frozen=True, order=True)
class HardwareThread:
    """A hardware thread: what it is part of, the widest first (numbers, -1 where not told)."""

    package: int
    domain: int
    l3: int
    l2: int
    core: int
    number: int


def text_of(path: Path) -> str:
    """Return what a file says, "" where it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def numbers_of(text: str) -> list[int]:
    """Return the numbers of a list as Linux writes them: 0-3,8; empty when it is none."""
    numbers: list[int] = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if not first.isdigit() or (last and not last.isdigit()):
            return []
        numbers.extend(range(int(first), int(last or first) + 1))
    return numbers


def hardware_threads(
    root: Path | None = None, numbers: Sequence[int] | None = None
) -> list[HardwareThread]:
    """Return hardware threads of this machine [those that this process may use]."""
    usable = sorted(os.sched_getaffinity(0)) if numbers is None else numbers
    return [_hardware_thread(root or CPUS, number) for number in usable]


def physical_cores(root: Path | None = None) -> list[int]:
    """Return one hardware thread per core among those this process may use, ascending."""
    return sorted(each.number for each in _by_core(hardware_threads(root))[0])


def close(threads: Sequence[HardwareThread]) -> list[int]:
    """Return them so that those that share caches follow each other.

    Cores first: the second hardware thread of a core comes after the first of all.
    """
    first, more = _by_core(threads)
    return [each.number for each in [*first, *more]]


def spread_threads(threads: Sequence[HardwareThread]) -> list[int]:
    """Return them so that the first ones share as little as possible, cores first too."""
    first, more = _by_core(threads)
    return [*_spread(first, 0), *_spread(more, 0)]


def domains(threads: Sequence[HardwareThread]) -> int:
    """Return how many memory domains they lie in."""
    return len({(each.package, each.domain) for each in threads})


def _by_core(cpus: Sequence[HardwareThread]) -> tuple[list[HardwareThread], list[HardwareThread]]:
    """Return one hardware thread of every core, and the others."""
    first: dict[tuple[int, int], HardwareThread] = {}
    for each in sorted(cpus):
        first.setdefault((each.package, each.core), each)
    rest = sorted(set(cpus) - set(first.values()))
    return sorted(first.values()), rest


def _spread(threads: Sequence[HardwareThread], level: int) -> list[int]:
    """Return numbers taken in turn from each part of a level, spread in the parts as well."""
    if level == len(_LEVELS):
        return [each.number for each in threads]
    parts: dict[int, list[HardwareThread]] = {}
    for each in threads:
        parts.setdefault(getattr(each, _LEVELS[level]), []).append(each)
    lists = [_spread(part, level + 1) for part in parts.values()]
    return [number for row in zip_longest(*lists) for number in row if number is not None]


def _hardware_thread(root: Path, number: int) -> HardwareThread:
    folder = root / f"cpu{number}"
    siblings = numbers_of(text_of(folder / "topology" / "thread_siblings_list"))
    core = min(siblings) if siblings else _number(text_of(folder / "topology" / "core_id"), number)
    return HardwareThread(
        _number(text_of(folder / "topology" / "physical_package_id"), -1),
        next((int(m[1]) for p in folder.glob("node*") if (m := _NODE.fullmatch(p.name))), -1),
        _find_sharer(folder, "3"),
        _find_sharer(folder, "2"),
        core,
        number,
    )


def _number(text: str, otherwise: int) -> int:
    return int(text) if text.isdigit() else otherwise


def _find_sharer(folder: Path, level: str) -> int:
    """Return the first hardware thread that shares a cache, -1 where there is none such."""
    for index in sorted((folder / "cache").glob("index*")):
        if text_of(index / "level") == level and text_of(index / "type") != "Instruction":
            return min(numbers_of(text_of(index / "shared_cpu_list")), default=-1)
    return -1


# ---- teams of threads ------------------------------------------------------------------------
#: Where the threads of a process are: on neighbouring cores, spread over the process's part of the
#: node, or wherever the launcher and the system put them.
CLOSE, FAR, NONE = "close", "far", "none"
AFFINITIES = (CLOSE, FAR, NONE)
#: Most threads of a process that can be asked for.
MOST = 4096

#: Variables in which launchers tell a rank its number on its node.
LOCAL_RANK = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PALS_LOCAL_RANKID", "SLURM_LOCALID")
#: Options of launchers that say where processes run: the user's own come before those of P3S.
_BINDING = {
    mpi.OPENMPI: "bind-to map-by rankfile rf cpu-set cpu-list bind-to-core bind-to-socket "
    "cpus-per-proc cpus-per-rank slot-list",
    mpi.MPICH: "bind-to map-by membind",
    mpi.SLURM: "cpu-bind",
}


@dataclass(frozen=True)
class Team:
    """Threads of every process of a run: ``count``, and ``affinity`` as asked for.

    ``sets``: the cores of the processes of a node, a list such as ``0-3`` for each; empty where
    P3S binds nothing.
    """

    count: int
    affinity: str = CLOSE
    sets: tuple[str, ...] = ()

    def environment(self) -> dict[str, str]:
        """Return what the OpenMP runtime of a process reads (OpenMP 5.2, chapter 21)."""
        bind = {CLOSE: "close", FAR: "spread"}.get(self.affinity, "false") if self.sets else "false"
        wait = {} if self.sets else {"OMP_WAIT_POLICY": "passive"}
        places = {"OMP_PLACES": "cores"} if self.sets else {}
        return {
            "OMP_NUM_THREADS": str(self.count),
            "OMP_DYNAMIC": "false",
            "OMP_PROC_BIND": bind,
            **places,
            **wait,
        }

    def as_info(self) -> dict[str, object]:
        """Return the entry of run.json."""
        return {
            "count": self.count,
            "affinity": self.affinity if self.sets else NONE,
            "cores": list(self.sets),
        }


def team_for(count: int, affinity: str, parsed: Command, np: int) -> Team:
    """Return the threads of a run of ``np`` processes that this machine starts.

    Nothing is bound where processes and threads together are more than the cores, or where the
    launcher's own options say where processes run.
    """
    if affinity == NONE or binds(parsed):
        return Team(count, NONE)
    processes = np if parsed.family != mpi.SLURM else 1  # srun: a node's share is not known here
    usable = cores()
    if processes * count > usable:
        return Team(count, affinity)
    return Team(count, affinity, core_sets(usable // processes if affinity == FAR else count))


def binds(parsed: Command) -> bool:
    """Tell whether a launcher command has options that say where processes run."""
    names = set(_BINDING.get(parsed.family, "").split())
    return any(word.lstrip("-").split("=")[0] in names for word in parsed.before if word[:1] == "-")


def core_sets(width: int, usable: Sequence[int] | None = None) -> tuple[str, ...]:
    """Return the cores of each process of a node, ``width`` of them, as lists of taskset.

    ``usable``: processors that may be used [those of this process]. Cores of a process are
    neighbours; one hardware thread of each core is used while the cores suffice.
    """
    cpus = close(hardware_threads(numbers=usable))
    groups = [cpus[k : k + width] for k in range(0, len(cpus) - width + 1, width)]
    return tuple(",".join(map(str, sorted(group))) for group in groups)


def check_threads(counts: Sequence[int], oversubscribe: bool, usable: int) -> None:
    """Refuse more threads than cores unless the user says so; raises UsageError."""
    most = max(counts)
    if most > MOST:
        raise UsageError(f"--threads {most}: more than {MOST} threads of a process")
    if most > usable and not oversubscribe:
        raise UsageError(
            f"--threads {most}: there {'is' if usable == 1 else 'are'} {usable} "
            f"core{'s' if usable > 1 else ''} here; with --oversubscribe threads share cores, "
            "and CPU times are all that counts"
        )


def check_affinity(
    affinity: str, processes: Sequence[int], threads: Sequence[int], usable: int
) -> None:
    """Refuse threads far from each other where no process has more cores than threads."""
    room = any(t > 1 and usable // n > t for n in processes for t in threads)
    if affinity == FAR and processes and not room:
        raise UsageError(
            f"--affinity far: with {usable} core{'s' if usable > 1 else ''} no process of these "
            "runs has more cores than threads, so that close and far are the same; leave it out"
        )


def threads_in(info: Mapping[str, object]) -> tuple[int, str] | None:
    """Return threads and affinity that run.json says, None for a run without."""
    entry = info.get("threads")
    if not isinstance(entry, Mapping):
        return None
    count, affinity = entry.get("count"), entry.get("affinity")
    return (count, str(affinity)) if isinstance(count, int) else None
