"""The order of events inside each rank: which turns of its loops every call is made in.

The tree of loops gives the order of calls in a turn. What is fitted here: how many iterations a
loop has each time it is entered, in which turns of the loops around it it is entered, and in which
iterations each rule (slot) of the model is carried out (p3s.model.order.patterns). Loops that go
from partner to partner are *walks*: they have one iteration for each of the rank's partners, in an
order of stages, of rules or of ranks that is the same for all ranks. p3s.model.order.unfold makes
the events of any rank at any count of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np

from p3s.base.arrays import Bools, Ints
from p3s.base.ops import COMPLETION
from p3s.laws.expr import Expr
from p3s.laws.lawfinder import find_law
from p3s.model.grid.at import GridAt
from p3s.model.law_types import LoopRule, Order, TripLaw, Trips, Walk, When
from p3s.model.order.observe import RankGroup, cells_of_rows, first_signs, see
from p3s.model.order.patterns import (
    Cell,
    LoopTurns,
    Pattern,
    Turns,
    fit_when,
    locate_rank,
    plain_turns,
    positions,
)
from p3s.model.types import Item, Model
from p3s.signature.calltable import least_backward
from p3s.signature.fold import Loop
from p3s.signature.parse import Nest
from p3s.signature.structure import PARTNERS, Structure
from p3s.signature.tables import PointTable

#: Longest list of trips by turn.
_MOST_TRIPS = 256


def fit_order(
    model: Model,
    tables: Sequence[PointTable],
    s: Structure,
    rows: Mapping[int, Any],
    grids: Mapping[int, GridAt],
) -> tuple[Order | None, tuple[Item, ...]]:
    """Return the loops with their trips, None without the sequences of all ranks, and the items.

    rows: the model evaluated at each count. Items get ``loops`` (around them, outermost first) and
    ``at`` (place among the siblings at each level), slots ``when``: patterns, one per loop around,
    for all ranks or for those with certain items.
    """
    if any(set(np.unique(t.rank).tolist()) - set(t.sequences) for t in tables):
        return None, model.items
    cells = [cells_of_rows(model, t, rows[t.np]) for t in tables]
    sign = first_signs(model, zip(tables, cells, strict=True))
    number = {node: k for k, node in enumerate(s.nodes)}

    def walked(apart: Collection[int]) -> tuple[list[RankGroup], list[LoopRule]]:
        at = zip(tables, cells, strict=True)
        kinds = [kind for t, mine in at for kind in see(model, t, s, mine, sign, apart)]
        walks = ((loop, _walk(loop, kinds, model.items)) for loop in _loops(s.nest)[1:])
        return kinds, [replace(loop, walk=walk) for loop, walk in walks]

    kinds, loops = walked(())
    apart = {x.loop for x in loops if x.walk is None and s.walks.get(x.loop) == PARTNERS}
    while apart:  # until all of them are walks with an iteration for each partner
        tried = walked(apart)
        found = {x.loop for x in tried[1] if x.loop in apart and x.walk is not None}
        if found == apart:
            kinds, loops = tried
            break
        apart = found
    ranks = _Ranks({x.loop: x.walk for x in loops if x.walk is not None}, model.items, grids)
    items = []
    for i, it in enumerate(model.items):
        node = number[(it.site, it.op)]
        depth = int(s.nest.depth[node])
        around = tuple(s.nest.around[node, 1 : depth + 1].tolist())
        slots = tuple(
            replace(slot, when=_fit_patterns((i, k), around, kinds, ranks))
            for k, slot in enumerate(it.slots)
        )
        at = tuple(s.nest.place[node, : depth + 1].tolist())
        items.append(replace(it, loops=around, at=at, slots=slots))
    loops = [replace(loop, trips=_trips(loop, kinds, items, grids)) for loop in loops]
    return Order(tuple(loops)), tuple(items)


def _loops(nest: Nest) -> list[LoopRule]:
    """Return every loop with the loop around it, its level and its place at every level."""
    number = {id(loop): k for k, loop in enumerate(nest.loops)}
    out = [LoopRule(k, 0, (), None, ()) for k in range(len(nest.loops))]
    for k, loop in enumerate(nest.loops):
        for at, child in enumerate(loop.children):
            if isinstance(child, Loop):
                i = number[id(child)]
                out[i] = replace(out[i], parent=k, at=(*out[k].at, at))
    return out


class _Ranks:
    """What kinds of ranks do inside loops; each is asked for by all rules of a loop."""

    def __init__(
        self, walks: Mapping[int, Walk], items: Sequence[Item], grids: Mapping[int, GridAt]
    ) -> None:
        self.walks, self._items_of_model, self.grids = walks, items, grids
        self._items: dict[tuple[int, int], tuple[int, ...]] = {}
        self._places: dict[tuple[int, int], tuple[dict[Cell, int], int]] = {}
        #: Rules that have the same calls in the same iterations have the same patterns.
        self.when: dict[object, tuple[When, ...]] = {}
        self._turns: dict[tuple[int, int], int] = {}
        self._different: dict[tuple[bytes, ...], int] = {}
        self._like: list[LoopTurns] = []
        self._joint: dict[tuple[_Iterations, ...], tuple[Pattern, ...] | None] = {}

    def turns(self, seen: RankGroup, loop: int) -> int:
        """Return the number of the iterations of a loop, the same for loops that go alike."""
        key = (id(seen), loop)
        if key not in self._turns:
            turns = seen.turns[loop]
            what = (str(turns.index.shape).encode(), turns.index.tobytes(), turns.trips.tobytes())
            self._turns[key] = self._different.setdefault(what, len(self._like))
            if self._turns[key] == len(self._like):
                self._like.append(turns)
        return self._turns[key]

    def joint(self, parts: Sequence[_Iterations]) -> tuple[Pattern, ...] | None:
        """Return the patterns that hold for all iterations given, None where there are none."""
        key = tuple(parts)
        if parts and key not in self._joint:
            rows = [one.rows(self._like[one.turns], self.grids[one.n]) for one in parts]
            made = np.concatenate([each for _, each in rows])
            when = fit_when(Turns.joined([turns for turns, _ in rows]), made)
            self._joint[key] = None if when is None else tuple(when)
        return self._joint.get(key)

    def items_in(self, seen: RankGroup, loop: int, level: int) -> tuple[int, ...]:
        """Return the items that a kind of rank has inside a loop."""
        key = (id(seen), loop)
        if key not in self._items:
            have = {seen.cells[c][0] for c in seen.cells_in(loop, level) if c >= 0}
            self._items[key] = tuple(sorted(have))
        return self._items[key]

    def places(self, seen: RankGroup, loop: int, level: int) -> tuple[dict[Cell, int], int]:
        """Return at which iteration of a loop's walk each cell is, and of how many."""
        key = (id(seen), loop)
        if key not in self._places:
            cells = known_cells(seen, loop, level, self._items_of_model)
            place = positions(self.walks[loop], cells)
            self._places[key] = place, max(place.values(), default=0) + 1
        return self._places[key]


