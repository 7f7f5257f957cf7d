"""The items of a program with the laws of their sizes and numbers, on one process grid.

What sizes cost decides between grids, so they are fitted before all else; who takes part and the
work come when the grid is chosen.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from p3s.base.ops import COMPLETION, RECV, SEND
from p3s.laws.counts import Law
from p3s.model.grid.at import RELATION_BITS
from p3s.model.grid.choose import GridChoice
from p3s.model.grid.nodes import Node
from p3s.model.law_types import CountLaw
from p3s.model.partners.communicator_laws import UnknownMembers
from p3s.model.partners.items import Alike, items_of
from p3s.model.reasons import Code, Reason
from p3s.model.sizes.forms import Search
from p3s.model.sizes.hypotheses import equation_bits
from p3s.model.sizes.joint import JointSizes
from p3s.model.sizes.observed import ObservedRows, digest
from p3s.model.sizes.slots import (
    OF_SIZES,
    SizedSlot,
    finish_slots,
    fit_sizes,
    numbers_of,
    with_size,
)
from p3s.model.types import Item, Slot
from p3s.signature.tables import PointTable

#: Bits of a number without a law, and of sizes that vary inside a run.
WITHOUT_LAW = 60.0


def bits_of_counts(laws: Iterable[CountLaw]) -> float:
    """Return the bits of laws of numbers, those of one equation once."""
    exprs = [law.expr for law in laws]
    known = {repr(expr): expr for expr in exprs if expr is not None}
    return exprs.count(None) * WITHOUT_LAW + sum(map(equation_bits, known.values()))


#: Elements from which on a constant size may be part of an extent.
_LONG = 64


@dataclass(frozen=True)
class Draft:
    """An item with what was traced of it."""

    item: Item
    seen: ObservedRows


class TooDearError(Exception):
    """Sizes and numbers cost more than they may."""


class Sizing:
    """The items of a program on one grid, fitted as far as grids are compared by it.

    most: what sizes and numbers may cost, in relations. Raises TooDearError as soon as it is known
    that they cost more.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        choice: GridChoice,
        tables: Sequence[PointTable],
        typed: Collection[int],
        most: float = math.inf,
    ) -> None:
        self._choice, self._typed = choice, typed
        self._counts = [t.np for t in tables]
        self._varying = {v for t in tables for v in t.moved}
        self._drafts = _drafts(nodes, choice, tables)
        self._alike = self._equal()
        self._check_numbers(most)
        search = Search(frozenset(typed))
        self._sized: dict[int, list[SizedSlot]] = {}
        for first, *others in self._alike:
            some = fit_sizes(self._drafts[first].seen, self._counts, search, self._varies(first))
            self._sized.update(dict.fromkeys((first, *others), some))
        # how many requests a call completes is no message: nothing is shared with sizes
        self._joint = [
            JointSizes(
                {
                    (k, i): obs
                    for k, some in self._sized.items()
                    for i, (_, obs) in enumerate(some)
                    if obs is not None and (self._drafts[k].item.kind == COMPLETION) == completing
                },
                Search(frozenset(typed)) if completing else search,
            )
            for completing in (False, True)
        ]

    def of(self, choice: GridChoice) -> bool:
        """Tell whether these are the items on a grid."""
        mine = self._choice
        same = mine.communicators is choice.communicators
        return same and _partners(mine) == _partners(choice)

    def cost(self) -> float:
        """Return the bits of all sizes and numbers, in relations."""
        sized = [each for some in self._sized.values() for each in some]
        bits = sum(joint.total for joint in self._joint)
        bits += sum(obs is None for _, obs in sized) * WITHOUT_LAW
        return (bits + bits_of_counts(slot.count for slot, _ in sized)) / RELATION_BITS

    def finished(self, choice: GridChoice, unmodelled: Mapping[str, int]) -> list[Draft]:
        """Return every item with its slots, complete."""
        laws = [joint.with_rivals() for joint in self._joint]
        done = {
            k: finish_slots(self._drafts[k].seen, self._counts, self._varies(k), some)
            for k, some in self._sized.items()
        }
        slots = {
            k: tuple(self._constant_or_not(slot) for slot in some)
            for k, some in self._with_laws(done, laws).items()
        }
        out = []
        for k, d in enumerate(self._drafts):
            item = replace(d.item, slots=_drop_guards(d.item, slots[k], unmodelled))
            if item.relation is not None:
                rivals = choice.explained[item.node].rivals
                dearer = tuple(cost * RELATION_BITS for cost in rivals.values())
                item = replace(item, rivals=tuple(rivals), dearer=dearer)
            out.append(replace(d, item=item))
        return out

    def _constant_or_not(self, slot: Slot) -> Slot:
        """Return a slot that says along which dimensions its size may be part of an extent."""
        expr = slot.elements.expr
        if expr is None or expr[0] != "num" or expr[1] < _LONG or expr[1] in self._typed:
            return slot
        extents = zip(*(self._choice.grids[n].dims for n in slot.seen), strict=True)
        fixed = tuple(d for d, p in enumerate(extents) if len(set(p)) == 1 and p[0] > 1)
        if not fixed:
            return slot
        return replace(slot, why=(*slot.why, Reason(Code.CONSTANT_OPEN, dims=fixed)))

    def _equal(self) -> list[list[int]]:
        """Return the items that did the same, those seen at few counts first."""
        ranked = sorted(range(len(self._drafts)), key=lambda k: self._spread(k))
        alike: dict[object, list[int]] = {}
        for k in ranked:
            alike.setdefault((self._varies(k), digest(self._drafts[k].seen)), []).append(k)
        return list(alike.values())

    def _check_numbers(self, most: float) -> None:
        """Raise TooDearError where numbers that have no law cost more than everything may.

        On a wrong grid many have none, those seen least first.
        """
        least = 0.0
        for some in self._alike if most < math.inf else ():
            laws = numbers_of(self._drafts[some[0]].seen, self._counts, self._varies(some[0]))
            least += sum(law.expr is None for law in laws) * len(some) * WITHOUT_LAW / RELATION_BITS
            if least > most:
                raise TooDearError

    def _varies(self, k: int) -> bool:
        item = self._drafts[k].item
        return f"{item.site}:{item.op}" in self._varying

    def _with_laws(
        self, slots: Mapping[int, Sequence[Slot]], laws: Sequence[Mapping[tuple[int, int], Law]]
    ) -> dict[int, tuple[Slot, ...]]:
        """Return the slots per item with what the sizes of the whole program say together."""
        every = {key: law for some in laws for key, law in some.items()}
        return {
            k: tuple(
                with_size(slot, every[k, i]) if (k, i) in every else slot
                for i, slot in enumerate(some)
            )
            for k, some in slots.items()
        }

    def _spread(self, k: int) -> tuple[int, int]:
        """Return at how many counts an item was seen, and with how many sizes."""
        seen = self._drafts[k].seen
        there = [n for n in self._counts if len(seen.rows[n].rank)]
        return len(there), len({b for n in there for b in seen.rows[n].nbytes.tolist()})


