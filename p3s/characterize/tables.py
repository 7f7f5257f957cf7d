"""From captured runs of one process count to compact tables: calls, transitions, places.

A *group* is one distinct (site, operation, communicator, partner, tag, root); a *node* is one
distinct (site, operation), a place in the program. Transitions are counted between nodes.
Messages to MPI_PROC_NULL move nothing: they are part of the order of nodes, but of no group;
their computation is added to the next event and they are counted in ``null_events``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy
import numpy as np

from p3s.characterize.tracing import Cost, add_rank
from p3s.errors import P3SError
from p3s.trace.ops import RECV, SEND, kind_of

if TYPE_CHECKING:
    from p3s.trace import RunTrace

START, END = -1, -2
PROC_NULL = -3
#: Sequences of nodes are kept of so many ranks, of so many events each and in all.
_SAMPLES, _SAMPLE_EVENTS, _ALL_SAMPLES = 64, 1 << 22, 1 << 24
#: Units of work; those in nanoseconds can be mixed.
INSTRUCTIONS, CPU = "instructions", "cpu_ns"


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


@dataclass(frozen=True)
class PointTable:
    """Everything the model needs from the runs at one process count.

    rank, group, nbytes, elem_bytes, count, work, elapsed_ns, first: one row per rank, group and
    size (count: events; work, in ``work_unit``, and elapsed_ns: sums; first: ordinal of the first
    event). nodes: (site, operation). edges: rows (rank, from node, to node, count, ordinal of the
    first), START and END included. samples: rank -> its events as node numbers, in program order,
    of one rank of each kind (equal transitions, equally often), the beginning of very long ones.
    Where work is in instructions, elapsed_ns is 0: times under emulation tell nothing.
    """

    np: int  # the field hides the module inside the class, hence numpy.ndarray below
    groups: tuple[Group, ...]
    places: tuple[Place, ...]
    sites: dict[str, tuple[str, ...]]
    rank: numpy.ndarray
    group: numpy.ndarray
    nbytes: numpy.ndarray
    elem_bytes: numpy.ndarray
    count: numpy.ndarray
    work: numpy.ndarray
    elapsed_ns: numpy.ndarray
    first: numpy.ndarray
    nodes: tuple[tuple[str, str], ...]
    edges: numpy.ndarray
    samples: dict[int, numpy.ndarray]
    events: int
    null_events: int
    failed_polls: int
    repeats: int
    varying: tuple[str, ...]
    unmodelled: dict[str, int]
    wall_ns: int | None
    work_unit: str = "cpu_ns"
    tracing: Cost = field(default_factory=dict)


@dataclass(frozen=True)
class _OneRun:
    """One run as tables: columns as in PointTable."""

    groups: list[Group]
    table: dict[str, np.ndarray]
    nodes: list[tuple[str, str]]
    edges: np.ndarray
    samples: dict[int, np.ndarray]
    events: int
    null_events: int
    failed_polls: int
    tracing: Cost


def _one_run(run: RunTrace) -> _OneRun:
    calls = run.calls
    site_key = [s.key for s in run.sites]
    groups: dict[tuple[int, str, int, int, int, int], int] = {}
    of_call = np.empty(len(calls), dtype=np.int64)
    null = np.zeros(len(calls), dtype=bool)
    for i, c in enumerate(calls):
        key = (c.site, c.op, c.comm, c.peer, c.tag, c.root)
        null[i] = c.peer == PROC_NULL and kind_of(c.op) in (SEND, RECV)
        of_call[i] = -1 if null[i] else groups.setdefault(key, len(groups))
    starts = np.array([c.op.startswith("MPI_Init") for c in calls], dtype=bool)
    nodes: dict[tuple[str, str], int] = {}
    node_of_call = np.array([nodes.setdefault((site_key[c.site] if c.site >= 0 else "", c.op),
                                              len(nodes)) for c in calls], dtype=np.int64)
    # Calls that differ in nothing the table tells apart share a row.
    distinct: dict[tuple[int, int, int], int] = {}
    row_of = np.array([distinct.setdefault((int(of_call[i]), c.bytes, max(c.elem_bytes, 1)),
                                           len(distinct)) for i, c in enumerate(calls)],
                      dtype=np.int64)
    row_group, row_bytes, row_elem = np.array(list(distinct), dtype=np.int64).reshape(-1, 3).T
    cols: dict[str, list[np.ndarray]] = {k: [] for k in
                                         ("rank", "group", "nbytes", "elem_bytes", "count",
                                          "work", "elapsed_ns", "first")}
    edges: list[np.ndarray] = []
    samples = _Samples()
    events = nulls = polls = 0
    tracing: Cost = {}
    for rt in run.ranks:
        polls += rt.failed_polls
        add_rank(tracing, rt)
        call = np.asarray(rt.call, dtype=np.int64)
        keep = np.flatnonzero(~null[call])
        events += len(call)
        nulls += len(call) - len(keep)
        if len(call):
            sequence = node_of_call[call]
            edges.append(_transitions(rt.rank, sequence, len(nodes)))
            samples.offer(rt.rank, sequence, edges[-1])
        if not len(keep):
            continue
        total_work = np.concatenate([[0], np.cumsum(np.asarray(rt.work, dtype=np.int64))])
        work = np.diff(np.concatenate([[0], total_work[keep + 1]]))
        call = call[keep]
        elapsed = np.asarray(rt.elapsed_ns, dtype=np.int64)[keep]
        # The run is timed from the return of MPI_Init: what lies before is the launcher's.
        before = starts[call]
        work[before] = 0
        elapsed[before] = 0
        if run.work_unit == INSTRUCTIONS:
            elapsed[:] = 0
        used, first, inverse, count = np.unique(row_of[call], return_index=True,
                                                return_inverse=True, return_counts=True)
        cols["rank"].append(np.full(len(used), rt.rank, dtype=np.int64))
        cols["group"].append(row_group[used])
        cols["nbytes"].append(row_bytes[used])
        cols["elem_bytes"].append(row_elem[used])
        cols["count"].append(count.astype(np.int64))
        cols["work"].append(_sums(inverse, work, len(used)))
        cols["elapsed_ns"].append(_sums(inverse, elapsed, len(used)))
        cols["first"].append(first.astype(np.int64))
    if not edges:
        raise P3SError(f"characterize: the capture in {run.path} holds no events; "
                       "run `p3s characterize` again")
    listed = [Group(site_key[k[0]] if k[0] >= 0 else "", *k[1:]) for k in groups]
    none = [np.zeros(0, dtype=np.int64)]
    table = {k: np.concatenate(v or none) for k, v in cols.items()}
    return _OneRun(listed, table, list(nodes), np.concatenate(edges), samples.kept, events, nulls,
                   polls, tracing)


def _transitions(rank: int, sequence: np.ndarray, nodes: int) -> np.ndarray:
    """Return one rank's rows of PointTable.edges from its events as node numbers."""
    codes = sequence[:-1] * nodes + sequence[1:]
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
    ends = np.array([[rank, START, sequence[0], 1, 0],
                     [rank, sequence[-1], END, 1, len(sequence)]])
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
        if kind in self._kinds or len(self.kept) >= _SAMPLES \
                or self._events + len(part) > _ALL_SAMPLES:
            return
        self._kinds.add(kind)
        self._events += len(part)
        self.kept[rank] = part.astype(np.int32)


