"""Runs that were captured outside of a study, all of which have to fit into it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from p3s.pipeline.gather import CapturedRun, collect


def check_runs(
    root: Path, paths: Sequence[Path], command: Sequence[str] | None
) -> list[CapturedRun]:
    """Read captured runs; raise what keeps one of them out of the study at ``root``."""
    found = collect(root, paths, command)
    for problem in (*found.refused, *found.there):
        raise problem
    return list(found.runs)
