"""SimGrid: platforms, time-independent traces, and smpirun that replays them."""

from __future__ import annotations

import shutil


def find_smpirun() -> str:
    """Return the path of smpirun, "" when SimGrid is not installed."""
    return shutil.which("smpirun") or ""
