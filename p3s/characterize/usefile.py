"""The file of what was done to files at one process count: signature/npNNNN.files.parquet."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from p3s.artefacts import parse_json
from p3s.characterize.fileuse import COLUMNS, FileUse
from p3s.errors import Damaged

if TYPE_CHECKING:
    from p3s.characterize.part import Part
    from p3s.study import Study

_META, _VERSION = b"p3s.files", 2
_ELAPSED = COLUMNS.index("elapsed_ns")


def uses_path(study: Study, n: int) -> Path:
    """Return where the file is: signature/np0008.files.parquet."""
    return study.signature_path(n).with_suffix(".files.parquet")


def write_uses(study: Study, n: int, parts: Sequence[Part]) -> None:
    """Write what was done to files in the run whose time in it is the median of the repeats."""
    import pyarrow as pa

    from p3s.study import write_bytes
    from p3s.tables import parquet_bytes

    path = uses_path(study, n)
    able = sorted(
        (part for part in parts if len(part.files)), key=lambda p: int(p.files[:, _ELAPSED].sum())
    )
    if not able:
        path.unlink(missing_ok=True)
        return
    part = able[(len(able) - 1) // 2]
    table = pa.table({name: part.files[:, k] for k, name in enumerate(COLUMNS)})
    head = {"version": _VERSION, "np": n, "nodes": [list(node) for node in part.nodes]}
    write_bytes(path, parquet_bytes(table.replace_schema_metadata({_META: json.dumps(head)})))


def load_uses(root: Path, n: int) -> FileUse | None:
    """Return what was done to files at a count, None where nothing was; P3SError where damaged."""
    import io

    import pyarrow as pa
    import pyarrow.parquet as pq

    from p3s.study import Study

    path = uses_path(Study(Path(root)), n)
    if not path.exists():
        return None
    try:
        table = pq.read_table(io.BytesIO(path.read_bytes()), page_checksum_verification=True)
        head = parse_json((table.schema.metadata or {})[_META])
        if head["version"] == 1:  # opening was not looked at
            table = table.append_column("truncates", pa.array([0] * len(table), pa.int64()))
        elif head["version"] != _VERSION:
            raise ValueError("of another version")
        if head["np"] != n:
            raise ValueError("of another count")
        nodes = tuple((str(site), str(op)) for site, op in head["nodes"])
        values = np.stack([table.column(name).to_numpy() for name in COLUMNS], axis=1)
        if len(values) and not 0 <= values[:, 1].min() <= values[:, 1].max() < len(nodes):
            raise ValueError("a row is of no place")
    except (OSError, KeyError, TypeError, ValueError, pa.ArrowException) as err:
        why = (str(err).splitlines() or [type(err).__name__])[0][:100]
        raise Damaged(f"{path}: damaged ({why}); run p3s characterize again") from err
    return FileUse(nodes, values[:, 0], values[:, 1], values[:, 2:])
