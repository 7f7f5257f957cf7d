"""The events of any rank in program order, at any count, beside the order of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from p3s.base.arrays import Bools, Ints
from p3s.base.errors import P3SError
from p3s.base.ops import COLLECTIVE, COMPLETION, IO, RECV, SEND
from p3s.capture.requests import receivers
from p3s.laws.exact import evaluate_int
from p3s.model.comparison import Difference, Moved, OrderAgreement
from p3s.model.grid.at import GridAt
from p3s.model.law_types import LoopRule, OrderedItem, TripLaw, Trips, When
from p3s.model.order.patterns import (
    LoopTurns,
    Pattern,
    all_hold,
    dimensions_of,
    locate_rank,
    one_row,
    positions,
    turn_of,
)
from p3s.model.types import Item, Model
from p3s.signature.tables import PointTable, first_rows


class Unfolder:
    """Makes the sequences of ranks from the rows of the scaled trace (ScaledRows).

    Ranks whose rows follow the same rules equally often have one order: it is made once.
    """

    def __init__(
        self, items: Sequence[Item | OrderedItem], loops: Sequence[LoopRule], rows: Any
    ) -> None:
        self.items, self.rows = items, rows
        self.loops = {loop.loop: loop for loop in loops}
        self.by_peer = any(loop.walk is not None and loop.walk.by == "peer" for loop in loops)
        self.env, self.grid = grid_env(rows.grid), rows.grid
        self.dimensions = places_asked_for(items, loops)
        self._known: dict[bytes, Ints] = {}
        self._columns = np.stack([rows.item, rows.slot, rows.stage, turn_of(rows), rows.repeat])

    def sequence(self, rank: int) -> Ints:
        """Return the number of its row for every event of a rank, in program order."""
        a, b = (int(x) for x in np.searchsorted(self.rows.rank, [rank, rank + 1]))
        key = self._kind(a, b)
        if key not in self._known:
            self._known[key] = self._rank(a, b).order()[0]
        return self._known[key] + a

    def kinds(self) -> Iterator[tuple[Ints, Ints, Ints, Ints]]:
        """Yield ranks that have one order, each one's first row, and that order.

        ranks and first rows: one entry per rank. The order is rows, counted from the first one of
        the rank, and iterations, shape (events, levels): the index in each loop around, -1 for
        none. All iterations of a walk over partners count as one."""
        ranks, first = np.unique(self.rows.rank, return_index=True)
        bounds = [*first.tolist(), len(self.rows.rank)]
        alike: dict[bytes, list[int]] = {}
        for k in range(len(ranks)):
            alike.setdefault(self._kind(bounds[k], bounds[k + 1]), []).append(k)
        for them in alike.values():
            a, b = bounds[them[0]], bounds[them[0] + 1]
            rank = self._rank(a, b)
            rows, keys = rank.order()
            turns = keys[:, 1::2]
            for k, (_, number) in rank.place.items():
                level = len(self.loops[k].at) - 1
                inside = np.array(
                    [len(around) > level and around[level] == k for around in rank.loops]
                )[rows]
                turns[inside, level] //= number
            yield ranks[them], first[them], rows, turns

    def _kind(self, a: int, b: int) -> bytes:
        """Return what is the same for ranks that have one order; a, b: the rows of one."""
        key = self._columns[:, a:b].tobytes()
        if self.by_peer:
            key += np.argsort(self.rows.peer[a:b], kind="stable").tobytes()
        if self.dimensions and a < b:
            at = locate_rank(self.grid, int(self.rows.rank[a]), 1)[0]
            key += at[0, [d for d in self.dimensions if d < at.shape[1] - 1]].tobytes()
        return key

    def _rank(self, a: int, b: int) -> _Rank:
        number = int(self.rows.rank[a]) if a < b else 0
        return _Rank(self, number, self._columns[:, a:b], self.rows.peer[a:b])


def places_asked_for(
    items: Sequence[Item | OrderedItem], loops: Sequence[LoopRule]
) -> tuple[int, ...]:
    """Return the dimensions of the process grid that the order of events depends on."""
    rules = [
        *(when.when for it in items for slot in it.slots for when in slot.when or ()),
        *(trips.when for loop in loops for trips in loop.trips),
    ]
    return tuple(sorted({d for rule in rules for d in dimensions_of(rule or ())}))


def grid_env(grid: GridAt) -> dict[str, int]:
    """Return the symbols of laws that hold for all ranks of a count."""
    return _symbols(grid.n, grid.dims)


def _symbols(n: int, dims: Sequence[int]) -> dict[str, int]:
    return {"n": n, **{f"p{d}": p for d, p in enumerate(dims)}}


def constant_trips(law: TripLaw | None, n: int, dims: Sequence[int]) -> int | None:
    """Return the iterations of a loop at a count and its grid; None where entries differ."""
    if law is None or law.expr is None or law.step is not None or law.shift is not None:
        return None
    return int(evaluate_int(law.expr, _symbols(n, dims)))


class _Rank:
    """One rank: the iterations of its loops, then its events."""

    def __init__(self, all_: Unfolder, number: int, columns: Ints, peer: Ints) -> None:
        self.all, self.number = all_, number
        self.item, self.slot, self.stage, self.turn, self.repeat = columns
        self.peer = peer
        self.loops: list[tuple[int, ...]] = [all_.items[i].loops or () for i in self.item.tolist()]
        none = np.zeros((1, 0), dtype=np.int64)
        self.turns = {0: LoopTurns(none, none, np.zeros(1, dtype=np.int64))}
        self.place: dict[int, tuple[Ints, int]] = {}
        self.where = locate_rank(all_.grid, number, 1)
        self._inside: dict[int, set[int]] = {}
        self._picked: dict[object, Ints] = {}
        rows_in: dict[int, list[int]] = {}
        for x, around in enumerate(self.loops):
            for k in around:
                rows_in.setdefault(k, []).append(x)
        for k, loop in sorted(all_.loops.items()):
            if k in rows_in and loop.parent in self.turns:
                self._enter(loop, rows_in[k])

    def _enter(self, loop: LoopRule, inside: list[int]) -> None:
        around = self.turns[loop.parent]
        m = len(around.index)
        rule = rule_for(loop.trips, {int(self.item[x]) for x in inside})
        at = one_row(around, *self.where)
        entered = all_hold(rule.when or () if rule else (), at)
        law = rule.law if rule else None
        trips = np.where(entered, self._trips(loop, law, inside, around, entered), 0)
        if m and not trips.any() and self.repeat[inside].any():
            # calls are made in it, whatever the law says: it is entered once
            trips[int(entered.argmax())] = (
                self.place[loop.loop][1] if loop.loop in self.place else 1
            )
        within = np.repeat(np.arange(m), trips)
        begin = np.cumsum(trips) - trips
        index = np.arange(len(within)) - begin[within]
        self.turns[loop.loop] = LoopTurns(
            np.concatenate([around.index[within], index[:, None]], axis=1),
            np.concatenate([around.trips[within], trips[within][:, None]], axis=1),
            within,
        )

    def _trips(
        self,
        loop: LoopRule,
        law: TripLaw | None,
        inside: list[int],
        around: LoopTurns,
        entered: Bools,
    ) -> Ints:
        keys = 1
        if loop.walk is not None:
            cells = {
                x: (int(self.item[x]), int(self.slot[x]), int(self.stage[x]), int(self.turn[x]))
                for x in inside
                if self.all.items[self.item[x]].kind != COMPLETION
            }
            found = positions(loop.walk, [(c, int(self.peer[x])) for x, c in cells.items()])
            place = np.full(len(self.item), -1, dtype=np.int64)
            for x, cell in cells.items():
                place[x] = found[cell]
            keys = max(len(set(found.values())), 1)
            self.place[loop.loop] = place, keys
        return keys * self._rounds(loop, law, inside, around, entered)

    def _rounds(
        self,
        loop: LoopRule,
        law: TripLaw | None,
        inside: list[int],
        around: LoopTurns,
        entered: Bools,
    ) -> Ints:
        m = len(entered)
        if law is None:  # what is done in every iteration says how many there are
            entries = max(int(entered.sum()), 1)
            most = max(
                (int(self.repeat[x]) // entries for x in inside if self.loops[x][-1] == loop.loop),
                default=1,
            )
            return np.full(m, max(most, 1), dtype=np.int64)
        level = around.index[:, law.level] if law.level is not None else np.zeros(m, dtype=np.int64)
        if law.listed is not None:
            at = np.minimum(level, len(law.listed) - 1)
            return np.maximum(np.array(law.listed, dtype=np.int64)[at], 0)
        base = int(evaluate_int(law.expr or [], self.all.env))
        if law.step is not None:
            result: Ints = np.maximum(base + law.step * level, 0)
            return result
        if law.shift is not None:
            return base >> np.minimum(level, 40)
        return np.full(m, base, dtype=np.int64)

    def order(self) -> tuple[Ints, Ints]:
        """Return the row of every event in program order, and the places and iterations that sort
        them.

        The second has the shape (events, 2 * levels + 1): place, index of the loop there, ...
        """
        rules: dict[tuple[int, int], list[int]] = {}
        for x, (i, k) in enumerate(zip(self.item.tolist(), self.slot.tolist(), strict=True)):
            one = self.all.items[i].kind == COMPLETION
            rules.setdefault((i, k) if one else (-1, x), []).append(x)
        which: list[Ints] = []
        keys: list[Ints] = []
        depth = max((len(around) for around in self.loops), default=0)
        for mine in rules.values():
            rows, key = self._events(mine, 2 * depth + 1)
            which.append(rows)
            keys.append(key)
        if not which:
            return np.zeros(0, dtype=np.int64), np.zeros((0, 2 * depth + 1), dtype=np.int64)
        row, key = np.concatenate(which), np.concatenate(keys)
        sorted_ = np.lexsort((row, *key.T[::-1]))
        return row[sorted_], key[sorted_]

    def _when(self, rules: Sequence[When], loops: Sequence[int]) -> Sequence[Pattern] | None:
        if len(rules) == 1 and rules[0].items is None:
            return rules[0].when
        rule = rule_for(rules, self._items_in(loops[-1], len(loops)) if loops else set())
        return rule.when if rule else None

    def _items_in(self, loop: int, levels: int) -> set[int]:
        """Return the rank's items inside a loop, so many loops deep."""
        if loop not in self._inside:
            self._inside[loop] = {
                int(i)
                for i, around in zip(self.item, self.loops, strict=True)
                if len(around) >= levels and around[levels - 1] == loop
            }
        return self._inside[loop]

    def _events(self, mine: list[int], width: int) -> tuple[Ints, Ints]:
        """Return the rows of the events of one rule (of one partner), and what sorts them."""
        x = mine[0]
        item = self.all.items[self.item[x]]
        loops = item.loops or ()
        turns = self.turns.get(loops[-1] if loops else 0, self.turns[0])
        m = len(turns.index)
        total = sum(self.repeat[mine].tolist()) if len(mine) > 1 else int(self.repeat[x])
        rows = np.full(total, x, dtype=np.int64)
        if len(mine) > 1:
            rows = np.array(mine, dtype=np.int64)[np.arange(total) % len(mine)]
        pick = self._pick(x, item, turns, loops)
        if len(pick) != total:  # the pattern does not say it: spread evenly over the iterations
            pick = np.arange(total) * m // max(total, 1) if m else np.zeros(total, dtype=np.int64)
        key = np.full((total, width), -1, dtype=np.int64)
        at = item.at or ()
        key[:, 0 : 2 * len(at) : 2] = at
        levels = min(len(at), turns.index.shape[1])
        if m:
            key[:, 1 : 2 * levels : 2] = turns.index[pick, :levels]
        return rows, key

    def _pick(
        self, x: int, item: Item | OrderedItem, turns: LoopTurns, loops: Sequence[int]
    ) -> Ints:
        """Return the iterations that the rule of a row is carried out in, as its pattern says."""
        rules = item.slots[self.slot[x]].when or ()
        walks = tuple(
            (level, self.place[loop][0][x], self.place[loop][1])
            for level, loop in enumerate(loops)
            if loop in self.place
        )
        # rules that are kept as long as their items; equal ones mostly are the same
        key = (id(rules), loops, self.stage[x], self.turn[x], walks)
        if key not in self._picked:
            when = self._when(rules, loops)
            if when is None:
                self._picked[key] = np.zeros(0, dtype=np.int64)
            elif all(pattern[0] == "all" for pattern in when):
                self._picked[key] = np.arange(len(turns.index))
            else:
                at = one_row(turns, *self.where)
                for level, place, number in walks:
                    at.walk[0, level], at.keys[0, level] = place, number
                at = replace(at, stage=self.stage[x : x + 1], turn=self.turn[x : x + 1])
                self._picked[key] = np.flatnonzero(all_hold(when, at))
        return self._picked[key]


