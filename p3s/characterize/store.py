"""The Parquet tables of a signature: written, and read back as a PointTable."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from p3s.characterize import segments
from p3s.characterize.events import compact, distinct
from p3s.characterize.tables import Group, Place, PointTable
from p3s.errors import P3SError
from p3s.text import processes

if TYPE_CHECKING:
    pass


SCHEMA = "p3s.signature"
#: Version 3 has transitions between places in the program, and the tree; 4 the order of events.
VERSION = 4
_CALL_COLUMNS = ("rank", "group", "nbytes", "elem_bytes", "count", "work", "elapsed_ns", "first")
_SEGMENT_COLUMNS = segments.COLUMNS
_EDGE_COLUMNS = ("rank", "from_node", "to_node", "count", "first")


def _unpacked(data: Mapping[str, Any]) -> tuple[int, ...]:
    if "ranks" in data:
        return tuple(int(r) for r in data["ranks"])
    return tuple(range(int(data["first"]), int(data["first"]) + int(data["size"])))


def write_tables(t: PointTable, json_path: Path) -> None:
    import pyarrow as pa

    from p3s.study import write_bytes

    calls = pa.table({c: getattr(t, c) for c in _CALL_COLUMNS})
    edges = pa.table({c: t.edges[:, i] for i, c in enumerate(_EDGE_COLUMNS)})
    between = pa.table({c: t.segments[:, i] for i, c in enumerate(_SEGMENT_COLUMNS)})
    samples = pa.table(
        {
            "rank": np.array(list(t.samples), dtype=np.int64),
            "nodes": pa.array(list(t.samples.values()), pa.list_(pa.int32())),
        }
    )
    shared = distinct(t.sequences)
    events = pa.table(
        {
            "ranks": pa.array([ranks for ranks, _ in shared], pa.list_(pa.int32())),
            "events": pa.array([codes for _, codes in shared], pa.list_(pa.int32())),
        }
    )
    for table, path in (
        (calls, json_path.with_suffix(".parquet")),
        (edges, json_path.with_suffix(".edges.parquet")),
        (events, json_path.with_suffix(".events.parquet")),
        (between, json_path.with_suffix(".segments.parquet")),
        (samples, json_path.with_suffix(".samples.parquet")),
    ):
        write_bytes(path, parquet_bytes(table))


def parquet_bytes(table: Any) -> bytes:
    """Return a table as a Parquet file with checksums."""
    import io

    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
    return sink.getvalue()


def load_table(study_dir: Path, np_: int) -> PointTable:
    """Return the PointTable of one count from its signature files."""
    import pyarrow.parquet as pq

    from p3s.study import Study, read_json

    path = Study.open(Path(study_dir)).signature_path(np_)
    data = read_json(path, SCHEMA, VERSION)
    try:
        calls = pq.read_table(path.with_suffix(".parquet"), page_checksum_verification=True)
        edges = pq.read_table(path.with_suffix(".edges.parquet"), page_checksum_verification=True)
        kept = pq.read_table(path.with_suffix(".samples.parquet"), page_checksum_verification=True)
        samples = {
            rank: part.values.to_numpy()
            for rank, part in zip(
                kept.column("rank").to_pylist(), kept.column("nodes"), strict=True
            )
        }
        sequences = _read_sequences(path.with_suffix(".events.parquet"))
        cols = {c: calls.column(c).to_numpy() for c in _CALL_COLUMNS}
        rows = np.stack([edges.column(c).to_numpy() for c in _EDGE_COLUMNS], axis=1)
        between = _read_segments(path.with_suffix(".segments.parquet"))
        groups = tuple(Group(*g) for g in data["groups"])
        places = tuple(
            Place(
                _unpacked(p["members"]),
                p["ordinal"],
                p["op"],
                tuple(p["dims"]) if p["dims"] else None,
                tuple(p["periods"]) if p["periods"] else None,
            )
            for p in data["places"]
        )
    except (OSError, KeyError, TypeError, ValueError) as err:
        raise P3SError(
            f"{path}: the signature of {processes(np_)} is damaged "
            f"({str(err).splitlines()[0][:100]}); run `p3s characterize` again"
        ) from err
    return PointTable(
        np=data["np"],
        groups=groups,
        places=places,
        sites={k: tuple(v) for k, v in data["sites"].items()},
        **cols,
        nodes=tuple((site, op) for site, op in data["nodes"]),
        edges=rows,
        samples=samples,
        events=data["events"],
        null_events=data["null_events"],
        failed_polls=data["failed_polls"],
        repeats=data["repeats"],
        varying=tuple(data["varying"]),
        unmodelled=data["unmodelled"],
        wall_ns=data["wall_ns"],
        work_unit=data["work_unit"],
        tracing=data.get("tracing", {}),
        buffers=data.get("buffers", {}),
        pieces=data.get("pieces", {}),
        sequences=sequences,
        segments=between,
        moved=tuple(data.get("moved", data["varying"])),
        recounted=tuple(data.get("recounted", data["varying"])),
        same=dict(data.get("same", {})),
        waits=dict(data.get("waits", {})),
        lines=dict(data.get("lines", {})),
    )


def _read_sequences(path: Path) -> dict[int, np.ndarray]:
    """Return rank -> codes; ranks that share a sequence share the array."""
    import pyarrow.parquet as pq

    table = pq.read_table(path, page_checksum_verification=True)
    out = {}
    for ranks, codes in zip(table.column("ranks").to_pylist(), table.column("events"), strict=True):
        values = compact(codes.values.to_numpy())
        out.update(dict.fromkeys(ranks, values))
    return dict(sorted(out.items()))


def _read_segments(path: Path) -> np.ndarray:
    """Return the segments of one count; none where the signature is older than they are."""
    import pyarrow.parquet as pq

    if not path.exists():
        return segments.none()
    table = pq.read_table(path, page_checksum_verification=True)
    return np.stack([table.column(c).to_numpy() for c in _SEGMENT_COLUMNS], axis=1)
