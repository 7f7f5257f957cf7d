"""The speedup curve as the PNG picture that lies beside the report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from p3s.report.pictures import keep_out_of_home, write_speedup
from p3s.report.points import Point

__all__ = ["keep_out_of_home", "write_png"]


def write_png(points: Sequence[Point], path: Path) -> None:
    """Draw the speedup curve with its interval and the ideal line into ``path``, a .png."""
    write_speedup(points, path)
