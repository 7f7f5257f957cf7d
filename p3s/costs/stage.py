"""The compute stage: times and model in, compute.json out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from p3s.errors import P3SError
from p3s.model.types import Model
from p3s.study import Study, read_json, write_json

if TYPE_CHECKING:
    from p3s.costs.gather import Measured
    from p3s.small_runs.points import Point

SCHEMA = "p3s.compute"
VERSION = 1
_KEYS = ("work_unit", "time_unit", "counts", "laws", "rest", "phases", "runs", "refused")


def build(study_dir: Path, points: Sequence[Point] = ()) -> dict[str, Any] | None:
    """Fit the cost of computation from all times of a study and write compute.json; return it.

    points: of runs that are in no study inside this one; x is work per iteration, n the count of
    this study's workload. None, and nothing is there, where there are no times at any count of its
    model and no points."""
    from p3s.characterize.times import load_times
    from p3s.costs.gather import measured_at
    from p3s.model.stage import load as load_model

    study = Study.open(Path(study_dir))
    model = load_model(study.root)
    times = [t for n in model.counts if (t := load_times(study.root, n)) is not None]
    if not times and not points:
        study.compute_path.unlink(missing_ok=True)
        return None
    found = [measured_at(model, t) for t in times]
    far, refused = other_points(study, model)
    far += points
    runs = [
        {
            "np": t.np,
            "dir": str(run.get("dir", "")),
            "time_ns": run.get("time_ns"),
            "wall_ns": run.get("wall_ns"),
            "disturbed": list(run.get("disturbed", ())),
        }
        for t in times
        for run in t.runs
    ]
    out = {
        "schema": SCHEMA,
        "schema_version": VERSION,
        **compute_json(model, found, far),
        "time_unit": times[-1].unit if times else "cpu_ns",
        "runs": runs,
        "refused": refused,
        "unmatched": {str(t.np): t.unmatched for t in times},
        "outside_model": {str(m.n): m.outside for m in found},
    }
    write_json(study.compute_path, out)
    return out


def other_points(study: Study, model: Model) -> tuple[list[Point], list[dict[str, str]]]:
    """Return the points of the other workloads' runs, and which of them could not be used."""
    points: list[Point] = []
    refused = []
    if study.others():
        from p3s.small_runs.match import matched_all

        for name, found in matched_all(study, model).items():
            if isinstance(found, P3SError):
                refused.append({"name": name, "why": str(found)})
            else:
                points += [p for groups in found[0].values() for g in groups for p in g.points]
    return points, refused


def compute_json(model: Model, found: Sequence[Measured], far: Sequence[Point]) -> dict[str, Any]:
    """Return what compute.json says of laws and phases; reads no files.

    found: the study's own runs by count, may be none; far: points of other workloads.
    """
    from p3s.costs.gather import POOL, TIME_UNITS, WHOLE, by_count, shares, turned, x_scale
    from p3s.costs.groups import groups_json
    from p3s.costs.holdout import hold_out
    from p3s.costs.model import OWN, entry_json, fit_laws, gathered
    from p3s.costs.phases import phase_json
    from p3s.costs.shared import share_points, shared_work, steady

    unit = str(model.work_unit)
    weight = turned(gathered(found, far)[0])
    groups = [groups_json(p, found, far, weight) for p in model.phases]
    scale, shared = None, {}
    if unit in TIME_UNITS:
        scale = x_scale(model, [m.n for m in found] or model.counts)
        found, far = by_count(found, far, scale)
        shared = steady(shared_work(model), found)
        found, far = share_points(shared, found, far, weight)
    points, small = gathered(found, far)
    laws = fit_laws(points, small, len(model.phases), unit)
    told = [p for p in points if not found or p.source == OWN]
    last = max(((p.traced, p.source) for p in told), default=(0, OWN))
    part = shares([p for p in told if (p.traced, p.source) == last])

    def share(places: Sequence[tuple[str, str]]) -> float:
        return sum(part.get(place, 0.0) for place in places)

    return {
        "work_unit": unit,
        "counts": [m.n for m in found],
        "laws": [entry_json(e, share(e.places)) for e in laws.entries],
        "rest": laws.rest.to_json(),
        "phases": [
            {
                **phase_json(p, laws, found, weight),
                "x_times_n": None if scale is None else float(scale[p.phase]),
                "groups": some,
            }
            for p, some in zip(model.phases, groups, strict=True)
        ],
        "holdout": hold_out(model, found, far, small, unit, shared),
        "shared": [[*place, work] for place, work in shared.items()],
        "pooled": {"place": list(POOL), "whole": list(WHOLE)},
    }


def load(study_dir: Path) -> dict[str, Any] | None:
    """Return the study's compute.json, its laws checked; None where there is none.

    Raises P3SError in one line when it is damaged or of another version.
    """
    from p3s.costs.laws import CostLaw

    path = Study(Path(study_dir)).compute_path
    if not path.exists():
        return None
    found = read_json(path, SCHEMA, VERSION)
    try:
        for key in _KEYS:
            if key not in found:
                raise KeyError(f"{key} is missing")
        for entry in found["laws"]:
            CostLaw.from_json(entry["law"])
            if entry["kind"] not in ("place", "small", "phase") or int(entry["phase"]) < 0:
                raise ValueError("a law is of no place")
            for place in entry["places"]:
                site, op = place
                if not isinstance(site, str) or not isinstance(op, str):
                    raise ValueError("a place is no site and operation")
        CostLaw.from_json(found["rest"])
        for site, op, work in found.get("shared", ()):
            if not isinstance(site, str) or not isinstance(op, str) or not float(work) > 0:
                raise ValueError("shared work is of no place")
        for phase in found["phases"]:
            for part in (phase, *phase.get("groups", ())):
                for law in (part["crm_i"], part["crm_c"]):
                    if law is not None:
                        float(law["a"]), float(law["b"])
            if phase["x"] is not None:
                low, high = map(float, phase["x"])
                if not 0 < low <= high:
                    raise ValueError("a range of work is none")
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, P3SError) as err:
        why = " ".join(str(err).split())[:80] or type(err).__name__
        raise P3SError(
            f"{path}: damaged or of another version ({why}); run `p3s model` again"
        ) from err
    return found
