"""Run time and speedup at large counts from phase times and weights (Eq. 8.1)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from p3s.characterize import tracing
from p3s.characterize.unmodelled import sentences
from p3s.errors import P3SError
from p3s.predict import outside
from p3s.predict.measured import Measured, measured
from p3s.predict.times import PhaseTimes, phase_times
from p3s.study import SCHEMA_VERSION, Study, read_json, write_json
from p3s.words import left_out, mixed_clocks

PREDICTION_SCHEMA = "p3s.prediction"

#: Efficiency below which more processes are not worth it.
KNEE_EFFICIENCY = 0.5
#: Share of the computation without a law above which a prediction is of low confidence.
UNKNOWN_LIMIT = 0.10
#: How many times the largest traced count may be exceeded with confidence.
EXTRAPOLATION_LIMIT = 32.0
#: Share of the messages and collectives of a held-out count that the model must get right.
HOLDOUT_LIMIT = 0.9

_UNKNOWN = frozenset({"unknown", "not seen", "not_seen"})


def predict(
    study: Study, counts: Sequence[int], *, threshold: float = KNEE_EFFICIENCY
) -> dict[str, Any]:
    """Predict time, interval, speedup and efficiency at ``counts`` and write prediction.json.

    Needs the scaled trace and the replay of every count in ``counts``; traced counts among them
    are compared with what was measured. Speedup is relative to the smallest count.
    """
    model = read_json(study.model_path, "p3s.model")
    # the model of a value that was not traced rests on the counts of other values
    traced = sorted({*study.counts(), *(model["counts"] if model.get("derived") else ())})
    times = {n: phase_times(study, n) for n in sorted(set(counts))}
    runs = {n: found for n in times if n in traced and (found := measured(study, n)) is not None}
    replays = {n: study.replay(n) for n in times if n > 1}
    held = model.get("holdout")
    result = compose(times, runs, replays, traced, threshold=threshold, holdout=held)
    write_json(study.prediction_path, result)
    return result


def compose(
    times: Mapping[int, PhaseTimes],
    runs: Mapping[int, Measured],
    replays: Mapping[int, Mapping[str, Any]],
    traced: Sequence[int],
    *,
    threshold: float = KNEE_EFFICIENCY,
    holdout: Any = None,
) -> dict[str, Any]:
    """Put phase times, measured runs and replays of all counts together; reads no files."""
    if not times:
        raise P3SError("nothing to predict: no process count given")
    rows = [_row(times[n], runs.get(n), replays.get(n, {})) for n in sorted(times)]
    base = rows[0]
    for row in rows:
        _relate(row, base)
    knee = _knee(rows, threshold)
    shared = _not_representative(runs, replays)
    unknown = max(_unknown_share(times[n].head) for n in times)
    ratio = rows[-1]["n"] / max(traced) if traced else math.inf
    asked = [row for row in rows if row["n"] not in traced]
    low_confidence = [*_doubts(unknown, ratio), *outside.doubts(asked), *missed(holdout)]
    share = _verdict_share(times[rows[-1]["n"]].head)
    return {
        "schema": PREDICTION_SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "counts": rows,
        "baseline_n": base["n"],
        "baseline_measured": base["time_from"] == "measured",
        "knee": knee,
        "knee_efficiency": threshold,
        "unknown_share": unknown,
        "verdict_share": share,
        "traced_counts": list(traced),
        "extrapolation_ratio": ratio if math.isfinite(ratio) else None,
        "low_confidence": low_confidence,
        "not_representative": shared,
        "notes": [
            *shared,
            *_notes(rows, replays, ratio),
            *outside.notes(asked),
            *_soft_rules(share),
            *sentences(times[rows[-1]["n"]].head),
            *tracing.sentence(times[rows[-1]["n"]].head.get("tracing", {})),
            *filter(None, [mixed_clocks(times[rows[-1]["n"]].head)]),
        ],
    }


def _knee(rows: Sequence[Mapping[str, Any]], threshold: float) -> int | None:
    """Return the smallest count from which the efficiency stays below the threshold."""
    knee = None
    for row in reversed(rows):
        if row["efficiency"] >= threshold:
            break
        knee = int(row["n"])
    return knee


def _row(times: PhaseTimes, run: Measured | None, replayed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of one count: Eq. 8.1 over its phases, and what was measured there."""
    phases, model_s, low_s, high_s = _phases(times)
    work_s = float(times.compute.sum(axis=1).max())
    row: dict[str, Any] = {
        "n": times.n,
        "time_s": model_s,
        "low_s": low_s,
        "high_s": high_s,
        "time_from": "model",
        "model_s": model_s,
        "model_low_s": low_s,
        "model_high_s": high_s,
        "compute_s": sum(phase["compute_s"] for phase in phases),
        "comm_s": sum(phase["comm_s"] for phase in phases),
        "work_s": work_s,
        "measured": run is not None,
        "measured_s": run.wall_s if run is not None else None,
        "measured_work_s": None,
        "representative": bool(replayed.get("representative", times.n == 1)),
        "phases": phases,
    }
    row["model_representative"] = row["representative"]
    if run is None:
        return row
    if math.isfinite(run.work_s):
        row["measured_work_s"] = run.work_s
    row["representative"] = run.representative
    if run.representative:
        row.update(time_s=run.wall_s, low_s=run.wall_s, high_s=run.wall_max_s, time_from="measured")
    return row


