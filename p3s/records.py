"""Run directories, by their names: npNNNN.rR, and npNNNN.rR.failed of what failed."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from p3s.artefacts import read_json
from p3s.errors import P3SError

RUN_SCHEMA = "p3s.run"

_UNITS = {"wall_ns": "wall", "cpu_ns": "cpu", "instructions": "instructions"}
_RUN_NAME = re.compile(r"^np(\d{4,})\.r(\d+)(\.failed)?$")


@dataclass(frozen=True)
class RunRecord:
    """One traced run that is part of a study.

    ``status`` is "complete" or "partial" (the capture ends early on at least one rank).
    """

    np: int
    rep: int
    path: Path
    status: str
    info: dict[str, Any]


def runs_in(folder: Path, np: int | None = None) -> list[RunRecord]:
    """Return the runs in a directory, by count and repeat (of one count only if it is given)."""
    found = []
    for path, match in _named(folder):
        count = int(match[1])
        if match[3] or (np is not None and count != np) or not path.is_dir():
            continue
        try:
            info = read_json(path / "run.json", RUN_SCHEMA)
            status = str(info.get("status", "partial"))
        except P3SError:
            info, status = {}, "partial"
        found.append(RunRecord(count, int(match[2]), path, status, info))
    return sorted(found, key=lambda run: (run.np, run.rep))


def work_of(runs: Iterable[RunRecord]) -> dict[str, list[int]]:
    """Return, for each way work was measured, the counts of the runs that did it so."""
    found: dict[str, list[int]] = {}
    for run in runs:
        # Runs of before this was recorded measured CPU time.
        unit = _UNITS.get(str(run.info.get("work_unit", "cpu_ns")), "cpu")
        counts = found.setdefault(unit, [])
        if run.np not in counts:
            counts.append(run.np)
    return found


def failed_in(folder: Path) -> set[int]:
    """Return the counts of the runs that failed there."""
    return {int(match[1]) for _, match in _named(folder) if match[3]}


def _named(folder: Path) -> list[tuple[Path, re.Match[str]]]:
    entries: list[Path] = []
    with contextlib.suppress(OSError):  # there is none
        entries = list(folder.iterdir())
    return [(path, match) for path in entries if (match := _RUN_NAME.match(path.name))]
