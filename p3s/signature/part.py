"""Which runs of a process count can be used, each as compact tables of some of its ranks."""

from __future__ import annotations

import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy
import numpy as np

from p3s.base import workers
from p3s.base.errors import P3SError
from p3s.base.ops import COMPLETION, kind_of
from p3s.base.text import processes
from p3s.capture.types import present_ranks, reaches_outside
from p3s.signature import buffers, clock, fileuse, segments, teams
from p3s.signature.clock import blocks_of
from p3s.signature.parse import Completions, Sequences, renumber_nulls
from p3s.signature.rank import COLUMNS, END, Calls, Group, RankRecord, RankSums
from p3s.signature.tracing import Cost, add, add_rank

if TYPE_CHECKING:
    from p3s.base.study import RunRecord
    from p3s.capture import RankTrace, RunTrace
    from p3s.capture.rewrite import Messages

START = -1
#: What is wrong with the capture of a rank that was ended, and with nothing else.
CUT = "ends before MPI_Finalize"
#: Units of work in nanoseconds can be mixed.
CPU = "cpu_ns"
#: Sequences of nodes are kept of so many ranks, of so many events each and in all.
_SAMPLES, _SAMPLE_EVENTS, _ALL_SAMPLES = 64, 1 << 22, 1 << 24


@dataclass(frozen=True)
class Place:
    """A communicator: members as world ranks, how it was made, grid if it has one."""

    members: tuple[int, ...]
    ordinal: int
    op: str
    dims: tuple[int, ...] | None
    periods: tuple[bool, ...] | None


@dataclass
class Part:
    """What the signature needs of some ranks of one run.

    table: columns COLUMNS, one row per rank, group and size; edges: rows (rank, from node, to
    node, count, ordinal of the first); samples: rank -> its events as node numbers; sequences:
    rank -> its events as codes (p3s.signature.parse), empty where they are too many;
    segments: see p3s.signature.segments; times: of their rows, see clock.SegmentTimes.table, in
    ``time_unit``, none where it is empty; counters: names of hardware counters, counted: what these
    counted in the rows of segments, (segments, counters); loads: rows of clock.LOADS; teams: rows
    of teams.COLUMNS; files: rows of fileuse.COLUMNS; inside: events that threads made in parallel
    regions. problem: what is wrong with the first rank that is not complete, else empty.
    """

    np: int  # the field hides the module inside the class, hence numpy.ndarray below
    work_unit: str
    groups: list[Group] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    sites: dict[str, tuple[str, ...]] = field(default_factory=dict)
    nodes: list[tuple[str, str]] = field(default_factory=list)
    table: dict[str, numpy.ndarray] = field(default_factory=dict)
    edges: numpy.ndarray = field(default_factory=lambda: numpy.zeros((0, 5), dtype=numpy.int64))
    samples: dict[int, numpy.ndarray] = field(default_factory=dict)
    sequences: dict[int, numpy.ndarray] = field(default_factory=dict)
    segments: numpy.ndarray = field(default_factory=segments.none)
    time_unit: str = ""
    times: numpy.ndarray = field(default_factory=clock.no_times)
    counters: tuple[str, ...] = ()
    counted: numpy.ndarray = field(default_factory=lambda: numpy.zeros((0, 0)))
    loads: numpy.ndarray = field(default_factory=lambda: segments.none(clock.LOADS))
    teams: numpy.ndarray = field(default_factory=lambda: segments.none(teams.COLUMNS))
    files: numpy.ndarray = field(default_factory=lambda: segments.none(fileuse.COLUMNS))
    inside: int = 0
    events: int = 0
    null_events: int = 0
    failed_polls: int = 0
    counted_events: int = 0
    restored: int = 0
    unmodelled: Counter[str] = field(default_factory=Counter)
    tracing: Cost = field(default_factory=dict)
    buffers: Counter[str] = field(default_factory=Counter)
    pieces: dict[str, list[int]] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True)
class Sites:
    """How the call sites of a capture are taken.

    apart: those that stand for several places of the program, told apart by what their calls do;
    same: site -> the site that stands for it too, where a compiler copied a call; waits: site of
    a MPI_Test or MPI_Testall -> that of the wait that it replaces where it succeeds; rest: how a
    run that was ended goes on (p3s.signature.ended).
    """

    apart: Set[str] = frozenset()
    same: Mapping[str, str] = field(default_factory=dict)
    waits: Mapping[str, str] = field(default_factory=dict)
    rest: Callable[[Completions], Completions] | None = None

    def key(self, site: str) -> str:
        """Return the site that stands for one of a capture."""
        merged = self.same.get(site, site)
        return self.waits.get(merged, merged)

    def replaces_wait(self, site: str) -> bool:
        """Tell whether a success of the test at a site of a capture is that of a wait."""
        return self.same.get(site, site) in self.waits