def _phases(
    times: PhaseTimes,
) -> tuple[list[dict[str, Any]], float, float | None, float | None]:
    """Return the phases with their times, the sum over them, and its interval if it is known.

    The time of a phase is that of the rank that needs longest for it.
    """
    import numpy as np

    rows = []
    total = low = high = 0.0
    known = True
    for slot, phase in enumerate(times.phases):
        compute, comm = times.compute[:, slot], times.comm[:, slot]
        both = compute + comm
        slowest = int(np.argmax(both))
        total += float(both[slowest])
        ends = times.interval_of(slot)
        if ends is None:
            known = known and float(compute.max()) == 0.0
        below, above = ends or (1.0, 1.0)
        low += float((compute * below + times.comm_low[:, slot]).max())
        high += float((compute * above + times.comm_high[:, slot]).max())
        seconds = float(compute[slowest])
        entry: dict[str, Any] = {
            "phase": phase["phase"],
            "name": str(phase.get("name", phase["phase"])),
            "weight": phase["weight"],
            "compute_s": seconds,
            "compute_low_s": seconds * below if ends else None,
            "compute_high_s": seconds * above if ends else None,
            "crm_i_s": _seconds(phase.get("crm_i_ns")),
            "crm_c_s": _seconds(phase.get("crm_c_ns")),
            "comm_s": float(comm[slowest]),
        }
        for key in ("x", "covered", "outside", "below"):
            if key in phase:
                entry[key] = phase[key]
        rows.append(entry)
    if not known:
        return rows, total, None, None
    return rows, total, min(low, total), max(high, total)


def _seconds(ns: Any) -> float | None:
    return float(ns) / 1e9 if isinstance(ns, (int, float)) else None


def _relate(row: dict[str, Any], base: Mapping[str, Any]) -> None:
    """Add speedup and efficiency relative to the smallest count, whose time is taken as given."""

    def over(seconds: float | None) -> float | None:
        if seconds is None:
            return None
        return base["time_s"] / seconds if seconds > 0 else 0.0

    row["speedup"] = over(row["time_s"])
    row["speedup_low"] = over(row["high_s"])
    row["speedup_high"] = over(row["low_s"])
    row["efficiency"] = row["speedup"] * base["n"] / row["n"]


