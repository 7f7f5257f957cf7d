"""The signature of one process count: npNNNN.json (readable) and Parquet tables beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from p3s.characterize.fold import Loop, fold
from p3s.characterize.tables import Group, Place, PointTable, point_table
from p3s.characterize.unmodelled import unmodelled_calls
from p3s.errors import P3SError
from p3s.trace.ops import RECV, SEND

if TYPE_CHECKING:
    from p3s.study import Study
    from p3s.trace import RunTrace

SCHEMA = "p3s.signature"
#: Version 2 has the unit of work; the captures of version 1 cannot be read any more either.
VERSION = 2
_CALL_COLUMNS = ("rank", "group", "nbytes", "elem_bytes", "count", "work", "elapsed_ns",
                 "first")
_EDGE_COLUMNS = ("rank", "from_group", "to_group", "count")


def characterize(study_dir: Path, np_: int) -> dict[str, Any]:
    """Write the signature of one process count from its complete runs; return its JSON.

    A run with a missing, unfinished or damaged rank file is not used; ``left_out`` in the JSON
    says what is wrong with it. Raises P3SError when no intact run at that count is left.
    """
    from p3s.study import Study, write_json

    study = Study.open(Path(study_dir))
    runs, left_out = _intact_runs(study, np_)
    if not runs:
        why = left_out[0] if left_out else f"{study_dir} has no complete run at {np_} processes"
        advice = " with a larger --limit" if "reached the limit" in why else ""
        raise P3SError(f"characterize: {why}; run `p3s characterize -n {np_}` again{advice}")
    table = point_table(runs)
    out = {**signature_json(table), "left_out": left_out}
    path = study.signature_path(np_)
    _write_tables(table, path)
    write_json(path, out)
    return out


def _intact_runs(study: Study, np_: int) -> tuple[list[RunTrace], list[str]]:
    """Return the runs of one count all of whose ranks are complete, and why others are not."""
    from p3s.trace import read_run

    runs, left_out = [], []
    for record in study.runs():
        if record.np != np_ or record.status != "complete":
            continue
        try:
            run = read_run(record.path)
        except P3SError as err:
            left_out.append(_without_advice(str(err)))
            continue
        problem = run.problem
        if run.counted_events and not problem:
            problem = (f"{record.path} reached the limit of its capture: {run.counted_events} "
                       "events were only counted")
        if run.np != np_:
            problem = f"{record.path} holds a run of {run.np} processes, not {np_}"
        if problem:
            left_out.append(_without_advice(problem))
        else:
            runs.append(run)
    return runs, left_out


def _without_advice(problem: str) -> str:
    return problem.partition("; ")[0]


def signature_json(t: PointTable) -> dict[str, Any]:
    """Return the readable signature: groups, communicators, loop tree, accounted time."""
    tree = _own_tree(t)
    total = float((t.work + t.elapsed_ns).sum())
    return {
        "schema": SCHEMA, "schema_version": VERSION, "np": t.np, "repeats": t.repeats,
        "events": t.events, "null_events": t.null_events, "failed_polls": t.failed_polls,
        "wall_ns": t.wall_ns, "work": int(t.work.sum()), "work_unit": t.work_unit,
        "communication_ns": int(t.elapsed_ns.sum()), "varying": list(t.varying),
        "unmodelled": t.unmodelled, "not_modelled": unmodelled_calls([t]),
        "tracing": t.tracing,
        "phases": _phases(t, tree, max(total, 1.0)),
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


def _own_nodes(t: PointTable) -> tuple[list[tuple[str, str, int]], np.ndarray]:
    """Return the nodes (site, op, partner offset) of one count and each (rank, group)'s node."""
    numbers: dict[tuple[str, str, int], int] = {}
    of = np.full((t.np, len(t.groups)), -1, dtype=np.int64)
    for r, gi in np.unique(np.stack([t.rank, t.group], axis=1), axis=0):
        g = t.groups[gi]
        offset = (g.peer - int(r)) % t.np if g.kind in (SEND, RECV) and g.peer >= 0 else 0
        of[r, gi] = numbers.setdefault((g.site, g.op, offset), len(numbers))
    return list(numbers), of


def _own_tree(t: PointTable) -> Loop:
    """Fold one count by itself; partners are told apart by their distance in ranks."""
    nodes, of = _own_nodes(t)
    members: dict[Any, dict[tuple[int, int], int]] = {}
    for rank, a, b, k in t.edges:
        u = int(of[rank, a]) if a >= 0 else int(a)
        v = int(of[rank, b]) if b >= 0 else int(b)
        edges = members.setdefault(int(rank), {})
        edges[(u, v)] = edges.get((u, v), 0) + int(k)
    place: dict[int, list[int]] = {}
    for r, gi, first in zip(t.rank, t.group, t.first, strict=True):
        place.setdefault(int(of[r, gi]), []).append(int(first))
    return fold(members, {i: float(np.mean(v)) for i, v in place.items()})


def _phases(t: PointTable, tree: Loop, total: float) -> list[dict[str, Any]]:
    nodes, of = _own_nodes(t)
    node_time = np.zeros(len(nodes))
    np.add.at(node_time, of[t.rank, t.group], t.work + t.elapsed_ns)
    node_events = np.zeros(len(nodes), dtype=np.int64)
    np.add.at(node_events, of[t.rank, t.group], t.count)
    out = []
    for k, loop in enumerate(tree.loops()):
        own = loop.own_nodes()
        out.append({
            "phase": k, "weight": max(loop.turns.values(), default=0),
            "weight_min": min(loop.turns.values(), default=0),
            "share_of_time": float(node_time[own].sum() / total),
            "events": int(node_events[own].sum()),
            "operations": [nodes[i][1] for i in own],
        })
    return out


def _write_tables(t: PointTable, json_path: Path) -> None:
    import pyarrow as pa

    from p3s.study import write_bytes

    calls = pa.table({c: getattr(t, c) for c in _CALL_COLUMNS})
    edges = pa.table({c: t.edges[:, i] for i, c in enumerate(_EDGE_COLUMNS)})
    for table, path in ((calls, json_path.with_suffix(".parquet")),
                        (edges, json_path.with_suffix(".edges.parquet"))):
        write_bytes(path, _parquet_bytes(table))


def _parquet_bytes(table: Any) -> bytes:
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
        cols = {c: calls.column(c).to_numpy() for c in _CALL_COLUMNS}
        rows = np.stack([edges.column(c).to_numpy() for c in _EDGE_COLUMNS], axis=1)
        groups = tuple(Group(*g) for g in data["groups"])
        places = tuple(Place(_unpacked(p["members"]), p["ordinal"], p["op"],
                             tuple(p["dims"]) if p["dims"] else None,
                             tuple(p["periods"]) if p["periods"] else None)
                       for p in data["places"])
    except (OSError, KeyError, TypeError, ValueError) as err:
        raise P3SError(f"{path}: the signature of {np_} processes is damaged "
                       f"({str(err).splitlines()[0][:100]}); run `p3s characterize` again") from err
    return PointTable(
        np=data["np"], groups=groups, places=places,
        sites={k: tuple(v) for k, v in data["sites"].items()},
        **cols, edges=rows, events=data["events"], null_events=data["null_events"],
        failed_polls=data["failed_polls"], repeats=data["repeats"],
        varying=tuple(data["varying"]), unmodelled=data["unmodelled"], wall_ns=data["wall_ns"],
        work_unit=data["work_unit"], tracing=data.get("tracing", {}))
