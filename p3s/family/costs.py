"""What computation costs in time at a setting that was not traced: from the times of all others.

The code is the same, so is its cost at the same work per turn. Runs of every setting are points of
one law for each place; larger and smaller settings cover more of it than one of them does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from p3s.compute.gather import (
    POOL,
    TIME_UNITS,
    WHOLE,
    Measured,
    by_count,
    measured_at,
    own_points,
    small_places,
    x_scale,
)
from p3s.compute.model import entry_json, fit_laws
from p3s.compute.phases import spread
from p3s.compute.points import Point
from p3s.compute.stage import SCHEMA, VERSION
from p3s.family.derive import Fitted, model_at
from p3s.family.settings import setting_name, value_study
from p3s.study import Study

#: Why the thesis's laws of a phase's time are not fitted: they are laws of n at one workload.
_NO_CRM = "the runs are of other values of the parameters"


def compute_at(study: Study, fitted: Fitted, model: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return compute.json of a derived model, None where no setting has times.

    study: that with the parameters; model: that at the setting. Work at traced settings is what
    was counted, or where work is time what the family's laws say: cost is then a factor on them.
    """
    from p3s.characterize.times import load_times

    unit = str(model["work_unit"])
    found: list[Measured] = []
    points: list[Point] = []
    runs: list[dict[str, Any]] = []
    time_unit = ""
    for m in fitted.use:
        setting = fitted.part.members[m].setting
        at = value_study(study, setting)
        times = [t for n in at.signature_counts() if (t := load_times(at.root, n)) is not None]
        if not times:
            continue
        there = model_at(fitted, setting)
        group = [measured_at(there, t) for t in times]
        if unit in TIME_UNITS:
            group, _ = by_count(group, [], x_scale(there, min(there["counts"])))
        found += group
        name = f"at/{setting_name(setting)}"
        points += [replace(p, source=name) for each in group for p in own_points(each)]
        runs += [{"np": t.np, "dir": f"../../{name}/{run.get('dir', '')}",
                  "time_ns": run.get("time_ns"), "wall_ns": run.get("wall_ns"),
                  "disturbed": list(run.get("disturbed", ()))} for t in times for run in t.runs]
        time_unit = times[-1].unit
    if not points:
        return None
    laws = fit_laws(points, small_places(found), len(model["phases"]), unit)
    total = max(sum(float(each.typical.sum()) for each in found), 1e-300)

    def share(places: Any) -> float:
        return sum(float(each.typical[k].sum()) for each in found
                   for k, place in enumerate(each.places) if place in places) / total

    scale = x_scale(model, min(model["counts"])) if unit in TIME_UNITS else None
    phases = []
    for phase in model["phases"]:
        k = int(phase["phase"])
        whole = laws.whole(k)
        xs = [p.x for p in whole.points] if whole is not None else []
        phases.append({
            "phase": k, "name": phase["name"], "x": [min(xs), max(xs)] if xs else None, "n": None,
            "turns": [], "crm_i": None, "crm_c": None, "far": None, "crm_why": _NO_CRM,
            "spread": spread(laws, found, k).to_json(),
            "x_times_n": None if scale is None else float(scale[k])})
    return {"schema": SCHEMA, "schema_version": VERSION, "work_unit": unit,
            "counts": sorted({each.n for each in found}),
            "laws": [entry_json(e, share(e.places)) for e in laws.entries],
            "rest": laws.rest.to_json(), "phases": phases, "holdout": None,
            "pooled": {"place": list(POOL), "whole": list(WHOLE)}, "time_unit": time_unit,
            "runs": runs, "refused": [], "unmatched": {}, "outside_model": {}}
