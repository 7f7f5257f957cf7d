"""A run, traced or simulated, as exports write it: its calls in their order, its messages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from p3s.base import ops
from p3s.base.arrays import Floats, Ints
from p3s.base.ops import COLLECTIVE, RECV, SEND, kind_of, place_of
from p3s.base.settings import traces_of
from p3s.base.study import Study
from p3s.base.text import plural, processes
from p3s.capture import read_run
from p3s.capture.callpath import Where
from p3s.capture.chunks import read_header
from p3s.capture.layout import NAME
from p3s.capture.sites import resolve_sites
from p3s.capture.types import NO_RANK, PROC_NULL, Call, Comm, RankTrace, RunTrace, Site
from p3s.formats.exported import SIMULATED, Exported, Options, Say
from p3s.formats.scaled import TURNS, library_of_study, network_of, nodes_of, sections_of
from p3s.model.stage import load
from p3s.program.collectives.expand import Expanded, expand
from p3s.program.scaled import read_scaled
from p3s.simulate.simulate import simulate
from p3s.simulate.steps import RECEIVES, SENDS, WAITS, Op, Section, Steps


@dataclass(frozen=True)
class Run:
    """A run and what is known around it.

    ``places`` of frames; ``hosts`` of the ranks (empty: all on one machine); the ``program`` with
    its arguments; ``weights``: of a simulated run, of each rank and event how often it occurs in
    the whole run, None where the trace is the whole run. The work of its events is then ns.
    ``waiting``: of it, ns of each event; ``sections``: its sections with begin and end in ns;
    ``about``: what it was simulated with.
    """

    trace: RunTrace
    places: Mapping[str, Where] = field(default_factory=dict)
    hosts: Sequence[str] = ()
    program: Sequence[str] = ()
    weights: Sequence[Floats] | None = None
    waiting: Sequence[Floats] = ()
    sections: Sequence[tuple[Section, float, float]] = ()
    about: Mapping[str, str] = field(default_factory=dict)

    @property
    def simulated(self) -> bool:
        """Whether it was simulated."""
        return self.weights is not None

    @property
    def nodes(self) -> dict[str, list[int]]:
        """The ranks of each node, "node" where it is not known."""
        nodes: dict[str, list[int]] = {}
        for rank, host in enumerate(self.hosts or [""] * self.trace.np):
            nodes.setdefault(host or "node", []).append(rank)
        return nodes

    @cached_property
    def shift(self) -> int:
        """What is added to the times of all ranks, so that none is before 0."""
        firsts = [int(rank.start_ns.min()) for rank in self.trace.ranks if len(rank.start_ns)]
        return -min([0, *firsts])

    @cached_property
    def threads(self) -> list[int]:
        """How many threads of each rank make MPI calls."""
        return [1 + max(threads_of(rank), default=0) for rank in self.trace.ranks]

    def weight(self, rank: RankTrace) -> Floats:
        """Return how often each event of a rank occurs in the whole run."""
        return np.ones(len(rank.call)) if self.weights is None else self.weights[rank.rank]

    def before(self, rank: RankTrace) -> Floats:
        """Return the time in ns that a rank computes before each of its events.

        Of a traced run: what its thread was outside of calls since the one before.
        """
        if self.weights is not None:
            return rank.work.astype(np.float64)
        gaps = np.zeros(len(rank.call))
        threads = np.array(threads_of(rank))
        for thread in set(threads.tolist()):
            at = np.flatnonzero(threads == thread)
            ends = rank.start_ns[at] + rank.elapsed_ns[at]
            gaps[at[1:]] = rank.start_ns[at[1:]] - ends[:-1]
        return np.maximum(gaps, 0.0)


def threads_of(rank: RankTrace) -> list[int]:
    """Return the thread that makes each call of a rank."""
    return [0] * len(rank.call) if rank.thread is None else rank.thread.tolist()


class Visit(NamedTuple):
    """One event of a rank: its number, call and thread, begin and end in ns from 0."""

    event: int
    call: Call
    thread: int
    begin: int
    end: int


def visits(run: Run, rank: RankTrace) -> Iterator[Visit]:
    """Yield the events of a rank in their order.

    Times of a thread never fall: what a cut-off clock says is moved up. The second half of an
    exchange (ops.HALVES) is an event of its own behind the first.
    """
    last = [0] * run.threads[rank.rank]
    columns = (rank.call, rank.start_ns + run.shift, rank.elapsed_ns)
    rows = zip(*(column.tolist() for column in columns), threads_of(rank), strict=True)
    for index, (call, start, long, thread) in enumerate(rows):
        begin = max(start, last[thread])
        last[thread] = max(start + long, begin)
        yield Visit(index, run.trace.calls[call], thread, begin, last[thread])


class End(NamedTuple):
    """One end of a message: rank and thread, when it was posted and when it ended, its bytes."""

    rank: int
    thread: int
    posted: int
    ended: int
    nbytes: int


def messages(run: Run) -> tuple[list[tuple[End, End, int]], int]:
    """Return (send, receive, tag) of each message, and how many ends have no other one.

    The k-th send of a way belongs to its k-th receive. A send ends when it begins, a receive where
    it is completed.
    """
    ways: dict[tuple[int, ...], tuple[list[End], list[End]]] = defaultdict(lambda: ([], []))
    for rank in run.trace.ranks:
        me, every = rank.rank, list(visits(run, rank))
        completed = {posting: every[by].end for by, posting in rank.done.tolist()}
        gone = set(rank.done[rank.cancelled, 1].tolist())
        for index, call, thread, begin, end in every:
            kind = kind_of(call.op)
            if kind not in (SEND, RECV) or call.peer < 0 or index in gone:
                continue
            sends = kind == SEND
            way = (me, call.peer) if sends else (call.peer, me)
            ended = begin if sends else max(completed.get(index, end), begin)
            one = End(me, thread, begin, ended, call.bytes)
            ways[(*way, call.comm, max(call.tag, 0))][not sends].append(one)
    pairs = [
        (send, receive, way[-1])
        for way, ends in ways.items()
        for send, receive in zip(*ends, strict=False)
    ]
    return pairs, sum(abs(len(sends) - len(receives)) for sends, receives in ways.values())


def shown(op: str) -> str:
    """Return the name of the call that an event is part of; of a persistent one, what starts it."""
    return place_of(op) if kind_of(op) in (SEND, RECV, COLLECTIVE) else op


def plain(text: object) -> str:
    """Return text that is one line, and that XML can hold."""
    return "".join(c if c.isprintable() else "?" for c in str(text))


_COLLECTIVES = (int(Op.COLLECTIVE), int(Op.ICOLLECTIVE))


def run_at(study: Study, n: int, options: Options, done: Exported, say: Say) -> Run:
    """Return the first complete run at ``n`` processes, else the simulated one.

    Takes down what the latter lacks. Errors: P3SError where there is neither.
    """
    traced = next((run for run in study.runs(n) if run.status == "complete"), None)
    if traced is None or options.simulated:
        return _simulated(study, n, options, done, say)
    say(f"{processes(n)}: {traced.path}")
    run = read_run(traced.path)
    places, _ = resolve_sites(traces_of(study), {site.key: site.frames for site in run.sites})
    hosts = [read_header(traced.path / NAME.format(rank)).host for rank in range(run.np)]
    return Run(run, places, hosts, _program(traced.info))


def timeline_at(study: Study, n: int, options: Options, done: Exported, say: Say) -> Run:
    """Return run_at for what shows the ranks beside each other; says what their clocks mean."""
    run = run_at(study, n, options, done, say)
    if not run.simulated:
        done.notes.append(
            "clocks of ranks begin when MPI_Init returns and are not synchronised: a "
            "message may arrive before it is sent"
        )
    return run


def _program(info: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the program of a run and its arguments, empty where they are not known."""
    program = info.get("program")
    if not isinstance(program, str) or not program:
        return ()
    for key in ("command", "argv"):
        words = [str(word) for word in info.get(key) or ()]
        for at, word in enumerate(words):
            if Path(word).name == Path(program).name:
                return (program, *words[at + 1 :])
    return (program,)


