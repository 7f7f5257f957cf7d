"""What conditions on a prediction come to, as text and as plain data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from p3s.base.text import ends, factor, percent, seconds, table
from p3s.predict.gate import COST, RATIO, TIME, Finding, Value


def gates_text(findings: Sequence[Finding], *, untrusted: bool) -> str:
    """Return the conditions as a table; a question mark where the intervals leave one open."""
    rows = []
    for each in findings:
        word = "FAILED" if each.met else "no pass" if untrusted else "passed"
        values = ", ".join(f"{name} = {_text(name, value)}" for name, value in each.values)
        rows.append([word + "?" * (each.certain is False), each.condition.text, values])
    return table(rows, ["gate", "fails if", "predicted"], left=3)


def _text(name: str, value: Value) -> str:
    if math.isinf(value.value):
        return f"none up to {value.low:g}"
    shown = [_one(name, value.kind, number) for number in (value.value, value.low, value.high)]
    return shown[0] if value.low == value.high else f"{shown[0]} ({ends(*shown[1:])})"


def _one(name: str, kind: str | None, number: float) -> str:
    if kind == TIME:
        return seconds(number)
    if kind == COST:
        return f"{number:.3g} core-h"
    if kind == RATIO:
        share = name.removeprefix("base.").startswith(("efficiency", "unknown"))
        return percent(number) if share else factor(number)
    return f"{number:g}"


def as_json(finding: Finding) -> dict[str, Any]:
    """Return a condition and its values as plain data, null for what is not known."""
    values = {
        name: {
            "value": _finite(value.value),
            "low": _finite(value.low) if value.known else None,
            "high": _finite(value.high) if value.known else None,
        }
        for name, value in finding.values
    }
    return {
        "fail_if": finding.condition.text,
        "failed": finding.met,
        "certain": finding.certain,
        "chance": finding.chance,
        "values": values,
    }


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
