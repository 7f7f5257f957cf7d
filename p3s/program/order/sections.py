"""Sections of a scaled trace: what the ranks of N processes do, stretch by stretch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import gcd
from pathlib import Path
from typing import TypeVar

import numpy as np

from p3s.base.arrays import Ints
from p3s.base.errors import P3SError
from p3s.model.law_types import LoopRule, OrderedItem, TraceOrder, TripLaw
from p3s.model.order.patterns import Pattern
from p3s.model.order.unfold import constant_trips
from p3s.program.order.assemble import AssembledSteps, assemble
from p3s.program.order.calls import REASON_TEXT, Reason, Rows, rows_of
from p3s.program.order.cut import MOST_TOTAL, Piece, by_phase, cut_stretches
from p3s.program.order.sequence import Kind, kinds_by_phase, kinds_in_order, with_preferences
from p3s.program.order.unstick import moved_earlier, unstuck
from p3s.program.scaled import ScaledTrace, read_order, read_scaled
from p3s.simulate.steps import RECEIVES, SENDS, LeftOut, Op, Section, of_ranks

T = TypeVar("T")

#: Calls of a rank that are put into their order one by one.
MOST_EVENTS = 1 << 21
#: Above this the order is not followed at all.
MOST_UNFOLDED = 1 << 24
#: Iterations that a loop keeps, about.
_KEPT = 4096
#: Patterns of the outermost loop: of all iterations alike, of one, of all but one.
_ALIKE, _ONE, _BUT_ONE = ("all", "every"), ("is", "from end"), ("not", "not from end")


def most_events(trace: ScaledTrace) -> int:
    """Return how many calls the busiest rank makes; more than 2^62 count as that."""
    if not trace.rows:
        return 0
    calls_of_rank = np.bincount(trace.rank, weights=trace.repeat.astype(np.float64))
    return int(min(calls_of_rank.max(), 2.0**62))


def shorten_loops(
    trace: ScaledTrace, order: TraceOrder
) -> tuple[ScaledTrace, TraceOrder, dict[int, float]]:
    """Return a trace and its order with fewer iterations of long loops; both as they are if short.

    The last says how many times as many iterations a loop has that was shortened.
    """
    times: dict[int, float] = {}
    if order.loops is None or most_events(trace) <= MOST_EVENTS:
        return trace, order, times
    item, slot = _places(trace, order)
    repeat, loops = trace.repeat.copy(), list(order.loops)
    for k, loop in enumerate(order.loops):
        inside = np.array([(one.loops or (0,))[0] == loop.loop for one in order.items])
        mine = np.flatnonzero(inside[item] & (trace.repeat > 0)) if len(item) else item
        trips = _trips(loop, order, mine)
        factors = _factors(loop, order, item[mine], slot[mine]) if trips else None
        if factors is None:
            continue
        fewer = _fewer(trips, trace.repeat[mine], factors)
        if fewer < trips:
            repeat[mine] = _less_often(trace.repeat[mine], factors, trips, fewer)
            law = TripLaw(expr=["num", fewer, 1])
            loops[k] = replace(loop, trips=tuple(replace(one, law=law) for one in loop.trips))
            times[loop.loop] = trips / fewer
    if not times:
        return trace, order, times
    return replace(trace, repeat=repeat), replace(order, loops=tuple(loops)), times


def _places(trace: ScaledTrace, order: TraceOrder) -> tuple[Ints, Ints]:
    """Return the item of each row, and its slot in that."""
    base = np.cumsum([0, *(len(item.slots) for item in order.items)])
    item = np.searchsorted(base, trace.slot, side="right") - 1
    return item, trace.slot - base[item]


def _trips(loop: LoopRule, order: TraceOrder, mine: Ints) -> int:
    """Return how often all ranks go round a loop of the program itself; 0: that is not the same."""
    laws = [one.law for one in loop.trips]
    if loop.parent != 0 or loop.walk is not None or not laws or not len(mine):
        return 0
    constants = {constant_trips(law, order.n, order.grid) for law in laws}
    return (constants.pop() or 0) if len(constants) == 1 else 0


def _factors(loop: LoopRule, order: TraceOrder, item: Ints, slot: Ints) -> Ints | None:
    """Return per row what is less often: 0 its iterations, 1 nothing, 2 its iterations but one.

    None where iterations differ in another way, also in how often inner loops turn.
    """
    inner = [one for one in order.loops or () if one.at[: len(loop.at)] == loop.at]
    if any(one.law and one.law.level == 0 for each in inner for one in each.trips):
        return None
    factor_of = {
        (i, k): _factor(order.items[i], k)
        for i, k in np.unique(np.stack((item, slot)), axis=1).T.tolist()
    }
    if None in factor_of.values():
        return None
    return np.array(
        [factor_of[place] for place in zip(item.tolist(), slot.tolist(), strict=True)],
        dtype=np.int64,
    )


def _factor(item: OrderedItem, slot: int) -> int | None:
    rules = item.slots[slot].when or ()
    kinds = {_kind(rule.when or ()) for rule in rules}
    return kinds.pop() if len(kinds) == 1 else None if kinds else 0


def _kind(patterns: Sequence[Pattern]) -> int | None:
    name = patterns[0][0] if patterns else "all"
    kinds = dict.fromkeys(_ALIKE, 0) | dict.fromkeys(_ONE, 1) | dict.fromkeys(_BUT_ONE, 2)
    joint = any(pattern[0] == "turns" for pattern in patterns)
    return None if joint else kinds.get(name)


def _fewer(trips: int, repeat: Ints, factors: Ints) -> int:
    """Return the least iterations, at least as many as are kept, in which calls come out whole."""
    unit = trips
    for often in np.unique(repeat[factors == 0]).tolist():
        unit = gcd(unit, often)
    step = trips // unit
    fewer = step * max(-(-_KEPT // step), 1)
    but_one = np.unique(repeat[factors == 2])
    return fewer if trips > 1 and not (but_one % (trips - 1)).any() else trips


def _less_often(repeat: Ints, factors: Ints, trips: int, fewer: int) -> Ints:
    alike = repeat // (trips // gcd(trips, fewer)) * (fewer // gcd(trips, fewer))
    but_one = repeat // max(trips - 1, 1) * (fewer - 1)
    return np.choose(factors, [alike, repeat, but_one])


TURNS = 3
MOST_STEPS = 4096


def read_sections(
    scaled_dir: Path,
    *,
    ranks: Ints | None = None,
    turns: int = TURNS,
    most_steps: int = MOST_STEPS,
    trace: ScaledTrace | None = None,
) -> tuple[Section, ...]:
    """Return the sections of a scaled trace on disk (``trace``: read before); see sections_of.

    Raises P3SError, in one line, when something is missing or damaged.
    """
    scaled_dir = Path(scaled_dir)
    trace = trace or read_scaled(scaled_dir)
    order = None
    if (scaled_dir / "order.json").exists():
        order = read_order(scaled_dir)
    return sections_of(trace, order, ranks=ranks, turns=turns, most_steps=most_steps)


def sections_of(
    scaled: ScaledTrace,
    order: TraceOrder | None,
    *,
    ranks: Ints | None = None,
    turns: int = TURNS,
    most_steps: int = MOST_STEPS,
    most_total: int = MOST_TOTAL,
) -> tuple[Section, ...]:
    """Cut a scaled trace into sections; order: order.json.

    ranks: steps of these only. turns: how many iterations a window of a loop has; most_steps:
    of one rank in an iteration, above that a loop is taken apart; most_total: of all ranks in a
    section. The weights of a row's steps in all sections sum up to its repeat, unless it is left
    out. Where the order is not known, or too long, there is one section per phase, with every row
    once."""
    short, times = scaled, dict[int, float]()
    if order is not None:
        short, order, times = shorten_loops(scaled, order)
        order = order if most_events(short) <= MOST_UNFOLDED else None
        short = scaled if order is None else short
    rows = rows_of(scaled, short)
    if order is not None and order.loops is not None:
        pieces, kinds, assembled = _in_order(rows, order, turns, most_steps, most_total, times)
    else:
        pieces, kinds, assembled = _by_phase(rows)
    return tuple(_finish(scaled, rows.reason, pieces, assembled, ranks))


def whole_run(scaled: ScaledTrace, order: TraceOrder) -> Section:
    """Return all events of a run as one section; order: order.json with its loops known."""
    rows, most = rows_of(scaled, scaled), int(scaled.repeat.sum()) + 1
    loops = frozenset(loop.loop for loop in order.loops or ())
    pieces, _, assembled = _in_order(rows, order, most, most, most, {}, loops)
    if len(pieces) != 1:
        raise P3SError(
            "the scaled trace has no calls to write, or others than its order of events; run "
            "p3s scale again"
        )
    (section,) = _finish(scaled, rows.reason, pieces, assembled, None)
    steps = section.steps
    meets = steps.is_op(*SENDS, *RECEIVES, Op.COLLECTIVE, Op.ICOLLECTIVE)
    beyond = np.where(meets, steps.weight - 1.0, 0.0)
    unmatched = np.rint(np.bincount(steps.call, beyond, minlength=len(steps.calls)))
    leftovers = tuple(
        LeftOut(
            steps.calls[c], REASON_TEXT[Reason.NO_PARTNER], float(unmatched[c]), np.zeros(0, int)
        )
        for c in np.flatnonzero(unmatched > 0).tolist()
    )
    return replace(section, left_out=(*section.left_out, *leftovers))


#: Pieces of a trace, its kinds of ranks, and the steps of the pieces.
_Cut = tuple[list[Piece], list[Kind], list[AssembledSteps]]


def _in_order(
    rows: Rows,
    order: TraceOrder,
    turns: int,
    most_steps: int,
    most_total: int,
    times: Mapping[int, float],
    whole: frozenset[int] = frozenset(),
) -> _Cut:
    """Cut into iterations of loops; loops whose calls meet others' only are executed whole."""
    kinds, rows = with_preferences(list(kinds_in_order(rows, order)), rows)
    path = np.full((rows.trace.rows, max((kind.path.shape[1] for kind in kinds), default=0)), -1)
    for kind in kinds:
        path[kind.first[:, None] + np.arange(kind.rows)] = kind.path

    def pieces(whole: frozenset[int]) -> list[Piece]:
        return cut_stretches(
            kinds,
            order.loops or (),
            turns=turns,
            most_steps=most_steps,
            most_total=most_total,
            whole=whole,
            times=times,
        )

    def loops(send: int, receive: int) -> set[int]:
        apart = path[send] != path[receive]
        level = int(np.argmax(apart))
        return {int(path[row, level]) for row in (send, receive)} - {-1} if apart.any() else set()

    return _settle_cuts(rows, kinds, pieces, loops, whole, in_order=True)


