"""The explicit-dependency model: the times of all small runs as inputs of one regression.

Source: Kazmina and Antonov, sections 3.2 and 4.2: T = a_1 t_1 + ... + a_k t_k + b q (and the size);
they reject it, with errors above 60 %. It is here to show why: all targets of a series share their
small runs, so the rows have hardly more independent columns than there are series.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p3s.base.errors import P3SError
from p3s.methods.baseline.families import Data, FittedFamily
from p3s.methods.baseline.families import fit as fit_family
from p3s.methods.baseline.regression import least_norm

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Design:
    """Rows of the regression: counts, seconds, inputs (small runs' times, then parameters)."""

    n: Array
    seconds: Array
    inputs: Array
    names: tuple[str, ...]
    series: tuple[int, ...]

    @property
    def rank(self) -> int:
        """Rank of the scaled columns, the count among them."""
        rows = np.column_stack([self.inputs, self.n])
        scale = np.linalg.norm(rows, axis=0)
        return int(np.linalg.matrix_rank(rows / np.where(scale > 0, scale, 1.0), tol=1e-6))

    def only(self, keep: NDArray[np.bool_]) -> Design:
        """Return some of the rows."""
        return Design(
            self.n[keep],
            self.seconds[keep],
            self.inputs[keep],
            self.names,
            tuple(np.array(self.series)[keep].tolist()),
        )


def design(
    small: Sequence[Mapping[int, float]],
    targets: Sequence[Mapping[int, float]],
    parameters: Sequence[Mapping[str, float]] = (),
) -> Design:
    """Return one row per target of every series; all series need the same small counts.

    ``small`` and ``targets``: per series the seconds by count; ``parameters``: per series its
    input parameters. Errors: P3SError where counts or parameters differ.
    """
    counts = sorted(small[0])
    names = sorted(parameters[0]) if parameters else []
    rows, n, seconds, series = [], [], [], []
    for i, (runs, wanted) in enumerate(zip(small, targets, strict=True)):
        given = parameters[i] if parameters else {}
        if sorted(runs) != counts or sorted(given) != names:
            raise P3SError(
                f"explicit: series {i + 1} has other small counts or parameters than "
                "the first; every one is a column"
            )
        head = [runs[q] for q in counts] + [given[name] for name in names]
        for q, time in sorted(wanted.items()):
            rows.append(head)
            n.append(q)
            seconds.append(time)
            series.append(i)
    return Design(
        np.array(n, dtype=np.float64),
        np.array(seconds, dtype=np.float64),
        np.array(rows, dtype=np.float64),
        tuple(f"t{q}" for q in counts) + tuple(names),
        tuple(series),
    )


@dataclass(frozen=True)
class Explicit:
    """A fitted model; ``rank``: how many combinations of its coefficients were determined."""

    linear: tuple[float, ...]
    rank: int

    @property
    def n_params(self) -> int:
        """Number of coefficients."""
        return len(self.linear)

    def predict(self, rows: Design) -> Array:
        """Return seconds of all rows."""
        parameters = {"linear": list(self.linear), "n_params": len(self.linear)}
        return FittedFamily("explicit", parameters, rows.names).predict(rows.n, rows.inputs)


def _fit_anyway(q: Array, t: Array, x: Array, w: Array, ridge: float) -> dict[str, Any]:
    """Fit it whatever the rank: the solution of least norm, or a ridge one, for comparisons.

    ``ridge`` is relative to the largest singular value of the scaled columns. ``rank`` in the
    result says how many combinations of coefficients the points determine.
    """
    rows = np.column_stack([x, q]) * w[:, None]
    found, rank = least_norm(rows, t * w)
    if ridge > 0:
        scale = np.linalg.norm(rows, axis=0)
        scale[scale == 0] = 1.0
        added = ridge * np.linalg.norm(rows / scale, 2) * np.eye(rows.shape[1])
        stacked = np.vstack([rows / scale, added])
        found = (
            np.linalg.lstsq(stacked, np.concatenate([t * w, np.zeros(len(added))]), rcond=None)[0]
            / scale
        )
    return {"linear": found.tolist(), "rank": rank, "n_params": len(found)}


def fit(rows: Design, *, anyway: bool = False, ridge: float = 0.0) -> Explicit:
    """Fit the model; P3SError, naming rank and rows, where the rows do not determine it.

    ``anyway``: take the solution of least norm all the same; ``ridge`` above 0: a regularised one.
    """
    ones = np.ones_like(rows.seconds)
    if anyway or ridge > 0:
        found = _fit_anyway(rows.n, rows.seconds, rows.inputs, ones, ridge)
    else:
        data = Data(rows.n, rows.seconds, rows.inputs, rows.names)
        found = fit_family("explicit", data, ones).parameters
    return Explicit(tuple(found["linear"]), int(found.get("rank", len(found["linear"]))))
