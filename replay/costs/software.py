"""What calls cost their own process, and which messages are eager, from pair programs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from p3s.base.arrays import Floats
from p3s.replay.engine.results import Estimate, ProgramResult, median_interval
from p3s.replay.plan.program import Code, Program, World
from p3s.simulate.network import Curve

SEND, RECEIVE, POST, WAIT, LATE = "send", "receive", "post", "wait", "late"

#: Bytes up to which a message is eager, by distance (0: inside a node, 1: between nodes), where
#: nothing tells: Open MPI 4 and 5, btl_vader_eager_limit and btl_tcp_eager_limit less the header.
EAGER = {0: 4096.0 - 56.0, 1: 65536.0 - 56.0}
#: A call of the sender that takes less than this share of the receiver's delay did not wait.
_WAITED = 0.5


@dataclass(frozen=True)
class OwnCostSamples:
    """Samples of one kind of own cost: bytes, distance class (0 or 1), (passes,) in ns.

    ``sends``: the call sends something.
    """

    kind: str
    bytes: int
    distance: int
    ns: Floats
    sends: bool


def own_costs(
    programs: Sequence[Program], results: Mapping[int, ProgramResult], world: World
) -> tuple[OwnCostSamples, ...]:
    """Return the samples of all events that measure a call's own cost."""
    samples = []
    for number, result in sorted(results.items()):
        program = programs[number]
        column = {int(event): i for i, event in enumerate(result.event.tolist())}
        for position, kind in program.own if result.passes else ():
            if position not in column:
                continue
            event = program.events[position]
            process = int(np.searchsorted(program.start, position, side="right")) - 1
            distance = -1
            if kind != WAIT:
                node, peer_node = (world.processes[p].node for p in (process, int(event["peer"])))
                distance = int(node != peer_node)
            sends = int(event["code"]) in (Code.SEND, Code.ISEND)
            took = result.event_ns[:, column[position]]
            samples.append(OwnCostSamples(kind, int(event["bytes"]), distance, took, sends))
    return tuple(samples)


def _by_bytes(
    costs: Sequence[OwnCostSamples], kind: str, distance: int, most: float = math.inf
) -> dict[int, Floats]:
    """Return the samples of a kind by ascending bytes, from messages up to ``most``."""
    mine = [o for o in costs if o.kind == kind and o.distance == distance and o.bytes <= most]
    return {
        size: np.concatenate([o.ns for o in mine if o.bytes == size])
        for size in sorted({o.bytes for o in mine})
    }


def curve_of(
    samples: Sequence[OwnCostSamples], kind: str, distance: int, most: float = math.inf
) -> Curve | None:
    """Return the cost over bytes, from messages up to ``most``; None where nothing was measured."""
    samples_of = _by_bytes(samples, kind, distance, most)
    if not samples_of:
        return None
    costs = [median_interval(ns).cost_ns for ns in samples_of.values()]
    return Curve(tuple(map(float, samples_of)), tuple(costs))


def below(curve: Curve | None, transfer: Curve, otherwise: float, most: float = math.inf) -> Curve:
    """Return the cost of a call at the sizes of transfers too, nowhere more than the transfer.

    Beyond the largest measured size it grows as the transfer does, beyond ``most`` not at all.
    """
    measured = curve or Curve((1.0,), (otherwise,))
    sizes = np.union1d(measured.nbytes, transfer.nbytes)
    used = np.minimum(sizes, most)
    last = min(measured.nbytes[-1], most)
    last_ns = max(float(transfer.at(last)), 1.0)
    grown = np.maximum(transfer.at(np.maximum(used, last)) / last_ns, 1.0)
    cost = measured.at(np.minimum(used, last)) * grown
    return Curve(tuple(sizes.tolist()), tuple(np.minimum(cost, transfer.at(sizes)).tolist()))


def post_cost(
    cost_samples: Sequence[OwnCostSamples], eager: Mapping[int, tuple[float, str]]
) -> Estimate | None:
    """Return what a call costs that starts a request or completes one that is complete.

    An Isend of an eager message does more than that.
    """
    samples = [
        o.ns
        for o in cost_samples
        if o.kind == WAIT or (o.kind == POST and not (o.sends and o.bytes <= eager[o.distance][0]))
    ]
    return median_interval(np.concatenate(samples)) if samples else None


def eager_limit(
    samples: Sequence[OwnCostSamples], distance: int, delay_ns: float
) -> tuple[float, str]:
    """Return up to which bytes a send does not wait for its receive, and how that is known.

    From sends whose receiver comes ``delay_ns`` late; between the largest that did not wait and
    the smallest that did lies the limit: the library's known one if it fits, else the largest.
    """
    usual = EAGER[min(distance, 1)]
    waited = _by_bytes(samples, LATE, distance)
    if not waited:
        return usual, "known of Open MPI"
    # A busy machine makes some eager sends slow, but no send faster that waits.
    late = {size: float(np.percentile(ns, 25)) > _WAITED * delay_ns for size, ns in waited.items()}
    eager = max((size for size, is_late in late.items() if not is_late), default=-1)
    meets = min((size for size, is_late in late.items() if is_late and size > eager), default=-1)
    if eager <= usual and (usual < meets or meets < 0):
        return usual, "known of Open MPI, not contradicted"
    if eager < 0:
        return 0.0, "measured: every message waits"
    return float(eager), "measured: the largest message that did not wait"
