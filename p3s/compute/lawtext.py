"""Laws of cost in words and in LaTeX."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from p3s.compute.laws import CostLaw


def text(law: CostLaw) -> str:
    """Return the law as one line: the levels and where they change."""
    if not law.columns:
        return f"unknown ({law.refused})"
    per = f"per {law.unit}"
    shape = list(zip(law.columns, law.coefficients, strict=True))
    level = sum(c for column, c in shape if column.kind == "one")
    steps = [(column, c) for column, c in shape if column.kind in ("step", "capacity")]
    powers = [(column, c) for column, c in shape if column.kind == "power"]
    if not steps and not powers:
        return f"{number(level)} ns {per}"
    low, high = law.covered
    if not steps:
        parts = [] if not level else [number(level)]
        for column, c in powers:
            parts.append(f"{number(_at_one(column.first, column.second, c))} "
                         f"x**{column.first:.3g}")
        return f"{' + '.join(parts)} ns {per}, x the work per turn"
    words = [f"{number(level)} below {number(2.0 ** steps[0][0].first)}"]
    for i, (_, c) in enumerate(steps):
        level += c
        end = f" up to {number(2.0 ** steps[i + 1][0].first)}" if i + 1 < len(steps) else " above"
        words.append(f"{number(level)}{end}")
    over = "".join(f", and {number(_at_one(p.first, p.second, c))} x**{p.first:.3g}"
                   for p, c in powers)
    middle = float(law.cost(np.sqrt(low * high)))
    return f"{number(middle)} ns {per} ({', '.join(words)}{over}; x the work per turn)"


def _at_one(exponent: float, centre: float, coefficient: float) -> float:
    """Return the coefficient of x**exponent of a column that is one at 2**centre."""
    return float(coefficient * np.exp2(np.clip(-exponent * centre, -900.0, 900.0)))


def number(value: float) -> str:
    """Return three digits of a number."""
    out = f"{value:.3g}"
    return out.replace("e+0", "e").replace("e+", "e").replace("e-0", "e-")


def latex(law: CostLaw) -> str:
    """Return the likeliest curve as LaTeX for math mode."""
    parts = []
    for column, c in zip(law.columns, law.coefficients, strict=True):
        if column.kind == "one":
            parts.append(_tex(c))
        elif column.kind == "step":
            where = _tex(float(2.0 ** column.first))
            power = 1.0 / (column.second * np.log(2.0))
            parts.append(rf"\frac{{{_tex(c)}}}{{1 + \left({where} / x\right)^{{{power:.3g}}}}}")
        elif column.kind == "capacity":
            where = _tex(float(2.0 ** column.first))
            parts.append(rf"{_tex(c)} \max\left(0, 1 - {where} / x\right)")
        else:
            a = _at_one(column.first, column.second, c)
            parts.append(rf"{_tex(a)} \, x^{{{column.first:.3g}}}")
    return " + ".join(parts) or "0"


def _tex(value: float) -> str:
    digits, _, exponent = f"{value:.3g}".partition("e")
    return rf"{digits} \cdot 10^{{{int(exponent)}}}" if exponent else digits
