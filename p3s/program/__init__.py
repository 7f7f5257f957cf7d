"""The model evaluated at N processes: the scaled trace as Parquet, one row per event and rank."""

from __future__ import annotations

from p3s.program.events import events_of
from p3s.program.generate import scaled_dir, write_scaled

__all__ = ["events_of", "scaled_dir", "write_scaled"]
