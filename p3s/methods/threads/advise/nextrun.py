"""Which run to make next: the one whose outcome is expected to lower the regret most.

Every draw of the laws is taken for the truth in turn. A candidate's time would be seen with the
noise of a run; it makes those draws likely that tell about this time; with their weights the best
configuration is chosen anew, and what it loses in the draw that was the truth is its regret (the
value of information; Raiffa and Schlaifer, 1961; as the knowledge gradient of Frazier and others,
2008). Draws share laws, so a run on one node tells about many.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from p3s.base.errors import P3SError
from p3s.machine.topology.units import Floats
from p3s.methods.threads.advise.advisor import Advisor, Workload
from p3s.methods.threads.advise.configurations import Configuration, uses_of
from p3s.methods.threads.advise.types import NextRun, Objective

#: Noise of one run, relative; how many of the best configurations the spread is taken of.
NOISE, FEW = 0.03, 8
#: Runs that tell as much within this part of the best one's gain are told apart by their cost.
_ALIKE = 0.1


def next_runs(
    advisor: Advisor,
    work: Workload,
    candidates: Sequence[Configuration],
    candidate_work: Workload,
    *,
    objective: Objective = Objective.TIME,
    workloads: Sequence[float] = (),
    noise: float = NOISE,
) -> tuple[NextRun, ...]:
    """Return candidates, the one first that narrows the decision most.

    work: what is to be decided for; candidate_work: of the candidates, with the work of the laws'
    phases (messages are not needed); workloads: what to call them, one per candidate. Among runs
    that tell as much the cheaper one comes first.
    """
    if not candidates:
        raise P3SError("no run is possible to choose from; allow more nodes or counts")
    value = advisor.objective(work, objective)
    uses = uses_of(candidates)
    seen = [law.at(uses) for law in advisor.laws]
    parts = zip(seen, candidate_work.work, candidate_work.iterations, strict=True)
    times = np.sum([law.draws(w) * i for law, w, i in parts], axis=0)
    now = _expected(value, np.full((len(value), len(value)), 1.0 / len(value)))
    made = []
    for k, at in enumerate(candidates):
        weight = _believed(np.log(times[:, k]), noise)
        after = _expected(value, weight)
        cost = float(np.median(times[:, k])) * at.nodes * advisor.node.cores / 3600.0
        named = workloads[k] if len(workloads) else None
        made.append(NextRun(at, named, now[0], after[0], now[1], after[1], cost))
    return _in_order(made)


def _believed(told: Floats, noise: float) -> Floats:
    """Return how likely each draw is where each in turn is the truth: (truth, draws)."""
    away = (told[:, None] - told[None, :]) / noise
    weight = np.exp(-0.25 * np.minimum(away**2, 2000.0))  # noise of the run on both sides
    return np.asarray(weight / weight.sum(axis=1, keepdims=True))


def _expected(value: Floats, weight: Floats) -> tuple[float, float]:
    """Return the regret of what is chosen with weights, and the spread of the best few."""
    ratio = value / value.min(axis=1, keepdims=True)
    told = weight @ ratio
    chosen = told.argmin(axis=1)
    regret = float(ratio[np.arange(len(ratio)), chosen].mean() - 1.0)
    few = np.argsort(told.mean(axis=0), kind="stable")[:FEW]
    logs = np.log(value[:, few])
    middle = weight @ logs
    spread = np.sqrt(np.maximum(weight @ logs**2 - middle**2, 0.0))
    return max(regret, 0.0), float(spread.mean())


def _in_order(made: list[NextRun]) -> tuple[NextRun, ...]:
    """Return runs by what they tell: regret, then spread; of those alike the cheaper first."""
    most = max(max(each.gain for each in made), 1e-9)
    widest = max(max(each.spread - each.spread_after for each in made), 1e-9)

    def rank(each: NextRun) -> tuple[float, float]:
        told = each.gain / most + 0.5 * (each.spread - each.spread_after) / widest
        return (-np.floor(told / _ALIKE), each.core_hours)

    return tuple(sorted(made, key=rank))
