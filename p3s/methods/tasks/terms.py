"""Sums of powers of workload, workers and threads: bytes, instructions, misses, seconds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


class Term(NamedTuple):
    """coefficient * W^workload * K^workers * T^threads."""

    coefficient: float
    workload: float = 0.0
    workers: float = 0.0
    threads: float = 0.0


@dataclass(frozen=True)
class Sum:
    """A sum of terms; none: 0."""

    terms: tuple[Term, ...] = ()

    def at(self, workload: Any, workers: Any = 1.0, threads: Any = 1.0) -> Floats:
        """Return the value; the three broadcast."""
        w, k, t = np.broadcast_arrays(*(np.asarray(x, float) for x in (workload, workers, threads)))
        total = np.zeros(w.shape)
        for a, i, j, m in self.terms:
            total = total + a * w**i * k**j * t**m
        return total


def sum_of(*terms: Iterable[float]) -> Sum:
    """Return the sum of (coefficient, power of W, of K, of T); powers left out are 0."""
    return Sum(tuple(Term(*term) for term in terms))
