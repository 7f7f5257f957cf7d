"""From measured points to what laws are fitted to: groups of ranks joined, errors expected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from math import isfinite, log2

import numpy as np

from p3s.costs.points import Point, per_rank
from p3s.costs.scoring import ASSUMED, KEPT, LEAST_ERROR, Measured

#: How many repeats the error common to all points counts as, against those of similar x.
LOCAL = 6.0
#: Groups of ranks of a run are joined where x differs by less than this many doublings; at most so
#: many are left of a run.
SAME, MOST_GROUPS = 0.07, 6


def usable_points(points: Sequence[Point]) -> list[Point]:
    """Return the points with work and time, by x; similar groups of ranks of a run are one."""
    good = sorted(
        (p for p in points if all(isfinite(v) and v > 0 for v in (p.work, p.least_ns, p.x))),
        key=lambda p: (p.source, p.traced, p.x, p.work, p.least_ns, p.typical_ns),
    )
    out: list[Point] = []
    for _, of in groupby(good, key=lambda p: (p.source, p.traced)):
        run = list(of)
        width = max(SAME, log2(run[-1].x / run[0].x) / MOST_GROUPS)
        start, group = run[0].x, [run[0]]
        for p in run[1:]:
            if log2(p.x / start) > width:
                out.append(_joined(group))
                start, group = p.x, []
            group.append(p)
        out.append(_joined(group))
    return sorted(out, key=lambda p: (p.x, p.source, p.traced))


def _joined(group: Sequence[Point]) -> Point:
    """Return the mean of groups of ranks, each weighing as its ranks."""
    if len(group) == 1:
        return group[0]
    group = [replace(p, ranks=max(p.ranks, 1)) for p in group]
    ranks = sum(p.ranks for p in group)
    out = per_rank(group, ranks, group[0].place)
    return replace(
        out,
        x=float(sum(p.x * p.ranks for p in group) / ranks),
        typical_ns=max(out.typical_ns, out.least_ns),
        spread=max(p.spread for p in group),
    )


def measured_points(points: Sequence[Point]) -> tuple[Measured, list[str]]:
    """Return usable points as arrays, and the names of the runs ("source@count")."""
    names = sorted({(p.source, p.traced) for p in points})
    number = {name: i for i, name in enumerate(names)}
    weight = np.array([min(8.0, max(1, p.ranks * p.repeats)) for p in points]) ** (1 / 3)
    u = np.log2([p.x for p in points])
    error, scale = _errors(points, u)
    measured = Measured(
        u,
        np.array([p.cost for p in points]),
        np.array([number[p.source, p.traced] for p in points]),
        weight / weight.mean(),
        error,
        scale,
    )
    return measured, [f"{source}@{traced}" for source, traced in names]


def _errors(points: Sequence[Point], u: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the error to expect of a point, from its repeats, and each one's relative to that.

    How far the median of the repeats lies above the least tells more than their range, which one
    disturbed repeat makes. Runs at similar x tell about one another: what comes from memory
    differs more from run to run than what comes from caches.
    """
    repeats = np.array([p.repeats for p in points])
    gap = np.array([max(p.typical_ns / p.least_ns - 1.0, 0.0) for p in points])
    # mean distance of the median of so many normal values from the least, in standard deviations
    sigma = gap / np.interp(repeats, (2, 3, 4, 5, 7, 10), (0.56, 0.85, 1.03, 1.16, 1.35, 1.54))
    told = np.minimum(repeats - 1.0, 4.0)
    if not told.any():
        return ASSUMED, np.ones(len(points))
    error = float(np.hypot(LEAST_ERROR, KEPT * np.median(sigma[told > 0])))
    near = np.exp(-0.5 * (u[:, None] - u[None, :]) ** 2) * told
    own = np.hypot(LEAST_ERROR, KEPT * np.minimum(sigma, 0.3)) ** 2
    each = np.sqrt((LOCAL * error**2 + near @ own) / (LOCAL + near.sum(axis=1)))
    return min(error, 0.2), np.clip(each / error, 0.5, 4.0)
