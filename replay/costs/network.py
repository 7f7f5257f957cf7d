"""The network that a replay has measured: curves per distance, link, software, eager limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from p3s.predict.network import Curve, Network, Path
from replay.costs.executed import Executed, executed
from replay.costs.link import NO_LINK, Flood, Link, fit_link
from replay.costs.messages import MessageCost, Observed, message_costs, typical
from replay.costs.software import (
    RECEIVE,
    SEND,
    curve_of,
    eager_limit,
    own_costs,
    post_cost,
)
from replay.costs.stats import Estimate
from replay.engine.results import ProgramResult
from replay.plan.classes import MessageClass
from replay.plan.program import Code, Program
from replay.plan.world import World
from replay.steps import Bools, Floats, Ints

#: Rounds of correction of the curves by what the simulation adds; it converges in two.
_ROUNDS = 4
#: No corrected cost is below this share of the measured one.
_FLOOR = 0.02
#: ns of software costs that nothing has measured.
_SEND, _RECEIVE, _POST = 2_000.0, 2_000.0, 500.0
#: Programs that are simulated to correct the curves of one class.
_MOST_PROGRAMS = 6
#: How late the receiver comes where a program looks for the eager limit (replay/plan).
LATE_NS = 5e6


class Simulated(Protocol):
    """What a simulation tells of every step; see p3s.predict.dependency."""

    begin_ns: Floats
    end_ns: Floats
    waiting_ns: Floats
    software_ns: Floats
    transfer_ns: Floats


Simulate = Callable[..., Any]


@dataclass(frozen=True)
class Costs:
    """All that the simulation is fed with.

    ``network``, and ``low`` and ``high`` with the ends of the 95 % intervals. ``messages``: per
    message class, queueing included. ``points``: (distance, bytes) -> transfer without it.
    ``checked``: per message class measured minus simulated transfer, relative; NaN: no sample.
    """

    network: Network
    low: Network
    high: Network
    messages: tuple[MessageCost, ...]
    link: Link
    points: dict[tuple[int, int], Estimate]
    eager: dict[int, str]
    checked: Floats


def network_of(
    classes: Sequence[MessageClass], programs: Sequence[Program],
    results: Mapping[int, ProgramResult], world: World, simulate: Simulate, *,
    work_scale: float = 1.0,
) -> Costs:
    """Return the costs of messages that a replay has measured.

    The curves hold what a message needs on an idle network: the executed programs are simulated
    with them, and what the simulation adds by queueing is taken off, until both agree.
    """
    costs = message_costs(classes, programs, results)
    link = fit_link(floods(programs, results))
    points = pooled(classes, costs)
    own = own_costs(programs, results, world)
    distances = sorted({d for d, _ in points} | {0, 1})
    eager = {d: eager_limit(own, min(d, 1), LATE_NS) for d in distances}
    post = post_cost(own)

    def build(which: str, shift: Mapping[tuple[int, int], float]) -> Network:
        paths = {}
        for d in distances:
            curve = transfer_curve(points, shift, d, which)
            if curve is None:
                continue
            paths[d] = Path(
                curve, curve_of(own, SEND, min(d, 1), eager[d][0]) or Curve((1.0,), (_SEND,)),
                curve_of(own, RECEIVE, min(d, 1), eager[d][0]) or Curve((1.0,), (_RECEIVE,)),
                eager[d][0], linked=d > 0)
        rate = {"low_ns": link.high, "high_ns": link.low}.get(which, link.rate)
        return Network(paths, rate=rate, burst=link.burst,
                       post=post.cost_ns if post else _POST, source="replay",
                       detail={"link_residual": link.residual})

    shift, checked = _corrected(classes, costs, points, programs, world, build, simulate,
                                work_scale)
    return Costs(build("cost_ns", shift), build("low_ns", shift), build("high_ns", shift), costs,
                 link, {key: e.plus(shift.get(key, 0.0)) for key, e in points.items()},
                 {d: why for d, (_, why) in eager.items()}, checked)


def floods(programs: Sequence[Program], results: Mapping[int, ProgramResult]) -> list[Flood]:
    """Return what link programs have measured: median over the passes of every arrival."""
    found = []
    for number, result in sorted(results.items()):
        program = programs[number]
        if program.what != "link" or not result.passes or not result.link_ns.size:
            continue
        sends = program.events[program.events["code"] == Code.LINK_SEND]
        if not len(sends):
            continue
        nbytes = np.concatenate([np.full(int(e["number"]), float(e["bytes"])) for e in sends])
        ns = np.sort(result.link_ns, axis=1)
        if ns.shape[1] != len(nbytes):
            continue
        found.append(Flood(len(sends), np.cumsum(nbytes), np.nanmedian(ns, axis=0)))
    return found


def pooled(classes: Sequence[MessageClass], costs: Sequence[MessageCost]
           ) -> dict[tuple[int, int], Estimate]:
    """Return (distance, bytes) -> measured transfer; classes of several loads by samples."""
    groups: dict[tuple[int, int], list[Estimate]] = {}
    for cls, cost in zip(classes, costs, strict=True):
        if cost.observed:
            groups.setdefault((cls.distance, cls.bytes), []).append(cost.estimate)
    points = {}
    for key, estimates in groups.items():
        weight = np.array([max(e.n_samples, 1) for e in estimates], dtype=np.float64)
        values = np.array([(e.cost_ns, e.low_ns, e.high_ns) for e in estimates])
        cost, low, high = (weight[:, None] * values).sum(axis=0) / weight.sum()
        points[key] = Estimate(float(cost), float(low), float(high), int(weight.sum()))
    return points


def transfer_curve(
    points: Mapping[tuple[int, int], Estimate], shift: Mapping[tuple[int, int], float],
    distance: int, which: str = "cost_ns",
) -> Curve | None:
    """Return the transfer over bytes of a distance, of the nearest one that was measured."""
    known = sorted({d for d, _ in points if (d > 0) == (distance > 0)} or
                   {d for d, _ in points}, key=lambda d: (abs(d - distance), d))
    if not known:
        return None
    sizes = sorted(nbytes for d, nbytes in points if d == known[0])
    keys = [(known[0], size) for size in sizes]
    ns = [max(getattr(points[key], which) + shift.get(key, 0.0), _FLOOR * points[key].cost_ns)
          for key in keys]
    return Curve(tuple(map(float, sizes)), tuple(ns))


def _corrected(
    classes: Sequence[MessageClass], costs: Sequence[MessageCost],
    points: Mapping[tuple[int, int], Estimate], programs: Sequence[Program], world: World,
    build: Callable[[str, Mapping[tuple[int, int], float]], Network], simulate: Simulate,
    work_scale: float,
) -> tuple[dict[tuple[int, int], float], Floats]:
    """Return the shift of every point that lets the simulation give the measured transfers."""
    use: dict[int, list[tuple[int, Observed]]] = {}
    for cls, cost in enumerate(costs):
        for observed in cost.observed[:_MOST_PROGRAMS]:
            use.setdefault(observed.program, []).append((cls, observed))
    done = {number: executed(programs[number], world, work_scale=work_scale) for number in use}
    shift: dict[tuple[int, int], float] = dict.fromkeys(points, 0.0)
    checked = np.full(len(classes), np.nan)
    for turn in range(_ROUNDS if use else 0):
        network = build("cost_ns", shift)
        errors: dict[tuple[int, int], list[tuple[float, int]]] = {}
        off: dict[int, list[tuple[float, float]]] = {}
        for number, wanted in use.items():
            times = simulated_transfers(programs[number], done[number], network, simulate,
                                        classes)
            for cls, observed in wanted:
                measured, simulated = typical(observed.ns), times[observed.message]
                both = ~np.isnan(measured) & ~np.isnan(simulated)
                if not both.any():
                    continue
                error = float((measured - simulated)[both].mean())
                key = (classes[cls].distance, classes[cls].bytes)
                errors.setdefault(key, []).append((error, int(both.sum())))
                off.setdefault(cls, []).append((error, float(measured[both].mean())))
        for cls, found in off.items():
            checked[cls] = sum(e for e, _ in found) / max(sum(m for _, m in found), 1.0)
        if turn == _ROUNDS - 1:
            break
        for key, pairs in errors.items():
            values, weight = np.array(pairs, dtype=np.float64).T
            least = (_FLOOR - 1.0) * points[key].cost_ns
            shift[key] = max(shift[key] + float((values * weight).sum() / weight.sum()), least)
    return shift, checked


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
    return np.where(_waited(begin, end, sent, posted, received), transfer, np.nan)


def _waited(begin: Floats, end: Floats, sent: Ints, posted: Ints, received: Ints) -> Bools:
    """Return where the completion began early enough to be held up by the message."""
    return np.asarray((received == posted) | (begin[received] < end[received] - 1.0)) & \
        (sent >= 0)


def node_distance(program: Program, classes: Sequence[MessageClass]) -> Ints:
    """Return hops between the four nodes: of the pairing between the measured ones, else 1."""
    hops = np.ones((4, 4), dtype=np.int64)
    np.fill_diagonal(hops, 0)
    if program.pairing is not None and len(program.pairing.cls):
        used = [classes[c].distance for c in np.unique(program.pairing.cls).tolist() if c >= 0]
        hops[0, 1] = hops[1, 0] = max([d for d in used if d > 0], default=1)
    return hops


def without_queue(costs: Costs) -> Network:
    """Return the network without a link: what queueing is worth."""
    return replace(costs.network, rate=float("inf"), burst=0.0)


__all__ = ["Costs", "NO_LINK", "network_of", "floods", "pooled", "transfer_curve",
           "simulated_transfers", "node_distance", "without_queue"]