def _fit_patterns(
    rule: tuple[int, int], loops: Sequence[int], kinds: Sequence[RankGroup], ranks: _Ranks
) -> tuple[When, ...]:
    """Return in which turns a rule (item, slot) is carried out, as rules of its own.

    One for all ranks; else one per set of items that a rank has in the loop (``items``): where a
    rank leaves out parts of its iterations, two of them may look like one.
    """
    if not loops:
        return (When(None, ()),)
    theirs = [(seen, mine) for seen in kinds if (mine := seen.rules.get(rule))]
    if theirs and all(
        len(seen.events[c]) == len(seen.turns[loops[-1]].index)
        for seen, mine in theirs
        for c in mine
    ):
        return (When(None, (["all"],) * len(loops)),)
    alike = [[_Iterations.of(seen, c, loops, ranks) for c in mine] for seen, mine in theirs]
    key = (tuple(loops), tuple((id(s), *mine) for (s, _), mine in zip(theirs, alike, strict=True)))
    if key not in ranks.when:
        ranks.when[key] = _patterns(theirs, alike, loops, ranks)
    return ranks.when[key]


class _Iterations(NamedTuple):
    """In which iterations a rank has a cell: all that patterns are found from, of any loop.

    turns: number of the iterations of the loop (of equal ones the same), made: indices of those
    with the cell; walk: per level its place and of how many, in a loop that is a walk.
    """

    turns: int
    n: int
    rank: int
    stage: int
    turn: int
    walk: tuple[tuple[int, int] | None, ...]
    made: bytes

    @staticmethod
    def of(seen: RankGroup, c: int, loops: Sequence[int], ranks: _Ranks) -> _Iterations:
        """Return those of a cell of a kind of rank."""
        cell = seen.cells[c]
        walk: list[tuple[int, int] | None] = []
        for x, k in enumerate(loops):
            at = ranks.places(seen, k, x + 1) if k in ranks.walks else None
            walk.append(at and (at[0].get(cell, -1), at[1]))
        made = seen.index[seen.events[c], : len(loops)].tobytes()
        turns = ranks.turns(seen, loops[-1])
        return _Iterations(turns, seen.n, seen.ranks[0], cell[2], cell[3], tuple(walk), made)

    def rows(self, turns: LoopTurns, grid: GridAt) -> tuple[Turns, Bools]:
        """Return the iterations one by one, and which of them have the cell."""
        m, levels = turns.index.shape
        walk = np.full((m, levels), -1, dtype=np.int64)
        keys = np.ones((m, levels), dtype=np.int64)
        for x, at in enumerate(self.walk):
            if at is not None:
                walk[:, x], keys[:, x] = at
        made = np.zeros(m, dtype=bool)
        index = np.frombuffer(self.made, dtype=np.int64).reshape(-1, levels)
        made[_rows_at(turns, index)] = True
        stage, turn = np.full(m, self.stage), np.full(m, self.turn)
        at_rank = locate_rank(grid, self.rank, m)
        return Turns(turns.index, turns.trips, stage, turn, walk, keys, *at_rank), made


