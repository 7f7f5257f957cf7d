"""Read a scaled trace (``scaled/npNNNNNN/``) into columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from p3s.base.arrays import Bools, Floats, Ints
from p3s.base.artefacts import LastRead, unusable
from p3s.base.errors import DamagedFile, P3SError
from p3s.base.serialise import from_data, to_data
from p3s.base.tables import (
    ROOM,
    TIMES_ITS_SIZE,
    check_names,
    check_sums,
    codes,
    columns_of,
    known_tables,
    numbers,
    open_table,
    read_table,
    sums_of_rows,
)
from p3s.model.law_types import TraceOrder
from p3s.program.types import COMMS, ORDER, SCALED, PackedCall

if TYPE_CHECKING:
    import pyarrow as pa

SEND = "send"
RECV = "recv"
COLLECTIVE = "collective"
COMPLETION = "completion"
COMM = "comm"
IO = "io"

#: Columns of the table that replay reads, and the numpy type each one becomes.
INT_COLUMNS = ("rank", "phase", "index", "peer", "bytes", "comm", "tag", "root", "repeat")
#: Those that tell which rule of the model a row comes from; all 0 in tables without them.
RULE_COLUMNS = ("slot", "stage", "turn")


def _none() -> Ints:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class ScaledTrace:
    """Rows of a scaled trace, sorted by rank, phase and index; every column has one entry per row.

    ``op`` and ``kind`` number the names in ``ops`` and ``kinds``. ``work`` is the computation
    before one occurrence, in ns: column compute_ns, or in older traces work, taken as time.
    ``files``: ns that one occurrence takes in files, empty where no call uses any. ``packed``: rows
    of datatypes that are not contiguous, by the column ``slot``.
    ``known`` is False where the model has no law.
    ``members`` maps a communicator to the world ranks in it. ``weights`` maps a phase to the
    number of its iterations, ``names`` to its name. ``slot``, ``stage``, ``turn``: the rule of
    the model; ``place``: number of the row in the files. These four are empty when not read.
    """

    n: int
    rank: Ints
    phase: Ints
    index: Ints
    peer: Ints
    bytes: Ints
    comm: Ints
    tag: Ints
    root: Ints
    repeat: Ints
    work: Floats
    known: Bools
    op: Ints
    kind: Ints
    ops: tuple[str, ...]
    kinds: tuple[str, ...]
    members: Mapping[int, Ints]
    weights: Mapping[int, float]
    slot: Ints = field(default_factory=_none)
    stage: Ints = field(default_factory=_none)
    turn: Ints = field(default_factory=_none)
    place: Ints = field(default_factory=_none)
    names: Mapping[int, str] = field(default_factory=dict)
    files: Floats = field(default_factory=lambda: np.zeros(0))
    packed: tuple[PackedCall, ...] = ()

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.rank)

    @property
    def before(self) -> Floats:
        """Time before one occurrence in ns: computation, and what the call takes in files."""
        return self.work + self.files if len(self.files) else self.work

    def is_kind(self, kind: str) -> Bools:
        """Return which rows are of this kind."""
        codes = [code for code, name in enumerate(self.kinds) if name == kind]
        return np.isin(self.kind, codes)

    def is_op(self, *ops: str) -> Bools:
        """Return which rows are one of these MPI calls."""
        codes = [code for code, name in enumerate(self.ops) if name in ops]
        return np.isin(self.op, codes)


def read_scaled(scaled_dir: Path) -> ScaledTrace:
    """Read ``scaled.json``, ``comms.json`` and every ``part-*.parquet`` of a directory.

    Raises P3SError, in one line, when something is missing or damaged.
    """
    import pyarrow as pa

    scaled_dir = Path(scaled_dir)
    head = scaled_head(scaled_dir)
    parts = parts_of(scaled_dir, head)
    try:
        facts = known_tables(head)
        once = time_column(parts)
        rule = _rule_columns(parts)
        spent = _file_column(parts)
        names: dict[str, type] = dict.fromkeys((*INT_COLUMNS, *rule), int)
        names |= dict.fromkeys((once, *spent), float)
        names |= dict.fromkeys(("op", "kind", "verdict"), str)
        tables = [read_table(part, names, facts) for part in parts]
        table = pa.concat_tables(tables, promote_options="permissive")
        table = table.select(list(names)).unify_dictionaries()
        columns = {
            name: numbers(table.column(name)).astype(np.int64, casting="safe")
            for name in (*INT_COLUMNS, *rule)
        }
        work = numbers(table.column(once)).astype(np.float64)
        files = [numbers(table.column(name)).astype(np.float64) for name in spent]
        op, ops = codes(table.column("op"))
        kind, kinds = codes(table.column("kind"))
        verdict, verdicts = codes(table.column("verdict"))
        sums = sums_of_rows(columns["repeat"], columns["bytes"], work)
        check_sums({once if name == "work" else name: v for name, v in sums.items()}, facts)
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as err:
        why = " ".join(str(err).split())[:120]
        raise P3SError(f"{scaled_dir}: damaged ({why}); run p3s scale again") from err
    n = int(head["n"])
    weights = {int(phase["phase"]): float(phase["weight"]) for phase in head["phases"]}
    members = read_members(scaled_dir)
    phases = {int(phase["phase"]): str(phase.get("name", "")) for phase in head["phases"]}
    unknown = [code for code, name in enumerate(verdicts) if name == "unknown"]
    trace = build(
        n, columns, work, op, ops, kind, kinds, ~np.isin(verdict, unknown), members, weights, phases
    )
    if files:
        trace = replace(trace, files=files[0][trace.place])
    trace = replace(trace, packed=packed_calls(head))
    _check(scaled_dir, trace)
    return trace


def whole_table(scaled_dir: Path) -> pa.Table:
    """Return all rows with all their columns as they are in the files; P3SError where damaged."""
    import pyarrow as pa

    read_scaled(scaled_dir)  # what it says is checked as for a prediction
    head = scaled_head(scaled_dir)
    try:
        facts = known_tables(head)
        tables = [
            open_table(part, facts).read(use_threads=False) for part in parts_of(scaled_dir, head)
        ]
        return pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowException, OSError, ValueError) as err:
        why = " ".join(str(err).split())[:120]
        raise P3SError(f"{scaled_dir}: damaged ({why}); run p3s scale again") from err


def read_order(scaled_dir: Path) -> TraceOrder:
    """Read ``order.json`` of a directory; raises P3SError, in one line, where it is damaged."""
    from p3s.model.stage import check_loops

    path = Path(scaled_dir) / "order.json"
    order = ORDER.read(path)
    try:
        check_loops(order.loops or (), order.items)
        coordinates = order.coordinates
        if coordinates is not None and [len(c) for c in coordinates] != [order.n] * len(order.grid):
            raise ValueError("the coordinates are not those of all ranks")
    except (P3SError, ValueError, TypeError) as err:
        raise unusable(path, err, "run p3s scale again") from err
    return order


def time_column(parts: Sequence[Path]) -> str:
    """Return the column with the time before one occurrence: compute_ns, work in older traces."""
    return "compute_ns" if all("compute_ns" in columns_of(part) for part in parts) else "work"


def _file_column(parts: Sequence[Path]) -> list[str]:
    """Return the column with the time of one occurrence in files; none where no call uses any."""
    return ["io_ns"] if all("io_ns" in columns_of(part) for part in parts) else []


def _rule_columns(parts: Sequence[Path]) -> list[str]:
    """Return which of RULE_COLUMNS all parts have."""
    schemas = [columns_of(part) for part in parts]
    return [name for name in RULE_COLUMNS if all(name in schema for schema in schemas)]


def build(
    n: int,
    columns: Mapping[str, Ints],
    work: Floats,
    op: Ints,
    ops: tuple[str, ...],
    kind: Ints,
    kinds: tuple[str, ...],
    is_known: Bools,
    members: Mapping[int, Ints],
    weights: Mapping[int, float],
    names: Mapping[int, str] | None = None,
) -> ScaledTrace:
    """Put columns in the order of rank, phase and index; those of RULE_COLUMNS may be absent."""
    order = np.lexsort((columns["index"], columns["phase"], columns["rank"]))
    zeros = np.zeros(len(order), dtype=np.int64)
    ints: dict[str, Any] = {name: columns[name][order] for name in INT_COLUMNS}
    rules: dict[str, Any] = {name: columns.get(name, zeros)[order] for name in RULE_COLUMNS}
    return ScaledTrace(
        n=n,
        **ints,
        work=work[order],
        known=is_known[order],
        op=op[order],
        kind=kind[order],
        ops=ops,
        kinds=kinds,
        members=members,
        weights=weights,
        **rules,
        place=order,
        names=names or {},
        files=np.zeros(0),
    )


def packed_calls(head: Mapping[str, Any]) -> tuple[PackedCall, ...]:
    """Return which rows of a trace have datatypes with gaps, from scaled.json."""
    return tuple(from_data(PackedCall, row) for row in head.get("packed") or ())


def _runs(runs: Sequence[Sequence[int]]) -> Ints:
    """Return the numbers of runs [start, step, number]."""
    parts = [int(start) + int(step) * np.arange(int(k)) for start, step, k in runs]
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts]).astype(np.int64)


def scaled_head(scaled_dir: Path) -> dict[str, Any]:
    """Return scaled.json, its form checked; raises P3SError in one line where it is damaged.

    What is returned is not to be changed.
    """
    return _last_head(Path(scaled_dir) / "scaled.json")


def _read_head(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = to_data(SCALED.read(path))
    return content


_last_head = LastRead(_read_head, files=16)


def parts_of(scaled_dir: Path, head: Mapping[str, Any]) -> list[Path]:
    """Return the tables of a scaled trace; P3SError where one that the head knows is missing."""
    parts = sorted(Path(scaled_dir).glob("part-*.parquet"))
    if not parts:
        raise P3SError(f"{scaled_dir}: holds no part-*.parquet; run p3s scale again")
    try:
        check_names(parts, known_tables(head))
    except ValueError as err:
        raise P3SError(f"{scaled_dir}: damaged ({err}); run p3s scale again") from err
    return parts


def read_members(scaled_dir: Path) -> dict[int, Ints]:
    """Return the world ranks in every communicator of comms.json.

    Raises P3SError where it is damaged, or asks for too much memory.
    """
    path = Path(scaled_dir) / "comms.json"
    comms = COMMS.read(path)
    room = 8 * sum(one.entries for one in comms.comms)
    if room > ROOM + TIMES_ITS_SIZE * path.stat().st_size:
        raise DamagedFile(f"{path}: damaged (it asks for {room:,} bytes); run p3s scale again")
    members: dict[int, Ints] = {}
    for one in comms.comms:
        if one.number is not None:  # several that are shifts of each other
            offsets = _runs(one.offsets or ())
            for k, first in enumerate(_runs(one.firsts or ()).tolist()):
                members[one.id + k] = first + offsets
        elif one.members is not None:
            members[one.id] = np.asarray(one.members, dtype=np.int64)
        else:
            first = one.first or 0
            members[one.id] = np.arange(first, first + (one.size or 0), dtype=np.int64)
    return members


def _check(scaled_dir: Path, trace: ScaledTrace) -> None:
    """Raise P3SError when a number is outside of what it can be."""
    n = trace.n
    problem = None
    if n < 1:
        problem = f"n is {n}"
    elif trace.rows and (trace.rank.min() < 0 or trace.rank.max() >= n):
        problem = f"a rank is not in 0..{n - 1}"
    elif trace.rows and trace.peer.max() >= n:
        problem = f"a peer is not in 0..{n - 1}"
    elif trace.rows and (trace.bytes.min() < 0 or trace.repeat.min() < 0):
        problem = "bytes or repeat is negative"
    elif not np.isfinite(trace.files).all() or (trace.files < 0).any():
        problem = "the time of files is negative or no number"
    elif not np.isfinite(trace.work).all() or (trace.work < 0).any():
        problem = "work is negative or no number"
    else:
        for comm, ranks in trace.members.items():
            if len(ranks) and (ranks.min() < 0 or ranks.max() >= n):
                problem = f"a member of communicator {comm} is not in 0..{n - 1}"
    if problem is not None:
        raise P3SError(f"{scaled_dir}: damaged: {problem}; run p3s scale again")
