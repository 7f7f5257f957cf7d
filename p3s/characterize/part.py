"""Some ranks of a run, or all of them, as compact tables: calls, transitions, communicators.

A *group* is one distinct (site, operation, communicator, partner, tag, root); a *node* is one
distinct (site, operation), a place in the program. Transitions are counted between nodes.
Messages to MPI_PROC_NULL move nothing: they are part of the order of nodes, but of no group;
their computation is added to the next event and they are counted in ``null_events``.

Ranks are independent of each other: a run is the parts of its ranks joined in their order, made
in one process or in many (p3s.characterize.parallel).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy
import numpy as np

from p3s.characterize import buffers, clock, fileuse, segments, teams
from p3s.characterize.completions import Completions, gathered
from p3s.characterize.events import Sequences, codes_of, renumbered
from p3s.characterize.sequence import sequence_nodes
from p3s.characterize.tracing import Cost, add, add_rank
from p3s.trace.ops import RECV, SEND, kind_of
from p3s.trace.order import backwards

if TYPE_CHECKING:
    from p3s.trace import RankTrace, RunTrace

START, END = -1, -2
PROC_NULL = -3
#: Units of work; those in nanoseconds can be mixed.
INSTRUCTIONS, CPU = "instructions", "cpu_ns"
#: Sequences of nodes are kept of so many ranks, of so many events each and in all.
_SAMPLES, _SAMPLE_EVENTS, _ALL_SAMPLES = 64, 1 << 22, 1 << 24
COLUMNS = ("rank", "group", "nbytes", "elem_bytes", "count", "work", "elapsed_ns", "first")


@dataclass(frozen=True)
class Group:
    """A distinct (site, operation, communicator, partner, tag, root) of one process count."""

    site: str
    op: str
    comm: int
    peer: int
    tag: int
    root: int

    @property
    def kind(self) -> str:
        """The kind of the operation (p3s.trace.ops)."""
        return kind_of(self.op)


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
    rank -> its events as codes (p3s.characterize.events), empty where they are too many;
    segments: see p3s.characterize.segments; times: of their rows, see clock.times_of, in
    ``time_unit``, none where it is empty; loads: rows of clock.LOADS; teams: rows of
    teams.COLUMNS; files: rows of fileuse.COLUMNS; inside: events that threads made in parallel
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
    loads: numpy.ndarray = field(
        default_factory=lambda: numpy.zeros((0, len(clock.LOADS)), dtype=numpy.int64)
    )
    teams: numpy.ndarray = field(default_factory=teams.none)
    files: numpy.ndarray = field(default_factory=fileuse.none)
    inside: int = 0
    events: int = 0
    null_events: int = 0
    failed_polls: int = 0
    counted_events: int = 0
    unmodelled: dict[str, int] = field(default_factory=dict)
    tracing: Cost = field(default_factory=dict)
    buffers: dict[str, int] = field(default_factory=dict)
    pieces: dict[str, list[int]] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True)
class Sites:
    """How the call sites of a capture are taken.

    apart: those that stand for several places of the program, told apart by what their calls do;
    same: site -> the site that stands for it too, where a compiler copied a call; waits: site of
    a MPI_Test or MPI_Testall -> that of the wait that it replaces where it succeeds.
    """

    apart: Set[str] = frozenset()
    same: Mapping[str, str] = field(default_factory=dict)
    waits: Mapping[str, str] = field(default_factory=dict)

    def key(self, site: str) -> str:
        """Return the site that stands for one of a capture."""
        own = self.same.get(site, site)
        return self.waits.get(own, own)

    def replaces_wait(self, site: str) -> bool:
        """Tell whether a success of the test at a site of a capture is that of a wait."""
        return self.same.get(site, site) in self.waits


class _Calls:
    """Numbers of a run's calls: of group, node and row (calls the table does not tell apart)."""

    def __init__(self, run: RunTrace, site: list[str]) -> None:
        calls = run.calls
        groups: dict[tuple[str, str, int, int, int, int], int] = {}
        group = np.empty(len(calls), dtype=np.int64)
        self.null = np.zeros(len(calls), dtype=bool)
        for i, c in enumerate(calls):
            self.null[i] = c.peer == PROC_NULL and kind_of(c.op) in (SEND, RECV)
            key = (site[i], c.op, c.comm, c.peer, c.tag, c.root)
            group[i] = -1 if self.null[i] else groups.setdefault(key, len(groups))
        self.inside = np.array([getattr(c, "team", 0) > 1 for c in calls], dtype=bool)
        self.starts = np.array([c.op.startswith("MPI_Init") for c in calls], dtype=bool)
        nodes: dict[tuple[str, str], int] = {}
        self.node = np.array(
            [nodes.setdefault((site[i], c.op), len(nodes)) for i, c in enumerate(calls)],
            dtype=np.int64,
        )
        distinct: dict[tuple[int, int, int], int] = {}
        self.row = np.array(
            [
                distinct.setdefault((int(group[i]), c.bytes, max(c.elem_bytes, 1)), len(distinct))
                for i, c in enumerate(calls)
            ],
            dtype=np.int64,
        )
        self.rows = np.array(list(distinct), dtype=np.int64).reshape(-1, 3)
        self.groups = [Group(*k) for k in groups]
        self.nodes = list(nodes)


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
    run, site = logical.run, logical.site
    for s, key in zip(run.sites, keys, strict=True):
        names.setdefault(key, tuple(s.frames))
    if sites.apart:
        _tell_apart(run, site, names, {k for k, key in enumerate(keys) if key in sites.apart})
    calls = _Calls(run, site)
    out = Part(
        run.np,
        run.work_unit,
        calls.groups,
        [Place(c.members, c.ordinal, c.op, c.dims, c.periods) for c in run.comms],
        names,
        calls.nodes,
        time_unit=clock.unit_of(run),
        unmodelled=dict(run.unmodelled),
        problem=getattr(run, "problem", ""),
    )
    columns: list[dict[str, np.ndarray]] = []
    edges: list[np.ndarray] = []
    samples, sequences = _Samples(), Sequences()
    between: list[np.ndarray] = [segments.none()]
    times, loads, threads = [clock.no_times()], [], [teams.none()]
    files = [fileuse.none()]
    present = getattr(run.ranks, "present", None)
    node_of_call: np.ndarray = calls.node.astype(np.int32)
    marks = buffers.marks(run.calls)
    gaps = buffers.scattered(run.calls, node_of_call, len(calls.nodes))
    for rt in run.ranks if present is None else (run.ranks[rank] for rank in present):
        out.failed_polls += rt.failed_polls
        out.counted_events += rt.counted_events
        add_rank(out.tracing, rt)
        buffers.add_rank(out.buffers, marks, rt)
        buffers.add_pieces(out.pieces, gaps, calls.nodes, rt)
        if not out.problem and (turned := backwards(rt.start_ns, rt.elapsed_ns, rt.thread)):
            out.problem = f"{run.path}: rank {rt.rank}: {turned}"
        rt = logical.once(teams.numbered(rt))
        call = np.asarray(rt.call)
        if not len(call):
            continue
        sequence = node_of_call[call]
        edges.append(_transitions(rt.rank, sequence, len(calls.nodes)))
        samples.offer(rt.rank, sequence, edges[-1])
        keep = np.flatnonzero(~calls.null[call])
        threads.append(teams.teams_of(rt, keep, sequence))
        files.append(fileuse.uses_of(rt, sequence, run.calls))
        out.events += len(call)
        out.inside += int(calls.inside[call].sum())
        out.null_events += len(call) - len(keep)
        sequences.offer(rt.rank, codes_of(calls.row[call[keep]], keep, sequence, len(calls.rows)))
        if len(keep):
            work, elapsed = _before(rt, call[keep], keep, calls, run.work_unit)
            columns.append(_rows(rt.rank, call[keep], keep, calls, work, elapsed))
            between.append(segments.segments_of(rt.rank, sequence[keep], work, len(calls.nodes)))
        ns = clock.before_ns(run, rt)
        if ns is not None:
            loads.append(clock.load_of(out.time_unit, rt, ~calls.starts[call], ns))
            if len(keep):
                took = gathered(ns, keep)
                took[calls.starts[call[keep]]] = 0
                times.append(clock.times_of(sequence[keep], took, len(calls.nodes)))
    if edges:
        out.edges = np.concatenate(edges)
    out.table = _stacked(columns)
    out.samples, out.sequences = samples.kept, sequences.kept
    out.segments, out.times = np.concatenate(between), np.concatenate(times)
    out.teams = np.concatenate(threads)
    out.files = np.concatenate(files)
    if loads:
        out.loads = np.array(loads, dtype=np.int64)
    return out