def _verdict_share(head: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return the share of events, bytes and work per verdict, each between 0 and 1."""
    raw = head.get("share")
    if not isinstance(raw, Mapping):
        return {}
    share: dict[str, dict[str, float]] = {str(verdict): {} for verdict in raw}
    for what in ("events", "bytes", "work"):
        values = {
            str(verdict): float(entry.get(what) or 0.0)
            for verdict, entry in raw.items()
            if isinstance(entry, Mapping)
        }
        whole = sum(values.values())
        for verdict, value in values.items():
            share[verdict][what] = value / whole if whole > 0 else 0.0
    return share


def _unknown_share(head: Mapping[str, Any]) -> float:
    """Return the share of the program whose rule is unknown, by time, work or events.

    The largest of them counts, of the scaled trace and of the traced run: what has no rule at
    all is not in the scaled trace.
    """
    traced = head.get("traced_share")
    shares = [_verdict_share(head), traced if isinstance(traced, Mapping) else {}]
    return max(
        sum(
            float(entry.get(what, 0.0))
            for verdict, entry in share.items()
            if verdict in _UNKNOWN and isinstance(entry, Mapping)
        )
        for share in shares
        for what in ("time", "work", "events")
    )


def _doubts(unknown: float, ratio: float) -> list[str]:
    doubts = []
    if unknown > UNKNOWN_LIMIT:
        doubts.append(
            f"{100 * unknown:.0f} % of the program has no rule (limit {100 * UNKNOWN_LIMIT:.0f} %)"
        )
    if ratio > EXTRAPOLATION_LIMIT:
        doubts.append(
            f"the largest count is {ratio:.0f} times the largest traced one "
            f"(limit {EXTRAPOLATION_LIMIT:.0f}); trace a larger count"
        )
    return doubts


def missed(holdout: Any, limit: float = HOLDOUT_LIMIT) -> list[str]:
    """Say when the model, fitted without the largest traced count, missed that count.

    ``limit`` is the share of its messages and of its collectives that must be equal.
    """
    if not isinstance(holdout, Mapping):
        return []
    if not holdout.get("possible", True):
        return [f"the model could not be checked on a held-out count: {holdout.get('why')}"]
    wrong = []
    for key, name in (("p2p_triples", "messages"), ("collectives", "collectives")):
        pair = holdout.get(key)
        if isinstance(pair, Mapping):
            whole = max(pair.get("true", 0), pair.get("predicted", 0))
            if pair.get("equal", 0) < limit * whole:
                wrong.append(f"{whole - pair.get('equal', 0)} of {whole} {name}")
    weights = holdout.get("weights")
    if isinstance(weights, Mapping) and weights.get("exact", 0) < weights.get("phases", 0):
        off = weights["phases"] - weights.get("exact", 0)
        wrong.append(f"{off} of {weights['phases']} phase weights")
    if not wrong:
        return []
    return [f"fitted without {left_out(holdout)} the model misses there {', '.join(wrong)}"]


def _soft_rules(share: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Say how much of the program follows rules that are not exact."""
    return [
        f"{100 * entry.get('work', 0.0):.1f} % of the computation and "
        f"{100 * entry.get('events', 0.0):.1f} % of the events follow {verdict} rules"
        for verdict, entry in share.items()
        if verdict not in ("exact", "fitted") and max(entry.values(), default=0.0) >= 0.01
    ]


def _not_representative(
    runs: Mapping[int, Measured], replays: Mapping[int, Mapping[str, Any]]
) -> list[str]:
    """Say at which counts measured times or communication do not tell how fast the program is."""
    notes = []
    instead = "CPU work and measured communication stand in for their run times"
    shared = [n for n, run in sorted(runs.items()) if run.shared_cores]
    if shared:
        notes.append(f"at {_join(shared)} processes the traced ranks shared cores: {instead}")
    for n, run in sorted(runs.items()):
        if not run.shared_cores and not run.representative:
            notes.append(
                f"at {n} processes the traced ranks computed without a core for "
                f"{100 * run.off_core:.0f} % of the run (other load on the machine, sleeping, "
                f"input or output): {instead}"
            )
    reasons: dict[str, list[int]] = {}
    for n, replayed in sorted(replays.items()):
        if not replayed.get("representative", False):
            why = str(replayed.get("why_not_representative") or "no reason given")
            reasons.setdefault(why, []).append(n)
    for why, counts in reasons.items():
        notes.append(f"communication at {_join(counts)} processes is not representative: {why}")
    return notes


def _notes(
    rows: Sequence[Mapping[str, Any]], replays: Mapping[int, Mapping[str, Any]], ratio: float
) -> list[str]:
    notes = []
    unmeasured = [n for n, replayed in sorted(replays.items()) if replayed.get("unmeasured")]
    if unmeasured:
        notes.append(f"some classes of events could not be measured at {_join(unmeasured)}")
    unsure = [row["n"] for row in rows if row["model_low_s"] is None]
    if unsure:
        notes.append(
            f"no interval at {_join(unsure)} processes: the spread of a work law is unknown"
        )
    twins = sorted({str(op) for r in replays.values() for op in r.get("as_blocking") or ()})
    if twins:
        notes.append(
            f"replayed without progress between the call and its completion: "
            f"{', '.join(twins)}"
        )
    if math.isfinite(ratio):
        notes.append(f"the largest count is {ratio:g} times the largest traced one")
    return notes


def _join(counts: Sequence[int]) -> str:
    return ", ".join(map(str, counts))
