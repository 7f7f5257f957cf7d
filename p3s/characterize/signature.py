"""The signature of one process count: npNNNN.json (readable) and Parquet tables beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from p3s.characterize import clock, segments
from p3s.characterize.events import compact, distinct
from p3s.characterize.part import Part, join, part_of
from p3s.characterize.phases import phases_json
from p3s.characterize.structure import structure, total_turns, undecided
from p3s.characterize.tables import Group, Place, PointTable, table_of
from p3s.characterize.times import make_times, write_times
from p3s.characterize.unmodelled import unmodelled_calls
from p3s.errors import P3SError
from p3s.words import processes

if TYPE_CHECKING:
    from p3s.study import RunRecord

JoinRun = Callable[[Sequence[Path], Set[str]], Part]
SCHEMA = "p3s.signature"
#: Version 3 has transitions between places in the program, and the tree; 4 the order of events.
VERSION = 4
_CALL_COLUMNS = ("rank", "group", "nbytes", "elem_bytes", "count", "work", "elapsed_ns",
                 "first")
_SEGMENT_COLUMNS = segments.COLUMNS
_EDGE_COLUMNS = ("rank", "from_node", "to_node", "count", "first")


def characterize(study_dir: Path, np_: int, join_run: JoinRun | None = None) -> dict[str, Any]:
    """Write the signature of one process count from its complete runs; return its JSON.

    A run with a missing, unfinished or damaged rank file is not used; ``left_out`` in the JSON
    says what is wrong with it. join_run: how the files of a run become one Part (in this process
    if none is given). Raises P3SError when no intact run at that count is left.
    """
    from p3s.study import Study, write_json

    study = Study.open(Path(study_dir))
    join_run = join_run or join_files
    parts, walls, left_out, used = intact_runs(study.runs(np_), np_, join_run)
    if not parts:
        why = left_out[0] if left_out else f"{study_dir} has no complete run at {processes(np_)}"
        advice = " with a larger --limit" if "reached the limit" in why else ""
        raise P3SError(f"characterize: {why}; run `p3s characterize -n {np_}` again{advice}")
    table = table_of(parts, walls, str(study_dir))
    shared = undecided(structure([table]))
    if shared:  # where sites do not decide, what the calls do and their order does
        whole = parts
        parts, walls, left_out, used = intact_runs(study.runs(np_), np_, join_run, shared)
        apart = table_of(parts, walls, str(study_dir))
        if total_turns(structure([apart])) < total_turns(structure([table])):
            table = apart
        else:
            parts = whole
    out = {**signature_json(table), "left_out": left_out}
    path = study.signature_path(np_)
    _write_tables(table, path)
    write_json(path, out)
    if table.work_unit not in clock.TIMES and study.timed_runs(np_):
        make_times(study, np_, join_run)
    else:
        write_times(study, table, parts, used)
    return out


def join_files(files: Sequence[Path], shared: Set[str] = frozenset()) -> Part:
    """Return the ranks of a run, read one after the other, as one Part."""
    from p3s.trace import read_file

    return join(part_of(read_file(path, completions=False), shared) for path in files)


def intact_runs(records: Sequence[RunRecord], np_: int, join_run: JoinRun,
                shared: Set[str] = frozenset()
                ) -> tuple[list[Part], list[int | None], list[str], list[RunRecord]]:
    """Return the runs of one count all of whose ranks are complete, and why others are not.

    Their parts, their wall times, what is wrong with those left out, and their records.
    """
    from p3s.trace import run_files

    parts: list[Part] = []
    walls: list[int | None] = []
    left_out, used = [], []
    for record in records:
        if record.np != np_ or record.status != "complete":
            continue
        try:
            run = run_files(record.path)
            problem = run.problems[min(run.problems)] if run.problems else ""
            if run.np != np_:
                problem = f"{record.path} holds a run of {processes(run.np)}, not {np_}"
            part = join_run(list(run.files.values()), shared) if not problem else None
        except P3SError as err:
            left_out.append(_without_advice(str(err)))
            continue
        if part is not None:
            problem = part.problem
        if part is not None and part.counted_events and not problem:
            problem = (f"{record.path} reached the limit of its capture: {part.counted_events} "
                       "events were only counted")
        if problem or part is None:
            left_out.append(_without_advice(problem))
        else:
            parts.append(part)
            walls.append(run.wall_ns)
            used.append(record)
    return parts, walls, left_out, used


def _without_advice(problem: str) -> str:
    return problem.partition("; ")[0]


def signature_json(t: PointTable) -> dict[str, Any]:
    """Return the readable signature: groups, communicators, loop tree, accounted time."""
    found = phases_json(structure([t]))
    key = str(t.np)
    return {
        "schema": SCHEMA, "schema_version": VERSION, "np": t.np, "repeats": t.repeats,
        "events": t.events, "null_events": t.null_events, "failed_polls": t.failed_polls,
        "wall_ns": t.wall_ns, "work": int(t.work.sum()), "work_unit": t.work_unit,
        "communication_ns": int(t.elapsed_ns.sum()), "varying": list(t.varying),
        "moved": list(t.moved), "recounted": list(t.recounted),
        "unmodelled": t.unmodelled, "not_modelled": unmodelled_calls([t]),
        "tracing": t.tracing, "accounting": found["accounting"][key],
        "phases": found["phases"], "tree": found["tree"],
        "nodes": [list(node) for node in t.nodes],
        "groups": [[g.site, g.op, g.comm, g.peer, g.tag, g.root] for g in t.groups],
        "places": [{"members": _packed(p.members), "ordinal": p.ordinal, "op": p.op,
                    "dims": list(p.dims) if p.dims else None,
                    "periods": list(p.periods) if p.periods else None} for p in t.places],
        "sites": {k: list(v) for k, v in sorted(t.sites.items())},
    }


def _packed(members: tuple[int, ...]) -> dict[str, Any]:
    if members and members == tuple(range(members[0], members[0] + len(members))):
        return {"first": members[0], "size": len(members)}
    return {"ranks": list(members)}


def _unpacked(data: Mapping[str, Any]) -> tuple[int, ...]:
    if "ranks" in data:
        return tuple(int(r) for r in data["ranks"])
    return tuple(range(int(data["first"]), int(data["first"]) + int(data["size"])))


def _write_tables(t: PointTable, json_path: Path) -> None:
    import pyarrow as pa

    from p3s.study import write_bytes

    calls = pa.table({c: getattr(t, c) for c in _CALL_COLUMNS})
    edges = pa.table({c: t.edges[:, i] for i, c in enumerate(_EDGE_COLUMNS)})
    between = pa.table({c: t.segments[:, i] for i, c in enumerate(_SEGMENT_COLUMNS)})
    samples = pa.table({"rank": np.array(list(t.samples), dtype=np.int64),
                        "nodes": pa.array(list(t.samples.values()), pa.list_(pa.int32()))})
    shared = distinct(t.sequences)
    events = pa.table({"ranks": pa.array([ranks for ranks, _ in shared], pa.list_(pa.int32())),
                       "events": pa.array([codes for _, codes in shared],
                                          pa.list_(pa.int32()))})
    for table, path in ((calls, json_path.with_suffix(".parquet")),
                        (edges, json_path.with_suffix(".edges.parquet")),
                        (events, json_path.with_suffix(".events.parquet")),
                        (between, json_path.with_suffix(".segments.parquet")),
                        (samples, json_path.with_suffix(".samples.parquet"))):
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
        kept = pq.read_table(path.with_suffix(".samples.parquet"),
                             page_checksum_verification=True)
        samples = {rank: part.values.to_numpy()
                   for rank, part in zip(kept.column("rank").to_pylist(), kept.column("nodes"),
                                         strict=True)}
        sequences = _read_sequences(path.with_suffix(".events.parquet"))
        cols = {c: calls.column(c).to_numpy() for c in _CALL_COLUMNS}
        rows = np.stack([edges.column(c).to_numpy() for c in _EDGE_COLUMNS], axis=1)
        between = _read_segments(path.with_suffix(".segments.parquet"))
        groups = tuple(Group(*g) for g in data["groups"])
        places = tuple(Place(_unpacked(p["members"]), p["ordinal"], p["op"],
                             tuple(p["dims"]) if p["dims"] else None,
                             tuple(p["periods"]) if p["periods"] else None)
                       for p in data["places"])
    except (OSError, KeyError, TypeError, ValueError) as err:
        raise P3SError(f"{path}: the signature of {processes(np_)} is damaged "
                       f"({str(err).splitlines()[0][:100]}); run `p3s characterize` again") from err
    return PointTable(
        np=data["np"], groups=groups, places=places,
        sites={k: tuple(v) for k, v in data["sites"].items()},
        **cols, nodes=tuple((site, op) for site, op in data["nodes"]), edges=rows,
        samples=samples, events=data["events"], null_events=data["null_events"],
        failed_polls=data["failed_polls"], repeats=data["repeats"],
        varying=tuple(data["varying"]), unmodelled=data["unmodelled"], wall_ns=data["wall_ns"],
        work_unit=data["work_unit"], tracing=data.get("tracing", {}), sequences=sequences,
        segments=between, moved=tuple(data.get("moved", data["varying"])),
        recounted=tuple(data.get("recounted", data["varying"])))


def _read_sequences(path: Path) -> dict[int, np.ndarray]:
    """Return rank -> codes; ranks that share a sequence share the array."""
    import pyarrow.parquet as pq

    table = pq.read_table(path, page_checksum_verification=True)
    out = {}
    for ranks, codes in zip(table.column("ranks").to_pylist(), table.column("events"),
                            strict=True):
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
