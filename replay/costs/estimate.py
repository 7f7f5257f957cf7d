"""Time of every rank in every phase, from the dependency simulation fed with measured costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from p3s.program.phase_cells import Places
from p3s.simulate.network import Network
from p3s.simulate.simulate import simulate_anyway
from p3s.simulate.steps import Floats, Ints, Steps

if TYPE_CHECKING:
    from p3s.replay.costs.spread import Spread


@dataclass(frozen=True)
class PhaseTimes:
    """Communication of the whole run per rank and phase in ns; arrays (ranks, phases).

    ``comm``: all time in calls, waiting included; ``waiting``, ``transfer``, ``software``: its
    parts; ``work``: computation of the steps; ``low`` and ``high``: ``comm`` with the costs at
    the ends of their 95 % intervals.
    """

    phases: tuple[int, ...]
    comm: Floats
    low: Floats
    high: Floats
    waiting: Floats
    transfer: Floats
    software: Floats
    work: Floats


def with_creations(times: PhaseTimes, own: Floats) -> PhaseTimes:
    """Return times with what ranks do by themselves to make communicators: (3, ranks, phases)."""
    least, usual, most = own
    return replace(
        times,
        comm=times.comm + usual,
        low=times.low + least,
        high=times.high + most,
        software=times.software + usual,
    )


def phase_times(
    where: Places,
    full: Sequence[Steps],
    node_of: Ints,
    distance: Ints | None,
    networks: tuple[Network, Network, Network],
    spread: Spread | None = None,
    work: Floats | None = None,
    work_off: Floats | None = None,
) -> tuple[PhaseTimes, tuple[Floats, ...], tuple[str, ...]]:
    """Simulate all sections; ``networks``: the costs, their low ends, their high ends.

    With a ``spread``, times are means over some simulations in which messages vary. ``work``: the
    computation, (ranks, phases) in ns; default: that of the steps. ``work_off``: how it varies
    (work_spread); it makes others wait, the time for it is not counted. Returns the times, per
    section when each step begins (the schedule of timed black holes), and what had to be changed
    so that all ranks come to their end.
    """
    from p3s.replay.costs.spread import repeats_of, varied

    found: list[list[Floats]] = [[] for _ in range(7)]
    notes: dict[str, None] = {}
    for steps in full:
        times = [np.zeros(len(steps)) for _ in found]
        repeats = repeats_of(steps) if spread else 1
        vary = (
            varied(
                steps,
                node_of,
                distance,
                networks[0],
                spread,
                np.zeros(0) if work_off is None else work_off,
            )
            if spread
            else None
        )
        for repeat in range(repeats):
            for which, network in enumerate(networks):
                more: dict[str, Any] = {}
                drawn = steps
                if vary is not None:
                    rng = np.random.default_rng(repeat)
                    more["extra_ns"] = vary.draw(rng)
                    drawn = vary.computing(rng)
                result, said = simulate_anyway(drawn, node_of, network, distance=distance, **more)
                notes |= dict.fromkeys(said)
                long = np.asarray(result.end_ns) - np.asarray(result.begin_ns)
                values = (
                    [long]
                    if which
                    else [
                        long,
                        result.waiting_ns,
                        result.transfer_ns,
                        result.software_ns,
                        result.begin_ns,
                    ]
                )
                for into, value in zip(
                    times[4 + which :] if which else times, values, strict=False
                ):
                    into += np.asarray(value) / repeats
        for column, value in zip(found, times, strict=True):
            column.append(value)
    comm, waiting, transfer, software = (where.total(column) for column in found[:4])
    low, high = (where.total(column) for column in found[5:])
    times_of = PhaseTimes(
        where.phases,
        comm,
        np.minimum(low, comm),
        np.maximum(high, comm),
        waiting,
        transfer,
        software,
        where.total([steps.work_ns for steps in full]) if work is None else work,
    )
    return times_of, tuple(found[4]), tuple(notes)
