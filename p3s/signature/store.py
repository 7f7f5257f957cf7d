"""The Parquet tables of a signature: written, and read back as a PointTable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from p3s.base.serialise import (
    Natural,
    NotNegative,
    Positive,
    ProcessCount,
    ShapeError,
    Total,
    from_data,
)
from p3s.base.study import SIGNATURE_SCHEMA, SIGNATURE_VERSION
from p3s.base.tables import (
    TableFacts,
    check_range,
    check_sums,
    column,
    facts_of,
    lists,
    numbers,
    parquet_bytes,
    read_table,
    unusable_tables,
)
from p3s.signature import segments
from p3s.signature.parse import compact, distinct
from p3s.signature.tables import Group, Place, PointTable

SCHEMA, VERSION = SIGNATURE_SCHEMA, SIGNATURE_VERSION
_CALL_COLUMNS = ("rank", "group", "nbytes", "elem_bytes", "count", "work", "elapsed_ns", "first")
_SEGMENT_COLUMNS = segments.COLUMNS
_EDGE_COLUMNS = ("rank", "from_node", "to_node", "count", "first")


#: Neither a rank nor a communicator: MPI's own marks, and what is not known.
_MARKS = -16


class GroupRow(NamedTuple):
    """A call as its file has it: a row without keys."""

    site: str
    op: str
    comm: int
    peer: int
    tag: int
    root: int


@dataclass(frozen=True)
class Members:
    """Members of a communicator: ranks in a row, or each of them."""

    first: Natural | None = None
    size: Natural | None = None
    ranks: tuple[Natural, ...] | None = None

    def valid(self) -> None:
        """Raise ValueError unless it is one of the two."""
        if (self.ranks is None) == (self.first is None or self.size is None):
            raise ValueError("members are neither in a row nor listed")


@dataclass(frozen=True)
class PlaceRow:
    """A communicator: members, the k-th one with these, what made it, its grid if it has one."""

    members: Members
    ordinal: Natural
    op: str
    dims: tuple[int, ...] | None
    periods: tuple[bool, ...] | None

    def last(self) -> int:
        """Return the largest rank, -1 where there is none."""
        m = self.members
        return (
            max(m.ranks, default=-1) if m.ranks is not None else (m.first or 0) + (m.size or 0) - 1
        )

    def unpacked(self) -> Place:
        """Return the communicator with its members one by one."""
        m = self.members
        first = m.first or 0
        ranks = m.ranks if m.ranks is not None else tuple(range(first, first + (m.size or 0)))
        return Place(ranks, self.ordinal, self.op, self.dims or None, self.periods or None)


@dataclass(frozen=True)
class SignatureHead:
    """What a signature's JSON file says that its tables are read with."""

    np: ProcessCount
    repeats: Positive
    events: Total
    null_events: Total
    failed_polls: Total
    wall_ns: Total | None
    work_unit: str
    varying: tuple[str, ...]
    unmodelled: Mapping[str, Total]
    nodes: tuple[tuple[str, str], ...]
    groups: tuple[GroupRow, ...]
    places: tuple[PlaceRow, ...]
    sites: Mapping[str, tuple[str, ...]]
    moved: tuple[str, ...] | None = None
    recounted: tuple[str, ...] | None = None
    tracing: Mapping[str, NotNegative] = field(default_factory=dict)
    buffers: Mapping[str, Total] = field(default_factory=dict)
    pieces: Mapping[str, tuple[Total, ...]] = field(default_factory=dict)
    same: Mapping[str, str] = field(default_factory=dict)
    waits: Mapping[str, str] = field(default_factory=dict)
    lines: Mapping[str, str] = field(default_factory=dict)
    captures: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[str, TableFacts] | None = None

    def valid(self) -> None:
        """Raise ValueError where calls or communicators name what is not there."""
        for place in self.places:
            if place.last() >= self.np:
                raise ValueError(f"a communicator has rank {place.last()} of {self.np}")
        if self.np > 1 and not self.places:
            raise ValueError("there is no communicator")
        nodes = set(self.nodes)
        for row in self.groups:
            if (row.site, row.op) not in nodes:
                raise ValueError(f"{row.op} of a call is at no place")
            check_range([row.comm], _MARKS, len(self.places), "the communicator of a call")
            check_range([row.peer, row.root], _MARKS, self.np, "the partner of a call")
        if any(len(row) != 3 for row in self.pieces.values()):
            raise ValueError("pieces are not three numbers")


def write_tables(t: PointTable, json_path: Path) -> dict[str, TableFacts]:
    """Write the tables of a signature; return what its head is to say of them."""
    import pyarrow as pa

    from p3s.base.study import write_bytes

    calls = pa.table({c: column(getattr(t, c)) for c in _CALL_COLUMNS})
    edges = pa.table({c: column(t.edges[:, i]) for i, c in enumerate(_EDGE_COLUMNS)})
    between = pa.table({c: column(t.segments[:, i]) for i, c in enumerate(_SEGMENT_COLUMNS)})
    samples = pa.table(
        {
            "rank": column(np.array(list(t.samples), dtype=np.int64)),
            "nodes": lists(list(t.samples.values())),
        }
    )
    shared = distinct(t.sequences)
    events = pa.table(
        {
            "ranks": lists([np.asarray(ranks) for ranks, _ in shared]),
            "events": lists([codes for _, codes in shared]),
        }
    )
    occurs = {"events": t.count, "bytes": t.count * t.nbytes, "work": t.work}
    sums = {name: float(values.sum()) for name, values in occurs.items()}
    facts = {}
    for table, path in (
        (calls, json_path.with_suffix(".parquet")),
        (edges, json_path.with_suffix(".edges.parquet")),
        (events, json_path.with_suffix(".events.parquet")),
        (between, json_path.with_suffix(".segments.parquet")),
        (samples, json_path.with_suffix(".samples.parquet")),
    ):
        data = parquet_bytes(table)
        write_bytes(path, data)
        facts[path.name] = facts_of(data, table.num_rows, sums if table is calls else None)
    return facts


