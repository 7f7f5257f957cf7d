"""Verdicts at one process count: what all rules that explain the traces agree on is sure there."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from p3s.laws.exact import exact_value
from p3s.laws.expr import Expr, symbols_of
from p3s.model.evaluate import model_grid
from p3s.model.grid.at import RELATION_BITS, GridAt
from p3s.model.grid.atoms import HasPartner
from p3s.model.judge import divides, judged_completions
from p3s.model.law_types import CountLaw, SizeLaw
from p3s.model.partners.communicator_laws import World
from p3s.model.partners.relation import Relation
from p3s.model.partners.rivals import enumerate_pairs
from p3s.model.partners.stencil import at_stage, partners
from p3s.model.reasons import Code, Reason, Verdict
from p3s.model.sizes.observed import differ_at
from p3s.model.types import Item, Model, Phase, Slot

#: Verdicts of rules that are no surer than the process grid and the partners they hold for.
_LOWERED = (Verdict.EXACT, Verdict.FITTED, Verdict.STATISTICAL)
#: What of the program's structure is open at one count.
_STRUCTURE = (Code.GRID_OPEN, Code.PARTNERS_OPEN)


#: The chance that an extent which nothing shows is no longer than one that the program was given:
#: nothing speaks for either.
_BEYOND = 0.5


def structure_open(item: Item) -> bool:
    """Tell whether an item's grid or partners are open at the count that it was judged at."""
    return any(reason.code in _STRUCTURE for reason in item.why)


def other_extents(model: Model, n: int) -> tuple[tuple[int, ...], ...]:
    """Return the extents at ``n`` of the process grids that explain the traces beside the one used.

    Two that number their ranks in another way have the same extents, which are there once.
    """
    others = [] if n in model.counts else _other_grids(model, model_grid(model, n))
    return tuple(dict.fromkeys(tuple(other.grid.dims) for other in others))


def chance_of_another(model: Model, n: int) -> float:
    """Return how likely it is that the structure at ``n`` is another, between 0 and 1.

    Process grids that differ there weigh as often as programs have them, relations by the bits
    that they cost more than those used. model: as judged at ``n``.
    """
    codes = {why.code for item in model.items for why in item.why}
    chance, grid = 0.0, model_grid(model, n)
    if Code.PARTNERS_OPEN in codes:
        nodes = items_with_rivals(model).values()
        chance = max((_chance_of_others(items, grid) for items in nodes), default=0.0)
        if any(_beyond_domain(item, grid) for item in model.items):
            chance = max(chance, _BEYOND)
    if Code.GRID_OPEN in codes:
        rules = model.grid
        differ = sum(other.weight for other in _other_grids(model, grid))
        agree = rules.family.weight() + sum(
            rule.weight()
            for rule in rules.rivals
            if (there := rule.at(n)) is not None and _key(there) == _key(grid)
        )
        chance = max(chance, differ / (differ + agree))
    return chance


def judged_at(model: Model, n: int) -> Model:
    """Return the model with the verdicts that its items and weights have at ``n`` processes.

    A rule is exact where no other rule that explains all traces says something else at ``n``: of
    sizes, numbers, the process grid or directions. What is ambiguous elsewhere may be exact there.
    At a traced count the grid and the partners are what they were.
    """
    grid = model_grid(model, n)
    others = [] if n in model.counts else _other_grids(model, grid)
    phases = tuple(_weight_at(phase, grid) for phase in model.phases)
    nodes = {} if n in model.counts else items_with_rivals(model)
    unsure = {node for node, mine in nodes.items() if partners_differ(mine, grid)}
    items = [_item_at(item, model, grid, others, unsure) for item in model.items]
    return replace(model, items=judged_completions(items), phases=phases)


@dataclass(frozen=True)
class _RivalGrid:
    """A grid that the program may have instead.

    elsewhere: nodes that have other partners on it; None where all have the same relations there.
    weight: how likely its rules are, relative to others.
    """

    grid: GridAt
    elsewhere: frozenset[int] | None
    weight: float = 0.0


def _other_grids(model: Model, grid: GridAt) -> list[_RivalGrid]:
    """Return the different grids that other rules give; a rule that has none is refuted there."""
    seen = {_key(grid)}
    found = []
    for rule in model.grid.rivals:
        other = rule.at(grid.n)
        if other is not None and _key(other) not in seen:
            seen.add(_key(other))
            found.append(_RivalGrid(other, None, rule.weight()))
    here: dict[int, np.ndarray] | None = None
    for near in model.grid.others:
        other = near.rule.at(grid.n)
        if other is None:
            continue
        here = here if here is not None else _pairs_of_nodes(model, grid)
        there = {node: _pairs(relations, other) for node, relations in near.partners if relations}
        elsewhere = frozenset(
            node
            for node, pairs in here.items()
            if node not in there or not np.array_equal(there[node], pairs)
        )
        weight = near.rule.weight() * 2.0 ** (-RELATION_BITS * near.more)
        found.append(_RivalGrid(other, elsewhere, weight))
    return found


