"""The network that a replay has measured: curves per distance, link, software, eager limits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from p3s.base.arrays import Floats
from p3s.base.errors import P3SError
from p3s.replay.costs.estimate import Spread, spread_of, vary_messages, work_spread
from p3s.replay.costs.link import Flood, Link, fit_link
from p3s.replay.costs.messages import (
    FLOOR,
    Executions,
    Fabric,
    Key,
    MessageCost,
    MessageSamples,
    check_classes,
    choose_samples,
    correct_shifts,
    deviations,
    in_trace,
    message_costs,
    node_distance,
    observations,
)
from p3s.replay.costs.messages import level as level_of
from p3s.replay.costs.software import (
    RECEIVE,
    SEND,
    below,
    curve_of,
    eager_limit,
    own_costs,
    post_cost,
)
from p3s.replay.engine.results import Estimate, ProgramResult
from p3s.replay.plan.classes import MessageClass
from p3s.replay.plan.micro import LATE_NS
from p3s.replay.plan.program import MEASURED, Code, Program, World
from p3s.simulate.network import Curve, Network, Path, rough_network
from p3s.simulate.simulate import simulate

#: Simulations with drawn deviations per program, and programs that are looked at.
_DRAWS, _MOST = 6, 8


def share_of_spread(
    executions: Executions,
    results: Mapping[int, ProgramResult],
    network: Network,
    spread: Spread,
    work: Floats,
) -> float:
    """Return the factor on all deviations with which trace programs take as long as they did.

    Deviations are drawn one by one, though what delays one message often delays its neighbours as
    well, and waiting hides some: drawn in full they can cost more than the programs have shown.
    Between 0 and 1; 1 where no trace program without noise tells.
    """
    excess = needed = 0.0
    processes = [i for i, p in enumerate(executions.world.processes) if p.role == MEASURED]
    numbers = [
        n
        for n, result in sorted(results.items())
        if executions.programs[n].what == "trace"
        and result.passes
        and not executions.programs[n].noise
    ]
    for number in numbers[:_MOST]:
        program, run = executions.programs[number], executions.done(number)
        distance = node_distance(program, executions.classes)
        placed = executions.place(number, network)
        vary = vary_messages(run.steps, run.node_of, distance, placed, spread, work)
        last = np.array(
            [
                run.steps.start[p + 1] - 1
                for p in processes
                if run.steps.start[p + 1] > run.steps.start[p]
            ]
        )
        if not len(last):
            continue
        try:
            typical = simulate(run.steps, run.node_of, placed, distance=distance, anyway=True)
            drawn = []
            for draw in range(_DRAWS):
                steps, extra = vary.drawn(np.random.default_rng(draw))
                drawn_result = simulate(
                    steps, run.node_of, placed, distance=distance, extra_ns=extra, anyway=True
                )
                drawn.append(drawn_result.end_ns[last].max())
        except P3SError:
            continue
        plain = float(typical.end_ns[last].max())
        excess += float(np.mean(drawn)) - plain
        needed += float(np.median(results[number].pass_ns[:, processes].max(axis=1))) - plain
    return float(np.clip(needed / excess, 0.0, 1.0)) if excess > 0 else 1.0


#: ns of software costs that nothing has measured.
_SEND, _RECEIVE, _POST = 2_000.0, 2_000.0, 500.0


@dataclass(frozen=True)
class Costs:
    """All that the simulation is fed with.

    ``network``, and ``low`` and ``high`` with the ends of the 95 % intervals. ``messages``: per
    message class, queueing included. ``points``: (distance, bytes) -> transfer without it.
    ``checked``: per message class measured minus simulated transfer, relative; NaN: no sample.
    ``spread``: how transfers vary; ``work``: how computation does; ``share``: of the measured
    deviations, what they are scaled by.
    """

    network: Network
    low: Network
    high: Network
    messages: tuple[MessageCost, ...]
    link: Link
    points: dict[Key, Estimate]
    eager: dict[int, str]
    checked: Floats
    spread: Spread
    work: Floats
    share: float


def network_of(
    classes: Sequence[MessageClass],
    programs: Sequence[Program],
    results: Mapping[int, ProgramResult],
    world: World,
    *,
    work_scale: float = 1.0,
    rough: Network | None = None,
    fabric: Fabric | None = None,
) -> Costs:
    """Return the costs of messages that a replay has measured; ``rough``: those of others.

    ``fabric``: the switches, where they are known.

    The curves hold what a message needs on an idle network: the executed programs are simulated
    with them, and what the simulation adds by queueing is taken off, until both agree.
    """
    usual = rough_network() if rough is None else rough
    observed = observations(classes, programs, results, world)
    costs = message_costs(classes, observed)
    use = choose_samples(classes, costs, observed)
    link = fit_link(floods(programs, results))
    points = pool_samples(use)
    call_costs = own_costs(programs, results, world)
    distances = sorted({d for d, _ in points} | {cls.distance for cls in classes} | {0, 1})
    eager = {d: eager_limit(call_costs, min(d, 1), LATE_NS) for d in distances}
    post = post_cost(call_costs, eager)
    buffer = sender_buffer(programs, results, link)

    def build(bound: str, shift: Mapping[Key, float]) -> Network:
        paths = {}
        for d in distances:
            curve = transfer_curve(points, shift, d, bound)
            if curve is None:
                paths[d] = usual.path(d)
                continue
            near, most = min(d, 1), eager[d][0]
            paths[d] = Path(
                curve,
                below(curve_of(call_costs, SEND, near), curve, _SEND),
                below(curve_of(call_costs, RECEIVE, near, most), curve, _RECEIVE, most),
                most,
                linked=d > 0,
            )
        rate = {"low_ns": link.high, "high_ns": link.low}.get(bound, link.rate)
        return Network(
            paths,
            rate=rate,
            burst=link.burst,
            sender_buffer=buffer,
            background=False,
            handshake=True,
            post=post.cost_ns if post else _POST,
            source="replay",
            detail={"link_residual": link.residual},
            trunks=None if fabric is None else fabric.trunks(link.burst),
        )

    executions = Executions(classes, programs, world, work_scale, fabric)
    shift = correct_shifts(executions, use, points, lambda shift: build("cost_ns", shift))
    network = build("cost_ns", shift)
    idle = {key: e.plus(shift.get(key, 0.0)) for key, e in points.items()}
    spread = spread_of(
        {key: e.cost_ns for key, e in idle.items()},
        link.burst if math.isfinite(link.rate) else math.inf,
        deviations(executions, in_trace(observed), network),
        deviations(executions, use, network),
    )
    work = work_spread(programs, results)
    share = share_of_spread(executions, results, network, spread, work)
    return Costs(
        network,
        build("low_ns", shift),
        build("high_ns", shift),
        costs,
        link,
        idle,
        {d: why for d, (_, why) in eager.items()},
        check_classes(executions, costs, network),
        {key: share * off for key, off in spread.items()},
        share * work,
        share,
    )


def floods(programs: Sequence[Program], results: Mapping[int, ProgramResult]) -> list[Flood]:
    """Return what link programs have measured: median over the passes of every arrival."""
    floods_found = []
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
        floods_found.append(
            Flood(
                len(sends),
                np.cumsum(nbytes),
                np.nanmedian(ns, axis=0),
                (float(nbytes[0]), float(np.nanmin(ns[:, 0]))),
            )
        )
    return floods_found


def sender_buffer(
    programs: Sequence[Program], results: Mapping[int, ProgramResult], link: Link
) -> float:
    """Return the bytes that a node takes off a sender before the link has carried them.

    What was left of a flood, by rate and burst, when its sender was rid of it; the least of all
    floods by one process.
    """
    if not math.isfinite(link.rate):
        return 0.0
    buffers = []
    for number, result in sorted(results.items()):
        program = programs[number]
        sends = np.flatnonzero(program.events["code"] == Code.LINK_SEND)
        if program.what != "link" or not result.passes or len(sends) != 1:
            continue
        column = np.flatnonzero(result.event == sends[0])
        if len(column):
            event = program.events[sends[0]]
            carried_bytes = link.burst + link.rate * float(np.median(result.event_ns[:, column[0]]))
            buffers.append(max(float(event["bytes"]) * float(event["number"]) - carried_bytes, 0.0))
    return min(buffers, default=0.0)


def pool_samples(use: Sequence[MessageSamples]) -> dict[Key, Estimate]:
    """Return (distance, bytes) -> measured transfer."""
    groups: dict[Key, list[MessageSamples]] = {}
    for observed in use:
        groups.setdefault(observed.key, []).append(observed)
    return {key: level_of(samples) for key, samples in groups.items()}


def transfer_curve(
    points: Mapping[Key, Estimate],
    shift: Mapping[Key, float],
    distance: int,
    bound: str = "cost_ns",
) -> Curve | None:
    """Return the transfer over bytes of a distance, of the nearest one on its side of the node.

    None where nothing on that side was measured.
    """
    distances = sorted(
        {d for d, _ in points if (d > 0) == (distance > 0)}, key=lambda d: (abs(d - distance), d)
    )
    if not distances:
        return None
    sizes = sorted(nbytes for d, nbytes in points if d == distances[0])
    keys = [(distances[0], size) for size in sizes]
    ns = [
        max(getattr(points[key], bound) + shift.get(key, 0.0), FLOOR * points[key].cost_ns)
        for key in keys
    ]
    return Curve(tuple(map(float, sizes)), tuple(ns))
