"""Comparisons of a model with a run, all of it right unless told otherwise."""

from __future__ import annotations

from typing import Any

from p3s.model.types import Comparison, HoldOut, Overlap, Unmodelled, Weights, WorkAt, WorkErrors

ALL_RIGHT = Overlap(9, 9, 9)


def work(
    *phases: tuple[float, float], total: float = 0.0, mean: float = 0.0, worst: float = 0.0
) -> WorkErrors:
    """Return errors of the work from the (share, error) of phases."""
    each = tuple(
        WorkAt(phase=k, share=share, true=share, predicted=share * (1 + error), error=error)
        for k, (share, error) in enumerate(phases)
    )
    return WorkErrors(mean, mean, worst, total, each)


def comparison(n: int, **changes: Any) -> Comparison:
    """Return a comparison at ``n`` processes; ``changes``: other values of its fields."""
    fields: dict[str, Any] = {
        "n": n,
        "p2p_triples": ALL_RIGHT,
        "collectives": ALL_RIGHT,
        "weights": Weights(2, 2),
        "order": None,
        "work": work(),
        "unmodelled": Unmodelled(0, 0.0),
        "slots": (),
        "items_wrong": (),
        "unseen_sites": (),
    }
    return Comparison(**{**fields, **changes})


def held_out(n: int, **changes: Any) -> HoldOut:
    """Return a fit without ``n`` processes that was compared there."""
    return HoldOut(n=n, possible=True, comparison=comparison(n, **changes))