def _patterns(
    theirs: Sequence[tuple[RankGroup, Sequence[int]]],
    alike: Sequence[Sequence[_Iterations]],
    loops: Sequence[int],
    ranks: _Ranks,
) -> tuple[When, ...]:
    """Return the patterns of a rule; theirs: kinds of ranks with the cells that they have of it."""
    groups: dict[tuple[int, ...], list[_Iterations]] = {}
    for (seen, _), mine in zip(theirs, alike, strict=True):
        groups.setdefault(ranks.items_in(seen, loops[-1], len(loops)), []).extend(mine)
    when = ranks.joint([one for group in groups.values() for one in group])
    if when is not None:
        return (When(None, when),)
    rules = tuple(
        When(have, each)
        for have, group in sorted(groups.items(), key=lambda g: (-len(g[0]), g[0]))
        if (each := ranks.joint(group)) is not None
    )
    return rules if len(groups) > 1 else ()


def _rows_at(turns: LoopTurns, index: Ints) -> Ints:
    """Return the numbers of the iterations with given indices."""
    radix = turns.index.max(axis=0, initial=0) + 1
    code = np.zeros(len(turns.index), dtype=np.int64)
    wanted = np.zeros(len(index), dtype=np.int64)
    for level, r in enumerate(radix.tolist()):
        code, wanted = code * r + turns.index[:, level], wanted * r + index[:, level]
    found: Ints = np.searchsorted(code, wanted)
    return found


def known_cells(
    seen: RankGroup, loop: int, level: int, items: Sequence[Item]
) -> list[tuple[Cell, int]]:
    """Return the known cells that a walk is made of, inside a loop, with their partners."""
    return [
        (seen.cells[c], seen.peer[c])
        for c in seen.cells_in(loop, level)
        if c >= 0 and items[seen.cells[c][0]].kind != COMPLETION
    ]