def _by_phase(rows: Rows) -> _Cut:
    """Cut into phases; those whose calls meet only each other are one."""
    kinds_with_events, trace = list(kinds_by_phase(rows)), rows.trace
    kinds, events = [kind for kind, _ in kinds_with_events], [them for _, them in kinds_with_events]

    def pieces(together: frozenset[frozenset[int]]) -> list[Piece]:
        return by_phase(kinds, events, trace.repeat, trace.names, trace.weights, together)

    def phases(send: int, receive: int) -> set[frozenset[int]]:
        pair = frozenset({int(trace.phase[send]), int(trace.phase[receive])})
        return {pair} if len(pair) > 1 else set()

    return _settle_cuts(rows, kinds, pieces, phases, frozenset(), in_order=False)


def _settle_cuts(
    rows: Rows,
    kinds: list[Kind],
    pieces_of: Callable[[frozenset[T]], list[Piece]],
    joins: Callable[[int, int], set[T]],
    together: frozenset[T],
    *,
    in_order: bool,
) -> _Cut:
    """Cut, assemble, and cut again where calls meet only calls of another stretch.

    pieces_of: cuts, given what is not cut apart; joins: what is not to be, so that a row that sends
    and one that receives are in one stretch.
    """
    while True:
        pieces = pieces_of(together)
        assembled = [assemble(piece, kinds, rows, in_order=in_order) for piece in pieces]
        more = {each for pair in _crossing(rows, assembled) for each in joins(*pair)} - together
        if not more:
            return pieces, kinds, assembled
        together |= more


