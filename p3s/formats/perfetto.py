"""The simulated run as a timeline: Chrome's trace event format, which ui.perfetto.dev opens.

Sections of the run (some iterations of each loop, and what is outside) stand one after the other;
each begins when the one before has ended on all ranks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from p3s.base.arrays import Bools, Ints
from p3s.base.study import Study
from p3s.base.text import plural
from p3s.formats.exported import Exported, Options, Say, new_file
from p3s.formats.scaled import Pieces, Simulated, Simulation
from p3s.simulate.steps import RECEIVES, SENDS, Op, Section, Steps

_NS_PER_US = 1e3


def to_perfetto(study: Study, n: int, target: Path, options: Options, say: Say) -> Exported:
    """Simulate the sections of a scaled trace and write when each call of each rank was made."""
    done = Exported("perfetto", n, target)
    simulation = Simulation.of(study, n, options)
    wanted = np.zeros(n, dtype=bool)
    wanted[list(options.ranks) if options.ranks is not None else slice(None)] = True
    clock, flow = 0.0, 0
    with new_file(target) as file:
        about = {"network": simulation.network.source, "collectives": str(simulation.library)}
        head = {"displayTimeUnit": "ns", "otherData": {"processes": n, **about}}
        file.write(json.dumps(head)[:-1] + ', "traceEvents": [\n')
        for line in _names(n, simulation.node_of, wanted):
            file.write(line + ",\n")
        for k, one in enumerate(simulation.run(done, say)):
            drawn = _Drawn(one, simulation.node_of, wanted)
            done.records += drawn.write_calls(file)
            flow = drawn.write_messages(file, flow)
            done.events += float(wanted[one.section.steps.rank].sum())
            _write_section(file, one.section, k, clock, one.clock, n)
            clock = one.clock
        file.write(
            '{"ph": "M", "name": "process_labels", "pid": 0, "tid": 0, '
            '"args": {"labels": "simulated"}}\n]}\n'
        )
    done.notes += [
        *simulation.notes,
        f"drawn: {plural(simulation.turns, 'iteration')} of each loop, not the whole run",
        "left out: messages inside of collectives, links and their queues",
    ]
    done.command = f"open {target} in https://ui.perfetto.dev"
    return done


def _names(n: int, node_of: Ints, wanted: Bools) -> Iterator[str]:
    """Yield the names of nodes and ranks, and the track of the sections above them."""

    def named(kind: str, pid: int, tid: int, name: str) -> str:
        about = {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}
        return json.dumps(about)

    yield named("process_name", 0, 0, "sections")
    for node in np.unique(node_of[wanted]).tolist():
        yield named("process_name", node + 1, 0, f"node {node}")
    for rank in np.flatnonzero(wanted).tolist():
        yield named("thread_name", int(node_of[rank]) + 1, rank, f"rank {rank}")


def _write_section(
    file: IO[str], section: Section, k: int, begin: float, end: float, n: int
) -> None:
    args = {
        "phases": list(section.phases),
        "turns": section.turns,
        "first iteration": section.first_turn,
        "iterations of the run": section.run_turns,
        "entries": section.entries,
    }
    time = {"ts": begin / _NS_PER_US, "dur": (end - begin) / _NS_PER_US}
    what = {"ph": "X", "name": section.name, "cat": "section", "pid": 0, "tid": 0}
    file.write(json.dumps({**what, **time, "args": args}) + ",\n")


class _Drawn:
    """Calls of one section, each one piece of time, and their messages."""

    def __init__(self, one: Simulated, node_of: Ints, wanted: Bools) -> None:
        self.steps, self.node_of = one.section.steps, node_of
        self.full, self.begin, self.end = one.made.steps, one.begin, one.end
        self.pieces = Pieces.of_steps(one.made)
        self.starts, self.ends = one.begin[self.pieces.first], one.end[self.pieces.last]
        self.waiting = np.bincount(
            self.pieces.of, weights=one.waiting, minlength=len(self.pieces.first)
        )
        called = self.steps.op[self.pieces.origin] != int(Op.REST)
        self.shown = wanted[self.pieces.rank] & called

    def write_calls(self, file: IO[str]) -> int:
        """Write computation and calls; return how many pieces."""
        steps, names = self.steps, [json.dumps(name) for name in self.steps.calls]
        work = self.full.work_ns[self.pieces.first]
        number = 0
        last: dict[int, int] = {}  # whole ns, so that slices of a track never overlap
        for i in np.flatnonzero(self.shown).tolist():
            step, rank = int(self.pieces.origin[i]), int(self.pieces.rank[i])
            where = f'"pid": {int(self.node_of[rank]) + 1}, "tid": {rank}'
            begin, end = round(self.starts[i]), round(self.ends[i])
            if work[i] > 0:
                since = max(round(self.starts[i] - work[i]), last.get(rank, 0))
                file.write(
                    f'{{"ph": "X", "name": "computation", "cat": "computation", {where}, '
                    f'"ts": {_us(since)}, "dur": {_us(begin - since)}}},\n'
                )
                number += 1
            name = names[int(steps.call[step])]
            if self.pieces.again[i]:
                name = json.dumps(f"{json.loads(name)} (rest)")
            args = _args(steps, step)
            args["waiting_us"] = round(float(self.waiting[i]) / _NS_PER_US, 3)
            file.write(
                f'{{"ph": "X", "name": {name}, "cat": "MPI", {where}, '
                f'"ts": {_us(begin)}, "dur": {_us(end - begin)}'
                f', "args": {json.dumps(args)}}},\n'
            )
            last[rank] = end
            number += 1
        return number

    def write_messages(self, file: IO[str], flow: int) -> int:
        """Write an arrow for each message between calls of the program; return the next number.

        It ends in the call that completes the receive.
        """
        full, piece = self.full, self.pieces.of
        plain = np.isin(
            self.steps.op[self.pieces.origin[piece]], [int(op) for op in SENDS | RECEIVES]
        )
        completed = np.arange(len(full))
        waits = np.repeat(np.arange(len(full)), np.diff(full.done_start))
        completed[full.done] = waits
        sends = np.flatnonzero(plain & (full.to >= 0))
        goals = completed[full.to[sends]]
        keep = self.shown[piece[sends]] & self.shown[piece[goals]]
        for send, goal in zip(sends[keep].tolist(), goals[keep].tolist(), strict=True):
            for ph, step, when in (("s", send, self.begin[send]), ("f", goal, self.end[goal])):
                rank = int(self.pieces.rank[piece[step]])
                file.write(
                    f'{{"ph": "{ph}", "bp": "e", "id": {flow}, "name": "message", '
                    f'"cat": "message", "pid": {int(self.node_of[rank]) + 1}, '
                    f'"tid": {rank}, "ts": {_us(when)}}},\n'
                )
            flow += 1
        return flow


def _us(ns: float) -> str:
    """Return whole ns in us, without the errors of a division."""
    whole = max(round(ns), 0)
    return f"{whole // 1000}.{whole % 1000:03d}"


def _args(steps: Steps, step: int) -> dict[str, Any]:
    args: dict[str, Any] = {
        "turn": int(steps.turn[step]),
        "times in the run": round(float(steps.weight[step]), 6),
    }
    for name, value in (
        ("peer", steps.peer[step]),
        ("tag", steps.tag[step]),
        ("from", steps.peer2[step]),
    ):
        if value >= 0:
            args[name] = int(value)
    if steps.op[step] not in (int(Op.WAIT), int(Op.WAITANY), int(Op.WAITSOME)):
        args["bytes"] = int(steps.bytes[step])
    return args
