"""The result of a replay: content of its JSON file and columns of its table (docs/formats.md)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from p3s.base.arrays import Floats
from p3s.base.artefacts import write_bytes, write_json
from p3s.base.serialise import to_data
from p3s.base.tables import TABLES, facts_of, parquet_bytes
from p3s.program.order.calls import SETUP_REASONS
from p3s.replay.costs.estimate import PhaseTimes
from p3s.replay.costs.messages import NEAREST, NONE, PAIR, TRACE, TRACE_BOTH, USUAL
from p3s.replay.costs.network import Costs
from p3s.replay.costs.thesis import CallCost
from p3s.replay.engine.results import Estimate, Place
from p3s.replay.plan.classes import CallClass, MessageClass
from p3s.replay.plan.program import NODES, World, why_not_representative
from p3s.simulate.steps import LeftOut

#: Columns whose sums the head says.
_SUMMED = ("comm_ns", "waiting_ns", "transfer_ns", "software_ns")


def columns(times: PhaseTimes, thesis: Floats, whole: Floats | None) -> dict[str, Any]:
    """Return the table: one row per rank and phase, times in ns over the whole run.

    ``whole_ns`` is NaN where no timed iteration has loaded the rank.
    """
    ranks, number = times.comm.shape
    parts = {
        "comm": times.comm,
        "comm_low": times.low,
        "comm_high": times.high,
        "waiting": times.waiting,
        "transfer": times.transfer,
        "software": times.software,
        "thesis": thesis,
        "whole": np.full((ranks, number), np.nan) if whole is None else whole,
    }
    return {
        "rank": np.repeat(np.arange(ranks, dtype=np.int32), number),
        "phase": np.tile(np.asarray(times.phases, dtype=np.int32), ranks),
        **{f"{name}_ns": values.reshape(-1) for name, values in parts.items()},
    }


def write_result(out_json: Path, content: Mapping[str, Any], table: Mapping[str, Any]) -> None:
    """Write the JSON file and, beside it, the table as Parquet; both atomically."""
    import pyarrow as pa

    arrow_table = pa.table({name: pa.array(values) for name, values in table.items()})
    data, path = parquet_bytes(arrow_table), Path(out_json).with_suffix(".parquet")
    sums = {name: float(np.nansum(values)) for name, values in table.items() if name in _SUMMED}
    write_bytes(path, data)
    tables = {path.name: facts_of(data, arrow_table.num_rows, sums)}
    write_json(Path(out_json), {**content, TABLES: to_data(tables)})


def phase_entries(times: PhaseTimes, thesis: Floats, whole: Floats | None) -> list[dict[str, Any]]:
    """Return one entry per phase: means and largest over the ranks, in ns."""
    entries = []
    for i, phase in enumerate(times.phases):
        comm, both = times.comm[:, i], times.comm[:, i] + times.work[:, i]
        slowest = int(np.argmax(both)) if len(both) else 0
        entry: dict[str, Any] = {
            "phase": phase,
            "comm_ns_mean": float(comm.mean()),
            "comm_ns_max": float(comm.max()),
            "waiting_ns_mean": float(times.waiting[:, i].mean()),
            "transfer_ns_mean": float(times.transfer[:, i].mean()),
            "software_ns_mean": float(times.software[:, i].mean()),
            "thesis_ns_mean": float(thesis[:, i].mean()),
            "time_ns": float(both[slowest]),
            "slowest_rank": slowest,
        }
        if whole is not None and not np.isnan(whole[:, i]).all():
            loaded = ~np.isnan(whole[:, i])
            entry["whole_ns_mean"] = float(whole[loaded, i].mean())
            simulated = float(comm[loaded].mean())
            entry["whole_over_simulated"] = (
                entry["whole_ns_mean"] / simulated if simulated > 0 else None
            )
        entries.append(entry)
    return entries


def message_entries(classes: Sequence[MessageClass], costs: Costs) -> list[dict[str, Any]]:
    """Return one entry per message class."""
    entries = []
    for cls, cost, off in zip(classes, costs.messages, costs.checked.tolist(), strict=True):
        idle = costs.points.get((cls.distance, cls.bytes))
        on_idle = (
            idle.cost_ns if idle else float(costs.network.path(cls.distance).transfer.at(cls.bytes))
        )
        same_side = any((d > 0) == (cls.distance > 0) for d, _ in costs.points)
        unknown = NEAREST if same_side else USUAL
        measured = cost.how != NONE
        entries.append(
            {
                **vars(cls),
                **_interval(cost.estimate if measured else Estimate(on_idle, on_idle, on_idle)),
                "idle_ns": on_idle,
                "how": cost.how if measured else unknown,
                "simulation_off": None if math.isnan(off) else off,
            }
        )
    return entries


def _interval(estimate: Estimate) -> dict[str, float]:
    """Return an estimate as entries have it."""
    return {
        "n_samples": estimate.n_samples,
        "cost_ns": estimate.cost_ns,
        "ci_low_ns": estimate.low_ns,
        "ci_high_ns": estimate.high_ns,
    }


def call_entries(classes: Sequence[CallClass], costs: Sequence[CallCost]) -> list[dict[str, Any]]:
    """Return one entry per call class, with the keys of version 1."""
    entries = []
    for cls, cost in zip(classes, costs, strict=True):
        facts = {name: value for name, value in vars(cls).items() if name != "call"}
        entries.append({"op": cls.call, **facts, **_interval(cost.estimate), "how": cost.how})
    return entries


def network_entry(costs: Costs) -> dict[str, Any]:
    """Return what the network that was simulated rests on; rate null: no limit."""
    network = costs.network
    return {
        "link_bytes_per_ns": network.rate if math.isfinite(network.rate) else None,
        "link_burst_bytes": network.burst,
        "link_from": costs.link.why,
        "link_residual": costs.link.residual,
        "spread_share": costs.share,
        "eager_from": {str(distance): why for distance, why in costs.eager.items()},
    }


def shares(entries: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return the share of the run's messages by how their cost was found; see message_entries."""
    share_of = dict.fromkeys((TRACE, TRACE_BOTH, PAIR, NEAREST, USUAL), 0.0)
    total = sum(entry["events"] for entry in entries)
    for entry in entries if total > 0 else []:
        share_of[entry["how"]] += entry["events"] / total
    return share_of


