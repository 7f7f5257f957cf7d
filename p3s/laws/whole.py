"""Expressions that stand for whole numbers: counts, bytes, ranks."""

from __future__ import annotations

from typing import Any

import numpy as np

from p3s.base.errors import P3SError
from p3s.laws.expr import Env, Expr, evaluate, rounded


def evaluate_int(expr: Expr, env: Env, undefined: int | None = None) -> Any:
    """Return the value of ``expr`` rounded to int64, never negative.

    undefined: stands where the expression has no value; without it P3SError is raised there.
    """
    (value,), bad = rounded(evaluate(expr, env))
    value = np.maximum(value, 0)
    if bad.any():
        if undefined is None:
            from p3s.laws.symbolic import to_text

            raise P3SError(
                f"model: the equation {to_text(expr)} has no value at "
                f"{np.max(env['n'])} processes; choose another count"
            )
        value = np.where(bad, undefined, value)
    return value[()]
