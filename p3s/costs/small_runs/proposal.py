"""Which phases lack runs of a smaller input for a target count, and the input that gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from p3s.base.errors import P3SError
from p3s.costs.small_runs.cells import Cells, PredictedCells
from p3s.costs.small_runs.lookup import ladder
from p3s.model.evaluate import model_grid
from p3s.model.types import Model
from p3s.signature.phases import CONSTANT_WORK, RELEVANT_SHARE
from p3s.signature.rank import INSTRUCTIONS

#: The target when none is given: so many times the largest traced count.
TIMES = 16
#: Less work per iteration than measured, by more than this, relative, is outside of what is known.
_OUTSIDE = 0.05
#: Messages whose size changes by less, relative, between the traced counts and the target.
_SAME_SIZE = 0.01
Range = tuple[float, float]


def default_target(model: Model) -> int:
    """Return the count proposals are for: 16 times the largest traced one, or the next the
    program accepts."""
    wanted = TIMES * max(model.counts)
    return min((n for n in ladder(model) if n >= wanted), default=max(model.counts))


def propose(
    model: Model, target: int, known: Mapping[int, Range], up_to: Mapping[int, float] | None = None
) -> dict[str, Any]:
    """Return which phases lack a far point for ``target`` processes, and what would give it.

    known: phase -> least and most work per iteration of a process that was measured; where a phase
    is missing, what the model says of the traced counts. up_to: the same where work is time, as the
    largest count that was measured or that a far point stands for.

    Keys of the result: target; at (the largest traced count); input (the part of the input's size
    that gives each of ``at`` processes what it has at the target, where the work is shared out
    evenly); counts; stands_for (with that input, one for each of ``counts``); phases (those with
    more than 1 % of the work that compute on less than ever measured: phase, name, work (per
    iteration, the least of the ranks), measured, outside (ratio), of_largest (work per iteration as
    part of that at ``at`` processes, None where none is done there), even (the total work is the
    same at both)); above (names of phases with more work per iteration than measured: no smaller
    workload shows that); unmatched (work is time, and no size of a message tells the count). Raises
    P3SError where the program's process grid has no form at the target."""
    model_grid(model, target)  # says which counts there are
    predicted = PredictedCells(model)
    own = {n: cells for n in model.counts if (cells := predicted.at(n)) is not None}
    there = predicted.at(target)
    if there is None or not own:
        raise P3SError(f"next: the model cannot be evaluated at {target} processes")
    counts = [n for n in sorted(own) if n > 1]
    at = counts[-1]
    phases: list[dict[str, Any]] = []
    above: list[str] = []
    for k in _relevant(predicted, own[at], there):
        low, high = known.get(k) or _range([_per_turn(predicted, c, k) for c in own.values()])
        here = _per_turn(predicted, there, k)
        if up_to and k in up_to:
            low = float(here.min()) * target / up_to[k]
            high = max(high, low)
        name = str(model.phases[k].name)
        if here.max() > high * (1 + _OUTSIDE):
            above.append(name)
        if here.min() < low / (1 + _OUTSIDE):
            largest = float(_per_turn(predicted, own[at], k).mean())
            part = float(here.mean()) / largest if largest > 0 else None
            phases.append(
                {
                    "phase": k,
                    "name": name,
                    "work": float(here.min()),
                    "measured": [low, high],
                    "outside": low / float(here.min()) if here.min() > 0 else None,
                    "of_largest": part,
                    "even": part is not None and abs(part * target / at - 1) <= CONSTANT_WORK,
                }
            )
    return {
        "target": target,
        "at": at,
        "input": at / target,
        "counts": counts,
        "stands_for": [n * target / at for n in counts],
        "phases": phases,
        "above": above,
        "unmatched": bool(phases)
        and model.work_unit != INSTRUCTIONS
        and not _sizes_tell(predicted, own[at], there),
    }


def _per_turn(predicted: PredictedCells, cells: Cells, k: int) -> np.ndarray:
    """Return the work per iteration of every rank that takes part in a phase."""
    mine = predicted.phase == k
    work = cells.work[mine].sum(axis=0)[(cells.calls[mine] > 0).any(axis=0)]
    return (work if len(work) else np.zeros(1)) / max(float(cells.weight[k]), 1.0)


def _range(values: Sequence[np.ndarray]) -> Range:
    worth = [v[v > 0] for v in values if (v > 0).any()]
    return (
        (min(float(v.min()) for v in worth), max(float(v.max()) for v in worth))
        if worth
        else (0.0, 0.0)
    )


def _relevant(predicted: PredictedCells, *cells: Cells) -> list[int]:
    """Return the phases with more than 1 % of the work at one of the counts."""
    out = set()
    for c in cells:
        totals = [float(c.work[predicted.phase == k].sum()) for k in range(len(c.weight))]
        out |= {k for k, v in enumerate(totals) if v > RELEVANT_SHARE * sum(totals)}
    return sorted(out)


def _sizes_tell(predicted: PredictedCells, own: Cells, there: Cells) -> bool:
    """Tell whether the bytes per iteration of some phase are others at the target."""
    for k in range(len(own.weight)):
        mine = predicted.phase == k
        a, b = (
            float(c.nbytes[mine].sum(axis=0).max(initial=0) / max(float(c.weight[k]), 1.0))
            for c in (own, there)
        )
        if a > 0 and abs(b - a) > _SAME_SIZE * a:
            return True
    return False
