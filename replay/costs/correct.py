"""Curves without queueing: the executed programs are simulated, too, and what that adds taken off.

The simulation of the whole run has a queue at each link, and so must not be fed with costs that
hold queueing, or the other half of a call that sends and receives at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from p3s.predict.network import Network
from replay.costs.executed import Executed, executed
from replay.costs.messages import Key, Observed, typical
from replay.costs.stats import Estimate
from replay.plan.classes import MessageClass
from replay.plan.program import Program
from replay.plan.world import NODES, World
from replay.steps import Floats, Ints

Simulate = Callable[..., Any]

#: Rounds of correction; it converges in two or three.
ROUNDS = 4
#: No corrected cost is below this share of the measured one.
FLOOR = 0.02
#: Programs that are simulated to correct one point.
_MOST_PROGRAMS = 6


@dataclass(frozen=True)
class Correction:
    """What the simulation of executed programs tells.

    ``shift``: ns to add to every point. ``checked``: per class, measured minus simulated transfer
    that remains, relative to the measured one; NaN: not compared. ``deviations``: samples minus
    simulated transfers, per point.
    """

    shift: dict[Key, float]
    checked: Floats
    deviations: dict[Key, Floats]


def corrected(
    classes: Sequence[MessageClass], use: Sequence[Observed], points: Mapping[Key, Estimate],
    programs: Sequence[Program], world: World, build: Callable[[Mapping[Key, float]], Network],
    simulate: Simulate, *, work_scale: float = 1.0,
) -> Correction:
    """Return the shifts of all points that let the simulation give what was measured.

    ``use``: the samples. ``build``: the network for some shifts.
    """
    of_program = _by_program(use)
    done = {number: executed(programs[number], world, work_scale=work_scale)
            for number in of_program}
    shift: dict[Key, float] = dict.fromkeys(points, 0.0)
    checked = np.full(len(classes), np.nan)
    deviations: dict[Key, list[Floats]] = {}
    for turn in range(ROUNDS if of_program else 0):
        network = build(shift)
        deviations = {}
        errors: dict[Key, list[tuple[float, int]]] = {}
        off: dict[int, list[tuple[float, float]]] = {}
        for number, wanted in of_program.items():
            times = simulated_transfers(programs[number], done[number], network, simulate,
                                        classes)
            for observed in wanted:
                measured, simulated = typical(observed.ns), times[observed.message]
                both = ~np.isnan(measured) & ~np.isnan(simulated)
                if not both.any():
                    continue
                error = float(np.median((measured - simulated)[both]))
                errors.setdefault(observed.key, []).append((error, int(both.sum())))
                rest = (observed.ns - simulated[None, :])[:, both].reshape(-1)
                deviations.setdefault(observed.key, []).append(rest[~np.isnan(rest)])
                off.setdefault(observed.cls, []).append((error, float(measured[both].mean())))
        for cls, found in off.items():
            if cls >= 0:
                checked[cls] = sum(e for e, _ in found) / max(sum(m for _, m in found), 1.0)
        if turn == ROUNDS - 1:
            break
        for key, pairs in errors.items():
            values, weight = np.array(pairs, dtype=np.float64).T
            least = (FLOOR - 1.0) * points[key].cost_ns
            shift[key] = max(shift[key] + float((values * weight).sum() / weight.sum()), least)
    return Correction(shift, checked,
                      {key: np.concatenate(parts) for key, parts in deviations.items()})


def _by_program(use: Sequence[Observed]) -> dict[int, list[Observed]]:
    """Return the samples by program, of each point those of a few programs."""
    taken: dict[Key, int] = {}
    found: dict[int, list[Observed]] = {}
    for observed in use:
        taken[observed.key] = taken.get(observed.key, 0) + 1
        if taken[observed.key] <= _MOST_PROGRAMS:
            found.setdefault(observed.program, []).append(observed)
    return found


def simulated_transfers(
    program: Program, done: Executed, network: Network, simulate: Simulate,
    classes: Sequence[MessageClass],
) -> Floats:
    """Return the transfer of every message of the program's pairing; NaN where nobody waits."""
    pairing = program.pairing
    assert pairing is not None
    distance = node_distance(program, classes)
    result = simulate(done.steps, done.node_of, network, distance=distance)
    sender, receiver = program.start[pairing.sender], program.start[pairing.receiver]
    posted = done.first[receiver + pairing.posted]
    received = done.last[receiver + pairing.received]
    sent = done.first[sender + pairing.sent]
    begin, end = np.asarray(result.begin_ns), np.asarray(result.end_ns)
    later = np.maximum(begin[sent], begin[posted])
    transfer = np.asarray(end[received] - later, dtype=np.float64)
    # As in the measurement: not where the message was there when somebody asked for it.
    here = np.asarray(result.arrival_ns)[sent]
    return np.where(here > begin[received] + network.post, transfer, np.nan)


def node_distance(program: Program, classes: Sequence[MessageClass]) -> Ints:
    """Return hops between the four nodes: of the pairing between the measured ones, else 1."""
    hops = np.ones((NODES, NODES), dtype=np.int64)
    np.fill_diagonal(hops, 0)
    if program.pairing is not None and len(program.pairing.cls):
        used = [classes[c].distance for c in np.unique(program.pairing.cls).tolist() if c >= 0]
        hops[0, 1] = hops[1, 0] = max([d for d in used if d > 0], default=1)
    return hops