R = TypeVar("R", When, Trips)


def rule_for(rules: Sequence[R], items: set[int]) -> R | None:
    """Return the rule of the set of items that is most like the rank's, None of no rules."""
    best: tuple[float, R] | None = None
    for rule in rules:
        theirs = items if rule.items is None else set(rule.items)
        like = len(items & theirs) / max(len(items | theirs), 1)
        if best is None or like > best[0]:
            best = (like, rule)
    return best[1] if best else None


Event = tuple[str, int, int]


def compare_order(
    model: Model, t: PointTable, rows: Any, modelled: np.ndarray | None = None
) -> OrderAgreement | None:
    """Return how many ranks do all their calls in the order of the model, and the first that not.

    modelled: for every row of the table whether the model has it (None: all); what it leaves out
    is counted elsewhere (compare) and is no difference of order. Compared are operation, partner,
    bytes of every event that moves something (of completions and the like the operation);
    ``first``: rank, position (0: the first such event), expected (in the run) and found (in the
    model), null where one of them has ended. ``events``: how many of all ranks lie before the
    first difference of their rank; ``equal_but_bytes``: ranks whose operations and partners are
    in order; ``shuffled``: those whose partners alone are in another one; ``moved``: those whose
    calls are, sizes and what is not as often in both left aside. None where the run was
    too long to keep all sequences or the model holds no order.
    """
    if model.order is None or len(t.sequences) < len(np.unique(t.rank)):
        return None
    code: dict[Event, int] = {}
    ours = _codes(model, rows, code)
    theirs = np.array(
        [
            code.setdefault(_event(g.op, g.kind, g.peer, size), len(code))
            for g, size in ((t.groups[gi], int(b)) for gi, b in zip(t.group, t.nbytes, strict=True))
        ],
        dtype=np.int64,
    )
    unfolder = Unfolder(model.items, model.order.loops, rows)
    begin = first_rows(t)
    equal = alike = total = bare = 0
    first: Difference | None = None
    names = list(code)
    plain: dict[tuple[str, int], int] = {}
    nobody: dict[tuple[str, int], int] = {}
    partnerless = np.array([nobody.setdefault(e[::2], len(nobody)) for e in names], dtype=np.int64)
    shuffled: list[int] = []
    moved: list[int] = []
    sizeless = np.array([plain.setdefault(e[:2], len(plain)) for e in names], dtype=np.int64)
    for rank, codes in sorted(t.sequences.items()):
        row = codes[codes >= 0].astype(np.int64) + begin.get(rank, 0)
        a = theirs[row if modelled is None else row[modelled[row]]]
        b = ours[unfolder.sequence(rank)]
        upto = min(len(a), len(b))
        differ = np.flatnonzero(a[:upto] != b[:upto])
        same = int(differ[0]) if len(differ) else upto
        total += len(a)
        alike += same
        bare += len(a) == len(b) and bool(np.array_equal(sizeless[a], sizeless[b]))
        if same == len(a) == len(b):
            equal += 1
            continue
        if np.array_equal(partnerless[a], partnerless[b]) and _same_events(a, b):
            shuffled.append(int(rank))
        if _is_reordered(sizeless[a], sizeless[b]):
            moved.append(int(rank))
        if first is None:
            first = Difference(
                rank=rank,
                position=same,
                expected=text(names[a[same]]) if same < len(a) else None,
                found=text(names[b[same]]) if same < len(b) else None,
            )
    return OrderAgreement(
        ranks=len(t.sequences),
        equal=equal,
        equal_but_bytes=int(bare),
        events={"true": total, "equal": alike},
        first=first,
        shuffled=tuple(shuffled),
        moved=tuple(moved),
    )


