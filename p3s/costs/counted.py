"""What hardware counters say of phases: instructions, cycles and misses, and where a cache is left.

Of one process in one iteration, the mean over the ranks that compute there. The block is what a
process computes on: the bytes that the program itself has filled (Times.resident_bytes).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from p3s.costs.gather import by_place_and_rank, in_the_run, numbers_of, places_of, weights_at
from p3s.costs.laws import CostLaw, fit_cost
from p3s.costs.points import WHOLE, Point
from p3s.costs.posterior import STEP, TWO_STEPS
from p3s.model.evaluate import model_grid
from p3s.model.types import Model
from p3s.signature.rank import INSTRUCTIONS
from p3s.signature.times import Times

CYCLES, MISSES = "cycles", "llc-misses"
#: What is counted per instruction, and how it reads.
PER_INSTRUCTION = {CYCLES: "cycles per instruction", MISSES: "misses per instruction"}


@dataclass(frozen=True)
class Counted:
    """A phase at one count: what one process counts in an iteration, by counter.

    block: bytes of a process, 0: not known; ranks: that compute there.
    """

    phase: int
    name: str
    n: int
    ranks: int
    block: float
    each: dict[str, float]

    def per_instruction(self, counter: str) -> float | None:
        """Return how many of a counter there are per instruction, None where either is missing."""
        done, found = self.each.get(INSTRUCTIONS, 0.0), self.each.get(counter)
        return None if found is None or done <= 0 else found / done


@dataclass(frozen=True)
class CacheLeft:
    """Where a phase leaves a cache: the law of a counter per instruction over the block is a step.

    block: bytes at its middle; before, after: the law at the smallest and the largest block.
    """

    phase: int
    counter: str
    block: float
    before: float
    after: float


def counted_at(model: Model, times: Times) -> Iterator[Counted]:
    """Yield what counters say of each phase at one count."""
    if not times.counters:
        return
    places, phase = places_of(model)
    place = numbers_of(places, times.nodes)[times.to_node]
    shape = (len(places), times.np)
    columns = dict(zip(times.counters, times.counted.T, strict=True))
    if times.work_unit == INSTRUCTIONS:
        columns = {INSTRUCTIONS: times.work, **columns}
    table = [
        by_place_and_rank(place, times.rank, column, shape) * in_the_run(places)
        for column in columns.values()
    ]
    weights = weights_at(model, model_grid(model, times.np))
    block = times.resident_bytes[times.resident_bytes > 0]
    for k, weight in enumerate(weights.tolist()):
        sums = [each[phase == k].sum(axis=0) for each in table]
        there = np.any([each > 0 for each in sums], axis=0)
        if there.any():
            each = {
                name: float(total[there].mean()) / weight
                for name, total in zip(columns, sums, strict=True)
            }
            size = float(block.mean()) if len(block) else 0.0
            yield Counted(k, model.phases[k].name, times.np, int(there.sum()), size, each)


def law_of(rows: Sequence[Counted], counter: str) -> CostLaw | None:
    """Return the law of a counter per instruction over the block of one phase, None without one."""
    points = [
        Point(
            WHOLE,
            row.phase,
            float(row.n),
            row.each[INSTRUCTIONS],
            row.block,
            value * row.each[INSTRUCTIONS],
            value * row.each[INSTRUCTIONS],
            row.ranks,
            1,
            traced=row.n,
        )
        for row in rows
        if row.block > 0 and (value := row.per_instruction(counter))
    ]
    return fit_cost(points, unit=INSTRUCTIONS) if len(points) > 1 else None


def caches_left(rows: Sequence[Counted]) -> Iterator[CacheLeft]:
    """Yield where phases leave a cache: steps of their laws that rise between the blocks."""
    for phase in dict.fromkeys(row.phase for row in rows):
        mine = [row for row in rows if row.phase == phase]
        for counter in PER_INSTRUCTION:
            law = law_of(mine, counter)
            if law is None or law.refused or law.kind not in (STEP, TWO_STEPS):
                continue
            low, high = law.covered
            ends = law.typical([low, high])
            for column in law.columns:
                if column.kind in ("step", "capacity") and low <= 2.0**column.first <= high:
                    yield CacheLeft(phase, counter, 2.0**column.first, *map(float, ends))
