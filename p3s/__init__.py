"""P3S: predict how an MPI program scales from a few small runs."""

from __future__ import annotations

from p3s.base.version import __version__

TYPE_CHECKING = False  # typing itself is not imported: an interrupt has no time to arrive
if TYPE_CHECKING:
    from typing import Any

    from p3s.api import Prediction, Studies, Study, open_many, trace
    from p3s.api import open_study as open

__all__ = ["Prediction", "Studies", "Study", "__version__", "open", "open_many", "trace"]


def __getattr__(name: str) -> Any:
    """Return what is public here when it is asked for; ``import p3s`` alone imports nothing."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from p3s import api

    return api.open_study if name == "open" else getattr(api, name)


def __dir__() -> list[str]:
    """Return the public names, also those that are not loaded yet."""
    return list(__all__)
