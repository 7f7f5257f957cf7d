"""Compute time as in the thesis, chapter 6: power laws in n, calibrated with a far point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

import numpy as np

from p3s.base.errors import P3SError
from p3s.base.serialise import NotNegative

Place = tuple[str, str]

#: Source of the points of a study's own runs.
OWN = "own"
#: Stands for all small places of a phase; for all places of it.
POOL: Place = ("", "small")
WHOLE: Place = ("", "phase")


@dataclass(frozen=True)
class Point:
    """The computation before the calls of one place, of a group of ranks in runs at one count.

    place: (site, operation); phase: number in the model. n: process count of the original workload
    that has this much work per process: the traced count itself, or for another workload what it
    was matched to (``matched``), a real number, NaN where no count has it. work: of one rank in the
    run, mean over the group; x: the rank's work per iteration of the phase, what stands for its
    working set. least_ns, typical_ns: time of the same rank in the run, the least over the repeats
    and their median. spread: relative, of the repeats (largest over least, less 1; 0 for one
    repeat). ranks: in the group. repeats: runs. source: "own", or the name of the other workload
    ("far/w1", "at/size=2000"); traced: process count of the run itself."""

    place: Place
    phase: int
    n: float
    work: float
    x: float
    least_ns: float
    typical_ns: float
    spread: float
    ranks: int
    repeats: int
    source: str = OWN
    traced: int = 0

    @property
    def cost(self) -> float:
        """Nanoseconds per unit of work, by the least time."""
        return self.least_ns / self.work if self.work > 0 else 0.0

    @property
    def count(self) -> float | None:
        """``n``, None where no count of the original workload has as much work."""
        return self.n if isfinite(self.n) else None


def per_rank(points: Sequence[Point], ranks: float, place: Place = WHOLE) -> Point:
    """Return points of one run as one: work and times of all their ranks, shared out to ``ranks``.

    The rest is as in the first of the points, repeats are the fewest.
    """

    def total(name: str) -> float:
        return float(sum(getattr(p, name) * p.ranks for p in points) / ranks)

    return replace(
        points[0],
        place=place,
        work=total("work"),
        least_ns=total("least_ns"),
        typical_ns=total("typical_ns"),
        ranks=int(ranks),
        repeats=min(p.repeats for p in points),
    )


def once(point: Point, iterations: float) -> Point:
    """Return the point of one process in one of so many iterations of a phase."""
    return replace(
        point,
        place=WHOLE,
        work=point.work / iterations,
        least_ns=point.least_ns / iterations,
        typical_ns=point.typical_ns / iterations,
    )


#: A cost that falls by less than this share has stopped falling: below it are the repeats' errors.
STOPPED_FALLING = 0.01


@dataclass(frozen=True)
class PowerLaw:
    """y = a * n**b (thesis, Table 6.5: y in ns, of one process in one iteration of the phase)."""

    a: NotNegative
    b: float

    def value(self, n: Any) -> Any:
        """Return y at ``n`` (array or scalar)."""
        n = np.asarray(n, dtype=float)
        return np.exp(np.log(self.a) + self.b * np.log(n)) if self.a > 0 else np.zeros_like(n)


def fit_power(n: Sequence[float], y: Sequence[float]) -> PowerLaw | None:
    """Fit y = a n**b by least squares in logarithms; None with fewer than two counts.

    Points with n or y not above zero are left out: they have no logarithm.
    """
    x, v = np.asarray(n, dtype=float), np.asarray(y, dtype=float)
    good = (x > 0) & (v > 0) & np.isfinite(x) & np.isfinite(v)
    x, v = np.log(x[good]), np.log(v[good])
    if len(x) < 2 or np.ptp(x) < 1e-9:
        return None
    centre = x - x.mean()
    b = float(centre @ v / (centre @ centre))
    return PowerLaw(float(np.exp(v.mean() - b * x.mean())), b)


@dataclass(frozen=True)
class MinimumCost:
    """The far run with the least cost per unit: its index, and whether the cost stopped falling."""

    index: int
    reached: bool


def minimum_cost_point(runs: Sequence[tuple[float, float]]) -> MinimumCost:
    """Walk far runs (count, cost per unit of work) and return the one to calibrate with.

    The thesis goes up until the CPI falls no more, and takes the last run (Table 6.4: 0.719 at 81
    and again at 100 processes: 100). The cost has stopped falling where a run costs no less than
    the one before it by more than STOPPED_FALLING; what counts is the end of the walk, because the
    same table prints 0.803 twice at its beginning. Of the runs that cost as little as the least the
    one with most processes is taken. Where the last fall is larger than the tolerance the minimum
    was not reached: the last run is the best there is, and reach beyond it is limited (step 3).
    Raises P3SError without runs, or when they are not in ascending counts.
    """
    if not runs:
        raise P3SError("no far run to choose from; record some with characterize --far")
    counts = [n for n, _ in runs]
    if any(b <= a for a, b in zip(counts, counts[1:], strict=False)):
        raise P3SError("far runs are not in ascending counts; sort them first")
    cost = np.array([c for _, c in runs], dtype=float)
    if not np.all(np.isfinite(cost)) or np.any(cost <= 0):
        raise P3SError("a far run has no cost per unit of work; record it again")
    index = int(np.flatnonzero(cost <= cost.min() * (1.0 + STOPPED_FALLING))[-1])
    before = cost[:index]
    last = index == len(cost) - 1
    reached = bool(
        not last or (len(before) and before[-1] <= cost[index] * (1.0 + STOPPED_FALLING))
    )
    return MinimumCost(index, reached)


@dataclass(frozen=True)
class FarPoint:
    """The run of another workload that CRM_c goes through: its count, and the one it stands for.

    typical_ns: of one process in one iteration. reached: whether the cost had stopped to fall
    there. That the total work of the phase is constant is not asked for: the count was looked up
    in it.
    """

    source: str
    traced: int
    n: float
    typical_ns: float
    reached: bool


@dataclass(frozen=True)
class Crm:
    """Power laws of one phase: CRM_i, CRM_c (None: why says why not), and the far point used."""

    initial: PowerLaw | None
    calibrated: PowerLaw | None
    far: FarPoint | None
    why: str | None


def crm(points: Sequence[Point]) -> Crm:
    """Return CRM_i and CRM_c of a phase from its points: work and time of one process in one turn.

    points: own runs, and runs of other workloads with the count ``n`` they were matched to.
    Typical times are used (medians of repeats). The far point is, of each other workload, the run
    that minimum_cost_point takes; of several workloads the one that is farthest.
    """
    own = [p for p in points if p.source == "own"]
    initial = fit_power([p.n for p in own], [p.typical_ns for p in own])

    def only(why: str) -> Crm:
        return Crm(initial, None, None, why)

    if initial is None:
        return only("fewer than two counts have compute time")
    chosen = []
    for source in sorted({p.source for p in points} - {"own"}):
        runs = sorted(
            (
                p
                for p in points
                if p.source == source and np.isfinite(p.n) and p.work > 0 and p.typical_ns > 0
            ),
            key=lambda p: (p.traced, p.n),
        )
        walk = _one_per_count(runs)
        if walk:
            found = minimum_cost_point([(p.traced, p.typical_ns / p.work) for p in walk])
            chosen.append((walk[found.index], found.reached))
    if not chosen:
        return only("no run of a smaller workload was matched")
    far, reached = max(chosen, key=lambda c: (c[0].n, c[0].source))
    calibrated = fit_power([p.n for p in [*own, far]], [p.typical_ns for p in [*own, far]])
    point = FarPoint(far.source, far.traced, float(far.n), far.typical_ns, reached)
    return Crm(initial, calibrated, point, None)


def _one_per_count(runs: Sequence[Point]) -> list[Point]:
    """Return one point per count: of several groups of ranks the one with most ranks."""
    best: dict[int, Point] = {}
    for p in runs:
        if p.traced not in best or p.ranks > best[p.traced].ranks:
            best[p.traced] = p
    return [best[n] for n in sorted(best)]
