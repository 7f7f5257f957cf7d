"""The model evaluated at N processes: the scaled trace as Parquet, one row per event and rank."""

from __future__ import annotations

from p3s.scale.events import events_of
from p3s.scale.write import scaled_dir, write_scaled

__all__ = ["events_of", "scaled_dir", "write_scaled"]
