"""Which laws say the mean work of a rank: those of segments, of phases, or of the program.

Each is fitted without the largest count and compared there, in the program and in each phase, so
that a phase that is small there has the law that tells of it. Laws of segments, times exact counts,
win where iterations follow different laws; laws of phases where code moves between calls; that of
the program where work moves between phases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from p3s.laws.statistics import FLOAT_ERROR, PER_DOUBLING, Z90
from p3s.laws.sums import miss_bits, shares
from p3s.model.grid.at import GridAt
from p3s.model.tree import phase_weight
from p3s.model.types import Model
from p3s.model.work.means import fit_mean, mean_at, spread_at
from p3s.model.work_types import Level, MeanLaw, WorkLevel

#: Half width of the 90 % interval of a mean: a constant and the error at the largest count; more
#: with each further doubling.
LEAST = 0.015
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
    """A phase at the traced counts, ascending: mean work over the run of the ranks that take part;
    iterations; the share of ranks that take part.

    said: as the means, by laws of segments; held: at the largest count by such laws that were
    fitted without it, None where it cannot be said; apart: how far off the differences are that
    these say between ranks (rms, relative).
    each: only a law of one iteration is of use, as their number will be another.
    """

    means: Sequence[float]
    weights: Sequence[float]
    shares: Sequence[float]
    said: Sequence[float]
    held: float | None
    apart: float
    each: bool = False


def scalars(grid: GridAt) -> dict[str, int]:
    """Return n and the extents of a grid of more than one dimension."""
    return grid.symbols if len(grid.dims) > 1 else {"n": grid.n}


def phase_law(grids: Sequence[Mapping[str, int]], p: PhasePoints) -> MeanLaw | None:
    """Return the law of a phase: of the run or of one iteration, whichever tells more."""
    whole = fit_mean(grids, p.means, logs=True)
    if len(set(p.weights)) == 1 and not p.each:
        return whole
    once = [v / w for v, w in zip(p.means, p.weights, strict=True)]
    each = fit_mean(grids, once, logs=True)
    if whole is None or each is None:
        return whole
    better = each.error is not None and whole.error is not None and each.error < whole.error
    return replace(each, each=True) if better or p.each else whole


def evaluate_work(law: MeanLaw | None, grid: Mapping[str, int], iterations: float) -> float:
    """Return the mean work over the run by the law of a phase."""
    if law is None:
        return 0.0
    return mean_at(law, grid) * (max(iterations, 1.0) if law.each else 1.0)


def fit_level(grids: Sequence[Mapping[str, int]], points: Sequence[PhasePoints]) -> WorkLevel:
    """Return whose laws meet the largest count best, fitted without it, and all counts.

    grids: of ``scalars``, ascending. Of fewer than three counts it is those of segments.
    """
    phases = np.array([np.multiply(p.means, p.shares) for p in points])
    every = phases.sum(axis=0) if len(points) else np.zeros(len(grids))
    total = fit_mean(grids, every.tolist())
    if len(grids) < 3 or total is None:
        return WorkLevel({"segments": 1.0}, {}, total)
    held = [
        replace(p, means=p.means[:-1], weights=p.weights[:-1], shares=p.shares[:-1]) for p in points
    ]
    found: dict[Level, np.ndarray] = {
        "phases": _evaluate_phases(grids[:-1], held, grids[-1], points, -1)
    }
    whole = fit_mean(grids[:-1], every[:-1].tolist())
    if whole is not None and found["phases"].any():
        found["total"] = _brought(found["phases"], mean_at(whole, grids[-1]))
    if all(p.held is not None for p in points):
        found["segments"] = np.array([(p.held or 0.0) * p.shares[-1] for p in points])
    there = [_evaluate_phases(grids, points, g, points, i) for i, g in enumerate(grids)]
    fitted: dict[Level, Sequence[np.ndarray]] = {
        "phases": there,
        "total": [_brought(v, mean_at(total, g)) for v, g in zip(there, grids, strict=True)],
        "segments": np.array([np.multiply(p.said, p.shares) for p in points]).T.tolist(),
    }
    apart = np.array([p.apart for p in points]) * phases[:, -1]

    def misses(mine: slice) -> dict[Level, float]:
        true, out = phases[mine], {}
        for name, values in found.items():
            off = [_error(np.array(a)[mine], b) for a, b in zip(fitted[name], true.T, strict=True)]
            parts = [_error(values[mine], true[:, -1]), float(np.sqrt(np.mean(np.square(off))))]
            if (
                name == "segments"
            ):  # wild laws of some ranks are in the sum, and may grow further on
                parts.append(float(apart[mine].sum()) / max(float(true[:, -1].sum()), 1e-300))
            out[name] = float(np.linalg.norm(parts))
        return out

    errors = misses(slice(None))
    own = [misses(slice(k, k + 1)) for k in range(len(points))]
    both = [{k: float(np.hypot(errors[k], e)) / 2**0.5 for k, e in each.items()} for each in own]
    return WorkLevel(_weights(errors, len(grids)), errors, total, tuple(both))


def _weights(errors: Mapping[Level, float], counts: int) -> dict[Level, float]:
    """Return the weights of levels: errors that are about the same do not decide between them."""
    if errors.get("segments", np.inf) <= EXACT:
        return {"segments": 1.0}
    found = shares([miss_bits(e, counts) for e in errors.values()])
    return {k: w for k, w in zip(errors, found.tolist(), strict=True) if w}


def without_total(level: WorkLevel) -> WorkLevel:
    """Return the level without the law of the program, which knows no iterations."""
    of = (level.weights, level.errors, *level.phases)
    rest: list[dict[Level, float]]
    rest = [{k: value for k, value in each.items() if k not in ("total",)} for each in of]
    whole = sum(rest[0].values())
    weights = {name: w / whole for name, w in rest[0].items()} or {"phases": 1.0}
    return replace(level, weights=weights, errors=rest[1], phases=tuple(rest[2:]))


def _evaluate_phases(
    grids: Sequence[Mapping[str, int]],
    fitted: Sequence[PhasePoints],
    at: Mapping[str, int],
    points: Sequence[PhasePoints],
    i: int,
) -> np.ndarray:
    """Return the work of phases over the run, mean over all ranks, at count number i of points."""
    return np.array(
        [
            evaluate_work(phase_law(grids, f), at, p.weights[i]) * p.shares[i]
            for f, p in zip(fitted, points, strict=True)
        ]
    )


def _brought(values: np.ndarray, total: float) -> np.ndarray:
    return np.asarray(values * (total / max(float(values.sum()), 1e-300)))


def _error(said: np.ndarray, true: np.ndarray) -> float:
    if not (said.sum() > 0 and true.sum() > 0):
        return LOST if said.any() or true.any() else 0.0
    whole = float(np.log(said.sum() / true.sum()))
    split = float(np.abs(said / said.sum() - true / true.sum()).sum())
    return float(np.hypot(whole, SPLIT * split))


def means_at(model: Model, grid: GridAt, said: np.ndarray) -> dict[int, Amount]:
    """Return the mean work of a rank in each phase at any grid, where not segments alone say it.

    said: by the laws of segments, per phase; 0 where no rank takes part.
    """
    level = model.level
    if level is None or set(level.weights) == {"segments"}:
        return {}
    at = scalars(grid)
    laws = {k: law for k, p in enumerate(model.phases) if said[k] > 0 and (law := p.work.mean)}
    phases = {
        k: evaluate_work(law, at, float(phase_weight(model.phases[k], grid)))
        for k, law in laws.items()
    }
    every = sum(phases[k] * model.phases[k].work.share for k in laws)
    whole = mean_at(level.total, at) / every if level.total is not None and every > 0 else 1.0
    ends = min(model.counts), max(model.counts)
    beyond = float(np.log2(max(at["n"] / ends[1], ends[0] / at["n"], 1.0)))
    out = {}
    for k, law in laws.items():
        levels = {"phases": phases[k], "total": whole * phases[k], "segments": float(said[k])}
        errors = level.phases[k] if level.phases else level.errors
        weights = _weights(errors, len(model.counts)) if level.phases else level.weights
        own = replace(level, weights=weights, errors=errors)
        logs = {name: float(np.log(max(levels[name], 1e-300))) for name in own.errors}
        value = sum(w * logs[name] for name, w in own.weights.items())
        spread = np.hypot(_spread(own, law, at), _apart(own, logs, value))
        error = sum(w * own.errors[name] for name, w in own.weights.items())
        width = (LEAST + error) * (1.0 + PER_DOUBLING * beyond)
        out[k] = Amount(float(np.exp(value)), float(np.hypot(width, Z90 * spread)))
    return out


def _apart(level: WorkLevel, logs: Mapping[Level, float], value: float) -> float:
    """Return how far the levels disagree with ``value``: those that did worse count as much less.

    logs: of the mean work, by level.
    """
    least = min(level.errors.values()) + FLOAT_ERROR
    weight = {k: least / (e + FLOAT_ERROR) for k, e in level.errors.items()}
    square = sum(w * (logs[name] - value) ** 2 for name, w in weight.items())
    return float(np.sqrt(square / sum(weight.values())))


def _spread(level: WorkLevel, law: MeanLaw, at: Mapping[str, int]) -> float:
    """Return how far laws that are averaged lie apart, of the phase or of the program."""
    whole = level.total if level.weights.get("total", 0.0) > 1 / 2 else None
    return spread_at(whole or law, at)
