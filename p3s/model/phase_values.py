"""What the equations of a phase come to at the traced counts, and where their rivals differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from p3s.base.errors import P3SError
from p3s.model.evaluate import generate, model_grid, phase_weight
from p3s.model.grid.guards import GridAt
from p3s.model.law_types import CountLaw, SizeLaw
from p3s.model.partners.relation import Relation
from p3s.model.sizes.rivals import differ_at
from p3s.model.types import Model, Phase, Slot
from p3s.model.verdicts import ranks_differ

#: Rivals are compared up to this many times the largest traced count; of a law, so many are.
_FAR, MAX_RIVALS = 8, 4
#: Counts above this one are not tried one by one.
_MOST = 512


@dataclass(frozen=True)
class Difference:
    """The smallest count ``n`` at which a rival differs, with its grid; None: not up to ``top``."""

    n: int | None
    dims: tuple[int, ...]
    top: int


@dataclass(frozen=True)
class SlotRivals:
    """Where the rivals of a slot differ: of its guard, of its size, of how often it is called."""

    guards: Sequence[Difference]
    elements: Sequence[Difference]
    count: Sequence[Difference]


@dataclass(frozen=True)
class PhaseValues:
    """A phase evaluated.

    weights: by the law at the counts of ``weight_points``, None where it claims nothing; works:
    mean work of a rank by the laws of its segments at the counts of ``work.points``; weight_rivals:
    those of the weight; slots: of each call that is explained, by the call's number.
    """

    weights: Sequence[int | None]
    works: Sequence[float]
    weight_rivals: Sequence[Difference]
    slots: Mapping[int, Sequence[SlotRivals]]


def phase_values(model: Model, number: int, calls: Sequence[int]) -> PhaseValues:
    """Return what a phase, and calls of it, come to."""
    phase = model.phases[number]
    return PhaseValues(
        [_weight_at(model, phase, n) for n, _ in phase.weight_points],
        [_work_at(model, phase, int(n)) for n, _ in phase.work.points],
        _of_law(model, phase.weight),
        {i: [_of_slot(model, slot) for slot in model.items[i].slots] for i in calls},
    )


def _weight_at(model: Model, phase: Phase, n: int) -> int | None:
    if n < (phase.weight.holds_from or 0):
        return None
    return phase_weight(phase, model_grid(model, n))


def _work_at(model: Model, phase: Phase, n: int) -> float:
    made = generate(model, n)
    mine = made.phase == phase.phase
    ranks = len(set(made.rank[mine].tolist()))
    return float((made.work * made.repeat)[mine].sum()) / max(ranks, 1)


def _of_slot(model: Model, slot: Slot) -> SlotRivals:
    alone = (replace(slot, guard_rivals=(rival,)) for rival in slot.guard_rivals)
    return SlotRivals(
        [_first_difference(model, partial(ranks_differ, each)) for each in alone],
        _of_law(model, slot.elements, slot.relation),
        _of_law(model, slot.count),
    )


def _of_law(
    model: Model, law: CountLaw | SizeLaw, relation: Relation | None = None
) -> list[Difference]:
    """Return where the first rivals of a law differ from it; relation: who calls whom."""
    alone = (replace(law, rivals=(rival,)) for rival in (law.rivals or ())[:MAX_RIVALS])
    return [_first_difference(model, partial(differ_at, each, relation=relation)) for each in alone]


def _first_difference(model: Model, differ: Callable[[GridAt], bool]) -> Difference:
    """Return the first count that the program may take at which two laws differ."""
    top = min(_FAR * max(model.counts), _MOST)
    for n in range(2, top + 1):
        try:
            grid = model_grid(model, n)
        except P3SError:
            continue
        if differ(grid):
            return Difference(n, tuple(grid.dims), top)
    return Difference(None, (), top)
