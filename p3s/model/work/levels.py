"""Which laws say the mean work of a rank: those of segments, of phases, or of the program.

Each is fitted without the largest count and compared there. Laws of segments, times exact counts,
win where iterations follow different laws; laws of phases where code moves between calls; that of
the program where work moves between phases.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from p3s.model.grid.guards import GridAt
from p3s.model.tree import phase_weight
from p3s.model.types import Level, MeanLaw, Model, WorkLevel
from p3s.model.work.means import fit_mean, mean_at, spread_at

#: Levels whose laws are those of means.
LAWS: set[Level] = {"phases", "total"}
#: Half width of the 90 % interval of a mean: a constant and a multiple of the error at the
#: largest count, half as much again with each further doubling.
LEAST, PER_ERROR, PER_DOUBLING = 0.02, 1.0, 0.5
#: Weight of what is in the wrong phase, beside what is wrong in all.
SPLIT = 0.5
#: Errors below are none; that of a law that says nothing where there is work.
EXACT, LOST = 1e-3, 10.0


@dataclass(frozen=True)
class Amount:
    """The mean work of a rank in a phase over the run, and its relative half width."""

    value: float
    half_width: float


@dataclass(frozen=True)
class PhasePoints:
    """A phase at the traced counts, ascending: mean work of the ranks that take part, per
    iteration; the iterations; the share of ranks that take part.

    held: the mean over the run at the largest count by laws of segments that were fitted without
    it, None where it cannot be said; apart: how far single ranks are off by these (rms, relative).
    """

    means: Sequence[float]
    weights: Sequence[float]
    shares: Sequence[float]
    held: float | None
    apart: float


def scalars(grid: GridAt) -> dict[str, int]:
    """Return n and the extents of a grid of more than one dimension."""
    extents = {f"p{d}": p for d, p in enumerate(grid.dims)} if len(grid.dims) > 1 else {}
    return {"n": grid.n, **extents}


def fit_level(grids: Sequence[Mapping[str, int]], points: Sequence[PhasePoints]) -> WorkLevel:
    """Return the level whose laws meet the largest count best, fitted without it.

    grids: of ``scalars``, ascending. Of fewer than three counts it is that of segments.
    """
    phases = np.array([_over_run(p, range(len(grids))) for p in points])
    every = phases.sum(axis=0) if len(points) else np.zeros(len(grids))
    total = fit_mean(grids, every.tolist())
    if len(grids) < 3 or total is None:
        return WorkLevel("segments", {}, total)
    true = phases[:, -1]
    told: dict[Level, np.ndarray] = {"phases": np.array([_held(grids, p) for p in points])}
    whole = fit_mean(grids[:-1], every[:-1].tolist())
    if whole is not None and told["phases"].any():
        part = told["phases"] / told["phases"].sum()
        told["total"] = mean_at(whole, grids[-1]) * part
    if all(p.held is not None for p in points):
        told["segments"] = np.array([(p.held or 0.0) * p.shares[-1] for p in points])
    errors: dict[Level, float] = {name: _error(values, true) for name, values in told.items()}
    for name in LAWS & set(errors):
        law = total if name == "total" else None
        there = [_error(_fitted(grids, points, i, law), phases[:, i]) for i in range(len(grids))]
        errors[name] = float(np.hypot(errors[name], np.sqrt(np.mean(np.square(there)))))
    if "segments" in errors:  # wild laws of some ranks are in the sum, and may be worse further on
        apart = float(true @ [p.apart for p in points]) / float(true.sum())
        errors["segments"] = float(np.hypot(errors["segments"], apart))
    best = min(errors, key=lambda name: errors[name])
    if errors.get("segments", np.inf) <= EXACT:
        best = "segments"
    return WorkLevel(best, {str(name): error for name, error in errors.items()}, total)


def _over_run(p: PhasePoints, which: Sequence[int]) -> list[float]:
    """Return the work over the run, mean over all ranks, at some counts."""
    return [p.means[i] * p.weights[i] * p.shares[i] for i in which]


def _held(grids: Sequence[Mapping[str, int]], p: PhasePoints) -> float:
    law = fit_mean(grids[:-1], p.means[:-1], logs=True)
    return 0.0 if law is None else mean_at(law, grids[-1]) * p.weights[-1] * p.shares[-1]


def _fitted(
    grids: Sequence[Mapping[str, int]], points: Sequence[PhasePoints], i: int, total: MeanLaw | None
) -> np.ndarray:
    """Return the work of the phases at a traced count by the laws of all; total: of the program."""
    out = np.zeros(len(points))
    for k, p in enumerate(points):
        law = fit_mean(grids, p.means, logs=True)
        if law is not None:
            out[k] = mean_at(law, grids[i]) * p.weights[i] * p.shares[i]
    return out if total is None else out / max(out.sum(), 1e-300) * mean_at(total, grids[i])


def _error(told: np.ndarray, true: np.ndarray) -> float:
    if not (told.sum() > 0 and true.sum() > 0):
        return LOST
    whole = float(np.log(told.sum() / true.sum()))
    split = float(np.abs(told / told.sum() - true / true.sum()).sum())
    return float(np.hypot(whole, SPLIT * split))


def means_at(model: Model, grid: GridAt, there: Collection[int]) -> dict[int, Amount]:
    """Return the mean work of a rank in each phase at any grid, where laws of means say it.

    there: phases that any rank takes part in.
    """
    level = model.level
    if level is None or level.kind == "segments":
        return {}
    at = scalars(grid)
    laws = {k: law for k in there if (law := model.phases[k].work.mean) is not None}
    means = {
        k: mean_at(law, at) * max(float(phase_weight(model.phases[k], grid)), 1.0)
        for k, law in laws.items()
    }
    every = sum(means[k] * model.phases[k].work.share for k in laws)
    whole = 1.0
    if level.kind == "total" and level.total is not None and every > 0:
        whole = mean_at(level.total, at) / every
    return {k: Amount(whole * means[k], _half_width(model, k, law, at)) for k, law in laws.items()}


def _half_width(model: Model, k: int, law: MeanLaw, at: Mapping[str, int]) -> float:
    level = model.level
    assert level is not None
    error = level.errors[level.kind]
    beyond = max(float(np.log2(at["n"] / max(model.counts))), 0.0)
    spread = spread_at(level.total if level.kind == "total" and level.total else law, at)
    width = (LEAST + PER_ERROR * error) * (1.0 + PER_DOUBLING * max(beyond - 1.0, 0.0))
    return float(np.hypot(width, 1.645 * spread))
