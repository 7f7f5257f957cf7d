"""Long loops with fewer iterations: what a run costs to look at does not grow with how long it is.

A loop of the program itself whose iterations are alike, but for single ones at its begin and end,
keeps some thousands of them; its calls are made as often less. Sections say and weigh what the
whole loop does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import gcd

import numpy as np

from p3s.model.law_types import LoopRule, OrderedItem, TraceOrder, TripLaw
from p3s.model.order.patterns import Pattern
from p3s.model.order.unfold import constant_trips
from p3s.program.scaled import Ints, ScaledTrace

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
    made = np.bincount(trace.rank, weights=trace.repeat.astype(np.float64))
    return int(min(made.max(), 2.0**62))


def shortened(
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
    found = {constant_trips(law, order.n, order.grid) for law in laws}
    return (found.pop() or 0) if len(found) == 1 else 0


def _factors(loop: LoopRule, order: TraceOrder, item: Ints, slot: Ints) -> Ints | None:
    """Return per row what is less often: 0 its iterations, 1 nothing, 2 its iterations but one.

    None where iterations differ in another way, also in how often inner loops turn.
    """
    inner = [one for one in order.loops or () if one.at[: len(loop.at)] == loop.at]
    if any(one.law and one.law.level == 0 for each in inner for one in each.trips):
        return None
    found = {
        (i, k): _factor(order.items[i], k)
        for i, k in np.unique(np.stack((item, slot)), axis=1).T.tolist()
    }
    if None in found.values():
        return None
    return np.array(
        [found[place] for place in zip(item.tolist(), slot.tolist(), strict=True)], dtype=np.int64
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
