"""Workload parameters: models of several settings, the laws between them, models of others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from p3s.costs.parameters.derived import refresh

if TYPE_CHECKING:
    from p3s.costs.parameters.stage import build, family_path, instantiate, load

__all__ = ["build", "family_path", "instantiate", "load", "refresh"]


def __getattr__(name: str) -> object:
    """Return what is public here when it is asked for: most studies have no parameters."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from p3s.costs.parameters import stage

    return getattr(stage, name)