def list_unmeasured(
    entries: Sequence[dict[str, Any]], left_out: Sequence[LeftOut]
) -> list[dict[str, Any]]:
    """Return messages whose class was never measured, and calls that were not executed."""
    groups: dict[tuple[int, str], dict[str, Any]] = {}
    for entry in entries:
        if entry["how"] not in (NEAREST, USUAL) or not entry["events"]:
            continue
        group = groups.setdefault(
            (entry["distance"], entry["how"]),
            {
                "op": "message",
                "kind": "message",
                "distance": entry["distance"],
                "reason": "no program measured its class",
                "cost": "interpolated" if entry["how"] == NEAREST else USUAL,
                "events": 0,
                "bytes_min": entry["bytes"],
                "bytes_max": entry["bytes"],
            },
        )
        group["events"] += entry["events"]
        group["bytes_min"] = min(group["bytes_min"], entry["bytes"])
        group["bytes_max"] = max(group["bytes_max"], entry["bytes"])
    calls = [
        {"op": x.call, "kind": "call", "reason": x.why, "cost": "none", "events": x.events}
        for x in left_out
        if x.why not in SETUP_REASONS
    ]
    return sorted([*groups.values(), *calls], key=lambda entry: -float(entry["events"]))


def set_up(left_out: Sequence[LeftOut]) -> list[dict[str, Any]]:
    """Return the set-up calls that the replay does not make, with their number."""
    events: dict[str, float] = {}
    for entry in left_out:
        if entry.why in SETUP_REASONS:
            events[entry.call] = events.get(entry.call, 0.0) + entry.events
    return [{"op": call, "events": number} for call, number in sorted(events.items())]


def node_names(world: World, places: Sequence[Place]) -> list[str]:
    """Return the machine of each of the four nodes, as its processes have found it."""
    names: list[set[str]] = [set() for _ in range(NODES)]
    for process, place in zip(world.processes, places, strict=False):
        names[process.node].add(place.name)
    return [", ".join(sorted(hosts)) for hosts in names] if places else []


def why_not(world: World, places: Sequence[Place]) -> str | None:
    """Return why the times do not stand for a cluster's, or None if they do."""
    kernels: list[set[str]] = [set() for _ in range(NODES)]
    # A launcher may bind each process to a core of its own: together they have more.
    cores: dict[str, frozenset[int]] = {}
    users: dict[str, int] = {}
    for process, place in zip(world.processes, places, strict=False):
        kernels[process.node].add(place.kernel)
        cores[place.kernel] = cores.get(place.kernel, frozenset()) | frozenset(place.cores)
        users[place.kernel] = users.get(place.kernel, 0) + 1
    reasons = []
    same = why_not_representative([kernel for names in kernels for kernel in names])
    if same is not None:
        reasons.append(same)
    shared = [kernel for kernel, count in users.items() if count > len(cores[kernel])]
    if shared:
        least = min(len(cores[kernel]) for kernel in shared)
        plural = "s" if least != 1 else ""
        reasons.append(f"measured ranks share the {least} core{plural} of a node")
    return "; ".join(reasons) or None
