"""When advice is not to be trusted: codes of p3s.predict.reasons, and what would help."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from p3s.advise.configurations import Configuration, uses_of
from p3s.advise.types import Interval
from p3s.predict.reasons import Reason
from p3s.text import plural, processes
from p3s.threads.law import ThreadLaw
from p3s.topology.units import Floats

#: How far outside the traced runs a law is still believed: threads, threads of a node, processes,
#: work of a process, as ratios.
FAR_THREADS, FAR_ON_NODE, FAR_COUNT, FAR_WORK = 2.0, 2.0, 16.0, 16.0
#: An interval whose ends are further apart than this factor tells nothing.
WIDE = 2.0


def reasons_of(
    laws: Sequence[ThreadLaw], work: Floats, at: Configuration, seconds: Interval
) -> tuple[Reason, ...]:
    """Return what is doubtful of one configuration; work: of one process, one per phase."""
    return tuple(_reasons(laws, work, at, seconds))


def _reasons(
    laws: Sequence[ThreadLaw], work: Floats, at: Configuration, seconds: Interval
) -> Iterator[Reason]:
    uses, seen = uses_of([at]), laws[0].envelope
    outside = [law.outside(uses, np.array([w])) for law, w in zip(laws, work, strict=True)]
    far = {name: max(float(each[name][0]) for each in outside) for name in outside[0]}
    on_node = at.per_node * at.threads
    if far["threads"] > 1 or far["on_node"] > 1:
        most = max(far["threads"] / FAR_THREADS, far["on_node"] / FAR_ON_NODE)
        yield Reason(
            "outside-threads",
            f"{plural(at.threads, 'thread')} a process and {on_node} on a node: traced were "
            f"{seen.threads.low:.0f} to {seen.threads.high:.0f}, and {seen.on_node.low:.0f} to "
            f"{seen.on_node.high:.0f} on a node",
            f"trace {plural(at.per_node, 'process', 'processes')} of "
            f"{plural(at.threads, 'thread')} on one node",
            most > 1,
        )
    if far["n"] > FAR_COUNT:
        yield Reason(
            "extrapolated",
            f"{processes(at.processes)} are {far['n']:.0f} times the traced ones",
            "trace a larger count",
        )
    if far["work"] > FAR_WORK:
        yield Reason(
            "outside",
            f"each process has {far['work']:.0f} times more or less to do than traced ones",
            "trace another workload",
        )
    if at.far and not seen.far:
        yield Reason("outside-place", "no run had threads far from each other", "", False)
    if seconds.high > WIDE * seconds.low:
        yield Reason(
            "wide",
            f"the interval reaches from {seconds.low:.3g} to {seconds.high:.3g} s",
            "make the run that narrows it most",
        )