def _sums(place: np.ndarray, values: np.ndarray, length: int) -> np.ndarray:
    """Return the exact sums by place: floats would lose digits of long runs."""
    total = np.zeros(length, dtype=np.int64)
    np.add.at(total, place, values)
    return total


def point_table(runs: Sequence[RunTrace]) -> PointTable:
    """Reduce the repeats of one process count to a PointTable.

    Counts and order come from the first run; work and elapsed time are the minimum over the
    repeats wherever the same calls occur in all of them. Sites whose counts differ between
    repeats are listed in ``varying``.
    """
    first_run = runs[0]
    units = sorted({run.work_unit for run in runs})
    if INSTRUCTIONS in units and len(units) > 1:
        raise P3SError(f"characterize: the repeats at {first_run.np} processes mix work in "
                       f"instructions with work in time; run `p3s characterize -n {first_run.np}` "
                       "again with one --work")
    one = _one_run(first_run)
    groups, table = one.groups, one.table
    key = _row_keys(groups, table)
    varying: set[str] = set()
    for other in runs[1:]:
        again = _one_run(other)
        o_table = again.table
        o_key = _row_keys(again.groups, o_table)
        index = {k: i for i, k in enumerate(o_key)}
        for i, k in enumerate(key):
            j = index.get(k)
            if j is None or o_table["count"][j] != table["count"][i]:
                varying.add(k[1])
                continue
            for col in ("work", "elapsed_ns"):
                table[col][i] = min(table[col][i], o_table[col][j])
        known = set(key)
        varying.update(k[1] for k in o_key if k not in known)
    places = tuple(Place(c.members, c.ordinal, c.op, c.dims, c.periods) for c in first_run.comms)
    walls = [r.wall_ns for r in runs if r.wall_ns is not None]
    return PointTable(
        np=first_run.np, groups=tuple(groups), places=places,
        sites={s.key: tuple(s.frames) for s in first_run.sites},
        rank=table["rank"], group=table["group"], nbytes=table["nbytes"],
        elem_bytes=table["elem_bytes"], count=table["count"], work=table["work"],
        elapsed_ns=table["elapsed_ns"], first=table["first"], nodes=tuple(one.nodes),
        edges=one.edges, samples=one.samples,
        events=one.events, null_events=one.null_events, failed_polls=one.failed_polls,
        repeats=len(runs), varying=tuple(sorted(varying)),
        unmodelled=dict(first_run.unmodelled), wall_ns=min(walls) if walls else None,
        work_unit=units[0] if len(units) == 1 else CPU, tracing=one.tracing)


def _row_keys(groups: Sequence[Group], table: dict[str, np.ndarray]) -> list[tuple]:
    return [(int(r), f"{g.site}:{g.op}", g.comm, g.peer, g.tag, g.root, int(b))
            for r, gi, b in zip(table["rank"], table["group"], table["nbytes"], strict=True)
            for g in (groups[gi],)]
