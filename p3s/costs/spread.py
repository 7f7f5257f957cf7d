"""Variability of computation: between the ranks of a run, and between the iterations of a rank.

Who waits for the slowest of N ranks waits for the tail, so both are kept as distributions of the
ratio to the mean. A distribution is a quantile function: straight between the measured levels;
below the first one it goes on straight, never under zero; beyond the last one the excess is
exponential, per e-fold of rarity as steep as the steepest stretch of the upper half that was
measured, and steeper still where the measured mean says that the tail holds more. The mean is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from p3s.base.serialise import from_data
from p3s.laws.statistics import quantiles
from p3s.signature.clock import QUANTILES

#: Segments that occurred less often than this in a run tell nothing about single turns.
LEAST_OCCURRENCES = 10
#: The tail holds at most this share of the mean, whatever the quantiles leave unexplained.
MOST_IN_TAIL = 0.2
#: Points at which integrals over the quantile function are taken.
GRID = 4000
#: Sums of ranks are the least of repeats, which lie closer together than single ones.
MARGIN = 2.0


@dataclass(frozen=True)
class Distribution:
    """Ratios to the mean: levels (ascending, inside 0 and 1), values there, tail per e-fold.

    Made by :meth:`of`, which brings the mean to one.
    """

    levels: tuple[float, ...]
    values: tuple[float, ...]
    tail: float

    @staticmethod
    def of(levels: Sequence[float], values: Sequence[float]) -> Distribution:
        """Return the distribution with these quantiles of the ratio to the (measured) mean."""
        p = np.asarray(levels, dtype=float)
        q = np.maximum.accumulate(np.maximum(np.asarray(values, dtype=float), 0.0))
        if (
            not (
                len(p) == len(q) > 1
                and np.all(np.isfinite(q))
                and p[0] > 0
                and p[-1] < 1
                and np.all(np.diff(p) > 0)
            )
            or q[-1] <= 0
        ):
            return EVEN
        rarity = -np.log1p(-p)
        upper = p >= 0.5
        steep = np.diff(q[upper]) / np.diff(rarity[upper]) if upper.sum() > 1 else np.zeros(1)
        tail = float(max(steep.max(), 0.0))
        share = 1.0 - p[-1]
        missing = 1.0 - Distribution(tuple(p), tuple(q), tail).mean
        if missing > 0:
            tail += min(missing, MOST_IN_TAIL) / share
        mean = Distribution(tuple(p), tuple(q), tail).mean
        return Distribution(
            tuple(float(v) for v in p), tuple(float(v / mean) for v in q), tail / mean
        )

    @cached_property
    def mean(self) -> float:
        """The mean: one but for distributions not made by :meth:`of`."""
        p, q = self._knots
        inside = float((np.diff(p) * (q[1:] + q[:-1]) / 2).sum())
        result: float = inside + (1.0 - p[-1]) * (q[-1] + self.tail)
        return result

    @cached_property
    def deviation(self) -> float:
        """The standard deviation."""
        return float(np.std(self.quantile((np.arange(GRID) + 0.5) / GRID)))

    @cached_property
    def _knots(self) -> tuple[np.ndarray, np.ndarray]:
        p, q = np.array([0.0, *self.levels]), np.array([0.0, *self.values])
        slope = (q[2] - q[1]) / (p[2] - p[1]) if len(p) > 2 else 0.0
        q[0] = max(0.0, q[1] - slope * p[1])
        return p, q

    def quantile(self, p: Any) -> np.ndarray:
        """Return the ratio that a share ``p`` (0 to below 1) of all draws is below."""
        p = np.asarray(p, dtype=float)
        levels, values = self._knots
        result: np.ndarray = np.asarray(np.interp(p, levels, values))
        far = p > levels[-1]
        beyond = np.log((1.0 - levels[-1]) / np.maximum(1.0 - p[far], 1e-300))
        result[far] += self.tail * np.maximum(beyond, 0.0)
        return result

    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...]) -> np.ndarray:
        """Return draws from a distribution with mean one."""
        return self.quantile(rng.random(size))

    def expected_largest(self, n: int) -> float:
        """Return the mean of the largest of ``n`` independent draws."""
        # the largest is below q(p) with probability p**n; the grid is fine where p is close to 1
        middle = (np.arange(GRID) + 0.5) / GRID
        log_p = np.log(middle) / max(n, 1)
        levels, values = self._knots
        beyond = np.log((1.0 - levels[-1]) / np.maximum(-np.expm1(log_p), 1e-300))
        q = np.interp(np.exp(log_p), levels, values) + self.tail * np.maximum(beyond, 0.0)
        return float(q.mean())

    def to_json(self) -> dict[str, Any]:
        """Return the distribution as plain data."""
        return {
            "levels": list(self.levels),
            "values": [float(f"{v:.6g}") for v in self.values],
            "tail": float(f"{self.tail:.6g}"),
        }

    def valid(self) -> None:
        """Raise ValueError where it cannot be a distribution with mean one."""
        p, q = np.array(self.levels), np.array(self.values)
        if not (
            len(p) == len(q) > 0
            and self.tail >= 0
            and np.all(q >= 0)
            and np.all(np.diff(q) >= 0)
            and np.all(np.diff(p) > 0)
            and p[0] > 0
            and p[-1] < 1
            and 0.9 < self.mean < 1.1
        ):
            raise ValueError("a distribution of times does not hold together")


#: No variability at all.
EVEN = Distribution((0.5,), (1.0,), 0.0)


@dataclass(frozen=True)
class Spread:
    """Variability of a phase: ranks, lasting factors of ranks; iterations, single occurrences.

    ranks_seen, rows_seen: how many ranks (over all runs) and segments it was taken from.
    """

    ranks: Distribution = field(default=EVEN, metadata={"always": True})
    turns: Distribution = field(default=EVEN, metadata={"always": True})
    ranks_seen: int = field(default=0, metadata={"always": True})
    rows_seen: int = field(default=0, metadata={"always": True})

    @staticmethod
    def from_json(data: Any) -> Spread:
        """Return the spread from plain data, where no key may be missing."""
        ranks, turns = (from_data(Distribution, data[name]) for name in ("ranks", "turns"))
        return Spread(ranks, turns, int(data["ranks_seen"]), int(data["rows_seen"]))


def between_ranks(time_ns: np.ndarray, expected_ns: np.ndarray, run: np.ndarray) -> Distribution:
    """Return how ranks differ for good: time over what the law says, relative to their run's mean.

    time_ns, expected_ns: of one rank in one run, summed over the places of the phase (least of the
    repeats: what is left is the rank's own). run: number of the run of each. The mean ratio of
    each run is taken out: it belongs to the law. A rank weighs as its expected time.
    """
    time, expected = np.asarray(time_ns, dtype=float), np.asarray(expected_ns, dtype=float)
    _, number = np.unique(np.asarray(run), return_inverse=True)
    good = (expected > 0) & (time > 0) & np.isfinite(time) & np.isfinite(expected)
    time, expected, number = time[good], expected[good], number[good]
    alone = np.bincount(number)[number] < 2 if len(number) else np.zeros(0, dtype=bool)
    time, expected, number = time[~alone], expected[~alone], number[~alone]
    if not len(time):
        return EVEN
    level = np.bincount(number, time) / np.maximum(np.bincount(number, expected), 1e-300)
    ratio = time / expected / level[number]
    values = quantiles(ratio[:, None], expected / expected.sum(), QUANTILES)[:, 0]
    return Distribution.of(QUANTILES, values.tolist())


def between_turns(
    quantile_ns: np.ndarray, total_ns: np.ndarray, count: np.ndarray
) -> tuple[Distribution, int]:
    """Return how single occurrences differ from their rank's mean, and from how many rows.

    quantile_ns: (rows, len(QUANTILES)) of single occurrences in one run; total_ns, count: of the
    same row in the same run (Times.quantile_ns, least_ns, count). Ratios to the mean are averaged
    over the rows level by level, weighted by the time in them; rows with fewer than
    LEAST_OCCURRENCES are left out.
    """
    quantile = np.asarray(quantile_ns, dtype=float).reshape(-1, len(QUANTILES))
    total, number = np.asarray(total_ns, dtype=float), np.asarray(count, dtype=float)
    mean = total / np.maximum(number, 1.0)
    good = (
        (number >= LEAST_OCCURRENCES)
        & (mean > 0)
        & np.isfinite(mean)
        & np.isfinite(quantile).all(axis=1)
    )
    if not good.any():
        return EVEN, 0
    ratio = np.sort(quantile[good], axis=1) / mean[good, None]
    weight = total[good] / total[good].sum()
    return Distribution.of(QUANTILES, (weight @ ratio).tolist()), int(good.sum())


def apart(turns: Distribution, ranks: Distribution, occurrences: float) -> Distribution:
    """Return what of the spread between iterations may be each rank's own.

    Were the ratios of single occurrences drawn for every rank by itself, the sums of ranks would
    differ by their deviation over the square root of ``occurrences`` (how many are in a sum). Where
    sums differ by less, occurrences differ in the same way on all ranks (the first step of a loop,
    a larger block that comes round): nobody waits for that. So the deviation of ``turns`` is
    taken to be at most MARGIN times what ``ranks``, the ratios of sums, allow."""
    own, sums = turns.deviation, ranks.deviation
    most = MARGIN * sums * np.sqrt(max(occurrences, 1.0))
    if ranks == EVEN or own <= most:
        return turns
    values = tuple(1.0 + (value - 1.0) * most / own for value in turns.values)
    return Distribution(turns.levels, values, turns.tail * most / own)