def _tell_apart(
    run: RunTrace, site: list[str], names: dict[str, tuple[str, ...]], shared: Set[int]
) -> None:
    """Give the calls at shared sites (by number) sites of their own; ``site``: of each call."""
    (rank,) = run.ranks.present  # type: ignore[attr-defined]
    apart = sequence_nodes(run, shared)
    trace = run.ranks[rank]
    used, first = np.unique(trace.call, return_index=True)
    label = apart.in_order(rank, trace)[first]
    for call, number in zip(used.tolist(), label.tolist(), strict=True):
        order = apart.labels[number].order
        if order >= 0:
            names[f"{site[call]}#{order}"] = names[site[call]]
            site[call] = f"{site[call]}#{order}"


def _stacked(columns: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    none = np.zeros(0, dtype=np.int64)
    return {c: np.concatenate([each[c] for each in columns] or [none]) for c in COLUMNS}


def _before(
    rt: RankTrace, call: np.ndarray, keep: np.ndarray, calls: _Calls, unit: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return the work before and the time in each of the events number ``keep``."""
    work, elapsed = gathered(rt.work, keep), np.array(rt.elapsed_ns, dtype=np.int64)[keep]
    # The run is timed from the return of MPI_Init: what lies before is the launcher's.
    before = calls.starts[call]
    work[before] = 0
    elapsed[before] = 0
    if unit == INSTRUCTIONS:
        elapsed[:] = 0
    return work, elapsed


def _rows(
    rank: int,
    call: np.ndarray,
    keep: np.ndarray,
    calls: _Calls,
    work: np.ndarray,
    elapsed: np.ndarray,
) -> dict[str, np.ndarray]:
    """Return one rank's rows of the table; call, work, elapsed: of the events number ``keep``."""
    row = calls.row[call]
    size = len(calls.rows)
    number = np.bincount(row, minlength=size)
    used = np.flatnonzero(number)
    first = np.zeros(size, dtype=np.int64)
    first[row[::-1]] = np.arange(len(row) - 1, -1, -1)  # the last one written is the first
    group, nbytes, elem = calls.rows[used].T
    return {
        "rank": np.full(len(used), rank, dtype=np.int64),
        "group": group,
        "nbytes": nbytes,
        "elem_bytes": elem,
        "count": number[used].astype(np.int64),
        "work": _sums(row, work, size)[used],
        "elapsed_ns": _sums(row, elapsed, size)[used],
        "first": first[used],
    }


def _transitions(rank: int, sequence: np.ndarray, nodes: int) -> np.ndarray:
    """Return one rank's rows of PointTable.edges from its events as node numbers."""
    codes: numpy.ndarray = sequence[:-1].astype(np.int32 if nodes * nodes < 1 << 31 else np.int64)
    np.multiply(codes, nodes, out=codes)
    np.add(codes, sequence[1:], out=codes)
    if nodes * nodes <= max(4 * len(codes), 1 << 16):
        number = np.bincount(codes, minlength=nodes * nodes)
        pair = np.flatnonzero(number)
        first = np.zeros(nodes * nodes, dtype=np.int64)
        first[codes[::-1]] = np.arange(len(codes), 0, -1)  # the last one written is the first
        count, at = number[pair], first[pair]
    else:
        pair, at, count = np.unique(codes, return_index=True, return_counts=True)
        at = at + 1
    rows = np.stack([np.full(len(pair), rank), pair // nodes, pair % nodes, count, at], axis=1)
    ends = np.array([[rank, START, sequence[0], 1, 0], [rank, sequence[-1], END, 1, len(sequence)]])
    return np.concatenate([ends[:1], rows, ends[1:]]).astype(np.int64)


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


def _sums(place: np.ndarray, values: np.ndarray, length: int) -> np.ndarray:
    """Return the exact sums by place: floats would lose digits of long runs."""
    total = np.zeros(length, dtype=np.int64)
    np.add.at(total, place, values)
    return total


def join(parts: Iterable[Part]) -> Part:
    """Join the parts of a run, taken one at a time, in the order of their ranks."""
    out: Part | None = None
    groups: dict[Group, int] = {}
    places: dict[tuple[tuple[int, ...], int], int] = {}
    nodes: dict[tuple[str, str], int] = {}
    columns: list[dict[str, np.ndarray]] = []
    edges: list[np.ndarray] = []
    samples, sequences = _Samples(), Sequences()
    between: list[np.ndarray] = [segments.none()]
    times: list[np.ndarray] = [clock.no_times()]
    threads: list[np.ndarray] = [teams.none()]
    files: list[np.ndarray] = [fileuse.none()]
    loads: list[np.ndarray] = []
    for part in parts:
        if out is None:
            out = Part(part.np, part.work_unit, time_unit=part.time_unit)
        elif part.work_unit != out.work_unit:
            out.work_unit = CPU  # nodes that differ in their load: wall and CPU time together
        for place in part.places:
            if (place.members, place.ordinal) not in places:
                places[(place.members, place.ordinal)] = len(places)
                out.places.append(place)
        place_to = [places[(p.members, p.ordinal)] for p in part.places]
        group_to = np.array(
            [
                groups.setdefault(
                    Group(
                        g.site,
                        g.op,
                        place_to[g.comm] if g.comm >= 0 else g.comm,
                        g.peer,
                        g.tag,
                        g.root,
                    ),
                    len(groups),
                )
                for g in part.groups
            ],
            dtype=np.int64,
        )
        node_to = np.array(
            [nodes.setdefault(node, len(nodes)) for node in part.nodes] + [END, START],
            dtype=np.int64,
        )  # END and START are their own places -2, -1
        columns.append({**part.table, "group": group_to[part.table["group"]]})
        moved = part.edges.copy()
        moved[:, 1], moved[:, 2] = node_to[moved[:, 1]], node_to[moved[:, 2]]
        edges.append(moved)
        between.append(segments.renumbered(part.segments, node_to))
        times.append(part.times)
        threads.append(teams.renumbered(part.teams, node_to))
        files.append(fileuse.renumbered(part.files, node_to))
        loads.append(part.loads)
        if part.time_unit != out.time_unit:
            out.time_unit = CPU if part.time_unit and out.time_unit else ""
        for rank, sequence in part.samples.items():
            mine = moved[moved[:, 0] == rank]
            samples.offer(rank, node_to[sequence], mine[np.lexsort(mine[:, 2::-1].T)])
        if not part.sequences and part.events:
            sequences.drop()
        for rank, codes in part.sequences.items():
            sequences.offer(rank, renumbered(codes, node_to))
        out.sites.update(part.sites)
        for op, count in part.unmodelled.items():
            out.unmodelled[op] = out.unmodelled.get(op, 0) + count
        for name in ("inside", "events", "null_events", "failed_polls", "counted_events"):
            setattr(out, name, getattr(out, name) + getattr(part, name))
        add(out.tracing, part.tracing)
        buffers.add(out.buffers, part.buffers)
        buffers.join_pieces(out.pieces, part.pieces)
        out.problem = out.problem or part.problem
    assert out is not None  # a run has files
    out.groups, out.nodes = list(groups), list(nodes)
    out.table = _stacked(columns)
    out.edges = np.concatenate(edges)
    out.samples, out.sequences = samples.kept, sequences.kept
    out.segments = np.concatenate(between)
    out.teams = np.concatenate(threads)
    out.files = np.concatenate(files)
    out.loads = np.concatenate(loads)
    if out.time_unit:
        out.times = np.concatenate(times)
    return out
