"""All runs of one process count as compact tables: calls, transitions, communicators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy
import numpy as np

from p3s.base.errors import P3SError
from p3s.base.serialise import NotNegative, Positive, ProcessCount, Total
from p3s.signature.part import CPU, Part, Place, part_of
from p3s.signature.phase_file import Matched, Recorded
from p3s.signature.rank import INSTRUCTIONS, Group
from p3s.signature.segments import keep_least_work, none

if TYPE_CHECKING:
    from p3s.capture import RunTrace

#: Files have the key whatever the value is.
_WRITTEN = {"always": True}


@dataclass(frozen=True, kw_only=True)
class SignatureFacts:
    """What the runs at one process count are, beside columns and communicators.

    nodes: (site, operation). Of varying, moved: partners or their number differ between repeats,
    whatever the sizes; recounted: how often a rank makes the call differs. same: site of a capture
    -> site of the table that stands for it (p3s.signature.clones); waits: site of a test -> that of
    the wait that it replaces where it succeeds; lines: site -> its chain of lines, where debug
    information has them; matched: of a run of another build than those of the other counts;
    recorded: of a signature.
    """

    np: ProcessCount  # the field hides the module inside the class, hence numpy.ndarray below
    repeats: Positive
    events: Total
    null_events: Total
    failed_polls: Total
    wall_ns: Total | None
    work_unit: str = field(default=CPU, metadata=_WRITTEN)
    varying: tuple[str, ...]
    unmodelled: dict[str, Total]
    nodes: tuple[tuple[str, str], ...]
    groups: tuple[Group, ...]
    sites: dict[str, tuple[str, ...]]
    moved: tuple[str, ...] = field(default=(), metadata=_WRITTEN)
    recounted: tuple[str, ...] = field(default=(), metadata=_WRITTEN)
    tracing: dict[str, NotNegative] = field(default_factory=dict, metadata=_WRITTEN)
    buffers: dict[str, Total] = field(default_factory=dict, metadata=_WRITTEN)
    pieces: dict[str, tuple[Total, ...]] = field(default_factory=dict, metadata=_WRITTEN)
    same: dict[str, str] = field(default_factory=dict, metadata=_WRITTEN)
    waits: dict[str, str] = field(default_factory=dict, metadata=_WRITTEN)
    lines: dict[str, str] = field(default_factory=dict, metadata=_WRITTEN)
    matched: Matched | None = None
    recorded: Recorded | None = None


@dataclass(frozen=True, kw_only=True)
class PointTable(SignatureFacts):
    """Everything the model needs from the runs at one process count.

    rank, group, nbytes, elem_bytes, count, work, elapsed_ns, first: one row per rank, group and
    size (count: events; work, in ``work_unit``, and elapsed_ns: sums; first: ordinal of the first
    event). edges: rows (rank, from node, to node, count, ordinal of the
    first), START and END included. samples: rank -> its events as node numbers, in program order,
    of one rank of each kind (equal transitions, equally often), the beginning of very long ones.
    sequences: rank -> all its events as codes (p3s.signature.parse); empty where there are
    too many. turn: of each row, see p3s.model.order.iterations (0 unless it was asked for).
    segments: work between calls (p3s.signature.segments), empty in tables that lack it.
    Where work is in instructions, elapsed_ns is 0: times under emulation tell nothing.
    """

    places: tuple[Place, ...]
    rank: numpy.ndarray
    group: numpy.ndarray
    nbytes: numpy.ndarray
    elem_bytes: numpy.ndarray
    count: numpy.ndarray
    work: numpy.ndarray
    elapsed_ns: numpy.ndarray
    first: numpy.ndarray
    edges: numpy.ndarray
    samples: dict[int, numpy.ndarray]
    sequences: dict[int, numpy.ndarray] = field(default_factory=dict)
    turn: numpy.ndarray | None = None
    segments: numpy.ndarray = field(default_factory=none)


def point_table(runs: Sequence[RunTrace]) -> PointTable:
    """Reduce the repeats of one process count, read as a whole, to a PointTable."""
    return table_of(
        [part_of(run) for run in runs], [run.wall_ns for run in runs], str(runs[0].path)
    )


def table_of(parts: Sequence[Part], wall_ns: Sequence[int | None], where: str) -> PointTable:
    """Reduce the repeats of one process count to a PointTable.

    parts, wall_ns: one per run, all its ranks in it; where: names the run in errors. Counts and
    order come from the first run; work and elapsed time are the minimum over the repeats
    wherever the same calls occur in all of them. Sites whose counts differ between repeats are
    listed in ``varying``.
    """
    one = parts[0]
    units = sorted({part.work_unit for part in parts})
    if INSTRUCTIONS in units and len(units) > 1:
        raise P3SError(
            f"characterize: the repeats at {one.np} processes mix work in "
            f"instructions with work in time; run `p3s characterize -n {one.np}` "
            "again with one --work"
        )
    if not len(one.edges):
        raise P3SError(
            f"characterize: the capture in {where} holds no events; run `p3s characterize` again"
        )
    table = {name: column.copy() for name, column in one.table.items()}
    key = _row_keys(one.groups, table)
    varying: set[str] = set()
    for other in parts[1:]:
        o_key = _row_keys(other.groups, other.table)
        index = {k: i for i, k in enumerate(o_key)}
        for i, k in enumerate(key):
            j = index.get(k)
            if j is None or other.table["count"][j] != table["count"][i]:
                varying.add(k[1])
                continue
            for col in ("work", "elapsed_ns"):
                table[col][i] = min(table[col][i], other.table[col][j])
        present_keys = set(key)
        varying.update(k[1] for k in o_key if k not in present_keys)
    walls = [wall for wall in wall_ns if wall is not None]
    columns: dict[str, Any] = {**table, **{name: getattr(one, name) for name in _OF_FIRST}}
    return PointTable(
        **columns,
        groups=tuple(one.groups),
        places=tuple(one.places),
        nodes=tuple(one.nodes),
        repeats=len(parts),
        varying=tuple(sorted(varying)),
        moved=_differing(parts, with_partner=True),
        recounted=_differing(parts),
        wall_ns=min(walls) if walls else None,
        work_unit=units[0] if len(units) == 1 else CPU,
        recorded=Recorded(one.events - one.restored, one.events) if one.restored else None,
        segments=keep_least_work([(part.segments, part.nodes) for part in parts]),
    )


#: What a table has of the first run.
_OF_FIRST = (
    *("np", "sites", "edges", "samples", "sequences", "events", "null_events", "failed_polls"),
    *("unmodelled", "tracing", "buffers", "pieces"),
)


def _differing(parts: Sequence[Part], with_partner: bool = False) -> tuple[str, ...]:
    """Return the calls whose number per rank (and partner) is not the same in all repeats."""
    calls: list[dict[tuple[Any, ...], int]] = []
    for part in parts if len(parts) > 1 else ():
        number: dict[tuple[Any, ...], int] = {}
        for rank, group, count in zip(
            part.table["rank"].tolist(),
            part.table["group"].tolist(),
            part.table["count"].tolist(),
            strict=True,
        ):
            g = part.groups[group]
            key = (
                f"{g.site}:{g.op}",
                rank,
                *((g.comm, g.peer, g.tag, g.root) if with_partner else ()),
            )
            number[key] = number.get(key, 0) + count
        calls.append(number)
    return tuple(
        sorted({key[0] for other in calls[1:] for key, _ in calls[0].items() ^ other.items()})
    )


def _row_keys(groups: Sequence[Group], table: dict[str, np.ndarray]) -> list[tuple[Any, ...]]:
    return [
        (int(r), f"{g.site}:{g.op}", g.comm, g.peer, g.tag, g.root, int(b))
        for r, gi, b in zip(table["rank"], table["group"], table["nbytes"], strict=True)
        for g in (groups[gi],)
    ]


def node_of_row(t: PointTable) -> np.ndarray:
    """Return the number of the node (``t.nodes``) of each row of a table."""
    number = {node: k for k, node in enumerate(t.nodes)}
    of_group = np.array([number[(g.site, g.op)] for g in t.groups], dtype=np.int64)
    result: np.ndarray = of_group[t.group]
    return result


def first_rows(t: PointTable) -> dict[int, int]:
    """Return rank -> its first row; a rank's rows follow each other."""
    ranks, first = np.unique(t.rank, return_index=True)
    return dict(zip(ranks.tolist(), first.tolist(), strict=True))
