"""The interval of a run time from its parts: work, cost, replay, files, model, residual."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

from p3s.base.arrays import Floats
from p3s.predict.estimated import TYPICAL
from p3s.predict.times import PhaseTimes

#: Low and high end as multiples of the value: low <= 1 <= high.
Factors = tuple[float, float]
#: Parts that are known of one estimate alone, and all of them.
OWN = ("work", "cost", "replay", "files")
PARTS = (*OWN, "model", "residual")

HOW = (
    "six parts, each moved to the ends of its own 90 % interval with the others in place: work "
    "laws, cost of computation (phases together, as they share both), measured costs of messages, "
    "costs of files, what other estimators say, and what the small runs took beyond the model; "
    "joined as the root of the summed squares of the logarithms, each side for itself"
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


def total(seconds: Floats, estimator: str) -> float:
    """Return the run time from seconds per rank and phase, shape (ranks, phases).

    Where waiting is simulated, every delay is in the time of those that wait for it, so the run
    takes as long as the rank that needs longest. The thesis's sum knows no waiting: there every
    phase takes as long as the slowest rank in it (Eq. 8.1).
    """
    if not seconds.size:
        return 0.0
    if estimator == "thesis":
        return float(seconds.max(axis=0).sum())
    return float(seconds.sum(axis=1).max())


def own_parts(
    times: PhaseTimes, rank: int | None = None, slot: int | None = None
) -> dict[str, Factors | None] | None:
    """Return the parts that follow from the estimate itself: of the run, or of one phase of a rank.

    A part is null where nothing is known of it in any phase; the result is None where a phase
    that computes has neither an interval of its work nor of its time.
    """
    ranks = slice(None) if rank is None else slice(rank, rank + 1)
    slots = list(range(len(times.phases))) if slot is None else [slot]
    io = np.zeros_like(times.compute) if times.io is None else times.io
    compute, comm, comm_low, comm_high, io = (
        part[ranks][:, slots]
        for part in (times.compute, times.comm, times.comm_low, times.comm_high, io)
    )
    comm, comm_low, comm_high = comm + io, comm_low + io, comm_high + io
    parts = [times.parts_of(number) for number in slots]
    busy = np.asarray((compute > 0.0).any(axis=0))
    if any(there and part == (None, None) for there, part in zip(busy, parts, strict=True)):
        return None

    def moved(*ends: Floats) -> Factors:
        low, high = (total(each, times.estimator) for each in ends)
        return factors(total(compute + comm, times.estimator), low, high)

    found: dict[str, Factors | None] = dict.fromkeys(OWN)
    for k, name in enumerate(("work", "cost")):
        if any(part[k] is not None for part in parts):
            low, high = np.array([part[k] or (1.0, 1.0) for part in parts]).T
            found[name] = moved(compute * low + comm, compute * high + comm)
    if times.n > 1:
        found["replay"] = moved(compute + comm_low, compute + comm_high)
    if io.any():
        low, high = times.io_ends()
        found["files"] = moved(
            compute + comm + (low - 1.0) * io, compute + comm + (high - 1.0) * io
        )
    return found


def factors(value: float, low: float, high: float) -> Factors:
    """Return two ends as multiples of a value; of nothing, 1 and 1."""
    if value <= 0.0:
        return 1.0, 1.0
    return min(low / value, 1.0), max(high / value, 1.0)


def model_part(times: PhaseTimes, others: Mapping[str, object]) -> Factors | None:
    """Return how far other ways to put the run time together are off; None where there is none.

    Other estimators that are not worse placed than this one; the sum of calls (thesis) has no
    waiting, so that of this estimate is added to it. Where this is the thesis's sum: also the
    longest of the ranks' own sums, since ranks that are slow in different phases may not wait for
    each other.
    """
    value = total(times.own + times.comm, times.estimator)
    if value <= 0.0 or times.n == 1:
        return None
    found = []
    if times.estimator == "thesis":
        found.append(total(times.own + times.comm, ""))
    for name, other in others.items():
        if not isinstance(other, PhaseTimes) or name == times.estimator:
            continue
        if other.why_not and not times.why_not:
            continue
        if TYPICAL in (name, times.estimator):  # another network is no other opinion
            continue
        if name == "thesis" and times.waiting is not None:
            waited = other.own + other.comm + np.nan_to_num(times.waiting)
            found.append(total(waited, times.estimator))
        else:
            found.append(total(other.own + other.comm, name))
    return factors(value, min(found), max(found)) if found else None
