"""Fits the cost of computation of a study: times and model in, compute.json out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from p3s.base.errors import P3SError
from p3s.base.study import Study, write_json
from p3s.costs.gather import (
    Measured,
    by_count,
    measured_at,
    share_points,
    shared_work,
    shares,
    steady,
    turned,
    x_scale,
)
from p3s.costs.model import fit_laws, gathered, hold_out, phase_costs
from p3s.costs.thesis import OWN, POOL, WHOLE, Point
from p3s.costs.types import COMPUTE, ComputeModel, CostHoldOut, NotUsed, Pooled, TimedRun, own_cores
from p3s.model.stage import load as load_model
from p3s.model.types import Model
from p3s.signature.clock import TIMES
from p3s.signature.times import load_times


def build(study_dir: Path, points: Sequence[Point] = ()) -> ComputeModel | None:
    """Fit the cost of computation from all times of a study and write compute.json; return it.

    points: of runs that are in no study inside this one; x is work per iteration, n the count of
    this study's workload. None, and nothing is there, where there are no times at any count of its
    model and no points."""
    study = Study.open(Path(study_dir))
    model = load_model(study.root)
    times = [t for n in model.counts if (t := load_times(study.root, n)) is not None]
    if not times and not points:
        study.compute_path.unlink(missing_ok=True)
        return None
    runs = tuple(
        TimedRun(t.np, run.dir, run.time_ns, run.wall_ns, run.disturbed)
        for t in times
        for run in t.runs
    )
    quiet = own_cores(study, runs)
    found = [measured_at(model, t, t.np in quiet) for t in times]
    far, refused = other_points(study, model)
    far += points
    out = replace(
        fit(model, found, far),
        time_unit=times[-1].unit if times else "cpu_ns",
        runs=runs,
        refused=tuple(refused),
        unmatched={str(t.np): t.unmatched for t in times},
    )
    made_of = [study.model_path, *(study.times_path(t.np) for t in times)]
    write_json(study.compute_path, COMPUTE.data(out), made_of)
    return out


def other_points(study: Study, model: Model) -> tuple[list[Point], list[NotUsed]]:
    """Return the points of the other workloads' runs, and which of them could not be used."""
    points: list[Point] = []
    refused = []
    if study.others():
        from p3s.costs.small_runs.match import matched_all

        for name, found in matched_all(study, model).items():
            if isinstance(found, P3SError):
                refused.append(NotUsed(name, str(found)))
            else:
                points += [p for groups in found[0].values() for g in groups for p in g.points]
    return points, refused


def fit(model: Model, found: Sequence[Measured], far: Sequence[Point]) -> ComputeModel:
    """Return the laws of cost and what each phase's time rests on; reads no files.

    found: the study's own runs by count, may be none; far: points of other workloads. Nothing is
    said of the runs themselves.
    """
    unit = model.work_unit
    outside = {str(m.n): float(m.outside) for m in found}
    weight = turned(gathered(found, far)[0])
    scale, shared = None, {}
    if unit in TIMES:
        scale = x_scale(model, [m.n for m in found] or model.counts)
        found, far = by_count(found, far, scale)
        asked = steady(shared_work(model), found)
        small = gathered(found, far)[1]
        if _helps(
            hold_out(model, *share_points(asked, found, far, weight), small, unit, asked),
            hold_out(model, found, far, small, unit),
        ):
            shared = asked
            found, far = share_points(shared, found, far, weight)
    points, small = gathered(found, far)
    laws = fit_laws(points, small, len(model.phases), unit)
    own = [p for p in points if not found or p.source == OWN]
    last = max(((p.traced, p.source) for p in own), default=(0, OWN))
    part = shares([p for p in own if (p.traced, p.source) == last])

    return ComputeModel(
        work_unit=unit,
        counts=tuple(m.n for m in found),
        laws=tuple(
            replace(e, share=sum(part.get(place, 0.0) for place in e.places)) for e in laws.entries
        ),
        rest=laws.rest,
        phases=tuple(
            phase_costs(p, laws, found, weight, None if scale is None else float(scale[p.phase]))
            for p in model.phases
        ),
        holdout=hold_out(model, found, far, small, unit, shared),
        shared=tuple((*place, work) for place, work in shared.items()),
        pooled=Pooled(POOL, WHOLE),
        time_unit="cpu_ns",
        runs=(),
        refused=(),
        unmatched={},
        outside_model=outside,
    )


def _helps(shared: CostHoldOut | None, plain: CostHoldOut | None) -> bool:
    """Tell whether the largest count is met better where work is taken to be shared out evenly.

    The laws of work know overheads, but not the caches that work falls into.
    """
    if shared is None or plain is None:
        return True
    return shared.error < plain.error
