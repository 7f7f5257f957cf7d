"""The simulated run as a timeline: Chrome's trace event format, which ui.perfetto.dev opens.

Sections of the run (some iterations of each loop, and what is outside) stand one after the other;
each begins when the one before has ended on all ranks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from p3s.base.ops import COMPLETION, HALVES, kind_of
from p3s.capture import Call, RankTrace
from p3s.formats.exported import ExportResult, new_file
from p3s.formats.run import Run, messages, visits

_NS_PER_US = 1e3


def to_perfetto(run: Run, result: ExportResult) -> None:
    """Write when each call of each rank of a simulated run was made."""
    n, target = run.trace.np, result.path
    ranks = result.options.ranks if result.options.ranks is not None else tuple(range(n))
    node_of = {rank: node for node, mine in enumerate(run.nodes.values(), 1) for rank in mine}
    with new_file(target) as file:
        head = {"displayTimeUnit": "ns", "otherData": {"processes": n, **run.about}}
        file.write(json.dumps(head)[:-1] + ', "traceEvents": [\n')
        for event in _names(run, ranks, node_of):
            file.write(json.dumps(event) + ",\n")
        for rank in ranks:
            trace = run.trace.ranks[rank]
            for event in _slices(run, trace, node_of[rank]):
                file.write(json.dumps(event) + ",\n")
                result.records += 1
            result.events += float(len(trace.call))
        for event in _arrows(run, set(ranks), node_of):
            file.write(json.dumps(event) + ",\n")
        labels = {"ph": "M", "name": "process_labels", "pid": 0, "tid": 0}
        file.write(json.dumps({**labels, "args": {"labels": "simulated"}}) + "\n]}\n")
    result.notes.append("left out: messages inside of collectives, links and their queues")
    result.command = f"open {target} in https://ui.perfetto.dev"


def _names(
    run: Run, ranks: tuple[int, ...], node_of: Mapping[int, int]
) -> Iterator[dict[str, Any]]:
    """Yield the names of nodes and ranks, and the track of the sections above them."""
    tracks = [("process_name", 0, 0, "sections")]
    tracks += [
        ("process_name", node, 0, f"node {node - 1}") for node in {node_of[r] for r in ranks}
    ]
    tracks += [("thread_name", node_of[rank], rank, f"rank {rank}") for rank in ranks]
    for kind, pid, tid, name in tracks:
        yield {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}
    for section, begin, end in run.sections:
        about = {
            "phases": list(section.phases),
            "turns": section.turns,
            "first iteration": section.first_turn,
            "iterations of the run": section.run_turns,
            "entries": section.entries,
        }
        where = {"pid": 0, "tid": 0, "ts": begin / _NS_PER_US, "dur": (end - begin) / _NS_PER_US}
        yield {"ph": "X", "name": section.name, "cat": "section", **where, "args": about}


def _slices(run: Run, rank: RankTrace, node: int) -> Iterator[dict[str, Any]]:
    """Yield computation and calls of a rank, whole ns, so that no two overlap."""
    work, weight, waiting = run.before(rank), run.weight(rank), run.waiting[rank.rank]
    last = 0
    for index, call, _, begin, end in visits(run, rank):
        if call.op in HALVES:
            continue  # part of the call before
        where = {"ph": "X", "pid": node, "tid": rank.rank}
        if work[index] > 0:
            since = max(begin - round(work[index]), last)
            span = {"ts": _us(since), "dur": _us(begin - since)}
            yield {**where, "name": "computation", "cat": "computation", **span}
        about = _about(call) | {
            "times in the run": round(float(weight[index]), 6),
            "waiting_us": _us(waiting[index]),
        }
        span = {"ts": _us(begin), "dur": _us(end - begin)}
        yield {**where, "name": call.op, "cat": "MPI", **span, "args": about}
        last = end


def _about(call: Call) -> dict[str, Any]:
    facts = {name: value for name in ("peer", "tag", "root") if (value := getattr(call, name)) >= 0}
    return facts if kind_of(call.op) == COMPLETION else {**facts, "bytes": call.bytes}


def _arrows(run: Run, ranks: set[int], node_of: Mapping[int, int]) -> Iterator[dict[str, Any]]:
    """Yield both ends of an arrow for each message; it ends in the call that completes it."""
    about = {"bp": "e", "name": "message", "cat": "message"}
    for flow, (send, receive, _) in enumerate(messages(run)[0]):
        if {send.rank, receive.rank} <= ranks:
            for ph, end, when in (("s", send, send.posted), ("f", receive, receive.ended)):
                where = {"pid": node_of[end.rank], "tid": end.rank, "ts": _us(when)}
                yield {"ph": ph, "id": flow, **about, **where}


def _us(ns: float) -> float:
    return round(max(ns, 0.0)) / _NS_PER_US
