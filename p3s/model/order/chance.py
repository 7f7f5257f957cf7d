"""Ranks whose order of events no model can tell: they receive from MPI_ANY_SOURCE."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from p3s.base.errors import P3SError
from p3s.base.study import Study
from p3s.capture.anybody import receivers
from p3s.model.comparison import Moved, OrderAgreement
from p3s.model.types import Model


def left_to_chance(order: OrderAgreement, run_dir: Path) -> OrderAgreement:
    """Return how orders agree, with what chance decides; raises P3SError as reading the run does.

    ``moved`` is then without the ranks that receive from anybody.
    """
    if not order.shuffled and not order.moved:
        return order
    chance = receivers(run_dir, {*order.shuffled, *order.moved})
    return replace(
        order,
        by_chance=len(chance & {*order.shuffled}),
        moved=tuple(rank for rank in order.moved if rank not in chance),
    )


def with_chance(model: Model, study: Study) -> Model:
    """Return a model that holds no rank's order against itself that chance decides.

    What runs that are gone received from anybody nobody knows: there it does.
    """
    there = model.holdout and model.holdout.comparison
    if model.holdout and there and there.order:
        order = _told(there.order, study, there.n)
        held = replace(model.holdout, comparison=replace(there, order=order))
        model = replace(model, holdout=held)
    if model.order is None or not model.order.moved:
        return model
    rest = []
    for each in model.order.moved:
        told = _told(OrderAgreement(each.ranks, 0, 0, {}, None, moved=each.moved), study, each.n)
        rest += [Moved(each.n, told.moved, each.ranks)] if told.moved else []
    return replace(model, order=replace(model.order, moved=tuple(rest)))


def _told(order: OrderAgreement, study: Study, n: int) -> OrderAgreement:
    """Return how orders agree, as it is where there is no run to read."""
    run = next((run.path for run in study.runs(n) if run.status == "complete"), None)
    try:
        return order if run is None else left_to_chance(order, run)
    except P3SError:
        return order