def _walk(loop: LoopRule, kinds: Sequence[RankGroup], items: Sequence[Item]) -> Walk | None:
    """Return the order of a loop's iterations if it goes from partner to partner, else None.

    A loop that holds nothing but such a loop is one with it: it goes round several times.
    """
    k, level = loop.loop, len(loop.at)
    evidence: list[tuple[dict[tuple[Cell, int], list[int]], list[int]]] = []
    for seen in kinds:
        if k not in seen.turns:
            continue
        cells = [
            c
            for c in seen.cells_in(k, level)
            if c < 0 or items[seen.cells[c][0]].kind != COMPLETION
        ]
        if cells[:1] == [-1]:
            continue
        trips = sorted(set(seen.turns[k].trips[:, -1].tolist()))
        at = {
            (seen.cells[c], seen.peer[c]): sorted(
                set(seen.index[seen.events[c], level - 1].tolist())
            )
            for c in cells
        }
        if len(at) * trips[-1] < sum(map(len, at.values())):
            return None
        evidence.append((at, trips))
    first = [{c: x[0] for c, x in at.items()} for at, _ in evidence]
    if not first or max(len(set(at.values())) for at in first) < 2:
        return None
    for walk in _keys(first):
        if all(_goes_round(positions(walk, list(at)), at, trips) for at, trips in evidence):
            return walk
    return None


def _goes_round(
    place: Mapping[Cell, int], at: Mapping[tuple[Cell, int], list[int]], trips: Sequence[int]
) -> bool:
    """Tell whether iterations come to one partner after the other, once or several times over.

    trips: numbers of iterations with which the loop is entered, ascending.
    """
    keys = max(place.values(), default=0) + 1
    return not any(t % keys for t in trips) and all(
        x == list(range(place[cell], trips[-1], keys)) for (cell, _), x in at.items()
    )


def _keys(evidence: Sequence[Mapping[tuple[Cell, int], int]]) -> Iterator[Walk]:
    """Yield ways in which a walk may be ordered, the simplest first.

    An order of partners says what comes first of two items that no rank has come to both of; an
    order of items that nothing shows does not.
    """
    yield Walk("stage")
    yield Walk("turn")
    order, shown = _rule_order(evidence)
    by_rules = [Walk("rules", order=order), Walk("rules", order=order, then="stage")]
    by_peer = [Walk("peer", sign=1), Walk("peer", sign=-1)]
    yield from [*by_rules, *by_peer] if shown else [*by_peer, *by_rules]


def _rule_order(
    evidence: Sequence[Mapping[tuple[Cell, int], int]],
) -> tuple[tuple[tuple[int, ...], ...], bool]:
    """Return the items of a walk in the order in which most ranks come to them, and whether some
    rank has come to both of any two that follow one another in it."""
    same: dict[int, int] = {}

    def root(i: int) -> int:
        while same.setdefault(i, i) != i:
            i = same[i]
        return i

    for at in evidence:
        first: dict[int, int] = {}
        for (cell, _), x in at.items():
            same[root(cell[0])] = root(first.setdefault(x, cell[0]))
    weight: dict[tuple[int, int], int] = {}
    alike = Counter(  # kinds of ranks that come to the same, and how many cells to each
        tuple(sorted(Counter((root(cell[0]), x) for (cell, _), x in at.items()).items()))
        for at in evidence
    )
    for what, many in alike.items():
        for ((i, x), here), ((j, y), there) in product(what, what):
            if x < y and i != j:
                weight[(i, j)] = weight.get((i, j), 0) + many * here * there
    members: dict[int, list[int]] = {}
    for i in sorted(same):
        members.setdefault(root(i), []).append(i)
    found = least_backward(sorted(members), weight)
    shown = all((i, j) in weight or (j, i) in weight for i, j in pairwise(found))
    return tuple(tuple(members[i]) for i in found), shown


