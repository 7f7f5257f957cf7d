"""Time of every rank in every phase, simulated with measured costs, as messages vary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from p3s.base.arrays import Floats, Ints
from p3s.program.phase_cells import Places
from p3s.replay.costs.messages import Key
from p3s.replay.engine.results import ProgramResult
from p3s.replay.plan.program import Program
from p3s.simulate.network import Network
from p3s.simulate.simulate import simulate
from p3s.simulate.steps import SENDS, Op, Steps

#: Fewest deviations that stand for a size; else those of the nearest size are taken.
_FEWEST = 20
#: Quantiles that are kept of the deviations of one size.
_KEPT = 401
#: Simulations that are averaged: as many as this many steps allow, in these bounds.
_STEPS = 2_000_000
_REPEATS = (2, 12)
#: Computation shorter than this is not emulated by itself, and does not vary.
_WORK_NS = 150_000.0
#: No message becomes shorter than this share of its typical time.
_SHORTEST = 0.1

Spread = dict[Key, Floats]

#: Distance and bytes as one number.
_HOP = 1 << 48
_SEND_OPS = [int(op) for op in SENDS]


def spread_of(
    points: Mapping[Key, float], burst: float, *deviations: Mapping[Key, Floats]
) -> Spread:
    """Return per (distance, bytes) quantiles of how far transfers are off, in ns.

    ``points``: transfers on an idle network. ``deviations``: from the simulated transfers, the
    best origin first. Where messages may queue at a link (larger than its ``burst``), those whose
    median is off by more than the transfer have a reason that the simulation does not know, and
    are not taken. Others show what ranks wait for cores, and that belongs to the run.
    """
    spread = {}
    for (distance, size), idle in points.items():
        for origin in deviations:
            every = origin.get((distance, size), np.zeros(0))
            if len(every) < _FEWEST:
                continue
            if distance == 0 or size <= burst or abs(float(np.median(every))) <= idle:
                share = np.linspace(0.0, 1.0, min(len(every), _KEPT))
                spread[distance, size] = np.quantile(every, share)
                break
    return spread


def repeats_of(steps: Steps) -> int:
    """Return how many simulations of these steps are averaged."""
    return int(np.clip(_STEPS // max(len(steps), 1), *_REPEATS))


def work_spread(programs: Sequence[Program], results: Mapping[int, ProgramResult]) -> Floats:
    """Return quantiles of what emulated computation took beyond its length, in ns; empty: unknown.

    From the programs that do what the ranks do: on these nodes computation varies like that.
    """
    parts = [
        result.work_error_ns
        for number, result in results.items()
        if programs[number].what == "trace" and len(result.work_error_ns)
    ]
    every = np.concatenate(parts) if parts else np.zeros(0)
    if len(every) < _FEWEST:
        return np.zeros(0)
    return np.asarray(np.quantile(every, np.linspace(0.0, 1.0, min(len(every), _KEPT))))


@dataclass(frozen=True)
class VariedMessages:
    """Messages that may vary: their steps, how they are off, and how much shorter they may become.

    ``kind``: of each message, the number of its entry in ``off`` and ``shortest``. ``work``: how
    far computation is off. ``one``, ``other``: steps that exchange messages in one call.
    """

    steps: Steps
    step: Ints
    kind: Ints
    off: tuple[Floats, ...]
    shortest: tuple[float, ...]
    work: Floats
    one: Ints
    other: Ints

    def drawn(self, rng: np.random.Generator) -> tuple[Steps, Floats]:
        """Return the steps with computation of other lengths, and what is added to the transfer of
        each step's message, in ns."""
        extra = np.zeros(len(self.steps))
        for kind, (off, shortest) in enumerate(zip(self.off, self.shortest, strict=True)):
            mine = self.step[self.kind == kind]
            extra[mine] = np.maximum(off[rng.integers(0, len(off), len(mine))], shortest)
        # Two calls that send to each other and receive end together: what was measured of each is
        # the later of the two messages already.
        extra[self.other] = extra[self.one]
        if not len(self.work):
            return self.steps, extra
        busy = np.flatnonzero(self.steps.work_ns > _WORK_NS)
        work = self.steps.work_ns.copy()
        longer = self.work[rng.integers(0, len(self.work), len(busy))]
        work[busy] = np.maximum(work[busy] + longer, 0.0)
        return replace(self.steps, work_ns=work), extra