def _same_events(a: np.ndarray, b: np.ndarray) -> bool:
    """Tell whether two sequences hold the same events, in whatever order."""
    return bool(np.array_equal(np.sort(a), np.sort(b)))


def _is_reordered(a: np.ndarray, b: np.ndarray) -> bool:
    """Tell whether the events that are as often in both sequences come in another order."""
    values, inverse = np.unique(np.concatenate([a, b]), return_inverse=True)
    ours, theirs = inverse[: len(a)], inverse[len(a) :]
    often = [np.bincount(each, minlength=len(values)) for each in (ours, theirs)]
    same = often[0] == often[1]
    return not np.array_equal(ours[same[ours]], theirs[same[theirs]])


def _codes(model: Model, rows: Any, code: dict[Event, int]) -> np.ndarray:
    items = model.items
    return np.array(
        [
            code.setdefault(_event(items[i].op, items[i].kind, peer, size), len(code))
            for i, peer, size in zip(
                rows.item.tolist(), rows.peer.tolist(), rows.nbytes.tolist(), strict=True
            )
        ],
        dtype=np.int64,
    )


def _event(op: str, kind: str, peer: int, size: int) -> Event:
    if kind in (SEND, RECV):
        return op, peer, size
    return op, -1, size if kind in (COLLECTIVE, IO) else -1


