"""Compute time as in the thesis, chapter 6: power laws in n, calibrated with a far point.

CRM_i: least squares in logarithms over the initial signatures. CRM_c: the same with the far point
added, a run of a smaller workload at the count of the original one that has as many instructions
per process (section 6.2, steps 1 to 6).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from p3s.base.errors import P3SError
from p3s.costs.small_runs.points import Point

#: Totals that differ by no more than this are constant: the thesis calls equal what is within 5 %.
CONSTANT_TOTAL = 0.05
#: A cost that falls by less than this share has stopped falling: below it are the repeats' errors.
STOPPED_FALLING = 0.01


@dataclass(frozen=True)
class PowerLaw:
    """y = a * n**b (thesis, Table 6.5: y in ns, of one process in one iteration of the phase)."""

    a: float
    b: float

    def value(self, n: Any) -> Any:
        """Return y at ``n`` (array or scalar)."""
        n = np.asarray(n, dtype=float)
        return np.exp(np.log(self.a) + self.b * np.log(n)) if self.a > 0 else np.zeros_like(n)

    def text(self) -> str:
        """Return the law as one line of text."""
        return f"{self.a:.4g} * n**{self.b:.4g}"

    def latex(self) -> str:
        """Return the law as LaTeX for math mode."""
        digits, _, exponent = f"{self.a:.4g}".partition("e")
        a = rf"{digits} \cdot 10^{{{int(exponent)}}}" if exponent else digits
        return rf"{a} \, n^{{{self.b:.4g}}}"

    def to_json(self) -> dict[str, float]:
        """Return the law as plain data."""
        return {"a": float(self.a), "b": float(self.b)}

    @staticmethod
    def from_json(data: Any) -> PowerLaw:
        """Return the law from :meth:`to_json` data; raises P3SError when it cannot be one."""
        try:
            a, b = data["a"], data["b"]
            fine = (
                all(
                    isinstance(v, int | float) and not isinstance(v, bool) and np.isfinite(v)
                    for v in (a, b)
                )
                and a >= 0
            )
        except (KeyError, TypeError, IndexError):
            fine = False
        if not fine:
            raise P3SError("a power law is damaged; fit the compute model again")
        return PowerLaw(float(a), float(b))


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


def total_is_constant(
    totals: Sequence[float], tolerance: float = CONSTANT_TOTAL
) -> tuple[bool, float]:
    """Return whether totals of instructions are constant, and their largest relative difference.

    The premise of the far point (section 6.2, step 2; Table 6.3, last column).
    """
    values = [t for t in totals if t > 0]
    if not values:
        return False, float("inf")
    apart = max(values) / min(values) - 1.0
    return len(values) == len(totals) and apart <= tolerance, apart


@dataclass(frozen=True)
class MinimumCost:
    """The far run with the least cost per unit: its index, and whether the cost stopped falling."""

    index: int
    reached: bool


def minimum_cost_point(
    runs: Sequence[tuple[float, float]], tolerance: float = STOPPED_FALLING
) -> MinimumCost:
    """Walk far runs (count, cost per unit of work) and return the one to calibrate with.

    The thesis goes up until the CPI falls no more, and takes the last run (Table 6.4: 0.719 at 81
    and again at 100 processes: 100). The cost has stopped falling where a run costs no less than
    the one before it by more than ``tolerance``; what counts is the end of the walk, because the
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
    index = int(np.flatnonzero(cost <= cost.min() * (1.0 + tolerance))[-1])
    before = cost[:index]
    last = index == len(cost) - 1
    reached = bool(not last or (len(before) and before[-1] <= cost[index] * (1.0 + tolerance)))
    return MinimumCost(index, reached)


@dataclass(frozen=True)
class Crm:
    """Power laws of one phase: CRM_i, CRM_c (None: why says why not), and the far point used.

    far: source, count of its run, matched count of the original workload, ns per turn.
    reached: whether the far runs found the minimum of the cost per unit.
    """

    initial: PowerLaw | None
    calibrated: PowerLaw | None
    far: tuple[str, int, float, float] | None
    reached: bool
    why: str | None


def crm(
    points: Sequence[Point],
    totals: Sequence[float] | None = None,
    tolerance: float = CONSTANT_TOTAL,
) -> Crm:
    """Return CRM_i and CRM_c of a phase from its points: work and time of one process in one turn.

    points: own runs, and runs of other workloads with the count ``n`` they were matched to.
    totals: of the instructions of the phase at the traced counts; where they are not constant the
    thesis stops at CRM_i (step 2). Typical times are used (medians of repeats). The far point is,
    of each other workload, the run that minimum_cost_point takes; of several workloads the one
    that is farthest.
    """
    own = [p for p in points if p.source == "own"]
    initial = fit_power([p.n for p in own], [p.typical_ns for p in own])

    def only(why: str) -> Crm:
        return Crm(initial, None, None, False, why)

    if initial is None:
        return only("fewer than two counts have compute time")
    if totals is not None:
        constant, apart = total_is_constant(totals, tolerance)
        if not constant:
            return only(
                f"the total work of the phase is not constant: it differs by {100 * apart:.1f} %"
                if np.isfinite(apart)
                else "the total work of the phase is not known"
            )
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
    return Crm(
        initial, calibrated, (far.source, far.traced, float(far.n), far.typical_ns), reached, None
    )


def _one_per_count(runs: Sequence[Point]) -> list[Point]:
    """Return one point per count: of several groups of ranks the one with most ranks."""
    best: dict[int, Point] = {}
    for p in runs:
        if p.traced not in best or p.ranks > best[p.traced].ranks:
            best[p.traced] = p
    return [best[n] for n in sorted(best)]
