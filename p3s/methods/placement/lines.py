"""Times of phases as lines over products of features."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement

import numpy as np

from p3s.base.arrays import Floats
from p3s.laws.statistics import nonnegative

#: A product of features; of none it is 1. Beside NAME also "log2 NAME", "sqrt NAME", and where a
#: feature is in a range, 1, elsewhere 0: "NAME<=4096", "NAME>4096".
Product = tuple[str, ...]
Columns = Mapping[str, Floats]


@dataclass(frozen=True)
class Line:
    """Seconds as a sum of coefficient x product of features."""

    products: tuple[Product, ...]
    coefficients: tuple[float, ...]

    def seconds(self, columns: Columns) -> Floats:
        """Return the times; below 0 where the line is."""
        values = design(self.products, columns) @ np.array(self.coefficients)
        return np.asarray(values, dtype=np.float64)


_FACTOR = re.compile(r"(log2 |sqrt )?([^<>]+)(?:(<=|>)(.+))?")


def feature_of(factor: str) -> str:
    """Return the feature that a factor of a product is made of."""
    match = _FACTOR.fullmatch(factor)
    return match[2] if match else factor


def _column(columns: Columns, factor: str) -> Floats:
    match = _FACTOR.fullmatch(factor)
    assert match is not None, "a factor is never empty"
    values = np.asarray(columns[match[2]], dtype=np.float64)
    if match[3]:
        below = values <= float(match[4])
        return (below if match[3] == "<=" else ~below).astype(np.float64)
    if match[1]:
        positive = np.maximum(values, 1.0)
        return np.asarray(np.log2(positive) if match[1] == "log2 " else np.sqrt(positive))
    return values


def design(products: Sequence[Product], columns: Columns) -> Floats:
    """Return the value of each product in each row, shape (rows, products)."""
    rows = len(next(iter(columns.values())))
    columns_of = [
        np.prod([_column(columns, name) for name in p] or [np.ones(rows)], axis=0) for p in products
    ]
    return np.stack(columns_of, axis=1).astype(np.float64)


def fit_nonnegative(products: Sequence[Product], columns: Columns, seconds: Floats) -> Line:
    """Return the line of these products without negative coefficients, relative errors small.

    It grows with what it is of, so that it may be followed beyond the rows it was fitted to.
    """
    coefficients = nonnegative(design(products, columns), seconds, 1.0 / seconds)
    return Line(tuple(products), tuple(map(float, coefficients)))


def fit_single(products: Sequence[Product], columns: Columns, seconds: Floats) -> Line:
    """Return the line of one feature that fits best (LinReg-SV, Papadopoulou 2017, section 3.5).

    Of the feature with the largest Pearson correlation, all 7806 sums of up to three products of
    1, x, x^2, x^3, powers of log2 x up to 3 and sqrt x, and a constant, by least squares.
    products: not used.
    """
    x = max(columns, key=lambda name: _pearson(columns[name], seconds))
    powers = (
        (),
        (x,),
        (x,) * 2,
        (x,) * 3,
        *((f"log2 {x}",) * k for k in (1, 2, 3)),
        (f"sqrt {x}",),
    )
    pairs = [one + other for one, other in combinations_with_replacement(powers, 2)]
    table = design(pairs, columns)
    size = np.abs(table).max(axis=0)
    scaled = np.c_[np.ones(len(seconds)), table / size]
    gram, right, best = scaled.T @ scaled, scaled.T @ seconds, np.inf
    chosen, coefficients = [0], np.zeros(1)
    for number in (1, 2, 3):
        for subset in combinations(range(1, len(pairs) + 1), number):
            at = [0, *subset]
            solution = np.linalg.lstsq(gram[np.ix_(at, at)], right[at], rcond=None)[0]
            missed = float(solution @ gram[np.ix_(at, at)] @ solution - 2 * solution @ right[at])
            if missed < best:
                best, chosen, coefficients = missed, at, solution
    products_chosen = [((), 1.0), *((pairs[k - 1], float(size[k - 1])) for k in chosen[1:])]
    return Line(
        tuple(product for product, _ in products_chosen),
        tuple(
            float(value) / by for value, (_, by) in zip(coefficients, products_chosen, strict=True)
        ),
    )


def _pearson(values: Floats, seconds: Floats) -> float:
    spread = float(values.std() * seconds.std())
    mean = float(((values - values.mean()) * (seconds - seconds.mean())).mean())
    return mean / spread if spread > 0 else 0.0


#: Bisquare: residuals beyond so many robust standard deviations count for nothing (the default of
#: Matlab's LinearModel, which the source used), and how often weights are found anew.
_TUNED, _ROUNDS = 4.685, 20


def fit_robust(products: Sequence[Product], columns: Columns, seconds: Floats) -> Line:
    """Return the line of these products by robust least squares (LinReg-MV, section 4.2 there)."""
    table = design(products, columns)
    size = np.maximum(np.abs(table).max(axis=0), 1e-300)
    weights = np.ones(len(seconds))
    for _ in range(_ROUNDS):
        rows = np.sqrt(weights)[:, None] * table / size
        solution = np.linalg.lstsq(rows, np.sqrt(weights) * seconds, rcond=None)[0]
        residuals = np.abs(seconds - (table / size) @ solution)
        scale = float(np.median(residuals)) / 0.6745
        if scale <= 0:
            break
        weights = np.maximum(1.0 - (residuals / (_TUNED * scale)) ** 2, 0.0) ** 2
    return Line(tuple(products), tuple(map(float, solution / size)))


#: How a line that goes first is fitted, by name.
FITS: Mapping[str, Callable[[Sequence[Product], Columns, Floats], Line]] = {
    "": fit_nonnegative,
    "single": fit_single,
    "robust": fit_robust,
}
