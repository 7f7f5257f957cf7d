"""The model evaluated at N processes: the scaled trace as Parquet, one row per event and rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from p3s.program.generate import as_file, scaled_dir, write_scaled
    from p3s.program.order.sequence import events_of

__all__ = ["as_file", "events_of", "scaled_dir", "write_scaled"]


def __getattr__(name: str) -> object:
    """Return what is public here when it is asked for: who reads scaled traces writes none."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from p3s.program import generate
    from p3s.program.order import sequence

    return getattr(sequence if name == "events_of" else generate, name)
