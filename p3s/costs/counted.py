"""What hardware counters say of phases: instructions, cycles and misses, and where a cache is left.

Of one process in one iteration, the mean over the ranks that compute there. The block is what a
process computes on: the bytes that the program itself has filled (Times.resident_bytes).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from p3s.costs.gather import by_place_and_rank, in_the_run, numbers_of, places_of, weights_at
from p3s.costs.laws import CostLaw, fit_cost
from p3s.costs.points import WHOLE, Place, Point
from p3s.costs.posterior import STEP, TWO_STEPS
from p3s.laws.worklaws import WorkLaw, fit_work
from p3s.model.evaluate import model_grid
from p3s.model.types import Model
from p3s.model.work.scic import list_measured
from p3s.signature.phase_file import Phases
from p3s.signature.rank import INSTRUCTIONS
from p3s.signature.times import Times

CYCLES, MISSES = "cycles", "llc-misses"
#: What is counted per instruction, and how it reads.
PER_INSTRUCTION = {CYCLES: "cycles per instruction", MISSES: "misses per instruction"}


@dataclass(frozen=True)
class Counted:
    """A phase at one count: what one process counts in an iteration, by counter.

    block: bytes of a process, 0: not known; ranks: that compute there; weight: iterations.
    """

    phase: int
    name: str
    n: int
    ranks: int
    block: float
    weight: float
    each: dict[str, float]

    @property
    def instructions(self) -> float | None:
        """Return the instructions of all ranks in the run, None where they are not counted."""
        done = self.each.get(INSTRUCTIONS)
        return None if done is None else done * self.ranks * self.weight

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
    """Yield what counters say of each phase of a model at one count."""
    if times.counters:
        places, phase = places_of(model)
        weights = weights_at(model, model_grid(model, times.np))
        yield from _by_phase(places, phase, weights, [each.name for each in model.phases], times)


def counted_in(found: Phases, times: Times) -> Iterator[Counted]:
    """Yield what counters say of each phase at one count."""
    if times.counters:
        at = {call.call: (call.site, call.op) for call in found.tree.calls()}
        pairs = [(at[call], each.phase) for each in found.phases for call in each.calls]
        costs = [each.per_count.get(times.np) for each in found.phases]
        weights = np.array([max(cost.weight, 1) if cost else 1 for cost in costs])
        phase = np.array([k for _, k in pairs], dtype=np.int64)
        names = [each.name for each in found.phases]
        yield from _by_phase([place for place, _ in pairs], phase, weights, names, times)


def _by_phase(
    places: Sequence[Place],
    phase: np.ndarray,
    weights: np.ndarray,
    names: Sequence[str],
    times: Times,
) -> Iterator[Counted]:
    """Yield a row per phase that computes; phase: of each place; weights, names: of each phase."""
    place = numbers_of(places, times.nodes)[times.to_node]
    shape = (len(places), times.np)
    columns = dict(zip(times.counters, times.counted.T, strict=True))
    if times.work_unit == INSTRUCTIONS:
        columns = {INSTRUCTIONS: times.work, **columns}
    table = [
        by_place_and_rank(place, times.rank, column, shape) * in_the_run(places)
        for column in columns.values()
    ]
    block = times.resident_bytes[times.resident_bytes > 0]
    size = float(block.mean()) if len(block) else 0.0
    for k, (name, weight) in enumerate(zip(names, weights.tolist(), strict=True)):
        sums = [each[phase == k].sum(axis=0) for each in table]
        there = np.any([each > 0 for each in sums], axis=0)
        if there.any():
            means = [float(total[there].mean()) / weight for total in sums]
            each = dict(zip(columns, means, strict=True))
            yield Counted(k, name, times.np, int(there.sum()), size, weight, each)


@dataclass(frozen=True)
class InstructionEquation:
    """The instructions of a process in a phase over the run: equation, and error held out.

    last: what was counted at the largest count; off: relative error there of the equation fitted
    without it, None where nothing was held out.
    """

    law: WorkLaw
    last: Counted
    off: float | None


def instruction_equations(model: Model, rows: Sequence[Counted]) -> list[InstructionEquation]:
    """Return the equation of each phase: the model's where work is instructions, else of rows."""
    mine = model.work_unit == INSTRUCTIONS
    if mine:
        held = model.holdout.comparison if model.holdout is not None else None
        known = {each.phase: each.error for each in held.work.each} if held else {}
        rows = [
            Counted(r.phase, r.name, r.n, r.ranks, 0.0, r.weight, {INSTRUCTIONS: r.work})
            for phase in model.phases
            for r in list_measured(phase)
        ]
    found = []
    for phase in model.phases:
        at = _all_groups([row for row in rows if row.phase == phase.phase])
        if not at:
            continue
        *less, top = sorted(at)
        last, law = at[top], phase.work.law
        off = known.get(phase.phase) if mine else None
        if not mine:
            run = {n: row.each[INSTRUCTIONS] * row.weight for n, row in at.items()}
            law = fit_work(list(run), list(run.values()))
            if len(less) > 1:
                told = float(fit_work(less, [run[n] for n in less]).value(top))
                off = told / run[top] - 1
        found.append(InstructionEquation(law, last, off))
    return found


def _all_groups(rows: Sequence[Counted]) -> dict[int, Counted]:
    """Return the rows of a phase by count, those of several groups of ranks together."""
    found: dict[int, Counted] = {}
    for n in sorted({row.n for row in rows}):
        groups = [row for row in rows if row.n == n]
        total, ranks = sum(row.instructions or 0.0 for row in groups), sum(r.ranks for r in groups)
        if total > 0:
            each = {INSTRUCTIONS: total / ranks / groups[0].weight}
            found[n] = replace(groups[0], ranks=ranks, each=each)
    return found


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
