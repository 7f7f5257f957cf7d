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
    slots = range(len(times.phases)) if slot is None else [slot]
    columns = slice(None) if slot is None else slice(slot, slot + 1)
    compute, comm, comm_low, comm_high = (
        part[ranks, columns][:, : len(slots)]
        for part in (times.compute, times.comm, times.comm_low, times.comm_high)
    )
    busy = compute.max(axis=0) > 0.0 if compute.size else np.zeros(len(slots), dtype=bool)
    ends = {part: np.ones((2, len(slots))) for part in ("work", "cost")}
    seen = {"replay"} if times.n > 1 else set()
    for column, number in enumerate(slots):
        parts = dict(zip(("work", "cost"), times.parts_of(number), strict=True))
        if busy[column] and all(part is None for part in parts.values()):
            return None
        for name, part in parts.items():
            if part is not None:
                seen.add(name)
                ends[name][:, column] = part
    io = np.zeros_like(compute) if times.io is None else times.io[ranks, columns][:, : len(slots)]
    comm, comm_low, comm_high = comm + io, comm_low + io, comm_high + io
    value = total(compute + comm, times.estimator)
    found: dict[str, Factors | None] = dict.fromkeys(OWN)
    for name in ("work", "cost"):
        if name in seen:
            low, high = (total(compute * end + comm, times.estimator) for end in ends[name])
            found[name] = factors(value, low, high)
    if "replay" in seen:
        found["replay"] = factors(
            value,
            total(compute + comm_low, times.estimator),
            total(compute + comm_high, times.estimator),
        )
    if io.any():
        low, high = (
            total(compute + comm + (end - 1.0) * io, times.estimator) for end in times.io_ends()
        )
        found["files"] = factors(value, low, high)
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
