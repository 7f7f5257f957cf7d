"""Compute models with only what a test asks for in them."""

from __future__ import annotations

from typing import Any

from p3s.costs.laws import fit_cost
from p3s.costs.spread import Spread
from p3s.costs.types import ComputeModel, PhaseCosts


def phase_costs(phase: int, **known: Any) -> PhaseCosts:
    """Return a phase of which nothing else is known."""
    empty: dict[str, Any] = dict.fromkeys(
        ("x", "n", "crm_i", "crm_c", "far", "crm_why", "unknown", "x_times_n")
    )
    empty |= {"name": "loop", "turns": (), "spread": Spread()}
    return PhaseCosts(phase, **{**empty, **known})


def compute_model(unit: str, **known: Any) -> ComputeModel:
    """Return a compute model in a unit of work of which nothing else is known."""
    empty: dict[str, Any] = dict.fromkeys(
        ("counts", "laws", "phases", "shared", "runs", "refused"), ()
    )
    empty |= {"rest": fit_cost([], unit=unit), "holdout": None, "unmatched": {}}
    return ComputeModel(unit, **{**empty, **known})
