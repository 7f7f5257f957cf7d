"""Times of phases as lines over products of features, of several regimes (LinReg-MV).

Short, medium and long messages follow different lines, so features have limits at which the line
changes. Lines are fitted so that rows far off them count little (Tukey's bisquare). Source:
Papadopoulou 2017, sections 3.5, 4.2 and 5.2; there limits were found by eye.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from p3s.base.arrays import Bools, Floats, Ints
from p3s.base.errors import P3SError
from p3s.methods.placement.lines import Columns, Line, Product, design

#: Powers of x and of log2 x.
Term = tuple[float, float]

BASIS: tuple[Term, ...] = ((0, 0), (1, 0), (2, 0), (3, 0), (0, 1), (0, 2), (0, 3), (0.5, 0))
PRODUCTS: tuple[Term, ...] = tuple(
    (a[0] + b[0], a[1] + b[1]) for a, b in itertools.combinations_with_replacement(BASIS, 2)
)
MODELS: tuple[tuple[int, ...], ...] = tuple(
    chosen for size in (1, 2, 3) for chosen in itertools.combinations(range(len(PRODUCTS)), size)
)
#: Singular values below this share of the largest are none: the terms are the same.
_SAME = 1e-10


@dataclass(frozen=True)
class OneFeature:
    """A model of one feature: seconds = ``constant`` + sum of coefficient x term.

    ``terms``: powers of the feature and of its log2.
    """

    feature: str
    constant: float
    terms: tuple[Term, ...]
    coefficients: tuple[float, ...]

    def seconds(self, x: Floats) -> Floats:
        """Return the times at some values of the feature; below 0 where the line is."""
        found = np.full(len(x), self.constant)
        for term, coefficient in zip(self.terms, self.coefficients, strict=True):
            found += coefficient * _values(term, np.asarray(x, dtype=np.float64))
        return found


def pearson(columns: Floats, seconds: Floats) -> Floats:
    """Return how far each column and the times follow one line, -1 to 1; 0 for a constant."""
    x, t = columns - columns.mean(axis=0), seconds - seconds.mean()
    spread = np.sqrt((x**2).sum(axis=0) * (t**2).sum())
    found = (x * t[:, None]).sum(axis=0) / np.where(spread > 0, spread, 1.0)
    return np.asarray(np.where(spread > 0, found, 0.0), dtype=np.float64)


def fit_one_feature(
    names: Sequence[str], columns: Floats, seconds: Floats, *, relative: bool = True
) -> OneFeature:
    """Return the best of all 7,806 models, of the feature that follows times best.

    The best has the least squares, where each further term has to pay for itself (Schwarz's
    criterion; the source names none). ``relative``: squares of relative errors, else of seconds,
    which only the longest phases decide. Errors: P3SError with fewer than five rows.
    """
    if len(seconds) < 5:
        raise P3SError(f"{len(seconds)} phases are too few for a model; measure five or more")
    which = int(np.abs(pearson(columns, seconds)).argmax())
    x = columns[:, which]
    weight = 1.0 / seconds if relative else np.ones(len(seconds))
    design = np.stack([np.ones(len(x)), *(_values(term, x) for term in PRODUCTS)], axis=1)
    design *= weight[:, None]
    size = np.linalg.norm(design, axis=0)
    design /= np.where(size > 0, size, 1.0)
    chosen = MODELS[_best(design, seconds * weight)]
    picked = [0, *(1 + k for k in chosen)]
    found = np.linalg.lstsq(design[:, picked], seconds * weight, rcond=_SAME)[0]
    found = found / np.where(size[picked] > 0, size[picked], 1.0)
    terms = tuple(PRODUCTS[k] for k in chosen)
    return OneFeature(names[which], float(found[0]), terms, tuple(map(float, found[1:])))


def _values(term: Term, x: Floats) -> Floats:
    """Return a term; log2 of what is below 1 is 0, as nothing takes no time."""
    return np.asarray(x ** term[0] * np.log2(np.maximum(x, 1.0)) ** term[1], dtype=np.float64)


def _best(design: Floats, wanted: Floats) -> int:
    """Return the best model; of equal ones the first, which has fewer terms.

    What all models see of the rows is in the triangle of one decomposition, 38 rows at most.
    """
    rows: Floats = np.asarray(np.linalg.qr(np.column_stack([design, wanted]), mode="r"))
    whole, number = float((rows[:, -1] ** 2).sum()), len(wanted)
    found = []
    for size in (1, 2, 3):
        models = np.array([[0, *(1 + k for k in m)] for m in MODELS if len(m) == size])
        left = np.maximum(whole - _explained(rows, models), 1e-18 * whole)
        found.append(number * np.log(left) + size * np.log(number))
    costs = np.concatenate(found)
    return int(np.flatnonzero(costs <= costs.min() + 1e-6)[0])


def _explained(rows: Floats, models: Ints) -> Floats:
    """Return how much of the squares each model explains."""
    u, s, _ = np.linalg.svd(rows[:, models].transpose(1, 0, 2), full_matrices=False)
    along = np.einsum("mrk,r->mk", u, rows[:, -1])
    return np.asarray((along**2 * (s > _SAME * s[:, :1])).sum(axis=1), dtype=np.float64)


#: Residuals beyond so many standard deviations do not count (95 % as good where none is off).
_TUKEY = 4.685
#: Median of the absolute deviations of a normal distribution.
_MAD = 0.6745
_ROUNDS = 100
#: Rows that a regime needs for each of its terms.
_ROWS_OF_TERM = 4
_TERMS = 6
#: By how much a further term, or limit, has to make errors smaller.
_GAIN = 0.97


@dataclass(frozen=True)
class Regimes:
    """One model up to a limit of a feature, another one above it."""

    feature: str
    limit: float
    below: Line | Regimes
    above: Line | Regimes

    def seconds(self, columns: Columns) -> Floats:
        """Return the times; below 0 where a line is."""
        low = np.asarray(columns[self.feature]) <= self.limit
        return np.where(low, self.below.seconds(columns), self.above.seconds(columns))


def clamped(seconds: Floats, least: float = 0.0) -> tuple[Floats, Bools]:
    """Return times that are not below ``least``, and which ones were."""
    low = seconds < least
    return np.where(low, least, seconds), low


def robust(x: Floats, y: Floats) -> Floats:
    """Return coefficients that rows far off do not move (iterated bisquare weights).

    Columns may be of any size; equal ones share their coefficient.
    """
    size = np.linalg.norm(x, axis=0)
    size[size == 0] = 1.0
    scaled = x / size
    found = np.linalg.lstsq(scaled, y, rcond=None)[0]
    orthogonal = np.linalg.qr(scaled)[0]
    pull = np.sqrt(np.maximum(1.0 - (orthogonal**2).sum(axis=1), 1e-9))
    for _ in range(_ROUNDS):
        off = (y - scaled @ found) / pull
        spread = float(np.median(np.abs(off))) / _MAD
        if not spread > 1e-12 * float(np.abs(y).max()):
            break
        weight = np.maximum(1.0 - (off / (_TUKEY * spread)) ** 2, 0.0)
        weight[np.abs(off) > _TUKEY * spread] = 0.0
        last = found
        found = np.linalg.lstsq(scaled * weight[:, None], y * weight, rcond=None)[0]
        if np.abs(found - last).max() <= 1e-8 * np.abs(last).max():
            break
    return np.asarray(found / size, dtype=np.float64)


def fit_line(products: Sequence[Product], columns: Columns, seconds: Floats) -> Line:
    """Return the line of these products, robust, with relative errors made small."""
    x = design(products, columns) / seconds[:, None]
    return Line(tuple(products), tuple(map(float, robust(x, np.ones(len(seconds))))))


def best_limit(
    feature: str, products: Sequence[Product], columns: Columns, seconds: Floats
) -> tuple[float, float] | None:
    """Return the power of two that two lines below and above a feature fit best, and how well.

    How well: median of the relative errors. None where no limit leaves rows enough on both sides.
    """
    x = np.asarray(columns[feature], dtype=np.float64)
    least = _ROWS_OF_TERM * len(products)
    found: list[tuple[float, float]] = []
    for power in range(int(np.ceil(np.log2(max(float(x.max()), 1.0)))) + 1):
        low = x <= 2.0**power
        if min(low.sum(), (~low).sum()) < least:
            continue
        off = np.empty(len(x))
        for rows in (low, ~low):
            part = {name: column[rows] for name, column in columns.items()}
            line = fit_line(products, part, seconds[rows])
            off[rows] = np.abs(line.seconds(part) / seconds[rows] - 1)
        found.append((_off(off), 2.0**power))
    if not found:
        return None
    off_by, limit = min(found)
    return limit, off_by


def fit_regimes(columns: Columns, seconds: Floats, *, depth: int = 2) -> Line | Regimes:
    """Return lines of the features that follow times best, and limits where these make it better.

    Products of two of the four best features are tried, too, each kept if errors become 3 %
    smaller; ``depth``: limits one after the other. Errors: P3SError with too few rows.
    """
    if len(seconds) < 2 * _ROWS_OF_TERM:
        raise P3SError(
            f"{len(seconds)} phases are too few for a model; measure {2 * _ROWS_OF_TERM} or more"
        )
    names = _varying(columns)
    line = _grown(names, columns, seconds)
    off = _off(np.abs(line.seconds(columns) / seconds - 1))
    simple: list[Product] = [(), *((name,) for name in names[:1])]
    limits = [
        (found[1], found[0], name)
        for name in names[:3]
        if depth and (found := best_limit(name, simple, columns, seconds))
    ]
    if not limits:
        return line
    _, limit, feature = min(limits)
    low = columns[feature] <= limit
    parts = [
        fit_regimes({k: c[rows] for k, c in columns.items()}, seconds[rows], depth=depth - 1)
        for rows in (low, ~low)
    ]
    split = Regimes(feature, limit, parts[0], parts[1])
    better = _off(np.abs(split.seconds(columns) / seconds - 1)) < _GAIN * off
    return split if better else line


def _varying(columns: Columns) -> list[str]:
    """Return the features that are not constant."""
    return [name for name, column in columns.items() if np.ptp(column) > 0]


def _grown(names: Sequence[str], columns: Columns, seconds: Floats) -> Line:
    """Return a line to which terms are added as long as errors become smaller."""
    table = np.stack([columns[name] for name in names], axis=1) if names else np.empty((0, 0))
    order = np.argsort(-np.abs(pearson(table, seconds))).tolist() if names else []
    best = [names[k] for k in order]
    tried: list[Product] = [(name,) for name in best[:8]]
    tried += list(itertools.combinations(best[:4], 2))
    chosen: list[Product] = [()]
    line = fit_line(chosen, columns, seconds)
    off = _off(np.abs(line.seconds(columns) / seconds - 1))
    while len(chosen) < min(_TERMS, len(seconds) // _ROWS_OF_TERM):
        lines = [fit_line([*chosen, p], columns, seconds) for p in tried if p not in chosen]
        errors = [_off(np.abs(x.seconds(columns) / seconds - 1)) for x in lines]
        if not errors or min(errors) >= _GAIN * off:
            break
        line, off = lines[int(np.argmin(errors))], min(errors)
        chosen = list(line.products)
    return line


def _off(errors: Floats) -> float:
    """Return how far off rows are, whatever the few do that are far off."""
    return float(np.minimum(errors, 1.0).mean())
