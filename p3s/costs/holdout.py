"""How well the compute model does at the largest traced count when it was fitted without it."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from p3s.costs.gather import Measured
from p3s.costs.model import Laws, fit_laws, gathered, measured_turn, predicted_turn
from p3s.costs.phases import NO_WORK, NOT_LEFT, share_of
from p3s.costs.points import Point
from p3s.costs.types import CostHoldOut, PhaseError
from p3s.model.comparison import HoldOut, WorkErrors
from p3s.model.judge import phase_key
from p3s.model.types import Model
from p3s.signature.clock import TIMES

#: Phases below this share of the time are left out of the errors.
SHARE = 0.01


def hold_out(
    model: Model,
    found: Sequence[Measured],
    far: Sequence[Point],
    small: set[Any],
    unit: str,
    shared: Container[Any] = (),
) -> CostHoldOut | None:
    """Return the errors of each phase's time at the largest traced count, fitted without it.

    The work there is what the model says that was fitted without it (its hold-out), the cost what
    the laws say without its points; far: points of other workloads. shared: places whose work goes
    with 1/n, whatever a law says. None where there are too few counts, or no hold-out of the model,
    or no phase has SHARE of the time.
    """
    held = model.holdout
    if len(found) < 3 or held is None or held.comparison is None:
        return None
    last = max(found, key=lambda m: m.n)
    if held.n != last.n:
        return None
    points = gathered([m for m in found if m.n != last.n], far)[0]
    phases = len(last.weight)
    laws = fit_laws(points, small, phases, unit)
    ratio = _ratios(held, held.comparison.work, model)
    if unit in TIMES:  # the work of the model was fitted: back to what was measured
        said = last.per_phase(last.work).sum(axis=1)
        least = last.per_phase(last.least).sum(axis=1)
        ratio = ratio * np.divide(least, said, out=np.ones(phases), where=said > 0)
    x = last.x
    if unit not in TIMES:  # where work is time, x goes with the count
        x = x * ratio[:, None]
    of_place = np.array(
        [
            1.0 if place in shared else ratio[k]
            for place, k in zip(last.places, last.phase.tolist(), strict=True)
        ]
    )
    held_out = replace(last, work=last.work * of_place[:, None], x=x)
    of_phase = last.per_phase(last.typical)
    each = [
        _of_phase(k, share, laws, last, held_out)
        for k in range(phases)
        if (share := share_of(of_phase, k)) >= SHARE
    ]
    if not each:
        return None
    errors = [abs(e.error) for e in each if e.error is not None]
    return CostHoldOut(
        last.n,
        float(np.mean(errors)) if errors else None,
        float(np.max(errors)) if errors else None,
        tuple(each),
    )


def _of_phase(k: int, share: float, laws: Laws, last: Measured, held_out: Measured) -> PhaseError:
    """Return a phase's time in one iteration as it was measured and as the laws say."""
    measured = measured_turn(last, k, last.typical)
    if not measured > 0 or k not in laws.whole:
        why = NOT_LEFT if measured > 0 else NO_WORK
        return PhaseError(k, share, measured, None, None, why)
    predicted = predicted_turn(laws, held_out, k)
    return PhaseError(k, share, measured, predicted, (predicted - measured) / measured, None)


def _ratios(held: HoldOut, work: WorkErrors, model: Model) -> np.ndarray:
    """Return predicted over measured work of each phase in the hold-out of the model.

    Phases are numbered anew in every fit: they are known by their calls.
    """
    errors = {entry.phase: entry.error for entry in work.each if entry.phase is not None}
    seen = {key: k for k, key in enumerate(held.phases_seen)}
    keys = [seen.get(phase_key(p, model.items), -1) for p in model.phases]
    return np.array([1.0 + errors.get(key, work.total_error) for key in keys])
