"""Compute time as in the thesis, chapter 6: power laws in n, calibrated with a far point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from p3s.base.serialise import NotNegative
from p3s.costs.points import OWN, Point

#: Cost that falls by no more than this, relative, has stopped falling.
FALLS = 0.02
#: A cost has fallen where it is lower than it was by more than this.
FLAT = 0.05
REACHED, FALLING, STEADY, UNKNOWN = "reached", "falling", "steady", "unknown"


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


def least_cost(
    counts: Sequence[int], cost: Sequence[float], before: float = 0.0
) -> tuple[str, int | None]:
    """Return whether the cost per unit of work has stopped falling, and where it is least.

    counts: ascending, of the walk upwards of the thesis (section 6.2, step 3). before: the largest
    cost seen elsewhere (the study's own), 0 if none. Of the counts that cost as little as the least
    the largest is taken: the thesis takes 100 processes where 81 cost the same (Table 6.4). Cost
    that is even before it has fallen at all has not reached its least: the working set may not fit
    the cache yet. None without a cost.
    """
    if not cost or min(cost) <= 0:
        return UNKNOWN, None
    least = int(np.argmin(cost))
    at = max(n for n, c in zip(counts, cost, strict=True) if c <= (1 + FALLS) * cost[least])
    if len(cost) < 2:
        return UNKNOWN, at
    if cost[-1] < (1 - FALLS) * cost[-2]:
        return FALLING, at
    if min(cost) > (1 - FLAT) * max(*cost[: least + 1], before):
        return STEADY, at
    return REACHED, at


@dataclass(frozen=True)
class FarPoint:
    """The run of another input that CRM_c goes through: its count, and the one it stands for.

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

    points: own runs, and runs of other inputs with the count ``n`` they were matched to.
    Typical times are used (medians of repeats). The far point is, of each other input, the run
    that costs least; of several inputs the one that is farthest.
    """
    own = [p for p in points if p.source == OWN and p.n is not None]
    initial = fit_power([p.n or 0.0 for p in own], [p.typical_ns for p in own])
    if initial is None:
        return Crm(None, None, None, "fewer than two counts have compute time")
    far = max(_far_points(points), key=lambda far: (far.n, far.source), default=None)
    if far is None:
        return Crm(initial, None, None, "no run of a smaller workload was matched")
    counts, times = [p.n or 0.0 for p in own], [p.typical_ns for p in own]
    return Crm(initial, fit_power([*counts, far.n], [*times, far.typical_ns]), far, None)


def _far_points(points: Sequence[Point]) -> list[FarPoint]:
    """Return the run of each other input that costs least."""
    runs: dict[str, dict[int, Point]] = {}
    for p in sorted(points, key=lambda p: (p.traced, p.n or 0.0)):
        if p.source != OWN and p.n is not None and p.work > 0 and p.typical_ns > 0:
            mine = runs.setdefault(p.source, {})
            # of several groups of ranks the one with most ranks
            if p.traced not in mine or p.ranks > mine[p.traced].ranks:
                mine[p.traced] = p
    out = []
    for source, mine in runs.items():
        status, at = least_cost(list(mine), [p.typical_ns / p.work for p in mine.values()])
        if at is not None:
            far = mine[at]
            reached = status in (REACHED, STEADY)
            out.append(FarPoint(source, at, float(far.n or 0.0), far.typical_ns, reached))
    return out
