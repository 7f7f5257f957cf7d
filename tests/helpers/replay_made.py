"""Programs of the replay by hand, and results that a simulation of them would have given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from p3s.replay.costs.messages import node_distance
from p3s.replay.engine.results import ProgramResult
from p3s.replay.plan.executed import expand_program
from p3s.replay.plan.program import (
    BLACK_HOLE,
    BLACK_HOLE_NODE,
    EVENT,
    MEASURED,
    Code,
    Pairing,
    Process,
    Program,
    World,
)
from p3s.simulate.network import Network


def world_of(slots: int) -> World:
    """Return measured processes on nodes 0 and 1 and their black holes on nodes 3 and 2."""
    processes = [Process(MEASURED, side, side, slot) for side in (0, 1) for slot in range(slots)]
    processes += [
        Process(BLACK_HOLE, BLACK_HOLE_NODE[side], side, slot)
        for side in (1, 0)
        for slot in range(slots)
    ]
    return World(tuple(processes))


def event(code: Code, peer: int = -1, **rest: int) -> dict[str, int]:
    """Return the fields of an event; `wait` is the list of slots of a completion."""
    return {"code": int(code), "peer": peer, **rest}


def program_of(
    world: World,
    lists: Mapping[int, Sequence[Mapping[str, Any]]],
    *,
    what: str = "trace",
    section: int = 0,
    pairing: Sequence[tuple[int, ...]] = (),
) -> Program:
    """Return a program.

    ``lists``: events by process. ``pairing``: (class, sender, receiver, sent, posted, received,
    alone).
    """
    events, steps, start, waits, wait_start = [], [], [0], [], [0]
    for process in range(world.size):
        mine: list[int] = []
        for fields in lists.get(process, ()):
            record = dict.fromkeys(EVENT.names or (), 0) | {"at_ns": -1, "sample": -1, "tag": 1}
            fields = dict(fields)
            steps.append(fields.pop("step", -1))
            if "wait" in fields:
                slots = fields.pop("wait")
                record |= {"first": len(mine), "number": len(slots)}
                mine += slots
            record |= fields
            events.append(tuple(record[name] for name in EVENT.names or ()))
        start.append(len(events))
        waits += mine
        wait_start.append(len(waits))
    columns = np.array(pairing, dtype=np.int64).reshape(-1, 7).T
    nothing = np.zeros(world.size, dtype=np.int64)
    begin = np.array(start, dtype=np.int64)
    return Program(
        what=what,
        name=what,
        section=section,
        events=np.array(events, dtype=EVENT),
        start=begin,
        step=np.array(steps, dtype=np.int64),
        lists=np.array(waits, dtype=np.int64),
        list_start=np.array(wait_start, dtype=np.int64),
        slots=nothing,
        comms=(),
        pairing=Pairing(
            columns[0],
            columns[1],
            columns[2],
            columns[3],
            columns[3],
            columns[4],
            columns[5],
            columns[6],
        )
        if len(pairing)
        else None,
        timed=what == "timed",
        noise=False,
    )


def result_of(
    program: Program,
    world: World,
    network: Network,
    simulate: Any,
    *,
    passes: int = 12,
    noise: float = 0.0,
    seed: int = 0,
    classes: Sequence[Any] = (),
) -> ProgramResult:
    """Return what a program would have measured on a network; ``noise``: relative, lognormal."""
    rng = np.random.default_rng(seed)
    done = expand_program(program, world)
    times = simulate(done.steps, done.node_of, network, distance=node_distance(program, classes))
    begin, end = np.asarray(times.begin_ns), np.asarray(times.end_ns)
    sampled = np.flatnonzero((program.events["sample"] >= 0) & (done.first >= 0))
    long = end[done.last[sampled]] - begin[done.first[sampled]]

    def noisy(values: Any) -> Any:
        shape = (passes, len(values))
        return np.asarray(values) * np.exp(rng.normal(0.0, noise, shape))

    transfer = np.zeros(0)
    if program.pairing is not None:
        p = program.pairing
        sent = done.first[program.start[p.sender] + p.sent]
        posted = done.first[program.start[p.receiver] + p.posted]
        received = done.last[program.start[p.receiver] + p.received]
        transfer = end[received] - np.maximum(begin[sent], begin[posted])
        transfer = np.where(
            (posted == received) | (end[received] - begin[received] > 1.0), transfer, np.nan
        )
    link = np.zeros(0)
    if program.what in ("link", "trunk"):
        receives = np.flatnonzero(program.events["code"] == Code.LINK_RECV)
        link = np.concatenate([end[done.first[i] : done.last[i] + 1] for i in receives])
        sends = np.flatnonzero(program.events["code"] == Code.LINK_SEND)
        link = link - begin[done.first[sends]].min()
    finish = np.array([end[done.steps.of(p)].max(initial=0.0) for p in range(world.size)])
    event_ns = noisy(long)
    return ProgramResult(
        passes,
        np.tile(finish, (passes, 1)),
        sampled,
        event_ns,
        begin[done.first[sampled]],
        noisy(transfer),
        noisy(link),
        0.0,
        np.zeros(0),
    )


def classes_of(program: Program) -> set[int]:
    """Return the message classes that a program measures."""
    return set() if program.pairing is None else set(program.pairing.cls.tolist()) - {-1}
