"""Shapes of the cost of a unit of work over the working set: what a machine's memory makes of it.

Every curve is a sum of columns with coefficients that are not negative: one, steps that rise by
one (logistic in log2 x, or "capacity": what misses a cache that holds a part of randomly accessed
data, 1 - size/x), powers of x, what fixed overheads per iteration add. A design is the choice
of one to three columns. x is the work of a rank per iteration of the phase (thesis, chapter 6: with
more processes the same code finds its data in a faster memory); u = log2 x.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from typing import Literal, NamedTuple

import numpy as np

#: Families with the logarithm of their prior weight, simplest first.
CONSTANT, OVERHEAD, POWER, STEP, TWO_STEPS = "constant", "overhead", "power", "step", "two steps"
PRIOR = {
    CONSTANT: log(0.27),
    OVERHEAD: log(0.10),
    POWER: log(0.07),
    STEP: log(0.30),
    TWO_STEPS: log(0.13),
}
MOST_COLUMNS = 3
#: Widths of steps in doublings of x (a logistic rises from 12 % to 88 % over four of them).
#: Width 0 stands for a capacity. Two steps have any two of the second, and fewer places.
WIDTHS = (*(0.12 * 1.2**k for k in range(15)), 0.0)
PAIR_WIDTHS, PAIR_EACH = (0.2, 0.65, 0.0), 2
#: Exponents of pure powers: how many around the slope of the points, apart by how much between the
#: first and last point, and the width of the range in which all are as likely beforehand.
POWERS, POWER_EACH, POWER_RANGE = 33, 0.006, 1.2
#: Exponents of what overheads add to a constant: per iteration, per surface.
OVERHEADS = (-1.0, -0.5)
#: Locations of steps: distance between them in doublings, how far outside the points they may be.
EACH, BEYOND, MOST_LOCATIONS = 0.2, 1.0, 60
#: Two steps are at least so many doublings apart; a step's column varies at least so much.
APART, VARIES = 1.2, 0.04
#: Largest power of two a power of x is taken to: keeps every value finite.
MOST_LOG2 = 400.0


class Column(NamedTuple):
    """One column, as a row: its kind, location and width or exponent and centre in log2 x."""

    kind: Literal["one", "step", "capacity", "power"]
    first: float = 0.0
    second: float = 0.0


def values(columns: Sequence[Column], u: np.ndarray) -> np.ndarray:
    """Return the columns at ``u``: an array of one more dimension, the columns last."""
    u = np.asarray(u, dtype=float)[..., None]
    step = np.array([c.kind == "step" for c in columns])
    first = np.array([c.first for c in columns])
    second = np.array([c.second for c in columns])
    out = np.ones((*u.shape[:-1], len(columns)))
    if step.any():
        out[..., step] = 0.5 + 0.5 * np.tanh((u - first[step]) / (2.0 * second[step]))
    capacity = np.array([c.kind == "capacity" for c in columns])
    if capacity.any():
        out[..., capacity] = 1.0 - np.exp2(np.minimum(first[capacity] - u, 0.0))
    power = np.array([c.kind == "power" for c in columns])
    if power.any():
        exponent = first[power] * (u - second[power])
        out[..., power] = np.exp2(np.clip(exponent, -MOST_LOG2, MOST_LOG2))
    return out


@dataclass(frozen=True)
class Designs:
    """Columns at hand and the designs made of them, one in each row.

    which, used: (designs, MOST_COLUMNS), numbers of columns, and which of these count; family: the
    name of each design; prior: logarithm of the prior weight of each.
    """

    columns: list[Column]
    which: np.ndarray
    used: np.ndarray
    family: np.ndarray
    prior: np.ndarray

    def some(self, kept: np.ndarray) -> Designs:
        """Return the designs that a mask keeps."""
        return Designs(
            self.columns, self.which[kept], self.used[kept], self.family[kept], self.prior[kept]
        )


def designs(u: np.ndarray, v: np.ndarray) -> Designs:
    """Return the designs that points at ``u`` = log2 x and ``v`` = log2 cost can tell apart."""
    low, high = float(u.min()), float(u.max())
    columns = [Column("one")]
    of: dict[str, list[tuple[int, ...]]] = {CONSTANT: [(0,)]}
    weight: dict[str, float] = {}
    if high - low > 0.05 and len(np.unique(np.round(u, 2))) > 1:

        def added(more: Sequence[Column]) -> range:
            columns.extend(more)
            return range(len(columns) - len(more), len(columns))

        mid, each = (low + high) / 2, POWER_EACH / (high - low)
        weight[POWER] = log(min(1.0, each / POWER_RANGE))
        exponents = _slope(u, v) + each * (np.arange(POWERS) - POWERS // 2)
        of[POWER] = [(i,) for i in added([Column("power", float(p), mid) for p in exponents])]
        of[OVERHEAD] = [(0, i) for i in added([Column("power", p, low) for p in OVERHEADS])]
        of[STEP] = [(0, i) for i in added(_steps(u, low, high, WIDTHS, 1))]
        if len(np.unique(np.round(u, 1))) > 3:  # as many columns as points meet any of them
            pairs = added(_steps(u, low, high, PAIR_WIDTHS, PAIR_EACH))
            of[TWO_STEPS] = [
                (0, i, j)
                for i in pairs
                for j in pairs
                if columns[j].first - columns[i].first >= APART
            ]
    return _designs(columns, {name: some for name, some in of.items() if some}, weight)


def _slope(u: np.ndarray, v: np.ndarray) -> float:
    """Return the median slope of all pairs of points (Theil and Sen's)."""
    i, j = np.triu_indices(len(u), 1)
    apart = np.abs(u[i] - u[j]) > 0.02
    return float(np.median((v[i] - v[j])[apart] / (u[i] - u[j])[apart])) if apart.any() else 0.0


def _steps(
    u: np.ndarray, low: float, high: float, widths: Sequence[float], every: int
) -> list[Column]:
    """Return the steps that change between the points."""
    count = int(min(MOST_LOCATIONS, (high - low + 2 * BEYOND) / EACH + 1)) // every
    where = np.linspace(low - BEYOND, high + BEYOND, max(count, 4))
    found = [Column("step" if w else "capacity", float(at), w) for w in widths for at in where]
    table = values(found, np.sort(u))
    varies = table[-1] - table[0] > VARIES
    # between two neighbouring points all narrow steps are the same to the points; all are kept,
    # because the predictions between them differ
    return [c for c, v in zip(found, varies, strict=True) if v]


def _designs(
    columns: list[Column], of: dict[str, list[tuple[int, ...]]], weight: dict[str, float]
) -> Designs:
    """Return designs by family; a family's weight is shared out equally, or as given."""
    rows = [row for some in of.values() for row in some]
    family = np.repeat(list(of), [len(some) for some in of.values()])
    each = {name: PRIOR[name] + weight.get(name, -log(len(some))) for name, some in of.items()}
    total = np.logaddexp.reduce([PRIOR[name] for name in of])
    place = np.arange(MOST_COLUMNS)
    used = place < np.array([len(row) for row in rows])[:, None]
    which = np.zeros(used.shape, dtype=np.int64)
    which[used] = [i for row in rows for i in row]
    return Designs(columns, which, used, family, np.array([each[f] for f in family]) - total)
