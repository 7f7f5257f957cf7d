"""What was measured about computation: one point per place, process count and group of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite

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
