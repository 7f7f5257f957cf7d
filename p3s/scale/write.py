"""Write scaled/npNNNNNN: part-*.parquet, comms.json, scaled.json (written last)."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from p3s.errors import P3SError
from p3s.model.evaluate import ScaledRows, generate, phase_weight
from p3s.model.stage import load
from p3s.model.workload import phase_half_widths

RANKS_PER_PART = 1024


def write_scaled(study_dir: Path, n: int) -> dict[str, Any]:
    """Write the scaled logical trace of ``n`` processes and return its head (scaled.json)."""
    from p3s.study import Study, write_json

    if n < 1:
        raise P3SError(f"scale: {n} processes cannot be; give a count of 1 or more")
    study = Study.open(Path(study_dir))
    model = load(study.root)
    rows = generate(model, n)
    target = study.scaled_dir(n)
    staged = study.stage_run(target)
    try:
        _write_parts(model, rows, staged)
        write_json(staged / "comms.json", _comms(rows))
        head = _head(model, rows)
        write_json(staged / "scaled.json", head)
        study.commit_run(staged, target)
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    return head


def _index_in_phase(rows: ScaledRows) -> np.ndarray:
    """Return each row's position inside its phase on its rank (rows are sorted by both)."""
    if not len(rows.rank):
        return np.zeros(0, dtype=np.int64)
    new = np.ones(len(rows.rank), dtype=bool)
    new[1:] = (rows.rank[1:] != rows.rank[:-1]) | (rows.phase[1:] != rows.phase[:-1])
    starts = np.flatnonzero(new)
    return np.arange(len(rows.rank)) - np.repeat(starts, np.diff([*starts, len(rows.rank)]))


def _write_parts(model: Mapping[str, Any], rows: ScaledRows, target: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    items = model["items"]
    slot_base = np.cumsum([0, *(len(it["slots"]) for it in items)])
    tags = np.array([it["tag"] if it["tag"] is not None else it["tag_value"] for it in items],
                    dtype=np.int64)
    kinds = [it["kind"] for it in items]
    index = _index_in_phase(rows)
    bounds = np.searchsorted(rows.rank, np.arange(0, rows.n + RANKS_PER_PART, RANKS_PER_PART))

    def labels(values: list[str], codes: np.ndarray) -> Any:
        return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()),
                                              pa.array(values, pa.string())).cast(pa.string())

    for k, (a, b) in enumerate(zip(bounds[:-1], bounds[1:], strict=True)):
        cut = slice(int(a), int(b))
        it = rows.item[cut]
        p2p = np.array([x in ("send", "recv") for x in kinds], dtype=bool)[it] \
            if len(items) else np.zeros(0, dtype=bool)
        table = pa.table({
            "rank": pa.array(rows.rank[cut], pa.int32()),
            "phase": pa.array(rows.phase[cut], pa.int32()),
            "index": pa.array(index[cut], pa.int32()),
            "op": labels([x["op"] for x in items], it),
            "kind": labels(kinds, it),
            "peer": pa.array(rows.peer[cut], pa.int32()),
            "bytes": pa.array(rows.nbytes[cut], pa.int64()),
            "comm": pa.array(rows.comm[cut], pa.int32()),
            "tag": pa.array(np.where(p2p, tags[it], -1), pa.int32()),
            "root": pa.array(rows.root[cut], pa.int32()),
            "repeat": pa.array(rows.repeat[cut], pa.int64()),
            "work": pa.array(rows.work[cut], pa.float64()),
            "work_unit": labels([model["work_unit"]], np.zeros(len(it), dtype=np.int64)),
            "slot": pa.array(slot_base[it] + rows.slot[cut], pa.int32()),
            "verdict": labels([x["verdict"] for x in items], it),
        })
        pq.write_table(table, target / f"part-{k:05d}.parquet", compression="zstd",
                       write_page_checksum=True)


def _comms(rows: ScaledRows) -> dict[str, Any]:
    comms: list[dict[str, Any]] = []
    for i, members in enumerate(rows.members):
        if members == tuple(range(members[0], members[0] + len(members))) and len(members) > 64:
            comms.append({"id": i, "first": members[0], "size": len(members)})
        else:
            comms.append({"id": i, "members": list(members)})
    return {"schema": "p3s.comms", "schema_version": 1, "comms": comms}


def _head(model: Mapping[str, Any], rows: ScaledRows) -> dict[str, Any]:
    n_phases = len(model["phases"])
    work = np.bincount(rows.phase, weights=rows.work * rows.repeat, minlength=n_phases)
    half = phase_half_widths(model, rows.grid, {
        name: getattr(rows, name) for name in ("rank", "item", "nbytes", "repeat")})
    phases = []
    for p in model["phases"]:
        k = p["phase"]
        mine = rows.phase == k
        per_rank = float(mine.sum()) / rows.n
        phases.append({
            "phase": k, "name": p["name"], "depth": p["depth"], "parent": p["parent"],
            "weight": phase_weight(p, rows.grid), "events_per_iteration": per_rank,
            "work": float(work[k]),
            "work_rel_half_width": float(half[k] / work[k]) if work[k] else 0.0})
    verdicts = [it["verdict"] for it in model["items"]]
    share: dict[str, dict[str, float]] = {}
    totals = {"events": float(rows.repeat.sum()),
              "bytes": float((rows.repeat * rows.nbytes).sum()),
              "work": float((rows.repeat * rows.work).sum())}
    names = np.array(verdicts)[rows.item] if len(rows.item) else np.zeros(0, dtype=str)
    for verdict in sorted(set(verdicts)):
        m = names == verdict
        got = {"events": float(rows.repeat[m].sum()),
               "bytes": float((rows.repeat * rows.nbytes)[m].sum()),
               "work": float((rows.repeat * rows.work)[m].sum())}
        share[verdict] = {k: got[k] / totals[k] if totals[k] else 0.0 for k in got}
    return {
        "schema": "p3s.scaled", "schema_version": 1, "n": rows.n,
        "work_unit": model["work_unit"], "work_units": model.get("work_units", {}),
        "grid": list(rows.grid.dims),
        "grid_rule": model["grid"]["text"], "rows": len(rows.rank),
        "counts": model["counts"], "extrapolation": rows.n / max(model["counts"]),
        "first_seen": model["first_seen"], "unmodelled_ops": model["unmodelled_ops"],
        "not_modelled": model.get("not_modelled", []), "tracing": model.get("tracing", {}),
        "phases": phases, "share": share,
        "traced_share": model["shares"],
        "unknown": [{"op": it["op"], "site": it["site"], "why": it["why"]}
                    for it in model["items"] if it["verdict"] == "unknown"]}