def _simulated(study: Study, n: int, options: Options, done: Exported, say: Say) -> Run:
    """Return the simulated run, its sections one after the other; takes down what they lack."""
    library = library_of_study(study, options.collectives)
    network, notes = network_of(study, options.machine)
    turns, trace, model = options.turns or TURNS, read_scaled(study.scaled_dir(n)), load(study.root)
    node_of = nodes_of(n, options.ranks_per_node)
    items = np.repeat(np.arange(len(model.items)), [len(item.slots) for item in model.items])
    book = _Book(n, [item.site for item in model.items])
    spans, clock = [], 0.0
    for k, section in enumerate(sections_of(study, n, turns, trace)):
        say(f"{processes(n)}: {section.name}")
        made = expand(section.steps, library, node_of=node_of)
        times = simulate(made.steps, node_of, network, anyway=True)
        told = (*section.notes, *made.notes, *times.notes)
        done.notes += [f"{section.name}: {note}" for note in told]
        done.takes(section, k, SIMULATED)
        begin, end = call_times(section.steps, made, times.begin_ns + clock, times.end_ns + clock)
        waiting = np.zeros(len(section.steps))
        np.add.at(waiting, made.origin, times.waiting_ns)
        item_of = items[trace.slot[np.maximum(section.steps.row, 0)]]
        book.take(section.steps, item_of, begin, end, waiting)
        spans.append((section, clock, float((times.end_ns + clock).max(initial=clock))))
        clock = spans[-1][2]
    done.notes += [
        *notes,
        f"simulated: {plural(turns, 'iteration')} of each loop, one section after the "
        "other, not the whole run",
    ]
    sites = {item.site: model.sites.get(item.site) or () for item in model.items}
    places, _ = resolve_sites(traces_of(study), sites)
    weights, waits = (
        [np.array(getattr(of, name)) for of in book.columns] for name in ("weight", "waiting")
    )
    return Run(
        book.run(study, sites),
        places,
        [f"node-{node}" for node in node_of.tolist()],
        (),
        weights,
        waits,
        spans,
        {"network": network.source, "collectives": str(library)},
    )