def vary_messages(
    steps: Steps,
    node_of: Ints,
    distance: Ints | None,
    network: Network,
    spread: Mapping[Key, Floats],
    work: Floats,
) -> VariedMessages:
    """Return the messages of these steps whose transfers vary; ``work``: see work_spread."""
    sends = np.flatnonzero(np.isin(steps.op, _SEND_OPS) & (steps.peer >= 0))
    source, target = node_of[steps.rank[sends]], node_of[steps.peer[sends]]
    hops = (source != target).astype(np.int64) if distance is None else distance[source, target]
    keys, index = np.unique(
        hops * _HOP + np.minimum(steps.bytes[sends], _HOP - 1), return_inverse=True
    )
    off: list[Floats] = []
    shortest: list[float] = []
    number = np.full(len(keys), -1, dtype=np.int64)
    for i, code in enumerate(keys.tolist()):
        d, size = divmod(code, _HOP)
        if (near := _nearest((d, size), spread)) is not None:
            number[i] = len(off)
            off.append(spread[near])
            shortest.append((_SHORTEST - 1.0) * float(network.path(d).transfer.at(size)))
    kind = number[index.reshape(-1)] if len(keys) else np.zeros(0, dtype=np.int64)
    valid = kind >= 0
    both = np.flatnonzero(
        (steps.op == int(Op.SENDRECV)) & (steps.to >= 0) & (steps.to == steps.source)
    )
    both = both[both < steps.to[both]]
    return VariedMessages(
        steps, sends[valid], kind[valid], tuple(off), tuple(shortest), work, both, steps.to[both]
    )


def _nearest(key: Key, spread: Mapping[Key, Floats]) -> Key | None:
    """Return the measured size nearest by ratio, on the same side of the node's border."""
    d, size = key
    near = [k for k in spread if (k[0] > 0) == (d > 0)]
    if not near:
        return None
    return min(near, key=lambda k: (abs(k[0] - d), abs(np.log((k[1] + 1) / (size + 1))), k))


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


def with_creations(times: PhaseTimes, creation_ns: Floats) -> PhaseTimes:
    """Return times with what ranks do by themselves to make communicators: (3, ranks, phases)."""
    least, usual, most = creation_ns
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
    section_sums: list[
        Floats
    ] = []  # per section: communication, its parts, begins, low and high ends
    notes: dict[str, None] = {}
    none = np.zeros(0)
    for steps in full:
        off = work_off if spread and work_off is not None else none
        vary = vary_messages(steps, node_of, distance, networks[0], spread or {}, off)
        repeats = repeats_of(steps) if spread else 1
        sums = np.zeros((7, len(steps)))
        for repeat in range(repeats):
            for variant, network in enumerate(networks):
                drawn, extra_ns = vary.drawn(np.random.default_rng(repeat))
                result = simulate(
                    drawn, node_of, network, distance=distance, extra_ns=extra_ns, anyway=True
                )
                notes |= dict.fromkeys(result.notes)
                long = result.end_ns - result.begin_ns
                if variant:
                    sums[4 + variant] += long
                    continue
                parts = (result.waiting_ns, result.transfer_ns, result.software_ns)
                sums[:5] += (long, *parts, result.begin_ns)
        section_sums.append(sums / repeats)
    comm, waiting, transfer, software, _, low, high = (
        where.total([sums[i] for sums in section_sums]) for i in range(7)
    )
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
    return times_of, tuple(sums[4] for sums in section_sums), tuple(notes)
