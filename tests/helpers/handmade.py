"""Hand-made artefacts that obey the schemas, for tests that need no other stage."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import models
import pyarrow as pa
import pyarrow.parquet as pq

from p3s.base.serialise import to_data
from p3s.base.study import REPLAY_VERSION, SCHEMA_VERSION, Study, write_json
from p3s.base.tables import TABLES, facts_of, parquet_bytes
from p3s.model.stage import as_file


def put_model(study: Study, **changes: Any) -> None:
    """Write a model without a hold-out; ``changes``: other values of its fields."""
    model = replace(models.built("ring"), holdout=None)
    write_json(study.model_path, as_file(replace(model, **changes)))


def put_scaled(
    study: Study,
    n: int,
    rows: list[tuple[Any, ...]],
    phases: list[dict[str, Any]],
    parts: int = 1,
    **head: Any,
) -> None:
    """Write a scaled trace from (rank, phase, repeat, work[, op]) rows."""
    folder = study.scaled_dir(n)
    folder.mkdir(parents=True)
    for part in range(parts):
        some = rows[part::parts]
        count = len(some)
        table = pa.table(
            {
                "rank": pa.array([r[0] for r in some], pa.int32()),
                "phase": pa.array([r[1] for r in some], pa.int32()),
                "index": pa.array(range(count), pa.int32()),
                "op": [r[4] if len(r) > 4 else "MPI_Send" for r in some],
                "repeat": pa.array([r[2] for r in some], pa.int64()),
                "work": pa.array([r[3] for r in some], pa.float64()),
                "work_unit": ["cpu_ns"] * count,
            }
        )
        path = folder / f"part-{part:05d}.parquet"
        pq.write_table(table, path)
    share = {"exact": {"events": 9, "bytes": 9, "work": 9.0}}
    write_json(
        study.scaled_path(n),
        {
            "schema": "p3s.scaled",
            "schema_version": SCHEMA_VERSION,
            "n": n,
            "work_unit": "cpu_ns",
            "phases": phases,
            "share": share,
            **head,
        },
    )


def put_replay(
    study: Study, n: int, rows: list[tuple[int, int, float, float, float]], **more: Any
) -> None:
    """Write a replay from (rank, phase, comm, low, high) rows in ns, all of it transfer."""
    study.replay_path(n).parent.mkdir(exist_ok=True)
    names = ("rank", "phase", "comm_ns", "comm_low_ns", "comm_high_ns")
    columns = list(zip(*rows, strict=True)) or [[]] * 5
    types = (pa.int32(), pa.int32(), pa.float64(), pa.float64(), pa.float64())
    table = {k: pa.array(v, t) for k, v, t in zip(names, columns, types, strict=True)}
    nothing = pa.array([0.0] * len(rows), pa.float64())
    table.update(
        waiting_ns=nothing,
        transfer_ns=table["comm_ns"],
        software_ns=nothing,
        thesis_ns=table["comm_ns"],
    )
    data = parquet_bytes(pa.table(table))
    study.replay_table(n).write_bytes(data)
    write_json(
        study.replay_path(n),
        {
            "schema": "p3s.replay",
            "schema_version": REPLAY_VERSION,
            "n": n,
            "representative": True,
            "why_not_representative": None,
            "unmeasured": [],
            TABLES: to_data({study.replay_table(n).name: facts_of(data, len(rows))}),
            **more,
        },
    )


def phase(number: int, weight: int = 10, width: float | None = 0.1) -> dict[str, Any]:
    entry: dict[str, Any] = {"phase": number, "name": f"phase {number}", "weight": weight}
    if width is not None:
        entry["work_rel_half_width"] = width
    return entry