def call_times(steps: Steps, made: Expanded, begin: Floats, end: Floats) -> tuple[Floats, Floats]:
    """Return begin and end of each step, given those of the messages that it was expanded into.

    What a nonblocking collective does after its call is part of the call that follows.
    """
    rank, origin = made.steps.rank, np.asarray(made.origin)
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
    own = np.flatnonzero(~again)
    begins[origin[first[own]]], ends[origin[first[own]]] = starts[own], end[last[own]]
    return begins, ends


@dataclass
class _Columns:
    """The events of one rank, a row each."""

    call: list[int] = field(default_factory=list)
    start: list[int] = field(default_factory=list)
    long: list[int] = field(default_factory=list)
    work: list[int] = field(default_factory=list)
    weight: list[float] = field(default_factory=list)
    waiting: list[float] = field(default_factory=list)
    done: list[tuple[int, int]] = field(default_factory=list)


@dataclass
class _Book:
    """A run that is put together section by section; ``sites``: of each item of the model."""

    n: int
    sites: list[str]
    calls: dict[Call, int] = field(default_factory=dict)
    comms: dict[tuple[int, ...], int] = field(default_factory=dict)
    columns: list[_Columns] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.comms[tuple(range(self.n))] = 0
        self.columns = [_Columns() for _ in range(self.n)]
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
            columns = self.columns[rank]
            for i in range(*steps.of(rank).indices(len(steps))):
                if steps.op[i] == Op.REST:
                    continue
                row_of[i] = len(columns.call)
                site = self.number[self.sites[int(item_of[i])]]
                for call in _calls(steps, i, site, comm_of):
                    again = len(columns.call) > row_of[i]
                    columns.call.append(self.calls.setdefault(call, len(self.calls)))
                    columns.start.append(int(ends[i] if again else starts[i]))
                    columns.long.append(0 if again else int(ends[i] - starts[i]))
                    columns.work.append(0 if again else round(float(steps.work_ns[i])))
                    columns.weight.append(float(steps.weight[i]))
                    columns.waiting.append(0.0 if again else float(waiting[i]))
                columns.done.extend(_completed(steps, i, row_of))

    def run(self, study: Study, sites: Mapping[str, Any]) -> RunTrace:
        """Return the run."""
        ranks = [
            RankTrace(
                rank,
                True,
                np.array(of.call, dtype=np.int32),
                np.array(of.start, dtype=np.int64),
                np.array(of.long, dtype=np.int64),
                np.array(of.work, dtype=np.int64),
                done=np.array(of.done, dtype=np.int64).reshape(-1, 2),
                cancelled=np.zeros(len(of.done), dtype=bool),
            )
            for rank, of in enumerate(self.columns)
        ]
        comms = tuple(
            Comm(
                members, "MPI_Comm_create" if k else "MPI_COMM_WORLD", min(k, 1) - 1, None, None, 0
            )
            for members, k in self.comms.items()
        )
        places = tuple(Site(site, tuple(sites[site])) for site in self.number)
        return RunTrace(self.n, study.root, tuple(self.calls), comms, places, ranks)


def _calls(steps: Steps, i: int, site: int, comm_of: Mapping[int, int]) -> list[Call]:
    """Return the events of a step: one, of MPI_Sendrecv two."""
    op, name = int(steps.op[i]), steps.calls[int(steps.call[i])]
    peer, nbytes, tag = int(steps.peer[i]), int(steps.bytes[i]), int(steps.tag[i])
    comm = comm_of.get(int(steps.comm[i]), 0)
    if op in _COLLECTIVES:
        return [Call(name, site, comm, NO_RANK, nbytes, 1, -1, peer)]
    if op in {int(o) for o in WAITS}:
        return [Call(name, site, NO_RANK, NO_RANK, int(steps.number[i]), 1, -1, NO_RANK)]
    if op in {int(o) for o in SENDS | RECEIVES} and peer < 0:
        peer = PROC_NULL
    found = [Call(name, site, comm, peer, nbytes, 1, tag, NO_RANK)]
    if op == Op.SENDRECV:
        other = int(steps.peer2[i])
        half = (comm, other if other >= 0 else PROC_NULL, int(steps.bytes2[i]), 1)
        found.append(Call(ops.SENDRECV_RECV, site, *half, int(steps.tag2[i]), NO_RANK))
    return found


def _completed(steps: Steps, i: int, row_of: dict[int, int]) -> list[tuple[int, int]]:
    """Return the requests that a step completes: (its row, the row that posted)."""
    listed = steps.done[steps.done_start[i] : steps.done_start[i + 1]].tolist()
    if steps.op[i] in (Op.WAITANY, Op.WAITSOME):
        listed = listed[: int(steps.number[i])]
    return [(row_of[i], row_of[post]) for post in listed if post in row_of]