def part_of(run: RunTrace, sites: Sites | None = None) -> Part:
    """Return the tables of all ranks of a run that have a file.

    At the sites that stand for several places, of a run of one rank, events are told apart by
    what they do, in the order in which the rank first does it ("SITE#0", "SITE#1", ...).
    """
    sites = sites or Sites()
    keys = [sites.key(s.key) for s in run.sites]
    site = [keys[c.site] if c.site >= 0 else "" for c in run.calls]
    names = {s.key: tuple(s.frames) for s, key in zip(run.sites, keys, strict=True) if s.key == key}
    logical = Completions.of(run, site, sites.replaces_wait)
    if sites.rest is not None:
        logical = sites.rest(logical)
    run, site = logical.run, logical.site
    for s, key in zip(run.sites, [*keys, *(s.key for s in run.sites[len(keys) :])], strict=True):
        names.setdefault(key, tuple(s.frames))
    if sites.apart:
        _tell_apart(run, site, names, {k for k, key in enumerate(keys) if key in sites.apart})
    calls = Calls(run, site)
    whole = bool(sites.apart) or logical.changes or fileuse.has_file_calls(run.calls)
    reading = _Reading(logical, calls, names, whole)
    ranks = present_ranks(run)
    if len(ranks) == 1:
        out = reading.part_of(ranks[0])
    else:  # one rank at a time: their sequences are as large as their events
        out = join(map(reading.part_of, ranks) if ranks else [reading.empty()])
    out.unmodelled = Counter(run.unmodelled)
    out.problem = getattr(run, "problem", "") or out.problem
    return out


def _renumber_groups(groups: Sequence[Group], place_of: Mapping[int, int]) -> list[Group]:
    """Return groups with other numbers of their communicators; -1, none, stays."""
    return [g if g.comm < 0 else g._replace(comm=place_of[g.comm]) for g in groups]


class _Reading:
    """Reads the ranks of a run one by one.

    names: frames of the sites; whole: what is made of a rank's events needs all of them at once.
    """

    def __init__(
        self, logical: Completions, calls: Calls, names: dict[str, tuple[str, ...]], whole: bool
    ) -> None:
        run = logical.run
        self._logical, self._calls, self._names, self._whole = logical, calls, names, whole
        self._marks = buffers.marks(run.calls)
        self._gaps = buffers.count_gaps(run.calls, calls.node, len(calls.nodes))
        inside = [k for k, comm in enumerate(run.comms) if not reaches_outside(comm)]
        self._groups = _renumber_groups(calls.groups, {k: at for at, k in enumerate(inside)})
        self._places = [
            Place(c.members, c.ordinal, c.op, c.dims, c.periods)
            for c in map(run.comms.__getitem__, inside)
        ]

    def empty(self) -> Part:
        """Return the part of no rank."""
        run = self._logical.run
        return Part(
            run.np,
            run.work_unit,
            self._groups,
            self._places,
            self._names,
            self._calls.nodes,
            _stack_columns([]),
            time_unit=clock.unit_of(run),
            counters=(names := tuple(getattr(run, "counter_names", ()))),
            counted=np.zeros((0, len(names))),
        )

    def part_of(self, rank: int) -> Part:
        """Return the part of one rank."""
        out, run, calls = self.empty(), self._logical.run, self._calls
        rt, recorded, sums = self._sum_rank(rank)
        out.failed_polls, out.counted_events = rt.failed_polls, rt.counted_events
        out.restored = getattr(rt, "restored", 0)
        add_rank(out.tracing, rt, recorded.events, recorded.last_start_ns)
        buffers.add_rank(out.buffers, self._marks, recorded.times)
        buffers.add_pieces(out.pieces, self._gaps, calls.nodes, recorded.times)
        if turned := recorded.backwards():
            out.problem = f"{run.path}: rank {rt.rank}: {turned}"
        if not sums.events:
            return out
        out.events, out.inside = sums.events, sums.inside
        out.null_events = sums.events - sums.kept
        out.edges = sums.transitions(rt.rank)
        out.samples = {rt.rank: sums.sample()}
        sequences = Sequences()
        sequences.offer(rt.rank, sums.codes.finish(sums.used))
        out.sequences = sequences.kept
        between = sums.segments
        if sums.kept:
            out.table = sums.columns(rt.rank)
            out.segments = between.rows(rt.rank, between.count, between.total)
            out.counted = sums.counted()
        if out.time_unit:
            out.loads = np.array([sums.load.row(out.time_unit, rt)], dtype=np.int64)
            out.times = sums.times.table(between.code, between.count)
        if getattr(rt, "threads", None) is not None or fileuse.has_file_calls(run.calls):
            call = np.asarray(rt.call)  # of these the rank is there as a whole
            node = calls.node[call]
            out.teams = teams.teams_of(rt, np.flatnonzero(~calls.null[call]), node)
            out.files = fileuse.uses_of(rt, node, run.calls)
        return out

    def _sum_rank(self, rank: int) -> tuple[RankTrace, RankRecord, RankSums]:
        """Return the sums of one rank, and the rank: a part of it where it is read in blocks."""
        run = self._logical.run
        recorded, sums = RankRecord(len(run.calls)), RankSums(run, self._calls, _SAMPLE_EVENTS)
        of_rank = None if self._whole else getattr(run.ranks, "pieces", None)
        pieces = of_rank(rank) if of_rank else None
        if pieces is None:
            rt = run.ranks[rank]
            for block in blocks_of(rt):
                recorded.take(block)
            rt = self._logical.once(rt)
            for block in blocks_of(rt):
                sums.take(block)
            return rt, recorded, sums
        for rt in pieces:
            for block in blocks_of(rt):
                recorded.take(block)
                sums.take(block)
        return rt, recorded, sums