class Sizings:
    """The items of a program on the grids that it may have, each fitted once.

    Called with a choice, it is the vote of the sizes of messages for it.
    """

    def __init__(
        self, nodes: Sequence[Node], tables: Sequence[PointTable], typed: Collection[int]
    ) -> None:
        self._nodes, self._tables, self._typed = nodes, tables, typed
        self._known: list[Sizing] = []

    def of(self, choice: GridChoice, most: float = math.inf) -> Sizing:
        """Return the items on a grid. Raises TooDearError where they cost more than ``most``."""
        for sizing in self._known:
            if sizing.of(choice):
                return sizing
        self._known.append(Sizing(self._nodes, choice, self._tables, self._typed, most))
        return self._known[-1]

    def __call__(self, choice: GridChoice, most: float = math.inf) -> float:
        """Return the bits of all sizes and numbers, in relations; inf where they are too many."""
        try:
            return self.of(choice, most).cost()
        except TooDearError:
            return math.inf


def _partners(choice: GridChoice) -> object:
    """Return what the items of a program depend on."""
    return (
        [(n, g.key) for n, g in choice.grids.items()],
        [(i, e.relations, e.ambiguous) for i, e in choice.explained.items()],
    )


def _drafts(nodes: Sequence[Node], choice: GridChoice, tables: Sequence[PointTable]) -> list[Draft]:
    """Return every item, slots still to come."""
    of_count = {t.np: [g.tag for g in t.groups] for t in tables}
    tag_values = [_tag_value(node, of_count) for node in nodes]
    alike: Alike = {}
    return [
        Draft(
            Item(
                node=index,
                site=node.site,
                op=node.op,
                kind=node.kind,
                tag=node.tag,
                tag_value=tag_values[index],
                relation=seen.relation,
                place=seen.place,
                notes=tuple(seen.notes),
                slots=(),
            ),
            seen,
        )
        for index, node in enumerate(nodes)
        for seen in items_of(node, index, choice, tables, alike)
    ]


def _drop_guards(
    item: Item, slots: Sequence[Slot], unmodelled: Mapping[str, int]
) -> tuple[Slot, ...]:
    """Return the slots of an item; without a guard where the item has no rule at all."""
    if item.kind == COMPLETION:  # how many requests a call completes is no message
        slots = [replace(s, why=tuple(w for w in s.why if w.code not in OF_SIZES)) for s in slots]
    why = None
    if item.op in unmodelled:
        why = Code.NOT_MODELLED
    elif item.kind in (SEND, RECV) and item.relation is None:
        why = Code.NO_PARTNERS
    elif isinstance(item.place, UnknownMembers):
        why = Code.NO_MEMBERS
    if why is None:
        return tuple(slots)
    return tuple(replace(s, guard=None, why=(*s.why, Reason(why))) for s in slots)


def _tag_value(node: Node, of_count: Mapping[int, Sequence[int]]) -> int:
    """Return the tag of a node, -1 for several; of_count: those of the groups of every count."""
    tags = {of_count[n][g] for n, rows in node.rows.items() for g in set(rows.group.tolist())}
    return tags.pop() if len(tags) == 1 else -1
