"""Made predictions of any number of counts and phases, as compose() writes them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from p3s.pipeline.saved import PredictionFile
from p3s.predict.types import Count, PhaseAt, Prediction

COUNTS = (4, 8, 16, 32, 64, 128, 256, 512)
#: Names of the first phases; more are numbered.
NAMES = ("Irecv+Isend+Waitall", "Allreduce", "Alltoall", "Bcast+Send+Recv")
#: Seconds on one core of the whole program, without communication.
WORK_S = 640.0
PARTS = ("compute", "transfer", "waiting", "software")

Json = dict[str, Any]


def made_prediction(
    counts: Sequence[int] = COUNTS,
    phases: int = 3,
    *,
    measured: Sequence[int] | None = None,
    representative: bool = True,
    knee_efficiency: float = 0.5,
    **changes: Any,
) -> Json:
    """Return a prediction of ``phases`` loops, a start and an end at ``counts``, ascending.

    ``measured``: counts that were run [default: those up to 16]; they are 3 % slower than the
    model. ``changes``: other values of top keys. Loop 0 computes most, loop 1 waits more and more.
    """
    runs = [n for n in counts if n <= 16] if measured is None else list(measured)
    rows = [_row(n, phases, n in runs, representative) for n in counts]
    base = rows[0]
    for row in rows:
        _relate(row, base)
    whole: Json = {
        "schema": "p3s.prediction",
        "schema_version": 4,
        "counts": rows,
        "baseline_n": base["n"],
        "baseline_measured": base["time_from"] == "measured",
        "knee": _knee(rows, knee_efficiency),
        "knee_efficiency": knee_efficiency,
        "recommended": _recommended(rows, knee_efficiency) if representative else None,
        "network": {"name": "replay", "label": "n0, n1", "source": "measured"},
        "estimator": "simulation",
        "estimator_why": "costs of messages were measured by a replay at every count",
        "residuals": [
            {
                "n": row["n"],
                "what": "run time" if representative else "computation",
                "measured_s": row["measured_s"] if representative else row["measured_work_s"],
                "model_s": row["model_s"] if representative else row["work_s"],
                "ratio": 1.03,
                "representative": True,
            }
            for row in rows
            if row["measured"]
        ],
        "phase_laws": _laws(rows),
        "limits": _limits(rows, knee_efficiency),
        "unknown_share": 0.02,
        "verdict_share": {
            "exact": {"events": 0.9, "bytes": 0.95, "work": 0.8},
            "fitted": {"events": 0.08, "bytes": 0.03, "work": 0.18},
            "unknown": {"events": 0.02, "bytes": 0.02, "work": 0.02},
        },
        "traced_counts": runs,
        "extrapolation_ratio": max(counts) / max(runs) if runs else None,
        "grade": "usable" if representative else "unusable",
        "reasons": [] if representative else [_SHARED],
        "not_modelled": [
            "what lies before the end of MPI_Init and after the start of MPI_Finalize",
            "MPI_File_write_all: 3 events at 16 processes",
        ],
        "notes": ["the largest count is 32 times the largest traced one"],
    }
    return {**whole, **changes}


def record(data: Json | None = None) -> Prediction:
    """Return a prediction as its readers get it; without data the usual one."""
    return PredictionFile.of(made_prediction() if data is None else data).content


def count_at(n: int, *phases: PhaseAt, **values: Any) -> Count:
    """Return a row with these values, the others as they are made."""
    return replace(record(made_prediction((n,), 1)).counts[0], phases=phases, **values)


def phase_at(phase: int, name: str, **values: Any) -> PhaseAt:
    """Return a phase with these values, the others as they are made."""
    made = record(made_prediction((4,), 1)).counts[0].phases[1]
    return replace(made, phase=phase, name=name, **values)


def reason(code: str, text: str, advice: str = "", untrustworthy: bool = True) -> Json:
    """Return a reason as prediction.json has it."""
    return {"code": code, "text": text, "advice": advice, "untrustworthy": untrustworthy}


_SHARED = reason(
    "not-representative",
    "communication at all counts was not measured as in a real run: all nodes are one machine",
    "measure messages on nodes with a core for each rank",
)


def _phase(n: int, number: int, of: int) -> Json:
    """Return one phase at ``n``; ``number`` -1: the start, -2: the end, else a loop."""
    share = {-1: 0.004, -2: 0.001}.get(number, 0.995 * 0.5 ** (number + 1))
    if number == of - 1:
        share = 0.995 * 0.5**number
    compute = WORK_S * share / n * (1.0 + 0.1 * share) if number >= 0 else WORK_S * share / 4
    transfer = 0.02 * WORK_S * share / math.sqrt(n)
    waiting = WORK_S * share * (2e-5 * n if number == 1 else 1e-4 * math.log2(n))
    software = 1e-3 * WORK_S * share
    comm = transfer + waiting + software
    time = compute + comm
    kind = {-1: "start", -2: "end"}.get(number, "loop")
    name = kind if number < 0 else NAMES[number] if number < len(NAMES) else f"loop {number}"
    outside = max(n / 64, 1.0)
    return {
        "phase": number if number < 0 else number + 1,
        "name": name,
        "kind": kind,
        "weight": 1 if number < 0 else 100 * (number + 1),
        "time_s": time,
        "low_s": time * 0.93,
        "high_s": time * 1.09,
        "compute_s": compute,
        "compute_low_s": compute * 0.95,
        "compute_high_s": compute * 1.06,
        "crm_i_s": compute * 0.9,
        "crm_c_s": None,
        "comm_s": comm,
        "waiting_s": waiting,
        "transfer_s": transfer,
        "software_s": software,
        **(
            {}
            if number < 0
            else {
                "x": [1e8 / n, 1e8 / n],
                "covered": [1e8 / 64, 1e8 / 4],
                "outside": outside,
                "below": n > 64,
            }
        ),
    }


def _row(n: int, phases: int, was_run: bool, representative: bool) -> Json:
    found = [_phase(n, number, phases) for number in (-1, *range(phases), -2)]
    total = {
        key: sum(phase[key] for phase in found)
        for key in ("time_s", "compute_s", "comm_s", "waiting_s", "transfer_s", "software_s")
    }
    time = total.pop("time_s")
    measured_s = time * 1.03 if was_run else None
    taken = was_run and representative
    low, high = time * 0.9, time * 1.13
    why = "" if representative else "all nodes are one machine"
    return {
        "n": n,
        "time_s": measured_s if taken else time,
        "low_s": measured_s if taken else low,
        "high_s": time * 1.05 if taken else high,
        "time_from": "measured" if taken else "model",
        "model_s": time,
        "model_low_s": low,
        "model_high_s": high,
        **total,
        "comm_low_s": total["comm_s"] * 0.8,
        "comm_high_s": total["comm_s"] * 1.1,
        "work_s": total["compute_s"] * 0.99,
        "measured": was_run,
        "measured_s": measured_s,
        "measured_work_s": total["compute_s"] * 0.99 * 1.03 if was_run else None,
        "representative": representative,
        "model_representative": representative,
        "contradicts": False,
        "below_traced": False,
        "pop": {
            "load_balance": 0.95,
            "communication": 0.9,
            "serialisation": None,
            "transfer": None,
            "parallel": 0.855,
            "computation_scalability": 0.98,
            "global_efficiency": 0.8379,
        },
        "estimator": "simulation",
        "estimators": {
            "simulation": _estimate(time, total, why, []),
            "machine": _estimate(
                time - 0.3 * total["comm_s"],
                {**total, "comm_s": 0.7 * total["comm_s"]},
                "",
                ["MPI_Comm_split costs nothing"],
            ),
            "simgrid": _estimate(None, {}, "smpirun is not installed", []),
            "typical": _estimate(None, {}, "was not asked for", []),
            "thesis": _estimate(
                time - total["waiting_s"],
                {"compute_s": total["compute_s"], "comm_s": total["comm_s"] - total["waiting_s"]},
                why,
                ["waiting for ranks that are not loaded is lost"],
            ),
        },
        "interval_parts": {
            "work": [0.97, 1.03],
            "cost": [0.95, 1.08],
            "replay": [0.99, 1.02],
            "residual": [0.94, 1.06],
        },
        "phases": found,
    }


def _estimate(time: float | None, total: Json, why: str, notes: list[str]) -> Json:
    keys = ("compute_s", "comm_s", "waiting_s", "transfer_s", "software_s")
    return {
        "time_s": time,
        "low_s": time and time * 0.92,
        "high_s": time and time * 1.1,
        **{key: total.get(key) for key in keys},
        "io_s": None if time is None else 0.0,
        "why_not": why,
        "notes": notes,
    }


def _relate(row: Json, base: Json) -> None:
    row["cost_core_h"] = row["n"] * row["time_s"] / 3600
    for key, ends in (("speedup", "time_s"), ("speedup_low", "high_s"), ("speedup_high", "low_s")):
        row[key] = base["time_s"] / row[ends]
    row["efficiency"] = row["speedup"] * base["n"] / row["n"]


def _knee(rows: Sequence[Json], threshold: float) -> int | None:
    knee = None
    for row in reversed(rows):
        if row["efficiency"] >= threshold:
            break
        knee = row["n"]
    return knee


def _recommended(rows: Sequence[Json], threshold: float) -> Json | None:
    good = [row for row in rows if row["efficiency"] >= threshold]
    if len(rows) < 2 or not good:
        return None
    best = good[-1]
    return {
        "n": best["n"],
        "efficiency": best["efficiency"],
        "why": f"the largest count with an efficiency of {100 * threshold:.0f} % or more",
    }


def _laws(rows: Sequence[Json]) -> list[Json]:
    counts = [row["n"] for row in rows]
    law = {
        "text": "635.2/n + 0.62*log2(n)",
        "latex": r"635.2 \, n^{-1} + 0.62 \, \log_{2} n",
        "terms": [[635.2, -1, 1, 0], [0.62, 0, 1, 1]],
        "error": 0.012,
        "counts": counts,
    }
    none = {"text": "", "latex": "", "terms": [], "error": None, "counts": counts}
    return [
        {
            "phase": phase["phase"],
            "name": phase["name"],
            "parts": {
                "time": law,
                "compute": {
                    **law,
                    "text": "635.2/n",
                    "latex": "635.2 n^{-1}",
                    "terms": [[635.2, -1, 1, 0]],
                },
                "transfer": law,
                "waiting": none,
                "software": law,
            },
        }
        for phase in rows[-1]["phases"]
    ]


def _limits(rows: Sequence[Json], threshold: float) -> list[Json]:
    """Return the lost core time of every phase, from the made times themselves."""
    first, last = rows[0], rows[-1]
    before = {phase["phase"]: phase for phase in first["phases"]}
    found = []
    for phase in last["phases"]:
        old = before[phase["phase"]]
        lost = {
            part: last["n"] * phase[f"{part}_s"] - first["n"] * old[f"{part}_s"] for part in PARTS
        }
        if (total := sum(lost.values())) > 0:
            found.append((total, max(lost, key=lambda part: lost[part]), phase))
    whole = sum(entry[0] for entry in found)
    spare = first["n"] * first["model_s"] * (1 / threshold - 1)
    return [
        {
            "phase": phase["phase"],
            "name": phase["name"],
            "share": total / whole,
            "n": rows[-1]["n"] if total > spare else None,
            "because": because,
            "text": f"{phase['name']}: {100 * total / whole:.0f} % of the lost core time at "
            f"{last['n']} processes, mostly {because}",
        }
        for total, because, phase in sorted(found, key=lambda entry: -entry[0])
    ]
