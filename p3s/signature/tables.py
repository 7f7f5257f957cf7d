"""All runs of one process count as compact tables: calls, transitions, communicators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy
import numpy as np

from p3s.base.errors import P3SError
from p3s.signature.part import CPU, Part, Place, part_of
from p3s.signature.rank import INSTRUCTIONS, Group
from p3s.signature.segments import least, none
from p3s.signature.tracing import Cost

if TYPE_CHECKING:
    from p3s.capture import RunTrace


__all__ = ["CPU", "INSTRUCTIONS", "Group", "Place", "PointTable", "point_table", "table_of"]


@dataclass(frozen=True)
class PointTable:
    """Everything the model needs from the runs at one process count.

    rank, group, nbytes, elem_bytes, count, work, elapsed_ns, first: one row per rank, group and
    size (count: events; work, in ``work_unit``, and elapsed_ns: sums; first: ordinal of the first
    event). nodes: (site, operation). edges: rows (rank, from node, to node, count, ordinal of the
    first), START and END included. samples: rank -> its events as node numbers, in program order,
    of one rank of each kind (equal transitions, equally often), the beginning of very long ones.
    sequences: rank -> all its events as codes (p3s.signature.parse); empty where there are
    too many. turn: of each row, see p3s.model.order.iterations (0 unless it was asked for).
    segments: work between calls (p3s.signature.segments), empty in tables that lack it.
    Of varying, moved: partners or their number differ between repeats, whatever the sizes;
    recounted: how often a rank makes the call differs.
    same: site of a capture -> site of the table that stands for it (p3s.signature.clones);
    waits: site of a test -> that of the wait that it replaces where it succeeds; lines: site ->
    its chain of lines, where debug information has them.
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
    buffers: dict[str, int] = field(default_factory=dict)
    pieces: dict[str, list[int]] = field(default_factory=dict)
    sequences: dict[int, numpy.ndarray] = field(default_factory=dict)
    turn: numpy.ndarray | None = None
    segments: numpy.ndarray = field(default_factory=none)
    moved: tuple[str, ...] = ()
    recounted: tuple[str, ...] = ()
    same: dict[str, str] = field(default_factory=dict)
    waits: dict[str, str] = field(default_factory=dict)
    lines: dict[str, str] = field(default_factory=dict)


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
        known = set(key)
        varying.update(k[1] for k in o_key if k not in known)
    walls = [wall for wall in wall_ns if wall is not None]
    return PointTable(
        np=one.np,
        groups=tuple(one.groups),
        places=tuple(one.places),
        sites=dict(one.sites),
        rank=table["rank"],
        group=table["group"],
        nbytes=table["nbytes"],
        elem_bytes=table["elem_bytes"],
        count=table["count"],
        work=table["work"],
        elapsed_ns=table["elapsed_ns"],
        first=table["first"],
        nodes=tuple(one.nodes),
        edges=one.edges,
        samples=dict(one.samples),
        events=one.events,
        null_events=one.null_events,
        failed_polls=one.failed_polls,
        repeats=len(parts),
        varying=tuple(sorted(varying)),
        moved=_differing(parts, with_partner=True),
        recounted=_differing(parts),
        unmodelled=dict(one.unmodelled),
        wall_ns=min(walls) if walls else None,
        work_unit=units[0] if len(units) == 1 else CPU,
        tracing=dict(one.tracing),
        buffers=dict(one.buffers),
        pieces=dict(one.pieces),
        sequences=dict(one.sequences),
        segments=least([(part.segments, part.nodes) for part in parts]),
    )


def _differing(parts: Sequence[Part], with_partner: bool = False) -> tuple[str, ...]:
    """Return the calls whose number per rank (and partner) is not the same in all repeats."""
    seen: list[dict[tuple[Any, ...], int]] = []
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
        seen.append(number)
    return tuple(
        sorted({key[0] for other in seen[1:] for key, _ in seen[0].items() ^ other.items()})
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
