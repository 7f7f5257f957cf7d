"""One row of prediction.json: run time at one count, put together from its phases (Eq. 8.1)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from p3s.predict.estimated import ESTIMATORS
from p3s.predict.intervals import Factors, combine, model_part, own_parts
from p3s.predict.measured import Measured
from p3s.predict.times import PhaseTimes

if TYPE_CHECKING:
    from p3s.predict.estimates import Estimate

_Row = TypeVar("_Row", bound=Mapping[str, Any])

#: Parts of the communication that not every estimator tells apart.
COMM_PARTS = ("waiting", "transfer", "software")
_SUMMED = ("compute_s", "comm_s", *(f"{part}_s" for part in COMM_PARTS))
_ENDS = ("x", "covered", "outside", "below")
_SECONDS_PER_HOUR = 3600.0
#: Ranks whose times differ by less than this share need equally long.
_SAME = 1e-3


def row_of(
    times: PhaseTimes,
    run: Measured | None,
    replayed: Mapping[str, Any],
    others: Mapping[str, Estimate],
) -> dict[str, Any]:
    """Return the row of one count, without its interval (:func:`give_interval` adds it).

    ``others``: what every estimator says, or why it says nothing. The time is what was measured
    where that tells how fast the program is.
    """
    phases = _phases(times)
    why_not = why_not_of(times, replayed)
    row: dict[str, Any] = {
        "n": times.n,
        "time_s": 0.0,
        "low_s": None,
        "high_s": None,
        "time_from": "model",
        "model_s": sum(phase["time_s"] for phase in phases),
        "model_low_s": None,
        "model_high_s": None,
        **_sums(phases),
        "work_s": float(times.compute.sum(axis=1).max()) if times.compute.size else 0.0,
        "measured": run is not None,
        "measured_s": run.wall_s if run is not None else None,
        "measured_work_s": None,
        "representative": not why_not,
        "model_representative": not why_not,
        "contradicts": run is not None and run.contradicts,
        "below_traced": False,
        "estimator": times.estimator,
        "estimators": _estimators(times, others),
        "phases": phases,
    }
    row["time_s"] = row["model_s"]
    if run is None:
        return row
    if math.isfinite(run.work_s):
        row["measured_work_s"] = run.work_s
    row["representative"] = run.representative
    if run.representative:
        row.update(time_s=run.wall_s, low_s=run.wall_s, high_s=run.wall_max_s, time_from="measured")
    return row


def baseline(rows: Sequence[_Row]) -> _Row:
    """Return the row that speedups relate to: the smallest count that nothing speaks against.

    That is a run that contradicts the others, or computation that does not go on from the traced
    counts; where there is no other row, the first.
    """
    sound = (row for row in rows if not (row["contradicts"] or row.get("below_traced")))
    return next(sound, rows[0])


def why_not_of(times: PhaseTimes, replayed: Mapping[str, Any]) -> str:
    """Return why the communication does not tell how fast the program is, "" if it does."""
    if times.why_not is not None:
        return times.why_not
    if replayed.get("representative", times.n == 1):
        return ""
    return str(replayed.get("why_not_representative") or "no reason given")


def give_interval(
    row: dict[str, Any], times: PhaseTimes, others: Mapping[str, Estimate]
) -> Factors | None:
    """Add the interval's parts but for the residual; return them joined, None if not known."""
    own = own_parts(times)
    model = model_part(times, others)
    row["interval_parts"] = {
        **{
            name: _pair(part)
            for name, part in (own or {"work": None, "cost": None, "replay": None}).items()
        },
        "model": _pair(model),
        "residual": None,
    }
    return None if own is None else combine([*own.values(), model])


def close_interval(row: dict[str, Any], known: Factors | None, residual: Factors | None) -> None:
    """Add the residual's part and the interval of the row's time."""
    row["interval_parts"]["residual"] = _pair(residual)
    if known is None:
        return
    low, high = combine([known, residual])
    row["model_low_s"], row["model_high_s"] = row["model_s"] * low, row["model_s"] * high
    if row["time_from"] == "model":
        row["low_s"], row["high_s"] = row["model_low_s"], row["model_high_s"]


