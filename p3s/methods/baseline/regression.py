"""Linear regressions: on logarithms (Barnes et al.), power law, explicit dependency, splines.

Sources: Barnes et al., "A regression-based approach to scalability prediction", section 2.1, as
Kazmina and Antonov give it; their own model with the times of all small runs as inputs, which they
reject (section 4.2); restricted cubic splines of the logarithm of the count, linear beyond the
outer knots (Lee et al., section 2; Harrell's basis, knots at quantiles).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from p3s.base.arrays import Floats
from p3s.base.errors import P3SError


def solve(columns: Floats, wanted: Floats, weights: Floats, what: str) -> Floats:
    """Return least-squares coefficients; P3SError, naming rank and points, if not determined."""
    rows = columns * weights[:, None]
    found, rank = least_norm(rows, wanted * weights)
    if rank < columns.shape[1]:
        raise P3SError(not_determined(what, columns.shape[1], rank, len(wanted)))
    return found


def not_determined(what: str, coefficients: int, rank: int, points: int) -> str:
    """Return the sentence that refuses a regression with too little data."""
    return (
        f"{what}: {coefficients} coefficients cannot be told from {points} run times of rank "
        f"{rank}: such a model only repeats what it was given; take fewer inputs, or a family "
        "with fewer coefficients"
    )


def least_norm(rows: Floats, wanted: Floats) -> tuple[Floats, int]:
    """Return the least-squares solution of least norm of scaled columns, and the rank."""
    scale = np.linalg.norm(rows, axis=0)
    scale[scale == 0] = 1.0
    found, _, rank, _ = np.linalg.lstsq(rows / scale, wanted, rcond=1e-9)
    return np.asarray(found / scale, dtype=np.float64), int(rank)


# ---- logarithms ----------------------------------------------------------------------------


def _log_columns(q: Floats, x: Floats, degree: int) -> Floats:
    if (x <= 0).any():
        raise P3SError("barnes: an input is zero or negative, so it has no logarithm; leave it out")
    log = np.log2(q)
    return np.column_stack([*(log**power for power in range(degree + 1)), np.log2(x)])


def _fit_log(q: Floats, t: Floats, x: Floats, w: Floats, degree: int) -> Floats:
    # A small error of log2 T is a relative one: a residual in seconds is T times as large.
    name = f"barnes-{degree}"
    return solve(_log_columns(q, x, degree), np.log2(t), w * t, name)


def fit_barnes_1(
    q: Floats, t: Floats, x: Floats, w: Floats, _names: Sequence[str]
) -> dict[str, Any]:
    """Fit log2 T = gamma0 + gamma1 log2 q + sum of beta_i log2 x_i."""
    return _barnes(_fit_log(q, t, x, w, 1), 1)


def fit_barnes_2(
    q: Floats, t: Floats, x: Floats, w: Floats, _names: Sequence[str]
) -> dict[str, Any]:
    """Fit the same with gamma2 (log2 q)^2."""
    return _barnes(_fit_log(q, t, x, w, 2), 2)


def _barnes(found: Floats, degree: int) -> dict[str, Any]:
    return {
        "gamma": found[: degree + 1].tolist(),
        "beta": found[degree + 1 :].tolist(),
        "n_params": len(found),
    }


def barnes(p: Mapping[str, Any], q: Floats, x: Floats) -> Floats:
    """Return T in seconds of either variant."""
    columns = _log_columns(q, x, len(p["gamma"]) - 1)
    return np.asarray(np.exp2(columns @ np.array([*p["gamma"], *p["beta"]])))


def fit_power(q: Floats, t: Floats, x: Floats, w: Floats, _names: Sequence[str]) -> dict[str, Any]:
    """Fit T = f q^k on logarithms."""
    log_factor, exponent = _fit_log(q, t, x, w, 1).tolist()
    return {"factor": float(np.exp2(log_factor)), "exponent": exponent, "n_params": 2}


def power(p: Mapping[str, Any], q: Floats, _x: Floats) -> Floats:
    """Return T in seconds of a power law."""
    return np.asarray(p["factor"] * q ** p["exponent"])


# ---- explicit dependency -------------------------------------------------------------------


def fit_explicit(
    q: Floats, t: Floats, x: Floats, w: Floats, names: Sequence[str]
) -> dict[str, Any]:
    """Fit T = sum of a_i x_i + b q, refused where the points do not determine it."""
    found = solve(np.column_stack([x, q]), t, w, "explicit")
    return {"linear": found.tolist(), "rank": len(found), "n_params": len(found)}


def explicit(p: Mapping[str, Any], q: Floats, x: Floats) -> Floats:
    """Return T in seconds of the explicit-dependency model."""
    return np.asarray(np.column_stack([x, q]) @ np.array(p["linear"]))


# ---- splines -------------------------------------------------------------------------------

#: Knots of Harrell's basis, by their number.
_QUANTILES = {3: (0.1, 0.5, 0.9), 4: (0.05, 0.35, 0.65, 0.95), 5: (0.05, 0.275, 0.5, 0.725, 0.95)}


def knots_of(values: Floats) -> Floats:
    """Return three to five knots at quantiles of the distinct values; more where there are more."""
    distinct = np.unique(values)
    number = 3 if len(distinct) < 8 else 4 if len(distinct) < 16 else 5
    return np.quantile(distinct, _QUANTILES[number])


def basis(values: Floats, knots: Floats) -> Floats:
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


def _cube(x: Floats) -> Floats:
    return np.maximum(x, 0.0) ** 3


def _spline_columns(q: Floats, x: Floats, knots: Floats) -> Floats:
    log, given = np.log2(q), np.log2(x)
    bent = basis(log, knots)
    # y = b0 + b1 x1 + b2 x2 + b3 x1 x2: the count with every input.
    return np.column_stack([np.ones_like(log), bent, given, given * log[:, None]])


def fit_spline(q: Floats, t: Floats, x: Floats, w: Floats, _names: Sequence[str]) -> dict[str, Any]:
    """Fit log2 T; every input enters by its logarithm and by its product with log2 of the count."""
    knots = knots_of(np.log2(q))
    found = solve(_spline_columns(q, x, knots), np.log2(t), w * t, "spline")
    return {"knots": knots.tolist(), "linear": found.tolist(), "n_params": len(found)}


def spline(p: Mapping[str, Any], q: Floats, x: Floats) -> Floats:
    """Return T in seconds."""
    return np.asarray(np.exp2(_spline_columns(q, x, np.array(p["knots"])) @ np.array(p["linear"])))
