"""Which changes the table of a report has: one for each thing that could be better."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from p3s.base.ops import blocking_of
from p3s.predict.intervals import total
from p3s.predict.what_if.changes import Algorithm, Change, Changes, Threads, read_changes, text_of
from p3s.predict.what_if.threads import MoreThreads
from p3s.program.collectives.registry import COLLECTIVES
from p3s.program.collectives.rules import Rule
from p3s.program.collectives.tuned import NUMBERS
from p3s.program.mapping import BLOCK, CYCLIC

if TYPE_CHECKING:
    from p3s.predict.types import Count
    from p3s.predict.what_if.simulated import Simulation

#: Phases that are in the table, and the least share of the run time that they compute.
_PHASES, _LEAST = 3, 0.01
#: Times as many steps as the program has now: algorithms that make more are not tried.
_MORE_STEPS = 4
#: An algorithm that saves less than this share of the run time is not worth naming.
_WORTH = 1e-3


def usual(there: Simulation, row: Count) -> list[Changes]:
    """Return the usual changes to a program at one count.

    The phases that compute longest twice as fast, balanced ranks, half the latency, twice the
    bandwidth, an ideal network, of each collective the algorithm that does best (if one does better
    than that of now), ranks dealt to nodes the other way where the network between nodes is known,
    twice the threads of a process where laws of threads tell what that does.
    """
    found = [read_changes(f"phase {phase} / 2") for phase in _busiest(row)]
    found += [_as_changes(Threads(count)) for count in _threads(there)]
    if there.n == 1:
        return found
    texts = ("balanced", "latency / 2", "bandwidth * 2", "network=ideal")
    found += [read_changes(text) for text in texts]
    found += [_as_changes(Algorithm(rule)) for rule in _algorithms(there)]
    if there.costs.setting.topology and int(there.ready[0].node_of.max()) > 0:
        kind = there.costs.setting.mapping
        found.append(read_changes(f"placement={CYCLIC if kind == BLOCK else BLOCK}"))
    return found


def _threads(there: Simulation) -> list[int]:
    """Return the number of threads of a process that is worth a row; none where laws tell none."""
    known = there.threads
    if not isinstance(known, MoreThreads) or there.costs.setting.listed_at(there.n):
        return []
    if not there.all_ranks:  # where ranks are is a matter of all of them
        return []
    return [] if known.twice is None else [known.twice]


def _busiest(row: Count) -> list[int]:
    """Return the phases that compute longest, the longest first."""
    busy = [phase for phase in row.phases if phase.compute_s > _LEAST * row.model_s]
    busy.sort(key=lambda phase: -phase.compute_s)
    return [phase.phase for phase in busy[:_PHASES]]


def _as_changes(part: Change) -> Changes:
    return Changes(text_of(part), (part,))


def _algorithms(there: Simulation) -> Iterator[Rule]:
    """Yield the best other algorithm of each collective of the program, where it saves anything.

    They are sorted by simulations in which nothing varies.
    """
    trace = there.ready[0].trace
    names = {blocking_of(trace.ops[op]) for op in np.unique(trace.op).tolist()}
    calls = sorted(name.removeprefix("MPI_").lower() for name in names)
    usual_time: float | None = None
    for call in calls:
        times = {}
        for name in dict.fromkeys(NUMBERS.get(call, ())):
            if name in COLLECTIVES[call].algorithms:
                rule = Rule(call, name)
                seconds = _seconds(there, Changes("", (Algorithm(rule),)))
                if seconds is not None:
                    times[rule] = seconds
        if not times:
            continue
        if usual_time is None:
            usual_time = _seconds(there, Changes("", ())) or 0.0
        best = min(times, key=lambda rule: times[rule])
        if times[best] < (1.0 - _WORTH) * usual_time:
            yield best


def _seconds(there: Simulation, changes: Changes) -> float | None:
    """Return the run time with changes where nothing varies; None: there are too many steps."""
    times = there.even(changes, most=_MORE_STEPS * there.size)
    return None if times is None else total(times.own + times.comm, times.estimator)
