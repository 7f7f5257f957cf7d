"""Points of cost: what the computation before calls took, of groups of ranks in runs of a setting.

A setting is the study's own input at a count, a smaller input, or another value of a parameter:
its work per iteration is what counts, so that points of all settings feed one law.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

Place = tuple[str, str]

#: Source of the points of a study's own runs.
OWN = "own"
#: Stands for all small places of a phase; for all places of it.
POOL: Place = ("", "small")
WHOLE: Place = ("", "phase")
#: Groups of ranks of a run are one where x differs by less than this many doublings; a run has at
#: most so many in a phase.
SAME, MOST_GROUPS = 0.07, 6


class Point(NamedTuple):
    """The computation before the calls of one place, of a group of ranks in runs at one count.

    place: (site, operation); phase: number in the model. n: process count of the original input
    that has this much work per process: the traced count itself, or for another input what it
    was matched to, a real number, None where no count has it. work: of one rank in the
    run, mean over the group; x: the rank's work per iteration of the phase, what stands for its
    working set. least_ns, typical_ns: time of the same rank in the run, the least over the repeats
    and their median. ranks: in the group. repeats: runs. source: "own", or the name of the other
    setting ("far/w1", "at/size=2000"); traced: process count of the run itself."""

    place: Place
    phase: int
    n: float | None
    work: float
    x: float
    least_ns: float
    typical_ns: float
    ranks: int
    repeats: int
    source: str = OWN
    traced: int = 0

    @property
    def cost(self) -> float:
        """Nanoseconds per unit of work, by the least time."""
        return self.least_ns / self.work if self.work > 0 else 0.0

    @property
    def run(self) -> tuple[int, str, int]:
        """The phase, and the run: its source and traced count."""
        return self.phase, self.source, self.traced


#: Iterations of a phase in a run, by :attr:`Point.run`.
Iterations = Mapping[tuple[int, str, int], float]


def per_rank(points: Sequence[Point], ranks: float, place: Place = WHOLE) -> Point:
    """Return points of one run as one: work and times of all their ranks, shared out to ``ranks``.

    The rest is as in the first of the points, repeats are the fewest.
    """

    def total(name: str) -> float:
        return float(sum(getattr(p, name) * p.ranks for p in points) / ranks)

    return points[0]._replace(
        place=place,
        work=total("work"),
        least_ns=total("least_ns"),
        typical_ns=total("typical_ns"),
        ranks=int(ranks),
        repeats=min(p.repeats for p in points),
    )


def by_run(points: Sequence[Point]) -> dict[tuple[int, str, int], list[Point]]:
    """Return the points of each phase in each run."""
    runs: dict[tuple[int, str, int], list[Point]] = {}
    for p in points:
        runs.setdefault(p.run, []).append(p)
    return runs


def pool_points(points: Sequence[Point], of: Mapping[Place, Place]) -> list[Point]:
    """Return points with places summed: those that ``of`` maps to the same, group by group.

    A group is a source, traced count, phase and x. Places that few of its ranks come to count with
    their share of the ranks.
    """
    groups: dict[tuple[Any, ...], list[Point]] = {}
    for p in points:
        groups.setdefault((of.get(p.place, p.place), *p.run, p.x), []).append(p)
    return [_sum_points(key[0], some) for key, some in groups.items()]


def _sum_points(place: Place, points: Sequence[Point]) -> Point:
    of_place: dict[Place, int] = {}
    for p in points:
        of_place[p.place] = of_place.get(p.place, 0) + p.ranks
    return per_rank(points, max(of_place.values()), place)


def thin_points(points: Sequence[Point]) -> list[Point]:
    """Return points with groups of ranks of a run and phase taken together that are near in x.

    At most MOST_GROUPS are left, where every rank has work of its own.
    """
    out: list[Point] = []
    for mine in by_run(points).values():
        u = np.log2([p.x for p in mine])
        number = min(int(np.ceil(np.ptp(u) / SAME)), MOST_GROUPS)
        if len(np.unique(u)) <= number:
            out += mine
            continue
        at = np.searchsorted(np.linspace(u.min(), u.max(), number + 1)[1:-1], u)
        ranks = np.array([max(p.ranks, 1) for p in mine], dtype=float)
        x = np.bincount(at, ranks * [p.x for p in mine]) / np.maximum(np.bincount(at, ranks), 1)
        near = [p._replace(x=float(x[b])) for p, b in zip(mine, at.tolist(), strict=True)]
        out += pool_points(near, {})
    return out


def iterations(points: Sequence[Point]) -> Iterations:
    """Return the iterations of every phase in every run: work over x."""
    out = {}
    for run, mine in by_run(pool_points(points, {p.place: WHOLE for p in points})).items():
        x = sum(p.x * p.ranks for p in mine)
        if x > 0:
            out[run] = sum(p.work * p.ranks for p in mine) / x
    return out


def turns(points: Sequence[Point], weight: Iterations) -> list[Point]:
    """Return a phase's points per run as the time of one process in one iteration, mean over its
    ranks.

    points: of the phase as a whole; weight: iterations in each run. The time of one
    process in one iteration is what the thesis models (section 6.1); work, least_ns and typical_ns
    of the points returned are of one turn."""
    out = []
    for run, mine in by_run(points).items():
        ranks = [p.ranks for p in mine]
        whole = per_rank(mine, sum(ranks))
        # of another input every group of ranks has a count of its own: take the mean one
        n = None
        if all(p.n is not None for p in mine):
            n = float(np.average([p.n or 0.0 for p in mine], weights=ranks))
        out.append(
            whole._replace(
                work=whole.work / weight[run],
                least_ns=whole.least_ns / weight[run],
                typical_ns=whole.typical_ns / weight[run],
                n=n,
                x=float(np.average([p.x for p in mine], weights=ranks)),
            )
        )
    return out


def shares(points: Sequence[Point]) -> dict[Place, float]:
    """Return the share of the time of each place, the largest over the runs of the points."""
    runs: dict[tuple[str, int], dict[Place, float]] = {}
    for p in points:
        mine = runs.setdefault((p.source, p.traced), {})
        mine[p.place] = mine.get(p.place, 0.0) + p.typical_ns * p.ranks
    out: dict[Place, float] = {}
    for mine in runs.values():
        total = max(sum(mine.values()), 1e-300)
        for place, ns in mine.items():
            out[place] = max(out.get(place, 0.0), ns / total)
    return out
