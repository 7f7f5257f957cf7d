"""When advice is not to be trusted: codes of p3s.predict.reasons, and what would help."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from p3s.base.text import plural, processes
from p3s.base.text import seconds as time_text
from p3s.machine.topology.units import Floats
from p3s.methods.threads.advise.configurations import Configuration
from p3s.methods.threads.advise.types import Interval
from p3s.methods.threads.law import ThreadLaw
from p3s.methods.threads.types import Envelope, Seen, Uses
from p3s.predict.reasons import Reason

#: How far outside the traced runs a law is still believed: threads, threads of a node, processes,
#: work of a process, as ratios.
FAR_THREADS, FAR_ON_NODE, FAR_COUNT, FAR_WORK = 2.0, 2.0, 16.0, 16.0
#: Threads in all beyond so many times the traced ones may find nothing to do.
FAR_IN_ALL = 4.0
#: An interval whose ends are further apart than this factor tells nothing.
WIDE = 2.0
#: Laws that are off by more at the runs they were fitted to are not to be trusted.
OFF = 0.15


class Outside(NamedTuple):
    """How far a configuration lies outside the traced runs, as ratios; 1 inside."""

    n: float
    threads: float
    on_node: float
    work: float
    in_all: float = 1.0


def outside(laws: Sequence[ThreadLaw], uses: Uses) -> tuple[Floats, Floats, Floats]:
    """Return the ratios of processes, threads, and threads of a node, for each use."""
    none = np.full(len(uses), np.nan)
    found = [law.outside(uses, none) for law in laws]
    n, threads, on_node = (
        np.max([each[name] for each in found], axis=0) for name in ("n", "threads", "on_node")
    )
    return n, threads, on_node


def outside_work(laws: Sequence[ThreadLaw], work: Floats) -> float:
    """Return the ratio of the work of a process, one per phase."""
    ends = np.array([law.envelope.work for law in laws])
    return float(max(1.0, (work / ends[:, 1]).max(), (ends[:, 0] / work).max()))


def reasons_of(
    seen: Envelope, off: float, at: Configuration, far: Outside, seconds: Interval
) -> tuple[Reason, ...]:
    """Return what is doubtful of one configuration; off: how far laws are at the traced runs."""
    return tuple(_reasons(seen, off, at, far, seconds))


def _reasons(
    seen: Envelope, off: float, at: Configuration, far: Outside, seconds: Interval
) -> Iterator[Reason]:
    if far.threads > 1 or far.on_node > 1:
        most = max(far.threads / FAR_THREADS, far.on_node / FAR_ON_NODE)
        yield Reason(
            "outside-threads",
            f"{plural(at.threads, 'thread')} a process and {at.per_node * at.threads} on a node: "
            f"traced were {_range(seen.threads)}, and {_range(seen.on_node)} on a node",
            f"trace {processes(at.per_node)} of {plural(at.threads, 'thread')} on one node",
            most > 1,
        )
    if far.n > FAR_COUNT:
        yield Reason(
            "extrapolated",
            f"{processes(at.processes)} are {far.n:.0f} times as many as traced",
            "trace a larger count",
        )
    if far.work > FAR_WORK:
        yield Reason(
            "outside",
            f"the work of a process is {far.work:.0f} times outside that of traced ones",
            "trace another workload",
        )
    if far.in_all > FAR_IN_ALL:
        yield Reason(
            "idle-threads",
            f"{at.processes * at.threads} threads in all are {far.in_all:.0f} times as many as in "
            "any run, and no run tells how many iterations their loops have: some may have none",
            "compare the iterations of the outermost parallel loops with it",
            False,
        )
    if at.far and not seen.far:
        yield Reason("outside-place", "no run had threads far from each other", "", False)
    if off > OFF:
        yield Reason(
            "model-off",
            f"the laws are off by {off:.0%} at the traced runs",
            "trace them again on quiet nodes",
        )
    if seconds.high > WIDE * seconds.low:
        yield Reason(
            "wide",
            f"the time lies between {time_text(seconds.low)} and {time_text(seconds.high)}",
            "trace more runs; p3s next names the one that tells most",
        )


def _range(seen: Seen) -> str:
    low, high = round(seen.low), round(seen.high)
    return f"{low}" if low == high else f"{low} to {high}"
