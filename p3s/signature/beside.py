"""Tables beside a signature whose head is in their own metadata: rows at places of the program."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from p3s.base.artefacts import digest_of, parse_json, write_bytes
from p3s.base.errors import Damaged
from p3s.base.serialise import Positive, ProcessCount, ShapeError, Share, from_data, to_data
from p3s.base.tables import (
    TableFacts,
    check_range,
    check_sums,
    checked_columns,
    numbers,
    open_table,
)


@dataclass(frozen=True)
class Head:
    """What such a table says of itself.

    nodes: (site, operation) by number; inside: share of the events that threads made in parallel
    regions; table: rows, digest of head and columns, sums of columns, None in earlier ones.
    """

    np: ProcessCount
    nodes: tuple[tuple[str, str], ...]
    version: Positive = field(default=1, metadata={"always": True})
    inside: Share = 0.0
    table: TableFacts | None = None


@dataclass(frozen=True)
class Form:
    """A kind of such tables: key of its head, columns (rank, node, ...), which are summed up.

    added: columns that those of earlier versions lack; 0 there.
    """

    key: bytes
    columns: tuple[str, ...]
    sums: tuple[str, ...]
    version: int = 1
    added: tuple[str, ...] = ()


def write_rows(path: Path, form: Form, head: Head, rows: np.ndarray) -> None:
    """Write rows, int64 of shape (rows, columns), with their head."""
    import pyarrow as pa

    from p3s.base.tables import column, parquet_bytes

    table = pa.table({name: column(rows[:, k]) for k, name in enumerate(form.columns)})
    head = replace(head, version=form.version)
    told = replace(head, table=TableFacts(len(rows), _digest(head, rows), _sums(form, rows)))
    meta = {form.key: json.dumps(to_data(told))}
    write_bytes(path, parquet_bytes(table.replace_schema_metadata(meta)))


def read_rows(path: Path, form: Form, n: int) -> tuple[Head, np.ndarray] | None:
    """Return head and rows of a table at n processes, None where there is none.

    Raises Damaged in one line.
    """
    import pyarrow as pa

    if not path.exists():
        return None
    try:
        return _checked(path, form, n)
    except (OSError, KeyError, ValueError, ShapeError, pa.ArrowException) as err:
        why = (" ".join(str(err).split()) or type(err).__name__)[:100]
        raise Damaged(f"{path}: damaged ({why}); run p3s characterize again") from err


def _checked(path: Path, form: Form, n: int) -> tuple[Head, np.ndarray]:
    file = open_table(path, None)
    head = from_data(Head, parse_json((file.schema_arrow.metadata or {})[form.key]), more=True)
    if head.version > form.version or head.np != n:
        raise ValueError(f"it is of version {head.version} and {head.np} processes")
    lacks = form.added if head.version < form.version else ()
    wanted = [name for name in form.columns if name not in lacks]
    table = checked_columns(
        file.read(wanted, use_threads=False), dict.fromkeys(wanted, int), path.name
    )
    rows = np.zeros((table.num_rows, len(form.columns)), dtype=np.int64)
    for name in wanted:
        rows[:, form.columns.index(name)] = numbers(table.column(name))
    check_range(rows[:, 0], 0, n, "a rank")
    check_range(rows[:, 1], 0, len(head.nodes), "a place")
    check_range(rows[:, 2:], -1, 1 << 63, "a value")
    if head.table is not None:
        known = {path.name: head.table}
        if head.table.rows != len(rows) or head.table.digest != _digest(head, rows):
            raise ValueError("its rows are not those that were written")
        check_sums(_sums(form, rows), known)
    return head, rows


def _digest(head: Head, rows: np.ndarray) -> str:
    """Return the digest of a head, without its facts, and of rows."""
    own = json.dumps(to_data(replace(head, table=None)), sort_keys=True).encode()
    return digest_of(own + b"\0" + np.ascontiguousarray(rows, dtype="<i8").tobytes())


def _sums(form: Form, rows: np.ndarray) -> dict[str, float]:
    """Return the sums of columns."""
    return {
        name: float(rows[:, form.columns.index(name)].sum(dtype=np.float64)) for name in form.sums
    }


def places_of(nodes: Sequence[Sequence[str]]) -> tuple[tuple[str, str], ...]:
    """Return places as a head has them."""
    return tuple((str(site), str(op)) for site, op in nodes)
