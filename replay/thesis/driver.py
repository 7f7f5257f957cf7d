"""From a scaled trace to measured communication: plan, launch, costs, result files."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from p3s.errors import P3SError
from p3s.study import SCHEMA_VERSION, write_bytes, write_json
from p3s.trace.ops import leaves_request
from replay.scaled import read_scaled
from replay.thesis.costs import (
    COMPOSED,
    INTERPOLATED,
    MEASURED,
    NONE,
    NOT_REPLAYED,
    SETUP_KINDS,
    WITH_BLACK_HOLES,
    ClassCost,
    PhaseCosts,
    class_costs,
    phase_costs,
)
from replay.thesis.launch import Outcome, Place, find_launcher, launch
from replay.thesis.match import REASON_TEXT, Reason
from replay.thesis.plan import NODES, ReplayPlan, make_plan, summary
from replay.thesis.stats import median_interval
from replay.thesis.worker import MIN_PASSES
from replay.thesis.world import World

SCHEMA = "p3s.replay"
#: Share of the time budget that emulated computation may take.
_WORK_SHARE = 0.5
#: On one machine all four nodes share its cores: at most this many ranks play one node.
_MOST_LOCAL_CORES = 16


def run(
    scaled_dir: Path,
    out_json: Path,
    *,
    hosts: list[str] | None,
    cores_per_node: int | None,
    budget_s: float,
    launcher: list[str] | None,
    progress: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Replay a scaled trace; see replay.run."""
    trace = read_scaled(scaled_dir)
    cores = len(os.sched_getaffinity(0))
    if budget_s <= 0:
        raise P3SError(f"budget: {budget_s} s is not a time to measure in")
    if cores_per_node is None:
        # On one machine: as many ranks as leave a core for every process, but pairs in a node.
        local = min(max((cores - 2) // 4, 2), _MOST_LOCAL_CORES)
        cores_per_node = min(cores if hosts else local, trace.n)
    plan = make_plan(trace, cores_per_node, NODES, strict=False)
    nodes = [hosts[i % len(hosts)] for i in range(NODES)] if hosts else None
    outcome: Outcome | None = None
    scale = 1.0
    shared = False
    if plan.iterations:
        busiest = max(plan.world.on_node(node) for node in range(NODES))
        shared = (busiest if nodes else plan.world.size) > cores
        scale = _work_scale(plan, budget_s)
        if progress is not None:
            progress(plan.saved())
        mpi = find_launcher(launcher, nodes, plan.world)
        outcome = launch(plan, mpi, budget_s=budget_s, work_scale=scale, shared_cores=shared,
                         progress=progress)
    names = _landed(plan, outcome, hosts)
    costs = class_costs(plan, outcome.samples if outcome else {})
    phases = phase_costs(plan, costs)
    result = _result(plan, outcome, costs, phases, names)
    result["work_scale"] = scale
    _write_table(Path(out_json).with_suffix(".parquet"), phases)
    write_json(Path(out_json), result)
    return result


def _work_scale(plan: ReplayPlan, budget_s: float) -> float:
    """Return the factor on emulated computation that lets MIN_PASSES of each program fit."""
    total_ns = 0.0
    for iteration in plan.iterations:
        for program in iteration.programs:
            per_process = [int(program.of(p)["work_ns"].sum()) for p in range(plan.world.size)]
            total_ns += max(per_process)
    needed_s = (MIN_PASSES + 1) * total_ns * 1e-9
    return min(1.0, _WORK_SHARE * budget_s / needed_s) if needed_s > 0 else 1.0


def _landed(plan: ReplayPlan, outcome: Outcome | None, hosts: Sequence[str] | None) -> list[str]:
    """Return the machine of each node, from where its processes really ran.

    Errors: P3SError when hosts were asked for and the launcher put the processes elsewhere.
    """
    if outcome is None:
        return list(hosts) if hosts else []
    where: list[set[str]] = [set() for _ in range(NODES)]
    for process, place in zip(plan.world.processes, outcome.places, strict=True):
        where[process.node].add(place.name)
    if hosts:
        asked = {hosts[node % len(hosts)] for node in range(NODES) if where[node]}
        got = set().union(*where)
        if any(len(names) > 1 for names in where) or len(got) != len(asked):
            raise P3SError(
                f"the launcher put the processes on {', '.join(sorted(got))}, but the hosts are "
                f"{', '.join(sorted(asked))}; one block of ranks per host is needed")
    return [", ".join(sorted(names)) for names in where]


def why_not_representative(world: World, places: Sequence[Place]) -> str | None:
    """Return why the times do not stand for a cluster's, or None if they do."""
    kernels: list[set[str]] = [set() for _ in range(NODES)]
    # A launcher may bind each process to a core of its own: together they have more.
    cores: dict[str, frozenset[int]] = {}
    users: dict[str, int] = {}
    for process, place in zip(world.processes, places, strict=True):
        kernels[process.node].add(place.kernel)
        cores[place.kernel] = cores.get(place.kernel, frozenset()) | place.cores
        users[place.kernel] = users.get(place.kernel, 0) + 1
    reasons = []
    used = [kernel for names in kernels for kernel in names]
    if len(set(used)) == 1 and len(used) > 1:
        reasons.append("all nodes are one machine")
    elif len(set(used)) < len(used):
        reasons.append("some of the four nodes are the same machine")
    shared = [kernel for kernel, count in users.items() if count > len(cores[kernel])]
    if shared:
        least = min(len(cores[kernel]) for kernel in shared)
        plural = "s" if least != 1 else ""
        reasons.append(f"measured ranks share the {least} core{plural} of a node")
    return "; ".join(reasons) or None


def _result(
    plan: ReplayPlan, outcome: Outcome | None, costs: Sequence[ClassCost], phases: PhaseCosts,
    names: Sequence[str],
) -> dict[str, Any]:
    """Return the content of the result file."""
    why_not = why_not_representative(plan.world, outcome.places) if outcome else (
        "nothing was measured: no message between ranks can be replayed" if plan.trace.n > 1
        else None)
    shares = _shares(plan, costs)
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "n": plan.trace.n,
        "nodes": list(names),
        "cores_per_node": plan.cores_per_node,
        "iterations": len(plan.iterations),
        **summary(plan),
        "passes": outcome.passes if outcome else 0,
        "programs_skipped": outcome.skipped if outcome else 0,
        "wall_s": outcome.wall_s if outcome else 0.0,
        "representative": why_not is None,
        "why_not_representative": why_not,
        "estimator": "mean time of a class's events in a pass, median over passes; "
                     "black holes answer at once (thesis ch. 7)",
        "classes": _classes(plan, costs),
        "primitives": _primitives(plan, outcome),
        "phases": [
            {
                "phase": phase,
                "comm_ns_mean": float(phases.value[:, i].mean()),
                "comm_ns_max": float(phases.value[:, i].max()),
            }
            for i, phase in enumerate(phases.phases)
        ],
        "measured_share": shares.get(MEASURED, 0.0) + shares.get(WITH_BLACK_HOLES, 0.0),
        "shares": shares,
        "unmeasured": _unmeasured(plan, costs),
        "left_out": _left_out(plan),
        "as_blocking": sorted(filter(leaves_request, plan.trace.ops)),
        "notes": list(plan.notes),
    }


def _classes(plan: ReplayPlan, costs: Sequence[ClassCost]) -> list[dict[str, Any]]:
    """Return one entry per class that can have a cost."""
    of_row = plan.classified.of_row
    mine = of_row >= 0
    events = np.bincount(of_row[mine], weights=plan.trace.repeat[mine], minlength=len(costs))
    entries = []
    for number, (cls, cost) in enumerate(zip(plan.classes, costs, strict=True)):
        if cost.how == NOT_REPLAYED:
            continue
        entry = {
            "op": cls.op,
            "kind": cls.kind,
            "bytes": cls.bytes,
            "distance": cls.distance,
            "n_samples": cost.estimate.n_samples,
            "cost_ns": cost.estimate.cost_ns,
            "ci_low_ns": cost.estimate.low_ns,
            "ci_high_ns": cost.estimate.high_ns,
            "how": cost.how,
            "events": int(events[number]),
        }
        if cost.detail:
            entry["detail"] = cost.detail
        if cls.requests:
            entry["requests"] = cls.requests
        if cls.members:
            entry["members"] = cls.members
        entries.append(entry)
    return entries


def _primitives(plan: ReplayPlan, outcome: Outcome | None) -> list[dict[str, Any]]:
    """Return what collectives are composed from."""
    entries = []
    for index, primitive in enumerate(plan.primitives):
        means, number = (outcome.samples if outcome else {}).get(
            len(plan.classes) + index, ([], 0))
        if means:
            cost = median_interval(means, number)
            entries.append({
                "primitive": primitive.name,
                "bytes": primitive.bytes,
                "distance": primitive.distance,
                "n_samples": number,
                "cost_ns": cost.cost_ns,
                "ci_low_ns": cost.low_ns,
                "ci_high_ns": cost.high_ns,
            })
    return entries


def _shares(plan: ReplayPlan, costs: Sequence[ClassCost]) -> dict[str, float]:
    """Return the share of communication events by how their cost was found."""
    trace = plan.trace
    of_row = plan.classified.of_row
    rows = (of_row >= 0) & ~np.isin(trace.kind, [
        code for code, kind in enumerate(trace.kinds) if kind in SETUP_KINDS])
    total = float(trace.repeat[rows].sum())
    shares = dict.fromkeys((MEASURED, WITH_BLACK_HOLES, COMPOSED, INTERPOLATED, NONE), 0.0)
    if total > 0:
        events = np.bincount(of_row[rows], weights=trace.repeat[rows], minlength=len(costs))
        for number, cost in zip(events.tolist(), costs, strict=True):
            how = NONE if cost.how == NOT_REPLAYED else cost.how
            shares[how] += number / total
    return shares


def _unmeasured(plan: ReplayPlan, costs: Sequence[ClassCost]) -> list[dict[str, Any]]:
    """Return the communication that was not executed, or whose class was never measured."""
    trace, of_row = plan.trace, plan.classified.of_row
    groups: dict[tuple[str, str, str, str], dict[str, Any]] = {}
    skip = {code for code, kind in enumerate(trace.kinds) if kind in SETUP_KINDS}
    estimated = np.array([c.how in (INTERPOLATED, NONE, NOT_REPLAYED) for c in costs] or [False])
    excluded = ~np.isin(plan.reason, (Reason.EXECUTED, Reason.COMPOSED, Reason.NEVER))
    rows = np.flatnonzero((excluded | estimated[np.maximum(of_row, 0)]) & (of_row >= 0)
                          & ~np.isin(trace.kind, list(skip)) & (trace.repeat > 0))
    for row in rows.tolist():
        cls, cost = plan.classes[of_row[row]], costs[of_row[row]]
        why = REASON_TEXT.get(Reason(int(plan.reason[row])), "no iteration measured its class")
        how = cost.how if cost.how != NOT_REPLAYED else NONE
        if how == NONE and cost.detail:
            why = f"{why}; {cost.detail}" if excluded[row] else cost.detail
        key = (cls.op, cls.distance, why, how)
        entry = groups.setdefault(key, {
            "op": cls.op, "kind": cls.kind, "distance": cls.distance, "reason": why,
            "cost": how, "events": 0, "bytes_min": cls.bytes, "bytes_max": cls.bytes,
        })
        entry["events"] += int(trace.repeat[row])
        entry["bytes_min"] = min(entry["bytes_min"], cls.bytes)
        entry["bytes_max"] = max(entry["bytes_max"], cls.bytes)
    return sorted(groups.values(), key=lambda entry: -entry["events"])


def _left_out(plan: ReplayPlan) -> list[dict[str, Any]]:
    """Return the set-up calls that the replay does not make, with their number."""
    trace = plan.trace
    found = []
    for op in np.unique(trace.op).tolist():
        rows = (trace.op == op) & np.isin(trace.kind, [
            code for code, kind in enumerate(trace.kinds) if kind in SETUP_KINDS])
        if rows.any():
            found.append({"op": trace.ops[op], "events": int(trace.repeat[rows].sum())})
    return found


def _write_table(path: Path, phases: PhaseCosts) -> None:
    """Write the time per rank and phase as Parquet, atomically."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    ranks, number = phases.value.shape
    table = pa.table({
        "rank": pa.array(np.repeat(np.arange(ranks, dtype=np.int32), number)),
        "phase": pa.array(np.tile(np.asarray(phases.phases, dtype=np.int32), ranks)),
        "comm_ns": pa.array(phases.value.reshape(-1)),
        "comm_low_ns": pa.array(phases.low.reshape(-1)),
        "comm_high_ns": pa.array(phases.high.reshape(-1)),
    })
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    write_bytes(path, buffer.getvalue())
