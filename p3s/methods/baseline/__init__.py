"""Baselines without a trace: regressions of run times over the process count.

They need nothing but run times and cost milliseconds; a prediction from traces must do better than
they do. For other rooms: :func:`band` and :func:`beside`. Heavy packages are imported where they
are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from p3s.methods.baseline.agreement import Beside, Disagreement, beside, disagreements
    from p3s.methods.baseline.bands import Band, band
    from p3s.methods.baseline.model import Baseline, fit_series

__all__ = [
    "Band",
    "Baseline",
    "Beside",
    "Disagreement",
    "band",
    "beside",
    "disagreements",
    "fit_series",
]

_HOME = {
    "Band": "bands",
    "band": "bands",
    "Beside": "agreement",
    "Disagreement": "agreement",
    "beside": "agreement",
    "disagreements": "agreement",
    "Baseline": "model",
    "fit_series": "model",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(name)
    from importlib import import_module

    return getattr(import_module(f"p3s.methods.baseline.{_HOME[name]}"), name)
