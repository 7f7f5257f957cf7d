"""Times of phases as a line over terms of one feature (LinReg-SV of Papadopoulou 2017).

The terms are products of two of 1, x, x^2, x^3, log2 x, log2^2 x, log2^3 x and sqrt x; a model has
one to three of them and a constant. There are 36 products and 7,806 models; some are the same
number written twice.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from p3s.base.errors import P3SError
from p3s.machine.topology.units import Floats, Ints

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
