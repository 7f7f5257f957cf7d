"""A scaled trace as a run: its sections simulated one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from p3s.base import ops
from p3s.base.arrays import Floats, Ints
from p3s.base.text import plural, processes
from p3s.capture.types import NO_RANK, PROC_NULL, Call, Comm, RankTrace, RunTrace, Site
from p3s.formats.exported import SIMULATED, ExportResult, Say
from p3s.formats.run import Run
from p3s.formats.scaled import TURNS, ScaledSource
from p3s.model.types import Model
from p3s.program.collectives.expand import ExpandedSteps, expand
from p3s.simulate.simulate import simulate
from p3s.simulate.steps import RECEIVES, SENDS, WAITS, Op, Section, Steps

_COLLECTIVES = (int(Op.COLLECTIVE), int(Op.ICOLLECTIVE))
_WAITS, _MESSAGES = ({int(o) for o in some} for some in (WAITS, SENDS | RECEIVES))


def simulate_sections(scaled: ScaledSource, model: Model, result: ExportResult, say: Say) -> Run:
    """Return the simulated run, its sections one after the other; takes down what they lack.

    Its frames have no places yet.
    """
    options, n, trace = result.options, result.n, scaled.trace
    network, notes = scaled.network()
    turns, node_of = options.turns or TURNS, options.nodes_of(n)
    items = np.repeat(np.arange(len(model.items)), [len(item.slots) for item in model.items])
    book = _Book(n, [item.site for item in model.items])
    spans: list[tuple[Section, float, float]] = []
    clock = 0.0
    for k, section in enumerate(scaled.sections(turns)):
        say(f"{processes(n)}: {section.name}")
        expansion = expand(section.steps, scaled.library, node_of=node_of)
        times = simulate(expansion.steps, node_of, network, anyway=True)
        section_notes = (*section.notes, *expansion.notes, *times.notes)
        result.notes += [f"{section.name}: {note}" for note in section_notes]
        result.takes(section, k, SIMULATED)
        begin, end = call_times(
            section.steps, expansion, times.begin_ns + clock, times.end_ns + clock
        )
        waiting = np.zeros(len(section.steps))
        np.add.at(waiting, expansion.origin, times.waiting_ns)
        item_of = items[trace.slot[np.maximum(section.steps.row, 0)]]
        book.take(section.steps, item_of, begin, end, waiting)
        spans.append((section, clock, float((times.end_ns + clock).max(initial=clock))))
        clock = spans[-1][2]
    result.notes += [
        *notes,
        f"simulated: {plural(turns, 'iteration')} of each loop, one section after the "
        "other, not the whole run",
    ]
    hosts = [f"node-{node}" for node in node_of.tolist()]
    about = {"network": network.source, "collectives": str(scaled.library)}
    return book.run(
        {site: model.sites.get(site) or () for site in book.number}, hosts, spans, about
    )


def call_times(
    steps: Steps, expansion: ExpandedSteps, begin: Floats, end: Floats
) -> tuple[Floats, Floats]:
    """Return begin and end of each step, given those of the messages that it was expanded into.

    What a nonblocking collective does after its call is part of the call that follows.
    """
    rank, origin = expansion.steps.rank, np.asarray(expansion.origin)
    new = np.ones(len(origin), dtype=bool)
    new[1:] = (origin[1:] != origin[:-1]) | (rank[1:] != rank[:-1])
    first = np.flatnonzero(new)  # of pieces: steps of one call that follow each other
    last = np.append(first[1:], len(origin)) - 1
    again = np.ones(len(first), dtype=bool)
    again[np.unique(origin[first], return_index=True)[1]] = False
    starts = begin[first]
    for piece in np.flatnonzero(again[:-1]).tolist():
        if rank[first[piece]] == rank[first[piece + 1]]:
            starts[piece + 1] = starts[piece]
    begins, ends = np.zeros((2, len(steps)))
    once = np.flatnonzero(~again)
    begins[origin[first[once]]], ends[origin[first[once]]] = starts[once], end[last[once]]
    return begins, ends


@dataclass
class _Book:
    """A run that is put together section by section; ``sites``: of each item of the model.

    ``rows``: of each rank a row per event: call, start, length, work (ns), weight, waiting (ns).
    """

    n: int
    sites: list[str]
    calls: dict[Call, int] = field(default_factory=dict)
    comms: dict[tuple[int, ...], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.comms[tuple(range(self.n))] = 0
        self.rows: list[list[tuple[float, ...]]] = [[] for _ in range(self.n)]
        self.done: list[list[tuple[int, int]]] = [[] for _ in range(self.n)]
        self.number = {site: k for k, site in enumerate(dict.fromkeys(self.sites))}

    def take(
        self, steps: Steps, item_of: Ints, begin: Floats, end: Floats, waiting: Floats
    ) -> None:
        """Add the steps of a section that are calls."""
        comm_of = {
            c: self.comms.setdefault(tuple(them.tolist()), len(self.comms))
            for c, them in steps.members.items()
        }
        starts, ends = np.rint(begin).astype(np.int64), np.rint(end).astype(np.int64)
        for rank in steps.ranks.tolist():
            row_of: dict[int, int] = {}
            rows = self.rows[rank]
            for i in range(*steps.of(rank).indices(len(steps))):
                if steps.op[i] == Op.REST:
                    continue
                row_of[i] = len(rows)
                site, weight = self.number[self.sites[int(item_of[i])]], float(steps.weight[i])
                first, *more = (
                    self.calls.setdefault(call, len(self.calls))
                    for call in _calls(steps, i, site, comm_of)
                )
                start, last = int(starts[i]), int(ends[i])
                work, wait = round(float(steps.work_ns[i])), float(waiting[i])
                rows.append((first, start, last - start, work, weight, wait))
                rows += [(call, last, 0, 0, weight, 0.0) for call in more]
                self.done[rank].extend(_list_completed(steps, i, row_of))

    def run(
        self,
        sites: Mapping[str, tuple[str, ...]],
        hosts: list[str],
        spans: list[tuple[Section, float, float]],
        about: Mapping[str, str],
    ) -> Run:
        """Return the run; ``sites``: frames of each."""
        columns = [list(zip(*rows, strict=True)) or [()] * 6 for rows in self.rows]
        ranks = []
        for rank, (of, requests) in enumerate(zip(columns, self.done, strict=True)):
            start, long, work = (np.array(column, dtype=np.int64) for column in of[1:4])
            pairs = np.array(requests, dtype=np.int64).reshape(-1, 2)
            cancelled = np.zeros(len(requests), dtype=bool)
            call = np.array(of[0], dtype=np.int32)
            ranks.append(
                RankTrace(rank, True, call, start, long, work, done=pairs, cancelled=cancelled)
            )
        comms = tuple(
            Comm(
                members, "MPI_Comm_create" if k else "MPI_COMM_WORLD", min(k, 1) - 1, None, None, 0
            )
            for members, k in self.comms.items()
        )
        places = tuple(Site(site, tuple(frames)) for site, frames in sites.items())
        weights, waits = ([np.array(of[k]) for of in columns] for k in (4, 5))
        trace = RunTrace(self.n, Path(), tuple(self.calls), comms, places, ranks)
        return Run(trace, {}, hosts, (), weights, waits, spans, about)


def _calls(steps: Steps, i: int, site: int, comm_of: Mapping[int, int]) -> list[Call]:
    """Return the events of a step: one, of MPI_Sendrecv two."""
    op, name = int(steps.op[i]), steps.calls[int(steps.call[i])]
    peer, nbytes, tag = int(steps.peer[i]), int(steps.bytes[i]), int(steps.tag[i])
    comm = comm_of.get(int(steps.comm[i]), 0)
    if op in _COLLECTIVES:
        return [Call(name, site, comm, NO_RANK, nbytes, 1, -1, peer)]
    if op in _WAITS:
        return [Call(name, site, NO_RANK, NO_RANK, int(steps.number[i]), 1, -1, NO_RANK)]
    if op in _MESSAGES and peer < 0:
        peer = PROC_NULL
    calls = [Call(name, site, comm, peer, nbytes, 1, tag, NO_RANK)]
    if op == Op.SENDRECV:
        other = int(steps.peer2[i])
        half = (comm, other if other >= 0 else PROC_NULL, int(steps.bytes2[i]), 1)
        calls.append(Call(ops.SENDRECV_RECV, site, *half, int(steps.tag2[i]), NO_RANK))
    return calls


def _list_completed(steps: Steps, i: int, row_of: dict[int, int]) -> list[tuple[int, int]]:
    """Return the requests that a step completes: (its row, the row that posted)."""
    listed = steps.done[steps.done_start[i] : steps.done_start[i + 1]].tolist()
    if steps.op[i] in (Op.WAITANY, Op.WAITSOME):
        listed = listed[: int(steps.number[i])]
    return [(row_of[i], row_of[post]) for post in listed if post in row_of]
