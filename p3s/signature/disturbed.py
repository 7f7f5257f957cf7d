"""What makes the times of a run doubtful: other load, and clocks near the end of their precision.

Nothing here changes a time: the least over the repeats is what the cost is taken from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from p3s.base.arrays import Floats, Ints
from p3s.base.text import plural
from p3s.signature import clock

if TYPE_CHECKING:
    from p3s.signature.part import Part

#: Share of a run that ranks with a core each may spend off it while they compute.
_OFF_CORE = 0.10
#: Computation time over that of the least repeat, less 1; what a segment takes without one of its
#: own varies by so much.
_OVER_LEAST, _NOISE_NS = 0.10, 300
#: Times per second of the run that a rank with a core of its own may lose it, and in all.
_PREEMPTED_PER_S, _PREEMPTED = 50.0, 10
#: A segment of fewer instructions than this computes nothing that could be timed.
_EMPTY_INSTRUCTIONS = 300
#: Fewer occurrences tell nothing about the mean; a larger one is no empty segment's.
_OCCURRENCES, _MOST_NS = 20, 1000.0


def disturbances(parts: Sequence[Part], shared: Sequence[bool]) -> list[list[str]]:
    """Return for each repeat what disturbed it, in words.

    shared: whether there were more ranks than cores; who waits for a core tells nothing then.
    """
    totals = [_column(part, "time_ns").sum() for part in parts]
    least = min(totals, default=0)
    reasons_by_repeat = []
    for part, total, cores_shared in zip(parts, totals, shared, strict=True):
        reasons = []
        if not cores_shared and part.time_unit == clock.CPU:
            reasons += _off_core(part)
        elif not cores_shared:
            reasons += _note_preemption(part)
        noise = _NOISE_NS * int(part.segments[:, 3].sum())
        if total > (1 + _OVER_LEAST) * least + noise:
            over = total / least - 1 if least else 1.0
            reasons.append(
                f"took {100 * over:.0f} % more computation time than the least of the"
                f" {len(parts)} repeats"
            )
        reasons_by_repeat.append(reasons)
    return reasons_by_repeat


def _column(part: Part, name: str) -> Ints:
    return np.asarray(part.loads[:, clock.LOADS.index(name)], dtype=np.int64)


def _off_core(part: Part) -> list[str]:
    wall = _column(part, "wall_ns").max(initial=0)
    share = _column(part, "lost_ns").max(initial=0) / wall if wall else 0.0
    if share <= _OFF_CORE:
        return []
    return [
        f"a rank lost its core for {100 * share:.0f} % of the run while it computed"
        " (other load, or the program sleeps, reads or writes)"
    ]


def _note_preemption(part: Part) -> list[str]:
    wall = _column(part, "wall_ns").max(initial=0)
    number = int(_column(part, "preempted").max(initial=0))
    if number < _PREEMPTED or number <= _PREEMPTED_PER_S * wall / 1e9:
        return []
    return [f"a rank lost its core {plural(number, 'time')} to other processes"]


def floor_ns(count: Floats, took: Floats, instructions: Floats | None) -> float:
    """Return what a segment without computation takes in a run, per occurrence; 0: not known.

    count, took: occurrences and time of each row; instructions: of all occurrences, None where
    they were not counted. Of rows that occur often: the mean of those with next to no
    instructions; else the least mean, if it is so small that the row cannot compute much.
    """
    often = (count >= _OCCURRENCES) & (took > 0)  # the second half of a Sendrecv has no time
    each = np.divide(took, count, out=np.full(len(count), np.inf), where=often)
    if instructions is not None:
        empty = often & (instructions <= _EMPTY_INSTRUCTIONS * count)
        total = float(count[empty].sum())
        return float(took[empty].sum()) / total if total else 0.0
    least = float(each.min(initial=np.inf))
    return max(least, 0.0) if least <= _MOST_NS else 0.0