def _tell_apart(
    run: RunTrace, site: list[str], names: dict[str, tuple[str, ...]], shared: Set[int]
) -> None:
    """Give the calls at shared sites (by number) sites of their own; ``site``: of each call.

    At a shared site an event is the k-th different thing (tag, bytes, relative partner) that its
    operation did there on this rank: it is the same place as long as ranks do the same things for
    the first time in the same order, whatever their sizes and partners are.
    """
    (rank,) = run.ranks.present  # type: ignore[attr-defined]
    used, first = np.unique(run.ranks[rank].call, return_index=True)
    things: dict[tuple[int, str], dict[tuple[int, ...], int]] = {}
    for call in used[np.argsort(first)].tolist():
        c = run.calls[call]
        if c.site in shared:
            offset = (c.peer - rank) % run.np if c.peer >= 0 else c.peer
            thing = () if kind_of(c.op) == COMPLETION else (c.tag, c.bytes, offset)
            number_of = things.setdefault((c.site, c.op), {})
            own_site = f"{site[call]}#{number_of.setdefault(thing, len(number_of))}"
            names[own_site] = names[site[call]]
            site[call] = own_site


def _stack_columns(columns: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    none = np.zeros(0, dtype=np.int64)
    return {c: np.concatenate([each[c] for each in columns] or [none]) for c in COLUMNS}


class _Samples:
    """Keeps the sequence of one rank of each kind."""

    def __init__(self) -> None:
        self.kept: dict[int, np.ndarray] = {}
        self._kinds: set[bytes] = set()
        self._events = 0

    def offer(self, rank: int, sequence: np.ndarray, edges: np.ndarray) -> None:
        """Keep a rank's sequence if it is of a new kind and there is room."""
        kind = edges[:, 1:4].tobytes()
        part = sequence[:_SAMPLE_EVENTS]
        if (
            kind in self._kinds
            or len(self.kept) >= _SAMPLES
            or self._events + len(part) > _ALL_SAMPLES
        ):
            return
        self._kinds.add(kind)
        self._events += len(part)
        self.kept[rank] = part.astype(np.int32)


def join(parts: Iterable[Part]) -> Part:
    """Join the parts of a run, taken one at a time, in the order of their ranks."""
    out: Part | None = None
    groups: dict[Group, int] = {}
    places: dict[tuple[tuple[int, ...], int], int] = {}
    nodes: dict[tuple[str, str], int] = {}
    columns: list[dict[str, np.ndarray]] = []
    samples, sequences = _Samples(), Sequences()
    stacks: dict[str, list[np.ndarray]] = {name: [] for name in _STACKED}
    for part in parts:
        if out is None:
            out = Part(part.np, part.work_unit, time_unit=part.time_unit, counters=part.counters)
        elif part.work_unit != out.work_unit:
            out.work_unit = CPU  # nodes that differ in their load: wall and CPU time together
        for place in part.places:
            if (place.members, place.ordinal) not in places:
                places[(place.members, place.ordinal)] = len(places)
                out.places.append(place)
        place_to = [places[(p.members, p.ordinal)] for p in part.places]
        renumbered = _renumber_groups(part.groups, dict(enumerate(place_to)))
        group_to = np.array([groups.setdefault(g, len(groups)) for g in renumbered], dtype=np.int64)
        node_to = np.array(
            [nodes.setdefault(node, len(nodes)) for node in part.nodes] + [END, START],
            dtype=np.int64,
        )  # END and START are their own places -2, -1
        columns.append({**part.table, "group": group_to[part.table["group"]]})
        for name, of_nodes in _STACKED.items():
            stacks[name].append(segments.renumber_nodes(getattr(part, name), node_to, of_nodes))
        moved = stacks["edges"][-1]
        if part.time_unit != out.time_unit:
            out.time_unit = CPU if part.time_unit and out.time_unit else ""
        for rank, sequence in part.samples.items():
            mine = moved[moved[:, 0] == rank]
            samples.offer(rank, node_to[sequence], mine[np.lexsort(mine[:, 2::-1].T)])
        if not part.sequences and part.events:
            sequences.drop()
        for rank, codes in part.sequences.items():
            sequences.offer(rank, renumber_nulls(codes, node_to))
        out.sites.update(part.sites)
        out.unmodelled.update(part.unmodelled)
        for name in ("inside", "events", "null_events", *_COUNTED):
            setattr(out, name, getattr(out, name) + getattr(part, name))
        add(out.tracing, part.tracing)
        out.buffers.update(part.buffers)
        buffers.join_pieces(out.pieces, part.pieces)
        out.problem = out.problem or part.problem
    assert out is not None  # a run has files
    out.groups, out.nodes = list(groups), list(nodes)
    out.table = _stack_columns(columns)
    out.samples, out.sequences = samples.kept, sequences.kept
    for name, rows in stacks.items():
        setattr(out, name, np.concatenate(rows))
    if not out.time_unit:
        out.times = clock.no_times()
    return out


_COUNTED = ("failed_polls", "counted_events", "restored")
#: Tables of a part that are put one behind the other, and which of their columns are nodes.
_STACKED = {
    "edges": (1, 2),
    "segments": (1, 2),
    "times": (),
    "counted": (),
    "loads": (),
    "teams": (1,),
    "files": (1,),
}


#: Capture files of a run, in bytes, for which another process is worth its start.
_WORTH = 4 << 20
#: Files that are read in one task, at most.
_FILES = 64


def join_files(files: Sequence[Path], sites: Sites) -> Part:
    """Return the ranks of a run as one Part: their files are read by all who compute.

    They are joined in the order of the ranks, so the result is the same for any number of those.
    """
    facts = [path.stat() for path in files]
    if not files:
        return join(())
    of_all = tuple(map(str, files)), zlib.crc32(repr([f.st_mtime_ns for f in facts]).encode())
    parallel = sum(f.st_size for f in facts) >= _WORTH
    each = -(-len(files) // (workers.AHEAD * max(workers.ranks(), len(os.sched_getaffinity(0)))))
    each = min(each, _FILES)
    tasks = [(*of_all, at, at + each, sites) for at in range(0, len(files), each)]
    read = workers.run_tasks(_parts, tasks, files[0], jobs=0 if parallel else 1)
    return join(part for parts in read for part in parts)


def _parts(files: tuple[str, ...], changed: int, begin: int, end: int, sites: Sites) -> list[Part]:
    """Return the parts of some ranks of a run; ``changed``: tells when its files were written."""
    messages = _messages(files, changed)
    return [part_of(messages.read(Path(name)), sites) for name in files[begin:end]]


@lru_cache(maxsize=1)
def _messages(files: tuple[str, ...], _made: int) -> Messages:
    """Return what reads a run: what all ranks tell together is read by each process once."""
    from p3s.capture.rewrite import Messages

    return Messages(map(Path, files))


def intact_runs(
    records: Sequence[RunRecord], np_: int, sites: Sites
) -> tuple[list[Part], list[int | None], list[str], list[RunRecord]]:
    """Return the runs of one count all of whose ranks are complete, and why others are not.

    Their parts, their wall times, what is wrong with those left out, and their records.
    """
    from p3s.capture import run_files

    parts: list[Part] = []
    walls: list[int | None] = []
    left_out, used = [], []
    for record in records:
        if record.np != np_ or record.status != "complete":
            continue
        try:
            run = run_files(record.path)
            problem = run.problems[min(run.problems)] if run.problems else ""
            if run.np != np_:
                problem = f"{record.path} holds a run of {processes(run.np)}, not {np_}"
            part = join_files(list(run.files.values()), sites) if not problem else None
        except P3SError as err:
            left_out.append(_without_advice(str(err)))
            continue
        if part is not None and not (record.ended and CUT in part.problem):
            problem = part.problem
        if part is not None and part.counted_events and not problem:
            problem = (
                f"{record.path} reached the limit of its capture: {part.counted_events} "
                "events were only counted"
            )
        if problem or part is None:
            left_out.append(_without_advice(problem))
        else:
            parts.append(part)
            walls.append(None if record.ended else run.wall_ns)
            used.append(record)
    return parts, walls, left_out, used


def _without_advice(problem: str) -> str:
    return problem.partition("; ")[0]
