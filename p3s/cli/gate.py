"""``p3s gate``: conditions on a prediction, for continuous integration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from p3s.base.errors import GateFailed, UsageError
from p3s.base.text import factor, percent, plural, seconds, table
from p3s.cli.common import allowed_codes, emit, out, say
from p3s.predict.gate import COST, RATIO, TIME, Finding, Value


def gate(
    study_dir: Path, fail_if: list[str], allow: list[str], base: Path | None, json_: bool
) -> int:
    """Fail, with exit code 4, when a condition on the prediction is true.

    No pass, and exit code 3, when none is, but the prediction is not to be trusted; 1 or 2 when a
    condition cannot be decided.
    """
    from p3s.base.serialise import to_data
    from p3s.predict.gate import check, parse
    from p3s.predict.saved import PredictionFile, as_of_now
    from p3s.predict.types import named, untrusted

    if not fail_if:
        raise UsageError("no condition given; add one: --fail-if 'efficiency@largest < 0.5'")
    allowed = allowed_codes(allow)
    conditions = [parse(text) for text in fail_if]  # all of them before any file is read
    if base is None and any(condition.needs_base for condition in conditions):
        raise UsageError("a condition names base; say whose prediction that is: --base STUDY")
    prediction = as_of_now(PredictionFile.load(study_dir))
    other = None if base is None else as_of_now(PredictionFile.load(base))
    findings = [check(condition, prediction, other) for condition in conditions]
    failed = sum(finding.met for finding in findings)
    reasons = [*prediction.reasons, *(() if other is None else named(other.reasons, "base"))]
    against = untrusted(reasons, allowed)
    code = GateFailed.exit_code if failed else 3 if against else 0
    if json_:
        emit(
            "gate",
            passed=code == 0,
            exit_code=code,
            conditions=[as_json(finding) for finding in findings],
            reasons=to_data(reasons),
            allowed=sorted(allowed),
        )
    else:
        out(gates_text(findings, untrusted=bool(against)))
    if failed:
        say(
            f"p3s: gate failed: {failed} of {plural(len(findings), 'condition')} "
            f"{'is' if failed == 1 else 'are'} true"
        )
    for reason in reasons:
        if reason not in against:
            say(f"mind ({reason.code}): {reason.text}")
    for reason in against:
        say(f"p3s: no pass ({reason.code}): {reason.sentence}")
    if code == 3:
        codes = ",".join(dict.fromkeys(reason.code for reason in against))
        say(f"to pass all the same: --allow {codes}")
    return code


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
    return shown[0] if value.low == value.high else f"{shown[0]} ({shown[1]} to {shown[2]})"


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
