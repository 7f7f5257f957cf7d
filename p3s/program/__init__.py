"""The model evaluated at N processes: the scaled trace as Parquet, one row per event and rank."""

from __future__ import annotations

from pathlib import Path


def events_of(scaled: Path, rank: int) -> list[tuple[str, int, int]]:
    """Return (operation, partner, bytes) of all events of a rank in program order.

    As :func:`p3s.program.order.sequence.events_of`, which is imported when it is asked for.
    """
    from p3s.program.order import sequence

    return sequence.events_of(scaled, rank)
