"""Restricted cubic splines of the logarithm of the count, linear beyond the outer knots.

Source: Lee et al., as Kazmina and Antonov give it (section 2); Harrell's basis of restricted cubic
splines, knots at quantiles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p3s.methods.baseline.regression import solve

Array = NDArray[np.float64]
_QUANTILES = {3: (0.1, 0.5, 0.9), 4: (0.05, 0.35, 0.65, 0.95), 5: (0.05, 0.275, 0.5, 0.725, 0.95)}


def knots_of(values: Array) -> Array:
    """Return three to five knots at quantiles of the distinct values; more where there are more."""
    distinct = np.unique(values)
    number = 3 if len(distinct) < 8 else 4 if len(distinct) < 16 else 5
    return np.quantile(distinct, _QUANTILES[number])


def basis(values: Array, knots: Array) -> Array:
    """Return the columns x and the cubic ones (one less than inner gaps), without a constant."""
    x, last, before = values, knots[-1], knots[-2]
    size = (last - knots[0]) ** 2
    columns = [x]
    for knot in knots[:-2]:
        columns.append(
            (
                _cube(x - knot)
                - _cube(x - before) * (last - knot) / (last - before)
                + _cube(x - last) * (before - knot) / (last - before)
            )
            / size
        )
    return np.column_stack(columns)


def _cube(x: Array) -> Array:
    return np.maximum(x, 0.0) ** 3


def _columns(q: Array, x: Array, knots: Array) -> Array:
    log, given = np.log2(q), np.log2(x)
    bent = basis(log, knots)
    # y = b0 + b1 x1 + b2 x2 + b3 x1 x2: the count with every input.
    return np.column_stack([np.ones_like(log), bent, given, given * log[:, None]])


def fit(q: Array, t: Array, x: Array, w: Array, _names: Sequence[str]) -> dict[str, Any]:
    """Fit log2 T; every input enters by its logarithm and by its product with log2 of the count."""
    knots = knots_of(np.log2(q))
    found = solve(_columns(q, x, knots), np.log2(t), w * t, "spline")
    return {"knots": knots.tolist(), "linear": found.tolist(), "n_params": len(found)}


def value(p: Mapping[str, Any], q: Array, x: Array) -> Array:
    """Return T in seconds."""
    return np.asarray(np.exp2(_columns(q, x, np.array(p["knots"])) @ np.array(p["linear"])))
