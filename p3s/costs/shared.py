"""Where work is time: places whose work is taken to go with 1/n, as what a rank holds does.

A law of time that was fitted to runs through a step of the memory has that step in it, badly: its
cost, a correction, would have to follow the misfit. Work that is shared out among all ranks alike
goes with 1/n, and its cost is then as smooth as that of an instruction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from p3s.costs.gather import Measured, in_the_run, modelled_work, places_of, weights_at, work_of
from p3s.costs.thesis import Place, Point
from p3s.model.evaluate import Evaluator
from p3s.model.types import Model

#: Powers of n between the smallest and the largest traced count that are 1/n with a cost that falls
#: or with some overhead; largest coefficient of variation of ranks that are alike, and largest
#: difference between their calls per turn.
STEEPEST, FLATTEST, ALIKE = -1.7, -0.6, 0.1
#: Ranks that the mean at a large count is taken from.
_SAMPLE = 128


def shared_work(model: Model) -> dict[Place, float]:
    """Return the places whose work is shared out among all ranks alike, and n times the mean work
    of a rank per iteration there, in ns, at the smallest traced count.
    """
    first, last = min(model.counts), max(model.counts)
    places, phase = places_of(model)
    mean, alike = [], []
    for n in (first, last):
        work, grid = modelled_work(model, n)
        work = np.where(in_the_run(places), work, 0.0)
        mean.append(mean_of(work) / weights_at(model, n, grid)[phase])
        part = np.ma.masked_less_equal(work, 0.0)
        alike.append(
            np.asarray((part.std(axis=1) <= ALIKE * part.mean(axis=1)).filled(False))
            & ((work > 0).sum(axis=1) == n)
        )
    out = {}
    for k, place in enumerate(places):
        if first < last and min(mean[0][k], mean[1][k]) > 0 and alike[0][k] and alike[1][k]:
            power = np.log(mean[1][k] / mean[0][k]) / np.log(last / first)
            if STEEPEST <= power <= FLATTEST:
                out[place] = float(mean[0][k] * first)
    return out


def steady(shared: Mapping[Place, float], found: Sequence[Measured]) -> dict[Place, float]:
    """Return those places that a rank comes to equally often per iteration at all measured counts.

    Where it comes there more often (stages of a reduction along a growing dimension), the work of
    an iteration has parts that go with 1/n and others that do not, and the model's law tells them
    apart."""
    calls: dict[Place, list[float]] = {}
    for m in found:
        for k, mean in enumerate(mean_of(m.calls)):
            if mean > 0:
                calls.setdefault(m.places[k], []).append(mean / m.weight[m.phase[k]])
    return {
        place: value
        for place, value in shared.items()
        if max(calls.get(place, [1.0])) <= (1 + ALIKE) * min(calls.get(place, [1.0]))
    }


def mean_of(work: np.ndarray) -> np.ndarray:
    """Return the mean over the ranks that have any; work: (places, ranks)."""
    return np.asarray(work.sum(axis=1) / np.maximum((work > 0).sum(axis=1), 1))


def factors(
    shared: Mapping[Place, float],
    places: Sequence[Place],
    mean: np.ndarray,
    weight: np.ndarray,
    n: float,
) -> np.ndarray:
    """Return what the modelled work of each place is multiplied with, to be its shared work.

    mean: modelled work of a rank in the run; weight: iterations, both by place. 1 where not shared.
    """
    out = np.ones(len(places))
    for k, place in enumerate(places):
        if place in shared and mean[k] > 0:
            out[k] = shared[place] / n * weight[k] / mean[k]
    return out


def share_points(
    shared: Mapping[Place, float],
    found: Sequence[Measured],
    far: Sequence[Point],
    weight: Mapping[tuple[int, str, int], float],
) -> tuple[list[Measured], list[Point]]:
    """Return own runs and points of other workloads with shared work where it is shared.

    weight: iterations of the phases in each run (of ``turned``).
    """
    own = [
        replace(
            m,
            work=m.work
            * factors(shared, m.places, mean_of(m.work), m.weight[m.phase], m.n)[:, None],
        )
        for m in found
    ]
    return own, [
        replace(p, work=shared[p.place] / p.n * weight[p.phase, p.source, p.traced])
        if p.place in shared
        else p
        for p in far
    ]


def factors_at(model: Model, shared: Mapping[Place, float], n: int) -> np.ndarray:
    """Return :func:`factors` at any count, from the mean of some ranks evenly over all."""
    evaluator = Evaluator(model, n)
    some = np.unique(np.linspace(0, n - 1, min(n, _SAMPLE)).astype(np.int64))
    rows = evaluator.rows(some)
    found = work_of(model, rows, widths=False)
    places, phase = places_of(model)
    weight = weights_at(model, n, evaluator.grid)
    return factors(shared, places, mean_of(found.work), weight[phase], n)