def _trips(
    loop: LoopRule, kinds: Sequence[RankGroup], items: Sequence[Item], grids: Mapping[int, GridAt]
) -> tuple[Trips, ...]:
    """Return the rules for how often a loop goes round: one, or one per set of items of a rank."""
    k, level = loop.loop, len(loop.at)
    groups: dict[tuple[int, ...], list[RankGroup]] = {}
    for seen in kinds:
        if k in seen.turns:
            mine = {seen.cells[c][0] for c in seen.cells_in(k, level) if c >= 0}
            groups.setdefault(tuple(sorted(mine)), []).append(seen)
    everyone = [seen for group in groups.values() for seen in group]
    if everyone:
        one = _trip_rule(loop, everyone, items, grids)
        if one.law is not None and one.when is not None:
            return (one,)
    return tuple(
        replace(_trip_rule(loop, group, items, grids), items=mine)
        for mine, group in sorted(groups.items(), key=lambda g: (-len(g[0]), g[0]))
    )


def _trip_rule(
    loop: LoopRule, group: Sequence[RankGroup], items: Sequence[Item], grids: Mapping[int, GridAt]
) -> Trips:
    """Return in which turns of the loop around a loop is entered, and the law of its turns.

    The law of a walk says how often it goes round; without one the counts of its rules tell.
    """
    k, parent, walk = loop.loop, loop.parent, loop.walk
    parts: list[Turns] = []
    made: list[Bools] = []
    values: list[Ints] = []
    ns: list[Ints] = []
    for seen in group:
        around, mine = seen.turns[parent], seen.turns[k]
        m = len(around.index)
        number = np.bincount(mine.within, minlength=m)
        parts.append(plain_turns(around, *locate_rank(grids[seen.n], seen.ranks[0], m)))
        made.append(number > 0)
        if walk is not None:
            place = positions(walk, known_cells(seen, k, around.index.shape[1] + 1, items))
            number //= max(place.values(), default=0) + 1
        values.append(number)
        ns.append(np.full(m, seen.n))
    at = Turns.joined(parts)
    entered, n = np.concatenate(made), np.concatenate(ns)
    when = fit_when(at, entered) if at.index.shape[1] else []
    law = _trip_law(at.index[entered], n[entered], np.concatenate(values)[entered], grids)
    return Trips(None, None if when is None else tuple(when), law)


def _trip_law(index: Ints, n: Ints, value: Ints, grids: Mapping[int, GridAt]) -> TripLaw | None:
    flat = _law_of_counts(n, value, grids)
    if flat is not None:
        return TripLaw(expr=flat)
    for level in range(index.shape[1] - 1, -1, -1):
        x = index[:, level]
        if int(x.max()) < _MOST_TRIPS:
            listed = np.full(int(x.max()) + 1, -1, dtype=np.int64)
            listed[x] = value
            if np.array_equal(listed[x], value):
                return TripLaw(listed=tuple(listed.tolist()), level=level)
        for name, base in (
            ("step", value - x),
            ("step", value + x),
            ("shift", value << np.minimum(x, 40)),
        ):
            law = _law_of_counts(n, base, grids)
            if law is not None and name == "step":
                step = 1 if np.all(base + x == value) else -1
                return TripLaw(expr=law, step=step, level=level)
            if law is not None:
                return TripLaw(expr=law, shift=1, level=level)
    return None


def _law_of_counts(n: Ints, value: Ints, grids: Mapping[int, GridAt]) -> Expr | None:
    """Return the law of a number that is the same for all ranks of a count, else None."""
    counts, first = np.unique(n, return_index=True)
    if not np.array_equal(value, value[first][np.searchsorted(counts, n)]):
        return None
    envs = [{"n": c, **{f"p{d}": p for d, p in enumerate(grids[c].dims)}} for c in counts.tolist()]
    law = find_law(zip(envs, value[first].tolist(), strict=True), "whole").law
    return None if law is None else law.expr
