"""Tables beside a signature whose head is in their own metadata: rows at places of the program.

npNNNN.teams.parquet has what threads did, npNNNN.files.parquet what was done to files.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from p3s.base.artefacts import digest_of, parse_json
from p3s.base.errors import Damaged
from p3s.base.records import signature_path
from p3s.base.serialise import Positive, ProcessCount, ShapeError, Share, from_data, to_data
from p3s.base.tables import (
    TableFacts,
    check_range,
    check_sums,
    checked_columns,
    numbers,
    open_table,
    write_columns,
)
from p3s.signature import fileuse, teams
from p3s.signature.fileuse import FileUse
from p3s.signature.teams import Teams

if TYPE_CHECKING:
    from p3s.signature.part import Part


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
    """A kind of such tables: its name, columns (rank, node, ...), which are summed up.

    The name is in the key of its head and in that of the file. added: columns that those of earlier
    versions lack; 0 there.
    """

    name: str
    columns: tuple[str, ...]
    sums: tuple[str, ...]
    version: int = 1
    added: tuple[str, ...] = ()

    @property
    def key(self) -> bytes:
        """The key of its head in the metadata of the file."""
        return f"p3s.{self.name}".encode()

    def path(self, root: Path, n: int) -> Path:
        """Return where the table of a count is: signature/np0008.files.parquet."""
        return signature_path(Path(root), n).with_suffix(f".{self.name}.parquet")


TEAMS = Form("teams", teams.COLUMNS, teams.SUMS)
#: Version 2 knows how files were opened.
FILES = Form("files", fileuse.COLUMNS, fileuse.SUMS, version=2, added=("truncates",))


def write_teams(root: Path, n: int, parts: Sequence[Part]) -> None:
    """Write what threads did in the run of least work; none there where no run had any."""
    able = [part for part in parts if len(part.teams)]
    part = min(able, key=lambda part: int(part.segments[:, 4].sum()), default=None)
    inside = part.inside / max(part.events, 1) if part else 0.0
    _write_of(root, n, TEAMS, part, inside)


def write_uses(root: Path, n: int, parts: Sequence[Part]) -> None:
    """Write what was done to files in the run whose time in it is the median of the repeats."""
    elapsed = FILES.columns.index("elapsed_ns")
    able = [part for part in parts if len(part.files)]
    able.sort(key=lambda part: int(part.files[:, elapsed].sum()))
    part = able[(len(able) - 1) // 2] if able else None
    _write_of(root, n, FILES, part)


def _write_of(root: Path, n: int, form: Form, part: Part | None, inside: float = 0.0) -> None:
    """Write a table of a run; without one, remove that of earlier runs."""
    path = form.path(root, n)
    if part is None:
        path.unlink(missing_ok=True)
        return
    nodes = tuple((str(site), str(op)) for site, op in part.nodes)
    write_rows(path, form, Head(n, nodes, inside=inside), getattr(part, form.name))


def load_teams(root: Path, n: int) -> Teams | None:
    """Return what threads did at a count, None where no run had any; P3SError where damaged."""
    found = read_rows(TEAMS.path(root, n), TEAMS, n)
    if found is None:
        return None
    head, rows = found
    return Teams(head.nodes, rows[:, 0], rows[:, 1], rows[:, 2:], head.inside)


def load_uses(root: Path, n: int) -> FileUse | None:
    """Return what was done to files at a count, None where nothing was; P3SError where damaged."""
    found = read_rows(FILES.path(root, n), FILES, n)
    if found is None:
        return None
    head, rows = found
    return FileUse(head.nodes, rows[:, 0], rows[:, 1], rows[:, 2:])


def write_rows(path: Path, form: Form, head: Head, rows: np.ndarray) -> None:
    """Write rows, int64 of shape (rows, columns), with their head."""
    head = replace(head, version=form.version)
    told = replace(head, table=TableFacts(len(rows), _digest(head, rows), _sums(form, rows)))
    columns = {name: rows[:, k] for k, name in enumerate(form.columns)}
    write_columns(path, columns, head={form.key: json.dumps(to_data(told))})


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
