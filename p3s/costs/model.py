"""The compute model: laws of cost per place, and what each phase's time rests on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from p3s.costs.gather import (
    SMALL_SHARE,
    Measured,
    own_points,
    pooled,
    shares,
    small_places,
    thinned,
)
from p3s.costs.laws import CostLaw, fit_cost
from p3s.costs.points import POOL, WHOLE, Place, Point, once, per_rank
from p3s.costs.types import KeptPoint, LawEntry


@dataclass(frozen=True)
class Laws:
    """All cost laws of a program: of its phases and places, and one for what was never measured.

    whole: the points of each phase as a whole, which the law for places that were not measured was
    fitted to; phases without any are left out.
    """

    entries: tuple[LawEntry, ...]
    rest: CostLaw
    whole: Mapping[int, Sequence[Point]]

    def law_of(self, phase: int, place: Place) -> CostLaw:
        """Return the law of a place: its own or its pool's, else its phase's, else the rest's."""
        best = self.rest
        for entry in self.entries:
            if entry.phase == phase and entry.kind != "phase" and place in entry.places:
                return entry.law
            if entry.phase == phase and entry.kind == "phase":
                best = entry.law
        return best


def fit_laws(points: Sequence[Point], small: set[Place], phases: int, unit: str) -> Laws:
    """Fit a law of cost to every place that matters, the small ones of a phase together.

    points: of single places, of all runs and workloads; small: places that are pooled; unit: of
    the work.
    """
    usable = [p for p in points if p.work > 0 and p.least_ns > 0 and p.x > 0]
    entries: list[LawEntry] = []
    phase_points: dict[int, Sequence[Point]] = {}
    for k in range(phases):
        mine = [p for p in usable if p.phase == k]
        if not mine:
            continue
        places = list(dict.fromkeys(p.place for p in mine))
        whole = phase_points[k] = pooled(mine, dict.fromkeys(places, WHOLE))
        law = fit_cost(whole, unit=unit)
        entries.append(entry_of("phase", k, places, whole, law))
        parts = _parts(mine, [p for p in places if p in small])
        for kind, some, part in parts:
            # all of a phase in one part: the phase's law is its law
            own = law if len(parts) == 1 else fit_cost(part, unit=unit)
            entries.append(entry_of(kind, k, some, part, own))
    return Laws(tuple(entries), fit_cost(_program(usable), unit=unit), phase_points)


def _parts(
    points: Sequence[Point], small: Sequence[Place]
) -> list[tuple[Literal["place", "small"], Sequence[Place], Sequence[Point]]]:
    """Return (kind, places, points) of the parts of a phase that have a law each."""
    out: list[tuple[Literal["place", "small"], Sequence[Place], Sequence[Point]]] = []
    for place in dict.fromkeys(p.place for p in points):
        if place not in small:
            out.append(("place", (place,), [p for p in points if p.place == place]))
    if small:
        rest = pooled([p for p in points if p.place in small], dict.fromkeys(small, POOL))
        out.append(("small", small, rest))
    return out


def by_run(points: Sequence[Point]) -> list[list[Point]]:
    """Return the points of each run: of one source and traced count."""
    runs: dict[tuple[str, int], list[Point]] = {}
    for p in points:
        runs.setdefault((p.source, p.traced), []).append(p)
    return list(runs.values())


def _program(points: Sequence[Point]) -> list[Point]:
    """Return one point per run, all phases and ranks together: x is all work of a rank."""
    out = []
    for run in by_run(points):
        whole = per_rank(run, max(run[0].traced, 1))
        spread = float(np.median([p.spread for p in run]))
        out.append(replace(whole, phase=-1, x=whole.work, spread=spread))
    return out


def turns(points: Sequence[Point], weight: Mapping[tuple[int, str, int], float]) -> list[Point]:
    """Return a phase's points per run as the time of one process in one iteration, mean over its
    ranks.

    points: of the phase as a whole; weight: iterations in each run (of ``turned``). The time of one
    process in one iteration is what the thesis models (section 6.1); work, least_ns and typical_ns
    of the points returned are of one turn."""
    out = []
    for run in by_run(points):
        ranks = sum(p.ranks for p in run)
        first = run[0]
        turn = once(per_rank(run, ranks), weight[first.phase, first.source, first.traced])
        # of another workload every group of ranks has a count of its own: take the mean one
        weights = [p.ranks for p in run]
        n = float(np.average([p.n for p in run], weights=weights))
        x = float(np.average([p.x for p in run], weights=weights))
        out.append(replace(turn, n=n, x=x, spread=float(np.median([p.spread for p in run]))))
    return out


def predicted_turn(laws: Laws, found: Measured, phase: int) -> float:
    """Return the time of one process in one iteration by the laws, mean over ranks, in ns.

    found: the work and x of all ranks.
    """
    there = found.x[phase] > 0
    if not there.any():
        return 0.0
    return float(expected_ns(laws, found, phase)[there].mean() / found.weight[phase])


def expected_ns(laws: Laws, found: Measured, phase: int) -> np.ndarray:
    """Return the time of every rank in the run by the laws, in ns."""
    x, place = np.unique(found.x[phase], return_inverse=True)
    total = np.zeros(found.x.shape[1])
    for row in np.flatnonzero(found.phase == phase).tolist():
        cost = np.asarray(laws.law_of(phase, found.places[row]).typical(x))[place]
        total += found.work[row] * cost
    return total


def measured_turn(found: Measured, phase: int, values: np.ndarray) -> float:
    """Return the measured time of one process in one iteration, mean over ranks, in ns."""
    there = found.x[phase] > 0
    if not there.any():
        return 0.0
    per_rank = values[found.phase == phase].sum(axis=0)
    return float(per_rank[there].mean() / found.weight[phase])


def gathered(found: Sequence[Measured], far: Sequence[Point]) -> tuple[list[Point], set[Place]]:
    """Return the points of all runs, and the places that are pooled.

    found: own runs; without any, small places are those with little of the time at every point.
    """
    points = [p for m in found for p in own_points(m)] + list(far)
    small = (
        small_places(found)
        if found
        else {place for place, share in shares(points).items() if share < SMALL_SHARE}
    )
    return thinned(points), small


def entry_of(
    kind: Literal["place", "small", "phase"],
    phase: int,
    places: Sequence[Place],
    points: Sequence[Point],
    law: CostLaw,
) -> LawEntry:
    """Return an entry of ``laws`` in compute.json, its share of the computation not yet known."""
    rows = (
        KeptPoint(p.count, *(getattr(p, name) for name in KeptPoint._fields[1:])) for p in points
    )
    return LawEntry(kind, phase, tuple(places), 0.0, KeptPoint._fields, tuple(rows), law)
