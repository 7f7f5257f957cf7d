"""The cost of computation of a study from its own runs and other inputs: compute.json, far.json."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from p3s.base.errors import P3SError
from p3s.base.study import Study, write_json
from p3s.costs.fit import fit
from p3s.costs.gather import measured_at
from p3s.costs.points import Point
from p3s.costs.small_runs.match import match_all
from p3s.costs.small_runs.summary import FAR, FarFile, far_file
from p3s.costs.small_runs.walk import Reference
from p3s.costs.types import COMPUTE, ComputeModel, NotUsed, TimedRun, own_cores
from p3s.model.types import Model
from p3s.pipeline.other_inputs import other_inputs, own_runs
from p3s.pipeline.records import model_of
from p3s.signature.times import load_times


def build_compute(root: Path, points: Sequence[Point] = ()) -> ComputeModel | None:
    """Fit the cost of computation from all times of a study and write compute.json; return it.

    points: of runs that are in no study inside this one; x is work per iteration, n the count of
    this study's input. None, and nothing is there, where there are no times at any count of its
    model and no points."""
    study = Study.open(Path(root))
    model = model_of(study)
    times = [t for n in model.counts if (t := load_times(study.root, n)) is not None]
    if not times and not points:
        study.compute_path.unlink(missing_ok=True)
        return None
    shared = {
        str(record.path.relative_to(study.root)): bool(record.info.get("oversubscribed", True))
        for record in (*study.runs(), *study.timed_runs())
    }
    runs = tuple(
        TimedRun(t.np, run.dir, run.disturbed, not shared.get(run.dir, True))
        for t in times
        for run in t.runs
    )
    quiet = own_cores(runs)
    far, refused = other_points(study, model)
    found = fit(model, [measured_at(model, t, t.np in quiet) for t in times], [*far, *points])
    out = replace(
        found, runs=runs, refused=tuple(refused), unmatched={str(t.np): t.unmatched for t in times}
    )
    made_of = [study.model_path, *(study.times_path(t.np) for t in times)]
    write_json(study.compute_path, COMPUTE.data(out), made_of)
    return out


def other_points(study: Study, model: Model) -> tuple[list[Point], list[NotUsed]]:
    """Return the points of the other inputs' runs, and which of them could not be used."""
    if not study.others():
        return [], []
    reference = reference_of(study, model)
    points: list[Point] = []
    refused = []
    for name, found in match_all(reference, other_inputs(study, reference.own)).items():
        if isinstance(found, P3SError):
            refused.append(NotUsed(name, str(found)))
        else:
            points += [p for groups in found.values() for g in groups for p in g.points]
    return points, refused


def reference_of(study: Study, model: Model) -> Reference:
    """Return a model of a study with the study's own runs."""
    return Reference(model, own_runs(study))


def write_far(study: Study, reference: Reference, keep: bool = True) -> FarFile:
    """Write far.json of a study, return it: what all its other inputs were matched to.

    keep: else nothing is written, as where the study has no model.
    """
    out = far_file(reference, other_inputs(study, reference.own))
    if keep:
        write_json(study.root / "far.json", FAR.data(out))
    return out
