"""Tables beside a signature whose head is in their own metadata: rows at places of the program.

npNNNN.teams.parquet has what threads did, npNNNN.files.parquet what was done to files.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from p3s.base.artefacts import digest_of, parse_json
from p3s.base.errors import DamagedFile
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
from p3s.signature.segments import AtPlaces
from p3s.signature.teams import Teams

if TYPE_CHECKING:
    from p3s.signature.part import Part

T = TypeVar("T", bound=AtPlaces)


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
class Form(Generic[T]):
    """A kind of such tables: its name, record, columns (rank, node, ...), which are summed up.

    The name is that of the rows in Part, in the key of the head and in that of the file. added:
    columns that those of earlier versions lack; 0 there.
    """

    name: str
    kind: type[T]
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

    def write(self, root: Path, n: int, part: Part | None, inside: float = 0.0) -> None:
        """Write the table of a run; without one, remove that of earlier runs."""
        path = self.path(root, n)
        if part is None:
            path.unlink(missing_ok=True)
            return
        rows = getattr(part, self.name)
        nodes = tuple((str(site), str(op)) for site, op in part.nodes)
        head = Head(n, nodes, self.version, inside)
        head = replace(head, table=self._facts(head, rows))
        columns = {name: rows[:, k] for k, name in enumerate(self.columns)}
        write_columns(path, columns, head={self.key: json.dumps(to_data(head))})

    def load(self, root: Path, n: int) -> T | None:
        """Return the table of a count, None where there is none; Damaged, one line, where it is."""
        import pyarrow as pa

        path = self.path(root, n)
        if not path.exists():
            return None
        try:
            head, rows = self._read_checked(path, n)
        except (OSError, KeyError, ValueError, ShapeError, pa.ArrowException) as err:
            why = (" ".join(str(err).split()) or type(err).__name__)[:100]
            raise DamagedFile(f"{path}: damaged ({why}); run p3s characterize again") from err
        return self.kind(head.nodes, rows[:, 0], rows[:, 1], rows[:, 2:], head.inside)

    def _read_checked(self, path: Path, n: int) -> tuple[Head, np.ndarray]:
        file = open_table(path, None)
        head = from_data(Head, parse_json((file.schema_arrow.metadata or {})[self.key]), more=True)
        if head.version > self.version or head.np != n:
            raise ValueError(f"it is of version {head.version} and {head.np} processes")
        lacks = self.added if head.version < self.version else ()
        stored = [name for name in self.columns if name not in lacks]
        table = checked_columns(
            file.read(stored, use_threads=False), dict.fromkeys(stored, int), path.name
        )
        rows = np.zeros((table.num_rows, len(self.columns)), dtype=np.int64)
        for name in stored:
            rows[:, self.columns.index(name)] = numbers(table.column(name))
        check_range(rows[:, 0], 0, n, "a rank")
        check_range(rows[:, 1], 0, len(head.nodes), "a place")
        check_range(rows[:, 2:], -1, 1 << 63, "a value")
        if head.table is not None:
            facts = self._facts(replace(head, table=None), rows)
            if (facts.rows, facts.digest) != (head.table.rows, head.table.digest):
                raise ValueError("its rows are not those that were written")
            check_sums(facts.sums, {path.name: head.table})
        return head, rows

    def _facts(self, head: Head, rows: np.ndarray) -> TableFacts:
        """Return number of rows, digest of rows and head, and sums of columns."""
        head_bytes = json.dumps(to_data(head), sort_keys=True).encode()
        digest = digest_of(head_bytes + b"\0" + np.ascontiguousarray(rows, dtype="<i8").tobytes())
        columns = {name: rows[:, self.columns.index(name)] for name in self.sums}
        sums = {name: float(column.sum(dtype=np.float64)) for name, column in columns.items()}
        return TableFacts(len(rows), digest, sums)


TEAMS = Form("teams", Teams, teams.COLUMNS, teams.SUMS)
#: Version 2 knows how files were opened.
FILES = Form("files", FileUse, fileuse.COLUMNS, fileuse.SUMS, version=2, added=("truncates",))
#: What threads did, and what was done to files, at a count: see Form.load.
load_teams, load_uses = TEAMS.load, FILES.load


def write_teams(root: Path, n: int, parts: Sequence[Part]) -> None:
    """Write what threads did in the run of least work; none there where no run had any."""
    able = [part for part in parts if len(part.teams)]
    part = min(able, key=lambda part: int(part.segments[:, 4].sum()), default=None)
    TEAMS.write(root, n, part, part.inside / max(part.events, 1) if part else 0.0)


def write_uses(root: Path, n: int, parts: Sequence[Part]) -> None:
    """Write what was done to files in the run whose time in it is the median of the repeats."""
    elapsed = FILES.columns.index("elapsed_ns")
    able = [part for part in parts if len(part.files)]
    able.sort(key=lambda part: int(part.files[:, elapsed].sum()))
    FILES.write(root, n, able[(len(able) - 1) // 2] if able else None)
