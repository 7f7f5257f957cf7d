"""What messages cost: transfers of every message class, from trace programs and pair programs.

The transfer of a message is its completion minus the later of the two starts. It is kept only
where somebody waited for it, and where the completion waits for nothing else: a Waitall over
partners on several nodes contains all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from replay.costs.stats import NOTHING, Estimate, median_interval
from replay.engine.results import ProgramResult
from replay.plan.classes import MessageClass
from replay.plan.program import Program
from replay.steps import Floats, Ints

TRACE = "measured in the trace"
PAIR = "measured in a pair"
TIMED = "measured in a timed iteration"
NEAREST = "from the nearest sizes"
NONE = "none"

#: Fewest samples that a class needs in the trace, so that its pair is not taken instead.
FEWEST = 5


@dataclass(frozen=True)
class Observed:
    """Samples of one class in one program: positions in its pairing, (passes, messages) in ns."""

    program: int
    message: Ints
    ns: Floats

    @property
    def number(self) -> int:
        """Number of samples."""
        return int((~np.isnan(self.ns)).sum())


@dataclass(frozen=True)
class MessageCost:
    """Transfer of a class as it was measured, queueing included; where it comes from."""

    estimate: Estimate
    how: str
    observed: tuple[Observed, ...] = ()


def message_costs(
    classes: Sequence[MessageClass], programs: Sequence[Program],
    results: Mapping[int, ProgramResult],
) -> tuple[MessageCost, ...]:
    """Return the measured transfer of every class; NONE where no program has a sample of it.

    From trace programs where they have at least 5 samples, else from pair programs.
    """
    found: dict[tuple[int, str], list[Observed]] = {}
    for cls, what, observed in _observed(programs, results):
        found.setdefault((cls, what), []).append(observed)
    costs = []
    for cls in range(len(classes)):
        for what, how, fewest in (("trace", TRACE, FEWEST), ("pair", PAIR, 1), ("trace", TRACE, 1)):
            these = tuple(found.get((cls, what), ()))
            if sum(o.number for o in these) >= fewest:
                costs.append(MessageCost(level(these), how, these))
                break
        else:
            costs.append(MessageCost(NOTHING, NONE))
    return tuple(costs)


def level(observed: Sequence[Observed]) -> Estimate:
    """Return the cost: mean of the class's messages in a pass, median over passes and programs."""
    means = [pass_means(o.ns) for o in observed]
    return median_interval(np.concatenate(means) if means else [],
                           sum(o.number for o in observed))


def pass_means(ns: Floats) -> Floats:
    """Return the mean of every pass that has a sample; ``ns``: (passes, messages), NaN: none."""
    has = ~np.isnan(ns)
    count = has.sum(axis=1)
    total = np.where(has, ns, 0.0).sum(axis=1)
    return np.asarray(total[count > 0] / count[count > 0], dtype=np.float64)


def typical(ns: Floats) -> Floats:
    """Return the median over the passes of every message; NaN where nobody ever waited."""
    found = np.full(ns.shape[1], np.nan)
    has = (~np.isnan(ns)).any(axis=0)
    if has.any():
        found[has] = np.nanmedian(ns[:, has], axis=0)
    return found


def _observed(
    programs: Sequence[Program], results: Mapping[int, ProgramResult]
) -> Iterator[tuple[int, str, Observed]]:
    """Yield class, kind of program and samples; only messages that complete alone."""
    for number, result in sorted(results.items()):
        program = programs[number]
        pairing = program.pairing
        if pairing is None or not result.passes or not result.transfer_ns.size:
            continue
        usable = pairing.alone.astype(bool) & (pairing.cls >= 0)
        usable &= (~np.isnan(result.transfer_ns)).any(axis=0)
        for cls in np.unique(pairing.cls[usable]).tolist():
            message = np.flatnonzero(usable & (pairing.cls == cls))
            yield cls, program.what, Observed(number, message, result.transfer_ns[:, message])
