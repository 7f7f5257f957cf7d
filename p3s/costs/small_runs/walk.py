"""Which counts a smaller workload is run at, and when its cost per unit of work is least.

Source: thesis section 6.2, step 3: from the smallest count upwards, along the counts the program
admits, until cycles per instruction stop falling, or resources end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from p3s.base.serialise import Natural, ProcessCount
from p3s.costs.small_runs.check import phase_name, phases_in, relevant, sums
from p3s.costs.small_runs.iterations import together
from p3s.model.grid import admissible
from p3s.model.types import Admissible
from p3s.signature.tables import INSTRUCTIONS, PointTable

Times = Mapping[tuple[str, str], float] | None
#: The next count is at least so many times the one before.
_STEP = 1.3
#: Cost that falls by no more than this, relative, has stopped falling.
FALLS = 0.02
#: A cost has fallen where it is lower than it was by more than this.
FLAT = 0.05
REACHED, FALLING, STEADY, UNKNOWN = "reached", "falling", "steady", "unknown"


def counts_upward(known: Admissible, traced: Sequence[int], up_to: int) -> list[int]:
    """Return the counts of the walk: from the smallest traced one (two at least) to ``up_to``.

    known: of p3s.model.grid.admissible.learn. Traced counts are preferred, else about doubled.
    """
    first = min((n for n in traced if n > 1), default=2)
    out = [first] if first <= up_to else []
    while out:
        low, high = out[-1] * _STEP, out[-1] * 2
        mine = [
            n for n in range(out[-1] + 1, up_to + 1) if n >= low and admissible.admits(known, n)
        ]
        if not mine:
            break
        near = [n for n in mine if n <= high] or mine[:1]
        liked = [n for n in near if n in traced]
        out.append(max(liked or near))
    return out


@dataclass(frozen=True)
class PhaseCost:
    """Cost per unit of work of one phase at ascending counts, and whether its least was reached.

    cost: ns per instruction; where work is time, its time per iteration over all ranks, which falls
    as its cost does as long as the work of all ranks together stays the same. at: the count of the
    least cost; status: one of REACHED, FALLING, STEADY (it has not fallen at all), UNKNOWN. phase:
    its number, None while there is no model."""

    name: str
    counts: tuple[ProcessCount, ...]
    cost: tuple[float, ...]
    status: str
    at: Natural | None
    phase: Natural | None = None

    def valid(self) -> None:
        """Raise ValueError unless there is a cost for each count."""
        if len(self.counts) != len(self.cost):
            raise ValueError("there is not one cost for each count")


def minimum(
    counts: Sequence[int], cost: Sequence[float], before: float = 0.0
) -> tuple[str, int | None]:
    """Return whether the cost has stopped falling, and at which of the ascending counts.

    before: the largest cost seen elsewhere (the study's own), 0 if none. Cost that is even before
    it has fallen at all has not reached its least: the working set may not fit the cache yet.
    """
    if len(cost) < 2 or min(cost) <= 0:
        return UNKNOWN, None
    least = int(np.argmin(cost))
    if cost[-1] < (1 - FALLS) * cost[-2]:
        return FALLING, None
    if min(cost) > (1 - FLAT) * max(*cost[: least + 1], before):
        return STEADY, None
    # the largest count that costs as little: the thesis takes 100 processes where 81 cost the same
    return REACHED, max(
        n for n, c in zip(counts, cost, strict=True) if c <= (1 + FALLS) * cost[least]
    )


def costs(
    own: Sequence[PointTable],
    far: Sequence[PointTable],
    far_times: Mapping[int, Times],
    own_times: Mapping[int, Times],
) -> list[PhaseCost]:
    """Return the cost of every relevant phase of the study over the counts of a smaller workload.

    own_times, far_times: count -> place -> ns before its calls, over all ranks; None: not known.
    """
    s = together(own, far)
    exact = bool(far) and far[0].work_unit == INSTRUCTIONS
    nearest = min(own, key=lambda t: t.np)
    out = []

    def cost(t: PointTable, key: int, loop: int, times: Times) -> float | None:
        of = sums(s, t, key)[loop]
        if times is None or not of.turns or not of.work:
            return None
        time = sum(times.get(s.nodes[v], 0.0) for v in phases_in(s)[loop])
        return time / (of.work if exact else of.turns)

    for loop in relevant(sums(s, nearest, nearest.np)):
        if not loop:
            continue
        found = [
            (t.np, c)
            for t in sorted(far, key=lambda t: t.np)
            if (c := cost(t, -t.np, loop, far_times.get(t.np)))
        ]
        # times per iteration of another workload are no costs that can be compared with it
        before = [c for t in own if exact and (c := cost(t, t.np, loop, own_times.get(t.np)))]
        counts, values = tuple(n for n, _ in found), tuple(c for _, c in found)
        status, at = minimum(counts, values, max(before, default=0.0))
        out.append(PhaseCost(phase_name(s, loop), counts, values, status, at))
    return out


def stop(found: Sequence[PhaseCost]) -> bool:
    """Tell whether no phase gets cheaper at larger counts, as far as is known."""
    return bool(found) and all(each.status == REACHED for each in found)
