"""Times of phases as lines over products of features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from p3s.base.arrays import Floats
from p3s.laws.statistics import nonnegative

#: A product of features; of none it is 1.
Product = tuple[str, ...]
Columns = Mapping[str, Floats]


@dataclass(frozen=True)
class Line:
    """Seconds as a sum of coefficient x product of features."""

    products: tuple[Product, ...]
    coefficients: tuple[float, ...]

    def seconds(self, columns: Columns) -> Floats:
        """Return the times; below 0 where the line is."""
        found = design(self.products, columns) @ np.array(self.coefficients)
        return np.asarray(found, dtype=np.float64)


def design(products: Sequence[Product], columns: Columns) -> Floats:
    """Return the value of each product in each row, shape (rows, products)."""
    rows = len(next(iter(columns.values())))
    found = [np.prod([columns[name] for name in p] or [np.ones(rows)], axis=0) for p in products]
    return np.stack(found, axis=1).astype(np.float64)


def fit_nonnegative(products: Sequence[Product], columns: Columns, seconds: Floats) -> Line:
    """Return the line of these products without negative coefficients, relative errors small.

    It grows with what it is of, so that it may be followed beyond the rows it was fitted to.
    """
    found = nonnegative(design(products, columns), seconds, 1.0 / seconds)
    return Line(tuple(products), tuple(map(float, found)))
