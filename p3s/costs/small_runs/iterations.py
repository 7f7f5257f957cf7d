"""How often the phases of a model run in runs with another workload.

The model's laws of weights hold for its own workload. Another one's iterations are counted in its
own runs: they are folded together with those of the study, so that a loop that turns but once there
is still the loop that it is in the study."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from p3s.base.errors import P3SError
from p3s.model.evaluate import model_grid
from p3s.model.tree import phase_stages
from p3s.model.types import Model, Phase
from p3s.signature.structure import Structure, structure
from p3s.signature.tables import PointTable

Turns = dict[tuple[int, int], float]


def together(own: Sequence[PointTable], other: Sequence[PointTable]) -> Structure:
    """Return one tree of the runs of two workloads; counts of the other one are negative.

    The largest count decides what is a walk from partner to partner, and is the study's own.
    """
    return structure([*own, *(replace(t, np=-t.np) for t in other)])


def phase_turns(own: Sequence[PointTable], other: Sequence[PointTable], model: Model) -> Turns:
    """Return (phase of the model, count) -> iterations in the other workload's runs, on the rank
    with
    most of them; what cannot be told is left out.

    The loop of a phase is the innermost one around its calls that turns, at every count of the
    study, as often as the model says. Where there is none the calls of an iteration tell.
    """
    s = together(own, other)
    number = {node: k for k, node in enumerate(s.nodes)}
    out: Turns = {}
    for phase in model.phases:
        nodes = sorted(
            {
                number[key]
                for i in phase.items
                for it in [model.items[i]]
                if (key := (it.site, it.op)) in number
            }
        )
        loop = _loop_of(s, nodes, phase, model)
        for t in other:
            if phase.parent is None:
                found: float | None = 1.0
            elif loop is not None:
                found = _turns(s, loop, -t.np, _stages(model, phase, t.np))
            else:
                found = _by_calls(own, t, phase, model)
            if found:
                out[(phase.phase, t.np)] = found
    return out


def _loop_of(s: Structure, nodes: Sequence[int], phase: Phase, model: Model) -> int | None:
    """Return the number of the loop that a phase is in the tree of both workloads."""
    around = {int(k) for v in nodes for k in s.nest.around[v] if k > 0}
    wanted = {n: v for n, v in phase.weight_points if n in s.counts}
    for k in sorted(around, reverse=True):  # inner loops have higher numbers
        if wanted and all(
            _turns(s, k, n, _stages(model, phase, n)) == v for n, v in wanted.items()
        ):
            return k
    return None


def _turns(s: Structure, loop: int, n: int, stages: int) -> float:
    return max((t for (m, _), t in s.nest.loops[loop].turns.items() if m == n), default=0) // max(
        stages, 1
    )


def _stages(model: Model, phase: Phase, n: int) -> int:

    if not phase.fused_stages:
        return 1
    try:
        return phase_stages(phase, model.items, model_grid(model, n))
    except P3SError:  # the rule for the grid does not admit a count that ran
        return 1


def _by_calls(
    own: Sequence[PointTable], other: PointTable, phase: Phase, model: Model
) -> float | None:
    """Return the iterations by the calls that a rank makes in each, where that number is always
    one."""
    weights = {n: v for n, v in phase.weight_points if v}
    votes = []
    for place in {(model.items[i].site, model.items[i].op) for i in phase.items}:
        per_turn = {_most_calls(t, place) / weights[t.np] for t in own if t.np in weights}
        calls = _most_calls(other, place)
        if len(per_turn) == 1 and (each := per_turn.pop()) and calls:
            votes.append(calls / each)
    return float(np.median(votes)) if votes else None


def _most_calls(t: PointTable, place: tuple[str, str]) -> int:
    mine = np.array([(g.site, g.op) == place for g in t.groups], dtype=bool)
    there = mine[t.group] if len(t.group) else np.zeros(0, dtype=bool)
    return int(np.bincount(t.rank[there], weights=t.count[there], minlength=t.np).max(initial=0))