def _pairs_of_nodes(model: Model, grid: GridAt) -> dict[int, np.ndarray]:
    relations: dict[int, list[Relation]] = {}
    for item in model.items:
        if item.relation is not None:
            relations.setdefault(item.node, []).append(item.relation)
    return {node: _pairs(each, grid) for node, each in relations.items()}


def _pairs(relations: Iterable[Relation], grid: GridAt) -> np.ndarray:
    """Return the pairs of ranks and partners, each as one number."""
    return np.unique(np.concatenate([enumerate_pairs(relation, grid) for relation in relations]))


def _key(grid: GridAt) -> bytes:
    return repr(grid.dims).encode() + grid.coords.tobytes()


def _weight_at(phase: Phase, grid: GridAt) -> Phase:
    law = phase.weight
    if phase.weight_verdict == Verdict.EXACT and law.rivals and differ_at(law, grid):
        return replace(phase, weight_verdict=Verdict.AMBIGUOUS)
    return phase


def _item_at(
    item: Item, model: Model, grid: GridAt, others: Sequence[_RivalGrid], unsure: Collection[int]
) -> Item:
    verdict = item.verdict
    if verdict == Verdict.AMBIGUOUS and item.settled != verdict and not _open_at(item, model, grid):
        verdict = item.settled
    open_here = []
    if any(_differs_on(item, grid, other) for other in others):
        open_here.append(Code.GRID_OPEN)
    elif item.node in unsure or _beyond_domain(item, grid):
        open_here.append(Code.PARTNERS_OPEN)
    if any(ranks_differ(slot, grid) for slot in item.slots):
        open_here.append(Code.RANKS_OPEN)
    if open_here and verdict in _LOWERED:
        verdict = Verdict.AMBIGUOUS
    if verdict == Verdict.EXACT and _open_at(item, model, grid):
        verdict = Verdict.AMBIGUOUS
    if any(_law_open(slot.count, grid, slot.relation) for slot in item.slots):
        open_here.append(Code.NUMBERS_OPEN)
    why = (*item.why, *map(Reason, open_here))
    return replace(item, verdict=verdict, why=why)


def _beyond_domain(item: Item, grid: GridAt) -> bool:
    """Tell whether more blocks are cut than the extent that the program seems to cut has cells."""
    return any(
        grid.dims[d] > why.at for why in item.why if why.code == Code.DOMAIN_OPEN for d in why.dims
    )


def partners_differ(items: Sequence[Item], grid: GridAt) -> bool:
    """Tell whether another relation that has the traced partners leads to others on a grid.

    items: those of one node, which have the same rivals.
    """
    return any(_differing(items, grid))


def _chance_of_others(items: Sequence[Item], grid: GridAt) -> float:
    """Return how likely it is that a node's partners on a grid are those of a rival that differs.

    The cheapest of these stands for all: rivals are mostly ways of writing it. It is as likely as
    2 to the power of the bits that it costs less.
    """
    dearer = items[0].dearer or (0.0,) * len(items[0].rivals)
    differ = zip(dearer, _differing(items, grid), strict=True)
    weight = max((2.0**-bits for bits, other in differ if other), default=0.0)
    return weight / (1.0 + weight)


