"""The OpenMP threads' part of a machine file."""

from __future__ import annotations

from pathlib import Path

from p3s.machine.machinefile import Machine
from p3s.machine.teams import CONSTRUCTS, OpenMP, Region

__all__ = ["CONSTRUCTS", "OpenMP", "Region", "load"]


def load(path: Path) -> OpenMP | None:
    """Return what a machine file has of threads, None where nothing; P3SError as Machine.load."""
    return Machine.load(path).openmp
