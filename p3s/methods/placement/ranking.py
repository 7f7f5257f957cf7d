"""How well predicted times of phases or placements agree with what was measured.

``rcc`` counts a pair of equal values as wrong (Papadopoulou 2017). Without ties it is
(1 + Kendall's tau) / 2, so 0.5 is chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from p3s.base.arrays import Floats

Values = Sequence[float] | npt.NDArray[np.floating]


@dataclass(frozen=True)
class Agreement:
    """How far predictions are from what was measured, as the sources say it.

    ``mmre``: mean of the relative errors, signs left out. ``log_median``: median of how far the
    logarithms are apart (too small a prediction is not flattered). ``within``: share with an error
    of at most 25 %. ``r2``: share of the variance; below 0 the mean is better. ``rcc``: share of
    pairs in the right order. NaN where there is nothing to say.
    """

    count: int
    mmre: float
    log_median: float
    within: float
    r2: float
    rcc: float

    @property
    def score(self) -> float:
        """What subsets are ranked by: R^2 x RCC."""
        return self.r2 * self.rcc


def agreement(measured: Values, predicted: Values) -> Agreement:
    """Return how far predictions are off; all measured values are above 0."""
    t, p = _pair(measured, predicted)
    if not len(t):
        return Agreement(0, *(float("nan"),) * 5)
    error = np.abs(p - t) / t
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.abs(np.log(p / t))
    return Agreement(
        len(t),
        float(error.mean()),
        float(np.median(np.where(np.isnan(logs), np.inf, logs))),
        float((error <= 0.25).mean()),
        r_squared(t, p),
        rcc(t, p),
    )


def r_squared(measured: Values, predicted: Values) -> float:
    """Return the share of the variance that predictions explain, NaN where there is none."""
    t, p = _pair(measured, predicted)
    spread = float(((t - t.mean()) ** 2).sum()) if len(t) else 0.0
    return 1.0 - float(((t - p) ** 2).sum()) / spread if spread > 0 else float("nan")


def rcc(measured: Values, predicted: Values) -> float:
    """Return the share of pairs in the right order; a tie on either side is not."""
    t, p = _pair(measured, predicted)
    right = np.sign(t[:, None] - t) * np.sign(p[:, None] - p) > 0
    pairs = np.tri(len(t), k=-1, dtype=bool)
    return float(right[pairs].mean()) if pairs.any() else float("nan")


def _pair(measured: Values, predicted: Values) -> tuple[Floats, Floats]:
    t, p = (np.asarray(x, dtype=np.float64) for x in (measured, predicted))
    if t.shape != p.shape or t.ndim != 1:
        raise ValueError(f"{t.shape} measured values and {p.shape} predicted ones")
    return t, p