def _differing(items: Sequence[Item], grid: GridAt) -> Iterator[bool]:
    """Yield whether each rival relation of a node leads to other partners on a grid."""
    if not items or not items[0].rivals:
        return
    guards = [[s.guard for s in each.slots if s.guard is not None] for each in items]
    some = [(each.relation, g) for each, g in zip(items, guards, strict=True) if each.relation]
    here = np.unique(np.concatenate([enumerate_pairs(rel, grid, g) for rel, g in some]))
    bare = np.unique(np.concatenate([enumerate_pairs(rel, grid) for rel, _ in some]))
    every = [guard for each in guards for guard in each]
    rivals = (enumerate_pairs(rel, grid, every) for rel in items[0].rivals)
    if not np.array_equal(here, bare):  # guards say who takes part, whatever the partners
        ranks = np.unique(here // grid.n)
        rivals = (pairs[np.isin(pairs // grid.n, ranks)] for pairs in rivals)
    yield from (not np.array_equal(here, pairs) for pairs in rivals)


def ranks_differ(slot: Slot, grid: GridAt) -> bool:
    """Tell whether other guards that have the traced ranks have others on a grid."""
    if slot.guard is None or not slot.guard_rivals:
        return False
    stages: list[tuple[GridAt, np.ndarray | None]] = [(grid, None)]
    if slot.relation is not None:
        table = partners(slot.relation, grid)
        stages = [
            (at_stage(slot.relation, grid, s, len(table)), peers) for s, peers in enumerate(table)
        ]
    return any(
        not np.array_equal(slot.guard.holds(g, peers), other.holds(g, peers))
        for g, peers in stages
        for other in slot.guard_rivals
    )


def items_with_rivals(model: Model) -> dict[int, list[Item]]:
    """Return the items of each node whose partners other relations have, too."""
    out: dict[int, list[Item]] = {}
    for item in model.items:
        if item.rivals:
            out.setdefault(item.node, []).append(item)
    return out


def _open_at(item: Item, model: Model, grid: GridAt) -> bool:
    """Tell whether rules of an item that explain the traces differ on a grid."""
    codes = (Code.ONE_EXTENT, Code.CONSTANT_OPEN)
    fixed = {d for why in item.why if why.code in codes for d in why.dims or ()}
    if any(grid.dims[d] != dims[d] for d in fixed for dims in model.grid.dims.values()):
        return True
    narrow = {d for why in item.why if why.code == Code.DIRECTION for d in why.dims or ()}
    if any(grid.dims[d] > 2 for d in narrow if d < len(grid.dims)):
        return True
    return any(_slot_open(slot, grid) for slot in item.slots)


def _slot_open(slot: Slot, grid: GridAt) -> bool:
    return any(_law_open(law, grid, slot.relation) for law in (slot.elements, slot.count))


def _law_open(law: SizeLaw | CountLaw, grid: GridAt, relation: Relation | None) -> bool:
    """Tell whether rivals of a law differ on a grid, or it has no whole number there."""
    if law.rivals and differ_at(law, grid, relation):
        return True
    return law.expr is not None and _fraction(law.expr, grid.symbols)


def _laws(slot: Slot) -> Iterator[Expr]:
    yield from (law.expr for law in (slot.elements, slot.count) if law.expr is not None)


def _fraction(expr: Expr, known: Mapping[str, int]) -> bool:
    """Tell whether a law of n and the extents that divided evenly so far is no whole number."""
    if not divides(expr) or not symbols_of(expr) <= set(known):
        return False
    value = exact_value(expr, known)
    return value is None or value.denominator != 1


def _differs_on(item: Item, grid: GridAt, other: _RivalGrid) -> bool:
    """Tell whether an item says something else on another grid."""
    there = other.grid
    if not np.array_equal(grid.coords, there.coords) and not _of_world(item):
        if item.relation is None:
            return True
        if other.elsewhere is None:
            if not _same_partners(item.relation, grid, there):
                return True
        elif item.node in other.elsewhere:
            return True
        guards = [atom for slot in item.slots if slot.guard for atom in slot.guard.atoms]
        if any(not isinstance(a, HasPartner) for a in guards):
            return True
    extents = {f"p{d}" for d in range(len(grid.dims))} | {f"c{d}" for d in range(len(grid.dims))}
    alike = (
        grid.dims == there.dims if other.elsewhere is None else _lengths(grid) == _lengths(there)
    )
    return not alike and any(
        symbols_of(expr) & extents for slot in item.slots for expr in _laws(slot)
    )


def _same_partners(relation: Relation, grid: GridAt, other: GridAt) -> bool:
    """Tell whether partners are the same on two grids; along all ranks they are on any."""
    if getattr(relation, "axis", 0) is None:
        return True
    if len(grid.dims) != len(other.dims):
        return False
    here, there = partners(relation, grid), partners(relation, other)
    return here.shape == there.shape and bool(np.array_equal(here, there))


def _lengths(grid: GridAt) -> list[int]:
    """Return the extents above one, whichever dimensions they are of."""
    return sorted(p for p in grid.dims if p > 1)


def _of_world(item: Item) -> bool:
    """Tell whether an item knows the world alone: all ranks take part, no partner is named."""
    return item.relation is None and all(
        isinstance(s.place or World(ordinal=0), World) and s.guard is not None and not s.guard.atoms
        for s in item.slots
    )
