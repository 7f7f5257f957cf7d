"""The speedup curve as the PNG picture that lies beside the report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from p3s.report.pictures import keep_out_of_home, write_picture

__all__ = ["keep_out_of_home", "write_png"]


def write_png(prediction: Mapping[str, Any], path: Path) -> None:
    """Draw the speedup curve with its interval and the ideal line into ``path``, a .png."""
    write_picture(prediction, "speedup", path)