def text(event: Event) -> str:
    """Return an event for people."""
    op, peer, size = event
    where = f" with {peer}" if peer >= 0 else ""
    return f"{op}{where}" + (f", {size} bytes" if size >= 0 else "")


def left_to_chance(order: OrderAgreement, run_dir: Path) -> OrderAgreement:
    """Return how orders agree, with what chance decides; raises P3SError as reading the run does.

    ``moved`` is then without the ranks that receive from anybody.
    """
    if not order.shuffled and not order.moved:
        return order
    chance = receivers(run_dir, {*order.shuffled, *order.moved})
    return replace(
        order,
        by_chance=len(chance & {*order.shuffled}),
        moved=tuple(rank for rank in order.moved if rank not in chance),
    )


def with_chance(model: Model, runs: Mapping[int, Path]) -> Model:
    """Return a model that holds no rank's order against itself that chance decides.

    runs: the directory of a complete run of each count.

    What runs that are gone received from anybody nobody knows: there it does.
    """
    there = model.holdout and model.holdout.comparison
    if model.holdout and there and there.order:
        order = _allow_for_chance(there.order, runs.get(there.n))
        held = replace(model.holdout, comparison=replace(there, order=order))
        model = replace(model, holdout=held)
    if model.order is None or not model.order.moved:
        return model
    rest = []
    for each in model.order.moved:
        told = _allow_for_chance(
            OrderAgreement(each.ranks, 0, 0, {}, None, moved=each.moved), runs.get(each.n)
        )
        rest += [Moved(each.n, told.moved, each.ranks)] if told.moved else []
    return replace(model, order=replace(model.order, moved=tuple(rest)))


def _allow_for_chance(order: OrderAgreement, run: Path | None) -> OrderAgreement:
    """Return how orders agree, as it is where there is no run to read."""
    try:
        return order if run is None else left_to_chance(order, run)
    except P3SError:
        return order
