"""Which part of the time of misses instructions do not hide: a regression of measured penalties.

Source: A. Castellanos Carrazana, UAB 2014, eq. 3.6 and 3.7. Its factors run over many orders of
magnitude from run to run (figures 3.7, 3.8) because nothing says how well they are known; here each
has an interval, and what the penalties cannot tell is marked.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from p3s.base.errors import P3SError
from p3s.methods.tasks.terms import Floats

#: A factor cannot be told where its term is less than this share of the penalty.
LEAST_SHARE = 0.05
#: Confidence of the intervals.
CONFIDENCE = 0.90


@dataclass(frozen=True)
class Factor:
    """A fitted factor with its interval (90 %); share: of its term in the penalty, the median.

    identifiable: the penalties tell it. physical: it lies between 0 and 1, as a share must.
    """

    value: float
    low: float
    high: float
    share: float
    identifiable: bool

    @property
    def physical(self) -> bool:
        """Return whether it can be a share of the penalty that is not hidden."""
        return 0.0 <= self.value <= 1.0


@dataclass(frozen=True)
class Overlap:
    """Factors of the penalties of cache and TLB misses, and the constant of eq. 3.7 in seconds.

    rms: relative error. points: how many penalties.
    """

    cache: Factor
    tlb: Factor
    constant: float
    rms: float
    points: int

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return what speaks against the factors: codes with the name of the factor."""
        return tuple(
            f"{code}:{name}"
            for name, factor in (("cache", self.cache), ("tlb", self.tlb))
            for code, wrong in (
                ("not-identifiable", not factor.identifiable),
                ("outside-0-1", not factor.physical),
            )
            if wrong
        )


def penalty(seconds: npt.ArrayLike, instructions_s: npt.ArrayLike) -> Floats:
    """Return the measured time of a region beyond that of its instructions (eq. 3.6), in s."""
    return np.asarray(seconds, dtype=np.float64) - np.asarray(instructions_s, dtype=np.float64)


def fit_overlap(
    penalties: npt.ArrayLike,
    cache_misses: npt.ArrayLike,
    tlb_misses: npt.ArrayLike,
    *,
    memory_s: float,
    tlb_s: float,
) -> Overlap:
    """Return the factors of eq. 3.7 with the least relative errors of the penalties.

    P3SError where there are fewer than five penalties, or one is 0: then there is none to explain.
    """
    from scipy.stats import t as student

    y = np.asarray(penalties, dtype=np.float64)
    if len(y) < 5 or not (np.isfinite(y) & (y != 0)).all():
        raise P3SError(
            f"{len(y)} penalties of misses: five or more that are not 0 are needed; sample more"
        )
    cache = np.asarray(cache_misses, dtype=np.float64) * memory_s
    tlb = np.asarray(tlb_misses, dtype=np.float64) * tlb_s
    columns = np.stack([cache, tlb, np.ones(len(y))], axis=-1)
    rows = columns / np.abs(y)[:, None]
    scale = np.linalg.norm(rows, axis=0)
    scale[scale == 0] = 1.0
    found, _, rank, _ = np.linalg.lstsq(rows / scale, np.sign(y), rcond=1e-8)
    misfit = (rows / scale) @ found - np.sign(y)
    free = max(len(y) - rank, 1)
    spread = np.linalg.pinv((rows / scale).T @ (rows / scale), rcond=1e-12)
    error = np.sqrt(np.diag(spread) * (misfit @ misfit) / free) / scale
    values = found / scale
    wide = float(student.ppf((1 + CONFIDENCE) / 2, free)) * error

    def factor(i: int) -> Factor:
        share = float(np.median(np.abs(values[i] * columns[:, i] / y)))
        told = rank == 3 and share >= LEAST_SHARE
        low, high = float(values[i] - wide[i]), float(values[i] + wide[i])
        return Factor(float(values[i]), low, high, share, told)

    rms = float(np.sqrt(misfit @ misfit / len(y)))
    return Overlap(factor(0), factor(1), float(values[2]), rms, len(y))
