"""P3S: predict how an MPI program scales from a few small runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from p3s.version import __version__

if TYPE_CHECKING:
    from p3s.report.notebook import Prediction

__all__ = ["Prediction", "__version__"]


def __getattr__(name: str) -> Any:
    """Return what is public here when it is asked for; ``import p3s`` alone imports nothing."""
    if name != "Prediction":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from p3s.report.notebook import Prediction

    return Prediction
