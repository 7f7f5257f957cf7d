"""The model evaluated at N processes: the scaled trace as Parquet, one row per event and rank."""

from __future__ import annotations

from p3s.program.events import events_of
from p3s.program.generate import as_file, scaled_dir, write_scaled

__all__ = ["as_file", "events_of", "scaled_dir", "write_scaled"]