def _crossing(rows: Rows, assembled: Sequence[AssembledSteps]) -> list[tuple[int, int]]:
    """Return rows that send and rows that would receive it, none of which has found a partner.

    One of each kind for every channel.
    """
    is_unmatched = np.zeros(rows.trace.rows, dtype=bool)
    for one in assembled:
        is_unmatched |= (one.fate == Reason.NO_PARTNER) | (one.fate == Reason.NO_TAG)
    for one in assembled:
        is_unmatched &= one.fate != Reason.EXECUTED
    sends, receives = (
        np.flatnonzero(is_unmatched & (channel >= 0)) for channel in (rows.out, rows.into)
    )
    out, first = np.unique(rows.out[sends], return_index=True)
    into, second = np.unique(rows.into[receives], return_index=True)
    _, a, b = np.intersect1d(out, into, return_indices=True)
    return list(zip(sends[first[a]].tolist(), receives[second[b]].tolist(), strict=True))


def _finish(
    trace: ScaledTrace,
    reason: Ints,
    pieces: Sequence[Piece],
    assembled: Sequence[AssembledSteps],
    ranks: Ints | None,
) -> list[Section]:
    """Make the weights of every row sum up to its repeat, and list what is left out."""
    assigned = np.zeros(trace.rows)
    fate = np.full(trace.rows, -1, dtype=np.int64)
    home = np.full(trace.rows, -1, dtype=np.int64)
    for k, one in enumerate(assembled):
        assigned += one.assigned
        # The reason of the first section that it belongs to; executed anywhere, it is.
        new = (one.fate >= 0) & ((fate < 0) | (one.fate == Reason.EXECUTED))
        fate[new] = one.fate[new]
        home[new] = k
    never = (fate < 0) & (trace.repeat > 0)  # no event of it in the order
    fate[never] = np.where(reason[never] == Reason.EXECUTED, Reason.NOT_SEEN, reason[never])
    home[never] = 0
    factor = np.divide(trace.repeat, assigned, out=np.ones(trace.rows), where=assigned > 0)
    is_lost = (fate > Reason.EXECUTED) & (trace.repeat > 0)
    sections = []
    for k, (piece, one) in enumerate(zip(pieces, assembled, strict=True)):
        steps = one.steps
        if (factor != 1.0).any():
            steps = replace(steps, weight=steps.weight * np.append(factor, 1.0)[steps.row])
        steps, moved = unstuck(steps)
        notes = (f"{piece.name}: {moved_earlier(moved)}",) if moved else ()
        leftovers = _left_out(trace, np.flatnonzero(is_lost & (home == k)), fate)
        if ranks is not None:
            steps = of_ranks(steps, ranks)
        sections.append(
            Section(
                piece.name,
                one.phases,
                steps,
                piece.turns,
                piece.first_turn,
                piece.run_turns,
                piece.entries,
                leftovers,
                notes,
                moved,
            )
        )
    return sections


def _left_out(trace: ScaledTrace, rows: Ints, fate: Ints) -> tuple[LeftOut, ...]:
    if not len(rows):
        return ()
    reasons_found, reason_of_row = np.unique(
        np.stack((trace.op[rows], fate[rows])), axis=1, return_inverse=True
    )
    reason_of_row = reason_of_row.reshape(-1)
    leftovers = []
    for k, (op, why) in enumerate(reasons_found.T.tolist()):
        mine = rows[reason_of_row == k]
        leftovers.append(
            LeftOut(trace.ops[op], REASON_TEXT[Reason(why)], float(trace.repeat[mine].sum()), mine)
        )
    return tuple(leftovers)
