"""A non-negative law of an amount in the process count and the extents of the grid."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from p3s.laws.expr import Expr, evaluate


@dataclass(frozen=True)
class Amount:
    """A non-negative law of an amount, with how far it can be off.

    expr: in n and p0.. ; rel_half_width: half width of the 90 % interval at the largest count
    fitted, relative; max_n: that count; points: how many counts were fitted; rim: the rim of
    its product, if it is one.
    """

    expr: Expr
    rel_half_width: float
    max_n: int
    points: int
    rim: float | None = None

    def value(self, env: Mapping[str, Any]) -> Any:
        """Return the amount for symbols n, p0, ... (arrays broadcast), never negative."""
        return np.maximum(evaluate(self.expr, env), 0.0)

    def half_width(self, n: float) -> float:
        """Return the relative half width of the 90 % interval, growing with the distance."""
        beyond = max(0.0, math.log2(max(n, 1) / self.max_n))
        return self.rel_half_width * (1.0 + 0.5 * beyond)

    def to_json(self) -> dict[str, Any]:
        """Return the law as plain data; the rim is of use while others are fitted only."""
        return {
            "expr": self.expr,
            "rel_half_width": self.rel_half_width,
            "max_n": self.max_n,
            "points": self.points,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Amount:
        """Return the law from :meth:`to_json` data."""
        return Amount(
            data["expr"], float(data["rel_half_width"]), int(data["max_n"]), int(data["points"])
        )
