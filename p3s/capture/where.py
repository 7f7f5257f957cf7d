"""What a path given on the command line holds: a capture file, a run, or a study of runs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from p3s.base.errors import P3SError, UsageError
from p3s.capture.types import RunTrace


@dataclass(frozen=True)
class Place:
    """A run directory, or one capture file (``file``)."""

    path: Path
    file: bool = False

    def read(self) -> RunTrace:
        """Read what is there; raises P3SError when there is no readable capture."""
        from p3s.capture.reader import read_file, read_run

        return read_file(self.path) if self.file else read_run(self.path)


def places_at(path: Path, others: bool = False) -> list[Place]:
    """Return the runs at ``path``: a .p3t file, a run directory, or a study.

    others: also those of the studies inside it, of other workloads (far/NAME, at/SETTING).

    Raises P3SError when nothing is there, or neither captures nor a study.
    """
    if path.is_file():
        return [Place(path, file=True)]
    if path.exists() and not path.is_dir():
        raise P3SError(
            f"{path} is neither a file nor a directory; give a study, a run directory or a .p3t"
            " file"
        )
    if not path.is_dir():
        raise P3SError(f"{path} is not there; give a study, a run directory or a .p3t file")
    if any(path.glob("rank-*.p3t")) or os.path.exists(path / "run.json"):
        return [Place(path)]
    found = _runs_of(path)
    for inside in ("far", "at") if others else ():
        found += [each for other in _run_dirs(path / inside) for each in _runs_of(other)]
    if not found:
        raise P3SError(
            f"{path} holds no capture and is no study with runs; give a study, a run directory or"
            " a .p3t file"
        )
    return [Place(each) for each in found]


def _runs_of(study: Path) -> list[Path]:
    return [each for part in ("runs", "timed", "validate") for each in _run_dirs(study / part)]


def _run_dirs(parent: Path) -> list[Path]:
    if not parent.is_dir():
        return []
    return sorted(
        each for each in parent.iterdir() if each.is_dir() and not each.name.startswith(".")
    )


def one_place(path: Path) -> Place:
    """Return the one run at ``path``; raises UsageError when a study holds several."""
    found = places_at(path)
    if len(found) > 1:
        raise UsageError(f"{path} holds {len(found)} runs; give one of them, e.g. {found[0].path}")
    return found[0]
