"""Measure the communication of a scaled trace on a few nodes (thesis ch. 7).

The full run's ranks are cut into ranges of one node; two ranges at a time are loaded on two
measurement nodes, and black-hole processes on two other nodes stand in for everybody else. What
messages cost is fed to a simulation of all ranks (p3s/simulate).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from p3s.replay.settings import ReplaySettings


def run(
    scaled_dir: Path,
    out_json: Path,
    settings: ReplaySettings | None = None,
    *,
    machine: Path | None = None,
    progress: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Replay a scaled trace and write ``out_json`` and a table beside it; see docs/replay.md.

    ``machine``: file of p3s machine measure, for the estimate of how long it takes. What has been
    measured is kept beside ``out_json`` (.parts) and not measured again. Returns the content of
    ``out_json``; raises P3SError.
    """
    from p3s.replay.driver import run as drive

    return drive(
        scaled_dir, out_json, settings or ReplaySettings(), machine=machine, progress=progress
    )


__all__ = ["ReplaySettings", "run"]
