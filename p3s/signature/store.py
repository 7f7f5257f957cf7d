"""The files of a signature: npNNNN.json (readable) and Parquet tables, and a PointTable of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from p3s.base.artefacts import is_stale, read_json, write_json
from p3s.base.errors import P3SError
from p3s.base.records import (
    SIGNATURE_SCHEMA,
    SIGNATURE_VERSION,
    Traces,
    phases_path,
    signature_path,
)
from p3s.base.serialise import FileFormat, Natural, ShapeError, from_data
from p3s.base.tables import (
    TableFacts,
    check_range,
    check_sums,
    numbers,
    read_columns,
    read_table,
    unusable_tables,
    write_columns,
)
from p3s.signature import segments
from p3s.signature.parse import compact, distinct
from p3s.signature.part import Place
from p3s.signature.phase_file import PHASES, Phases
from p3s.signature.phases import phases_of
from p3s.signature.rank import COLUMNS
from p3s.signature.structure import Structure, structure
from p3s.signature.tables import PointTable, SignatureFacts
from p3s.signature.unmodelled import unmodelled_calls

_EDGE_COLUMNS = ("rank", "from_node", "to_node", "count", "first")
#: Neither a rank nor a communicator: MPI's own marks, and what is not known.
_MARKS = -16


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

    @staticmethod
    def of(place: Place) -> PlaceRow:
        """Return a communicator with its members packed."""
        ranks, size = place.members, len(place.members)
        packed = Members(ranks=ranks)
        if ranks and ranks == tuple(range(ranks[0], ranks[0] + size)):
            packed = Members(ranks[0], size)
        return PlaceRow(packed, place.ordinal, place.op, place.dims or None, place.periods or None)

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


@dataclass(frozen=True, kw_only=True)
class SignatureHead(SignatureFacts):
    """What a signature's JSON file holds; its last six fields are for those who read it.

    captures: what tells the captures of its runs from others, by run.
    """

    places: tuple[PlaceRow, ...]
    captures: dict[str, str] = field(default_factory=dict, metadata={"always": True})
    tables: dict[str, TableFacts] | None = None
    left_out: tuple[str, ...] = field(default=(), metadata={"always": True})
    work: int = 0
    communication_ns: int = 0
    not_modelled: Any = None
    accounting: Any = None
    phases: Any = None
    tree: Any = None

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


#: npNNNN.json.
SIGNATURE = FileFormat(
    SIGNATURE_SCHEMA, SIGNATURE_VERSION, SignatureHead, True, "run `p3s characterize` again"
)
SCHEMA, VERSION = SIGNATURE_SCHEMA, SIGNATURE_VERSION


def signature_of(t: PointTable, nest: Structure | None = None) -> SignatureHead:
    """Return the readable signature: groups, communicators, loop tree, accounted time.

    nest: the structure of the table, found here where it is not given.
    """
    phases = phases_of(nest or structure([t]))
    facts: dict[str, Any] = {each.name: getattr(t, each.name) for each in fields(SignatureFacts)}
    for name in ("sites", "same", "waits", "lines"):
        facts[name] = dict(sorted(facts[name].items()))
    return SignatureHead(
        **facts,
        places=tuple(map(PlaceRow.of, t.places)),
        work=int(t.work.sum()),
        communication_ns=int(t.elapsed_ns.sum()),
        not_modelled=unmodelled_calls([t]),
        accounting=phases.accounting[t.np],
        phases=phases.phases,
        tree=phases.tree,
    )


def write_tables(t: PointTable, json_path: Path) -> dict[str, TableFacts]:
    """Write the tables of a signature; return what its head is to say of them."""
    occurs = {"events": t.count, "bytes": t.count * t.nbytes, "work": t.work}
    sums = {name: float(values.sum()) for name, values in occurs.items()}
    shared = distinct(t.sequences)
    tables: dict[str, dict[str, np.ndarray | list[np.ndarray]]] = {
        "parquet": {c: getattr(t, c) for c in COLUMNS},
        "edges.parquet": {c: t.edges[:, i] for i, c in enumerate(_EDGE_COLUMNS)},
        "events.parquet": {
            "ranks": [np.asarray(ranks) for ranks, _ in shared],
            "events": [codes for _, codes in shared],
        },
        "segments.parquet": {c: t.segments[:, i] for i, c in enumerate(segments.COLUMNS)},
        "samples.parquet": {
            "rank": np.array(list(t.samples), dtype=np.int64),
            "nodes": list(t.samples.values()),
        },
    }
    facts = {}
    for kind, columns in tables.items():
        path = json_path.with_suffix(f".{kind}")
        facts[path.name] = write_columns(path, columns, sums if kind == "parquet" else None)
    return facts


def load_table(study_dir: Path, np_: int) -> PointTable:
    """Return the PointTable of one count from its signature files, checked.

    Raises P3SError in one line where one of them is missing or damaged.
    """
    import pyarrow as pa

    path = signature_path(Path(study_dir), np_)
    data = read_json(path, SCHEMA, VERSION)
    try:
        head = from_data(SignatureHead, data, more=True)
        if head.np != np_:
            raise ValueError(f"np is {head.np}")
        return read_tables(head, path)
    except (OSError, ValueError, ShapeError, pa.ArrowException) as err:
        raise unusable_tables(path, err, SIGNATURE.again) from err


def read_tables(head: SignatureHead, path: Path) -> PointTable:
    """Return the table of a head and the files beside it."""
    calls = _columns(path.with_suffix(".parquet"), COLUMNS, head)
    edges = _columns(path.with_suffix(".edges.parquet"), _EDGE_COLUMNS, head)
    rows = _columns(path.with_suffix(".segments.parquet"), segments.COLUMNS, head)
    _check_calls(calls, head)
    if not len(edges):
        raise ValueError("no rank has an event")
    for values, file_kind in ((edges, "edges"), (rows, "segments")):
        check_range(values[:, 1:3], -2, len(head.nodes), f"a place of the {file_kind}")
    facts: dict[str, Any] = {each.name: getattr(head, each.name) for each in fields(SignatureFacts)}
    columns: dict[str, Any] = {name: calls[:, k] for k, name in enumerate(COLUMNS)}
    return PointTable(
        **facts,
        **columns,
        places=tuple(place.unpacked() for place in head.places),
        edges=edges,
        samples=_read_samples(path.with_suffix(".samples.parquet"), head),
        sequences=_read_sequences(path.with_suffix(".events.parquet"), head, calls),
        segments=rows,
    )


def _columns(path: Path, names: Sequence[str], head: SignatureHead) -> np.ndarray:
    """Return a table of whole numbers, (rows, columns), the first of which is a rank."""
    table = read_columns(path, dict.fromkeys(names, int), head.tables)
    values = np.stack([table[name] for name in names], axis=1).astype(np.int64)
    check_range(values[:, 0], 0, head.np, f"{path.name}: a rank")
    count_column = names.index("count") if "count" in names else None
    if count_column is not None and len(values) and values[:, count_column].min() < 0:
        raise ValueError(f"{path.name}: a count is negative")
    return values


def _check_calls(calls: np.ndarray, head: SignatureHead) -> None:
    """Raise ValueError for calls that are none: their group, size, number."""
    at = {name: calls[:, k] for k, name in enumerate(COLUMNS)}
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
    table = read_table(path, {"rank": int, "nodes": list}, head.tables)
    ranks = table.column("rank").to_pylist()
    check_range(ranks, 0, head.np, f"{path.name}: a rank")
    nodes = [numbers(part.values) for part in table.column("nodes")]
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


def write_phases(traces: Traces) -> Phases:
    """Write signature/phases.json of a study from its signatures; return what it holds."""
    root, counts = traces.root, traces.counts
    if not counts:
        raise P3SError(f"phases: {root} holds no signature; run `p3s characterize` first")
    phases = phases_of(structure([load_table(root, n) for n in counts]))
    made_of = [signature_path(root, n) for n in counts]
    write_json(phases_path(root), PHASES.data(phases), made_of)
    return phases


def load_phases(traces: Traces) -> Phases:
    """Return signature/phases.json, made anew where it is not that of the study's counts."""
    path, counts = phases_path(traces.root), traces.counts
    if path.exists():
        phases = PHASES.read(path)
        made_of = [signature_path(traces.root, n) for n in counts]
        if list(phases.counts) == counts and not is_stale(path, made_of):
            return phases
    return write_phases(traces)
