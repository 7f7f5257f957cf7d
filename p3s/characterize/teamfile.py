"""The file of what threads did at one process count: signature/npNNNN.teams.parquet."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from p3s.artefacts import parse_json
from p3s.characterize.teams import COLUMNS, Teams
from p3s.errors import Damaged

if TYPE_CHECKING:
    from p3s.characterize.part import Part
    from p3s.study import Study

_META, _VERSION = b"p3s.teams", 1


def teams_path(study: Study, n: int) -> Path:
    """Return where the file is: signature/np0008.teams.parquet."""
    return study.signature_path(n).with_suffix(".teams.parquet")


def write_teams(study: Study, n: int, parts: Sequence[Part]) -> None:
    """Write what threads did in the run of least work; none there where no run had any."""
    import pyarrow as pa

    from p3s.study import write_bytes
    from p3s.tables import parquet_bytes

    path = teams_path(study, n)
    able = [part for part in parts if len(part.teams)]
    if not able:
        path.unlink(missing_ok=True)
        return
    part = min(able, key=lambda part: int(part.segments[:, 4].sum()))
    table = pa.table({name: part.teams[:, k] for k, name in enumerate(COLUMNS)})
    head = {"version": _VERSION, "np": n, "nodes": [list(node) for node in part.nodes]}
    head["inside"] = part.inside / max(part.events, 1)
    write_bytes(path, parquet_bytes(table.replace_schema_metadata({_META: json.dumps(head)})))


def load_teams(root: Path, n: int) -> Teams | None:
    """Return what threads did at a count, None where no run had any; P3SError where damaged."""
    import io

    import pyarrow as pa
    import pyarrow.parquet as pq

    from p3s.study import Study

    path = teams_path(Study(Path(root)), n)
    if not path.exists():
        return None
    try:
        table = pq.read_table(io.BytesIO(path.read_bytes()), page_checksum_verification=True)
        head = parse_json((table.schema.metadata or {})[_META])
        if head["version"] != _VERSION or head["np"] != n:
            raise ValueError("of another version or count")
        nodes = tuple((str(site), str(op)) for site, op in head["nodes"])
        values = np.stack([table.column(name).to_numpy() for name in COLUMNS], axis=1)
        if len(values) and not 0 <= values[:, 1].min() <= values[:, 1].max() < len(nodes):
            raise ValueError("a row is of no place")
    except (OSError, KeyError, TypeError, ValueError, pa.ArrowException) as err:
        why = (str(err).splitlines() or [type(err).__name__])[0][:100]
        raise Damaged(f"{path}: damaged ({why}); run p3s characterize again") from err
    return Teams(nodes, values[:, 0], values[:, 1], values[:, 2:], float(head.get("inside", 0.0)))