def load_table(study_dir: Path, np_: int) -> PointTable:
    """Return the PointTable of one count from its signature files, checked.

    Raises P3SError in one line where one of them is missing or damaged.
    """
    import pyarrow as pa

    from p3s.base.study import Study, read_json

    path = Study.open(Path(study_dir)).signature_path(np_)
    data = read_json(path, SCHEMA, VERSION)
    try:
        head = from_data(SignatureHead, data, more=True)
        if head.np != np_:
            raise ValueError(f"np is {head.np}")
        return _table(head, path)
    except (OSError, ValueError, ShapeError, pa.ArrowException) as err:
        raise unusable_tables(path, err, "run `p3s characterize` again") from err


def _table(head: SignatureHead, path: Path) -> PointTable:
    """Return the table of a head and the files beside it."""
    known = head.tables
    calls = _columns(path.with_suffix(".parquet"), _CALL_COLUMNS, head)
    edges = _columns(path.with_suffix(".edges.parquet"), _EDGE_COLUMNS, head)
    between = path.with_suffix(".segments.parquet")
    # A signature may be older than its segments.
    there = known is not None or between.exists()
    rows = _columns(between, _SEGMENT_COLUMNS, head) if there else segments.none()
    _check_calls(calls, head)
    if not len(edges):
        raise ValueError("no rank has an event")
    for values, what in ((edges, "edges"), (rows, "segments")):
        check_range(values[:, 1:3], -2, len(head.nodes), f"a place of the {what}")
    cols: dict[str, Any] = {name: calls[:, k] for k, name in enumerate(_CALL_COLUMNS)}
    stated: dict[str, Any] = {f.name: getattr(head, f.name) for f in fields(SignatureHead)}
    for name in ("captures", "tables", "groups", "places"):
        del stated[name]
    stated["moved"] = head.varying if head.moved is None else head.moved
    stated["recounted"] = head.varying if head.recounted is None else head.recounted
    for name in ("sites", "unmodelled", "tracing", "buffers", "same", "waits", "lines"):
        stated[name] = dict(stated[name])
    stated["pieces"] = {name: list(values) for name, values in head.pieces.items()}
    return PointTable(
        **stated,
        **cols,
        groups=tuple(Group(*row) for row in head.groups),
        places=tuple(place.unpacked() for place in head.places),
        edges=edges,
        samples=_read_samples(path.with_suffix(".samples.parquet"), head),
        sequences=_read_sequences(path.with_suffix(".events.parquet"), head, calls),
        segments=rows,
    )


def _columns(path: Path, names: Sequence[str], head: SignatureHead) -> np.ndarray:
    """Return a table of whole numbers, (rows, columns), the first of which is a rank."""
    table = read_table(path, dict.fromkeys(names, int), head.tables)
    values = np.stack([numbers(table.column(name)) for name in names], axis=1).astype(np.int64)
    check_range(values[:, 0], 0, head.np, f"{path.name}: a rank")
    known = names.index("count") if "count" in names else None
    if known is not None and len(values) and values[:, known].min() < 0:
        raise ValueError(f"{path.name}: a count is negative")
    return values


def _check_calls(calls: np.ndarray, head: SignatureHead) -> None:
    """Raise ValueError for calls that are none: their group, size, number."""
    at = {name: calls[:, k] for k, name in enumerate(_CALL_COLUMNS)}
    check_range(at["group"], 0, len(head.groups), "a call's group")
    for name in ("nbytes", "elem_bytes", "elapsed_ns", "first"):
        check_range(at[name], 0, 1 << 63, f"{name} of a call")
    if (np.diff(at["rank"]) < 0).any():
        raise ValueError("calls are not in the order of their ranks")
    check_sums(
        {
            "events": float(at["count"].sum()),
            "bytes": float((at["count"] * at["nbytes"]).sum()),
            "work": float(at["work"].sum()),
        },
        head.tables,
    )


def _read_samples(path: Path, head: SignatureHead) -> dict[int, np.ndarray]:
    """Return rank -> its events as numbers of nodes."""
    kept = read_table(path, {"rank": int, "nodes": list}, head.tables)
    ranks = kept.column("rank").to_pylist()
    check_range(ranks, 0, head.np, f"{path.name}: a rank")
    nodes = [numbers(part.values) for part in kept.column("nodes")]
    for each in nodes:
        check_range(each, 0, len(head.nodes), f"{path.name}: a node")
    return dict(zip(ranks, nodes, strict=True))


def _read_sequences(path: Path, head: SignatureHead, calls: np.ndarray) -> dict[int, np.ndarray]:
    """Return rank -> codes; ranks that share a sequence share the array."""
    table = read_table(path, {"ranks": list, "events": list}, head.tables)
    rows_of = np.bincount(calls[:, 0], minlength=head.np)
    out = {}
    for ranks, codes in zip(table.column("ranks").to_pylist(), table.column("events"), strict=True):
        values = compact(numbers(codes.values))
        check_range(ranks, 0, head.np, f"{path.name}: a rank")
        least = int(rows_of[ranks].min()) if ranks else 0
        check_range(values, -len(head.nodes), least, f"{path.name}: an event")
        out.update(dict.fromkeys(ranks, values))
    return dict(sorted(out.items()))