def relate(row: dict[str, Any], base: Mapping[str, Any]) -> None:
    """Add cost, and speedup and efficiency relative to the baseline.

    The time of the baseline is taken as given. Cost: one core per process.
    """

    def over(seconds: float | None) -> float | None:
        if seconds is None or (seconds <= 0 < row["time_s"]):
            return None  # the low end is nothing: no speedup is too large
        return base["time_s"] / seconds if seconds > 0 else 0.0

    row["cost_core_h"] = row["n"] * row["time_s"] / _SECONDS_PER_HOUR
    row["speedup"] = over(row["time_s"])
    row["speedup_low"] = over(row["high_s"])
    row["speedup_high"] = over(row["low_s"])
    row["efficiency"] = row["speedup"] * base["n"] / row["n"]


def _pair(part: Factors | None) -> list[float] | None:
    return None if part is None else [part[0], part[1]]


def slowest_rank(times: PhaseTimes) -> int:
    """Return the rank that needs longest in all; of those within 0.1 % of it, the busiest."""
    import numpy as np

    whole = (times.compute + times.comm).sum(axis=1)
    late = np.flatnonzero(whole >= (1.0 - _SAME) * whole.max())
    return int(late[np.argmax(times.compute[late].sum(axis=1))])


def _phases(times: PhaseTimes, ends_too: bool = True) -> list[dict[str, Any]]:
    """Return the phases with their times: those of the rank that needs longest in all.

    Of the thesis's sum (Eq. 8.1) those of the rank that needs longest in each phase.
    """
    import numpy as np

    rows = []
    every = None if times.estimator == "thesis" else slowest_rank(times)
    for slot, phase in enumerate(times.phases):
        compute, comm = times.compute[:, slot], times.comm[:, slot]
        slowest = int(np.argmax(compute + comm)) if every is None else every
        seconds, talked = float(compute[slowest]), float(comm[slowest])
        ends = times.interval_of(slot)
        own = own_parts(times, slowest, slot) if ends_too else None
        low, high = combine(own.values()) if own is not None else (None, None)
        time = seconds + talked
        entry: dict[str, Any] = {
            "phase": phase["phase"],
            "name": str(phase.get("name", phase["phase"])),
            "kind": str(phase.get("kind", "loop")),
            "weight": phase["weight"],
            "time_s": time,
            "low_s": None if low is None else time * low,
            "high_s": None if high is None else time * high,
            "compute_s": seconds,
            "compute_low_s": seconds * ends[0] if ends else None,
            "compute_high_s": seconds * ends[1] if ends else None,
            "crm_i_s": _seconds(phase.get("crm_i_ns")),
            "crm_c_s": _seconds(phase.get("crm_c_ns")),
            "comm_s": talked,
        }
        for name in COMM_PARTS:
            values = getattr(times, name)
            if times.n == 1:
                entry[f"{name}_s"] = 0.0
            else:
                entry[f"{name}_s"] = None if values is None else _known(values[slowest, slot])
        entry.update({key: phase[key] for key in _ENDS if key in phase})
        rows.append(entry)
    return rows


def _sums(phases: list[dict[str, Any]]) -> dict[str, float | None]:
    """Return the parts of the run time; a part is null where a phase does not know it."""
    sums: dict[str, float | None] = {}
    for key in _SUMMED:
        values = [phase[key] for phase in phases]
        sums[key] = None if any(value is None for value in values) else float(sum(values))
    return sums


def _estimators(times: PhaseTimes, others: Mapping[str, Estimate]) -> dict[str, Any]:
    """Return what every estimator says of the run time; nulls with a reason where it does not."""
    found: dict[str, Any] = {}
    for name in ESTIMATORS:
        made = times if name == times.estimator else others.get(name, "was not asked for")
        if isinstance(made, str):
            found[name] = {
                "time_s": None,
                "low_s": None,
                "high_s": None,
                **dict.fromkeys(_SUMMED),
                "why_not": made,
                "notes": [],
            }
            continue
        phases = _phases(made, ends_too=False)
        time = sum(phase["time_s"] for phase in phases)
        own = own_parts(made)
        low, high = combine(own.values()) if own is not None else (None, None)
        found[name] = {
            "time_s": time,
            "low_s": None if low is None else time * low,
            "high_s": None if high is None else time * high,
            **_sums(phases),
            "why_not": made.why_not or "",
            "notes": list(made.approximated),
        }
    return found


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _seconds(ns: Any) -> float | None:
    return float(ns) / 1e9 if isinstance(ns, (int, float)) else None
