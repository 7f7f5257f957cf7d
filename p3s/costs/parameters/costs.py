"""What computation costs in time at a setting that was not traced: points of all other settings.

The code is the same, so is its cost at the same work per turn. Runs of every setting are points of
one law for each place; larger and smaller settings cover more of it than one of them does.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from p3s.base.settings import setting_name, value_study
from p3s.base.study import Study
from p3s.costs.gather import (
    TIME_UNITS,
    in_the_run,
    measured_at,
    modelled_work,
    own_points,
    places_of,
    weights_at,
)
from p3s.costs.parameters.derive import Fitted, model_at
from p3s.costs.points import Point
from p3s.costs.shared import mean_of
from p3s.model.types import Model


def points_for(study: Study, fitted: Fitted, model: Model) -> list[Point]:
    """Return the points of all traced settings for a derived model.

    study: that with the parameters; model: that at the setting. Work at traced settings is what
    was counted, or where work is time what the family's laws say: cost is then a factor on them,
    and the points' counts are those at which a rank of the derived workload holds as much. Where
    work is counted no count is given: x is all that is needed.
    """
    from p3s.signature.times import load_times

    out: list[Point] = []
    held = _held(model) if model.work_unit in TIME_UNITS else None
    for m in fitted.use:
        setting = fitted.part.members[m].setting
        at = value_study(study, setting)
        times = [t for n in at.signature_counts() if (t := load_times(at.root, n)) is not None]
        if not times:
            continue
        there = model_at(fitted, setting)
        ratio = None if held is None else _ratio(held, _held(there))
        for t in times:
            for p in own_points(measured_at(there, t)):
                n = math.nan if ratio is None else p.n * float(ratio[p.phase])
                out.append(replace(p, source=f"at/{setting_name(setting)}", n=n))
    return out


def _held(model: Model) -> list[np.ndarray]:
    """Return n times the mean work of a rank per iteration of each place, by phase, at the smallest
    count."""
    n = min(model.counts)
    work, grid = modelled_work(model, n)
    places, phase = places_of(model)
    work = np.where(in_the_run(places), work, 0.0)
    mean = mean_of(work)
    weight = weights_at(model, n, grid)
    return [n * mean[phase == k] / weight[k] for k in range(len(weight))]


def _ratio(derived: list[np.ndarray], traced: list[np.ndarray]) -> np.ndarray:
    """Return per phase how many times as much there is to share out, by its largest place."""
    out = np.ones(len(derived))
    for k, (mine, theirs) in enumerate(zip(derived, traced, strict=True)):
        if len(mine) and mine.max() > 0:
            largest = int(np.argmax(mine))
            if theirs[largest] > 0:
                out[k] = mine[largest] / theirs[largest]
    return out
