"""Shapes of the cost of a unit of work over the working set: what a machine's memory makes of it.

Every curve is a sum of columns with coefficients that are not negative: one, steps that rise by
one (logistic in log2 x, or "capacity": what misses a cache that holds a part of randomly accessed
data, 1 - size/x), powers of x, what fixed overheads per iteration add. A design is the choice
of one to four columns. x is the work of a rank per iteration of the phase (thesis, chapter 6: with
more processes the same code finds its data in a faster memory); u = log2 x.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import log
from typing import Literal, NamedTuple

import numpy as np

#: Families with the logarithm of their prior weight, simplest first.
CONSTANT, OVERHEAD, POWER, STEP, STEP_OVERHEAD, TWO_STEPS, THREE_STEPS = (
    "constant",
    "overhead",
    "power",
    "step",
    "step+overhead",
    "two steps",
    "three steps",
)
PRIOR = {
    CONSTANT: log(0.27),
    OVERHEAD: log(0.10),
    POWER: log(0.07),
    STEP: log(0.30),
    STEP_OVERHEAD: log(0.10),
    TWO_STEPS: log(0.13),
    THREE_STEPS: log(0.03),
}
#: Points of so many different x can tell three steps; of how many designs of two they are made.
DISTINCT_FOR_THREE, MADE_OF, THREE_REFINED = 7, 12, 6
#: Widths of steps in doublings of x (a logistic rises from 12 % to 88 % over four of them).
#: Width 0 stands for a capacity. Two steps have any two of the second, and fewer places.
WIDTHS = (0.12, 0.3, 0.7, 1.4, 0.0)
PAIR_WIDTHS, PAIR_EACH = (0.2, 0.65, 0.0), 2
#: Exponents of pure powers: how many around the slope of the points, apart by how much between the
#: first and last point, and the width of the range in which all are as likely beforehand.
POWERS, POWER_EACH, POWER_RANGE = 33, 0.006, 1.2
#: Exponents of what overheads add to a constant: per iteration, per surface.
OVERHEADS = (-1.0, -0.5)
#: Locations of steps: distance between them in doublings, how far outside the points they may be.
EACH, BEYOND, MOST_LOCATIONS = 0.3, 1.0, 36
#: Likely steps are looked at again in between: parts of the distance of places, and factors on
#: widths that are apart by so much for one step and for two (their cube root in the second look).
BETWEEN, BETWEEN_WIDTHS, BETWEEN_WIDTHS_PAIR = (-1 / 3, 0.0, 1 / 3), 1.32, 1.6
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
    """Columns at hand and the designs made of them, grouped by their number of columns.

    of: per number of columns k an integer array (designs, k) of column numbers; family: the name
    of each; prior: logarithm of the prior weight of each. spacing: distance in doublings of the
    places at which one step was tried, and two.
    """

    columns: list[Column]
    of: dict[int, np.ndarray]
    family: dict[int, np.ndarray]
    prior: dict[int, np.ndarray]
    spacing: tuple[float, float] = (EACH, EACH * PAIR_EACH)


def designs(u: np.ndarray, v: np.ndarray) -> Designs:
    """Return the designs that points at ``u`` = log2 x and ``v`` = log2 cost can tell apart."""
    low, high = float(u.min()), float(u.max())
    columns = [Column("one")]
    names: list[tuple[str, tuple[int, ...]]] = [(CONSTANT, (0,))]
    weight = {CONSTANT: 0.0}
    spacing = spacing_pairs = EACH
    if high - low > 0.05 and len(np.unique(np.round(u, 2))) > 1:
        mid, each = (low + high) / 2, POWER_EACH / (high - low)
        weight[POWER] = log(min(1.0, each / POWER_RANGE))
        for p in _slope(u, v) + each * (np.arange(POWERS) - POWERS // 2):
            names.append((POWER, (len(columns),)))
            columns.append(Column("power", float(p), mid))
        over = []
        for p in OVERHEADS:
            over.append(len(columns))
            columns.append(Column("power", p, low))
        names += [(OVERHEAD, (0, i)) for i in over]
        single, spacing = _steps(u, low, high, WIDTHS, 1)
        names += [(STEP, (0, len(columns) + i)) for i in range(len(single))]
        if len(np.unique(np.round(u, 1))) > 3:  # as many columns as points meet any of them
            names += [(STEP_OVERHEAD, (0, len(columns) + i, over[0])) for i in range(len(single))]
        columns += single
        if len(np.unique(np.round(u, 1))) > 3:
            first = len(columns)
            pairs, spacing_pairs = _steps(u, low, high, PAIR_WIDTHS, PAIR_EACH)
            columns += pairs
            where = np.array([c.first for c in columns[first:]])
            i, j = np.nonzero(where[None, :] - where[:, None] >= APART)
            names += [
                (TWO_STEPS, (0, int(a), int(b))) for a, b in zip(i + first, j + first, strict=True)
            ]
    return _grouped(columns, names, weight, (spacing, spacing_pairs))


def refined(found: Designs, likely: dict[int, np.ndarray], look: int = 0) -> Designs:
    """Return the designs with the steps of the ``likely`` ones at places and widths in between.

    likely: by number of columns, numbers of designs. Each is replaced by those around it, which
    share its weight. look: 0 for the first time, 1 for the second (three times as close).
    """
    columns = list(found.columns)
    number = {c: i for i, c in enumerate(columns)}
    closer = 3.0**-look

    def around(j: int, shift: float, factor: float) -> int:
        column = Column(
            columns[j].kind,
            round(columns[j].first + shift, 6),
            round(columns[j].second * factor, 6),
        )
        if column not in number:
            number[column] = len(columns)
            columns.append(column)
        return number[column]

    out_of, out_family, out_prior = {}, {}, {}
    for k, which in found.of.items():
        keep = np.ones(len(which), dtype=bool)
        rows: list[tuple[int, ...]] = []
        family: list[str] = []
        prior: list[float] = []
        for i in likely.get(k, ())[: THREE_REFINED if k > 3 else None]:
            steps = [int(j) for j in which[i] if columns[j].kind in ("step", "capacity")]
            if not steps:
                continue
            keep[i] = False
            each = found.spacing[min(len(steps), 2) - 1] * closer
            w = (BETWEEN_WIDTHS if len(steps) == 1 else BETWEEN_WIDTHS_PAIR) ** closer
            none = len(steps) > 2 or all(columns[j].kind == "capacity" for j in steps)
            factors = (1.0,) if none else (1.0 / w, 1.0, w)
            near = {
                j: {(a, w): around(j, a * each, w) for a in BETWEEN for w in factors} for j in steps
            }
            new = [
                tuple(near[j][a, w] if j in near else j for j, a in zip(row, at, strict=True))
                for row in [which[i].tolist()]
                for w in factors
                for at in product(*(BETWEEN if j in near else (0.0,) for j in row))
            ]
            rows += new
            family += [str(found.family[k][i])] * len(new)
            prior += [float(found.prior[k][i]) - log(len(new))] * len(new)
        out_of[k] = np.concatenate([which[keep], np.array(rows, dtype=np.int64).reshape(-1, k)])
        out_family[k] = np.concatenate([found.family[k][keep], np.array(family, dtype="<U32")])
        out_prior[k] = np.concatenate([found.prior[k][keep], np.array(prior)])
    return Designs(columns, out_of, out_family, out_prior, found.spacing)


def with_three_steps(found: Designs, likely: dict[int, np.ndarray], u: np.ndarray) -> Designs:
    """Return the designs and those of three steps that are made of the ``likely`` ones of two.

    likely: as in :func:`refined`. Their prior counts all designs of three steps, tried or not.
    """
    if len(np.unique(np.round(u, 1))) < DISTINCT_FOR_THREE or 3 not in likely:
        return found
    two = [i for i in likely[3].tolist() if found.family[3][i] == TWO_STEPS][:MADE_OF]
    pool = np.unique(found.of[3][found.family[3] == TWO_STEPS][:, 1:])
    where = np.array([found.columns[j].first for j in pool])
    rows = set()
    for i in two:
        one, other = found.of[3][i][1:].tolist()
        apart = (
            np.minimum(
                np.abs(where - found.columns[one].first), np.abs(where - found.columns[other].first)
            )
            >= APART
        )
        rows |= {
            (0, *sorted((one, other, int(j)), key=lambda j: found.columns[j].first))
            for j in pool[apart]
        }
    if not rows:
        return found
    number = np.count_nonzero(found.family[3] == TWO_STEPS) * max(1.0, len(pool) / 3)
    return Designs(
        found.columns,
        {**found.of, 4: np.array(sorted(rows), dtype=np.int64)},
        {**found.family, 4: np.full(len(rows), THREE_STEPS, dtype="<U32")},
        {**found.prior, 4: np.full(len(rows), PRIOR[THREE_STEPS] - log(number))},
        found.spacing,
    )


def _slope(u: np.ndarray, v: np.ndarray) -> float:
    """Return the median slope of all pairs of points (Theil and Sen's)."""
    i, j = np.triu_indices(len(u), 1)
    apart = np.abs(u[i] - u[j]) > 0.02
    return float(np.median((v[i] - v[j])[apart] / (u[i] - u[j])[apart])) if apart.any() else 0.0


def _steps(
    u: np.ndarray, low: float, high: float, widths: Sequence[float], every: int
) -> tuple[list[Column], float]:
    """Return the steps that change between the points, and the distance of their places."""
    count = int(min(MOST_LOCATIONS, (high - low + 2 * BEYOND) / EACH + 1)) // every
    where = np.linspace(low - BEYOND, high + BEYOND, max(count, 4))
    found = [Column("step" if w else "capacity", float(at), w) for w in widths for at in where]
    table = values(found, np.sort(u))
    varies = table[-1] - table[0] > VARIES
    # between two neighbouring points all narrow steps are the same to the points; all are kept,
    # because the predictions between them differ
    return [c for c, v in zip(found, varies, strict=True) if v], float(where[1] - where[0])


def _grouped(
    columns: list[Column],
    names: list[tuple[str, tuple[int, ...]]],
    weight: dict[str, float],
    spacing: tuple[float, float],
) -> Designs:
    """Group by number of columns; a family's weight is shared out equally, or as given."""
    of: dict[int, np.ndarray] = {}
    family: dict[int, np.ndarray] = {}
    prior: dict[int, np.ndarray] = {}
    number: dict[str, int] = {}
    for name, _ in names:
        number[name] = number.get(name, 0) + 1
    total = np.logaddexp.reduce([PRIOR[name] for name in number])
    for k in (1, 2, 3):
        chosen = [(name, which) for name, which in names if len(which) == k]
        if chosen:
            of[k] = np.array([which for _, which in chosen], dtype=np.int64)
            family[k] = np.array([name for name, _ in chosen])
            prior[k] = np.array(
                [PRIOR[n] + weight.get(n, -log(number[n])) - total for n, _ in chosen]
            )
    return Designs(columns, of, family, prior, spacing)
