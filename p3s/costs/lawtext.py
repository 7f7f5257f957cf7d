"""Laws of cost in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from p3s.costs.families import Column
    from p3s.costs.laws import CostLaw


#: Costs at the ends of the points that differ by less than this share are not told apart.
TELLING = 0.05


def text(law: CostLaw) -> str:
    """Return the law as one line: the cost in the middle of the points, and where it changes.

    Named are the steps inside the covered range, and the costs on either side of them.
    """
    if not law.columns:
        return f"unknown ({law.refused})"
    per = f"per {law.unit}"
    shape = list(zip(law.columns, law.coefficients, strict=True))
    low, high = law.covered
    steps = [
        2.0**c.first
        for c, height in shape
        if c.kind in ("step", "capacity") and height > 0 and low < 2.0**c.first < high
    ]
    powers = [(c, a) for c, a in shape if c.kind == "power"]
    if steps:
        edges = [low, *steps, high]
        between = [(a * b) ** 0.5 for a, b in zip(edges[1:-2], edges[2:-1], strict=True)]
        costs = law.cost(np.array([low, *between, high]))
        words = [f"{number(costs[0])} below {number(steps[0])} per iteration"]
        words += [
            f"{number(c)} up to {number(x)}" for c, x in zip(costs[1:-1], steps[1:], strict=True)
        ]
        words.append(f"{number(costs[-1])} above")
        return f"{number(float(law.cost((low * high) ** 0.5)))} ns {per} ({', '.join(words)})"
    if powers:
        level = sum(a for c, a in shape if c.kind == "one")
        parts = [number(level)] if level else []
        parts += [f"{number(_at_one(c, a))} x**{c.first:.3g}" for c, a in powers]
        return f"{' + '.join(parts)} ns {per}, x the work per iteration"
    first, middle, last = law.cost(np.array([low, (low * high) ** 0.5, high])).tolist()
    ends = (
        ""
        if abs(last - first) < TELLING * middle
        else (
            f" ({number(first)} at {number(low)} per iteration, {number(last)} at {number(high)})"
        )
    )
    return f"{number(middle)} ns {per}{ends}"


def _at_one(column: Column, coefficient: float) -> float:
    """Return the coefficient of x**exponent of a column that is one at 2**centre."""
    return float(coefficient * np.exp2(np.clip(-column.first * column.second, -900.0, 900.0)))


def number(value: float) -> str:
    """Return three digits of a number."""
    out = f"{value:.3g}"
    return out.replace("e+0", "e").replace("e+", "e").replace("e-0", "e-")
