"""Weights of a regression: which errors it makes small."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from p3s.base.errors import UsageError

Array = NDArray[np.float64]
WEIGHTS = ("relative", "absolute")


def weights_of(kind: str, seconds: Array) -> Array:
    """Return the factor of every residual (unit: 1/s, or none for absolute ones).

    "relative" makes relative errors small (1/T: the largest counts weigh as much as the smallest),
    "absolute" those in seconds, as plain least squares.
    """
    if kind == "relative":
        return np.asarray(1.0 / seconds)
    if kind == "absolute":
        return np.ones_like(seconds)
    raise UsageError(f"{kind}: no weights of this name; one of {', '.join(WEIGHTS)}")
