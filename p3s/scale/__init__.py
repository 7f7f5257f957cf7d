"""The model evaluated at N processes: the scaled trace as Parquet, one row per event and rank."""

from __future__ import annotations

from p3s.scale.write import write_scaled

__all__ = ["write_scaled"]
