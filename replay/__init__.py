"""Measure the communication of a scaled trace on a few nodes (thesis ch. 7).

The full run's ranks are cut into ranges of one node; two ranges at a time are loaded on two
measurement nodes, and black-hole processes on two other nodes stand in for everybody else.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any


def run(
    scaled_dir: Path,
    out_json: Path,
    *,
    hosts: list[str] | None = None,
    cores_per_node: int | None = None,
    budget_s: float = 30.0,
    launcher: list[str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Replay a scaled trace and write ``out_json`` and a table beside it; see docs/replay.md.

    ``hosts`` are the four nodes (two measured, two black holes), by default this machine;
    ``budget_s`` is the time to measure in. Returns the content of ``out_json``; raises P3SError.
    """
    from replay.thesis.driver import run as drive

    return drive(scaled_dir, out_json, hosts=hosts, cores_per_node=cores_per_node,
                 budget_s=budget_s, launcher=launcher, progress=progress)
