"""The interval of a run time from its parts: work, cost, replay, choice of model, residual."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from p3s.predict.times import FloatArray, PhaseTimes

#: Low and high end as multiples of the value: low <= 1 <= high.
Factors = tuple[float, float]
#: Parts that are known of one estimate alone, and all of them.
OWN = ("work", "cost", "replay")
PARTS = (*OWN, "model", "residual")

HOW = (
    "five parts, each moved to the ends of its own 90 % interval with the others in place: work "
    "laws, cost of computation (phases together, as they share both), measured costs of messages, "
    "what other estimators say, and what the small runs took beyond the model; joined as the root "
    "of the summed squares of the logarithms, each side for itself"
)


def combine(parts: Iterable[Factors | None]) -> Factors:
    """Join independent parts: root of the summed squares of the logarithms, each side for itself.

    A low end of 0 stays 0.
    """
    low = high = 0.0
    for part in parts:
        if part is None:
            continue
        low += math.log(max(min(part[0], 1.0), 1e-300)) ** 2
        high += math.log(max(part[1], 1.0)) ** 2
    below = math.exp(-math.sqrt(low))
    return (0.0 if below < 1e-290 else below), math.exp(math.sqrt(high))


def own_parts(times: PhaseTimes, slots: Iterable[int]) -> dict[str, Factors | None] | None:
    """Return the parts that follow from the estimate itself, of the sum over some phases.

    A part is null where nothing is known of it in any phase; the result is None where a phase
    that computes has neither an interval of its work nor of its time.
    """
    value = 0.0
    ends = {part: [0.0, 0.0] for part in OWN}
    seen: set[str] = set()
    for slot in slots:
        compute, comm = times.compute[:, slot], times.comm[:, slot]
        typical = _longest(compute + comm)
        value += typical
        work, cost = times.parts_of(slot)
        if work is None and cost is None and _longest(compute) > 0.0:
            return None
        for name, part in (("work", work), ("cost", cost)):
            if part is not None:
                seen.add(name)
            below, above = part or (1.0, 1.0)
            ends[name][0] += _longest(compute * below + comm)
            ends[name][1] += _longest(compute * above + comm)
        ends["replay"][0] += _longest(compute + times.comm_low[:, slot])
        ends["replay"][1] += _longest(compute + times.comm_high[:, slot])
    if times.n > 1:
        seen.add("replay")
    return {name: factors(value, *ends[name]) if name in seen else None for name in OWN}


def factors(value: float, low: float, high: float) -> Factors:
    """Return two ends as multiples of a value; of nothing, 1 and 1."""
    if value <= 0.0:
        return 1.0, 1.0
    return min(low / value, 1.0), max(high / value, 1.0)


def _longest(seconds: FloatArray) -> float:
    return float(seconds.max()) if len(seconds) else 0.0


def model_part(times: PhaseTimes, others: Mapping[str, object]) -> Factors | None:
    """Return how far other ways to put the run time together are off; None where there is none.

    Other estimators that are not worse placed than this one: the sum of calls (thesis) has no
    waiting, so that of this estimate is added to it. And the longest of the ranks' own sums
    instead of the sum of the longest: ranks that are slow in different phases may not wait for
    each other.
    """
    import numpy as np

    from p3s.predict.times import PhaseTimes

    both = times.compute + times.comm
    value = float(both.max(axis=0).sum()) if both.size else 0.0
    if value <= 0.0:
        return None
    found = [float(both.sum(axis=1).max())]
    for name, other in others.items():
        if not isinstance(other, PhaseTimes) or name == times.estimator or times.n == 1:
            continue
        if other.why_not and not times.why_not:
            continue
        comm = other.comm
        if name == "thesis" and times.waiting is not None:
            comm = comm + np.nan_to_num(times.waiting)
        found.append(float((other.compute + comm).max(axis=0).sum()))
    if len(found) == 1 and found[0] >= value * (1.0 - 1e-12):
        return None
    return factors(value, min(found), max(found))
