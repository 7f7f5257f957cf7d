"""``p3s gate``: conditions on a prediction, for continuous integration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from p3s.base.errors import GateFailed, UsageError
from p3s.base.text import plural, table
from p3s.cli.common import JSON_OPTION, allowed_codes, emit, out, say
from p3s.cli.helptext import argument, option

if TYPE_CHECKING:
    from p3s.predict.gate import Finding, Value
    from p3s.predict.types import Reason

EPILOG = """Quantities: time, speedup, efficiency, cost (core hours), each also .low and .high;
compute, communication, transfer, waiting, software; knee, recommended, unknown, extrapolation.
Units: s, ms, us, ns, min, h; %, x; core-h. Counts: a number, smallest or largest.

\b
Example:
  p3s gate study --fail-if 'efficiency@1024 < 60%' --fail-if 'time.high@1024 > 2 min'
  p3s gate new --base old --fail-if 'time@512 > 1.1 * base.time@512'
  p3s gate study --fail-if 'knee < 256' --allow not-representative
Next:
  p3s report study    (what limits the scaling)"""


def gate(
    study_dir: Path = argument("STUDY", "Study directory, or a prediction.json."),
    fail_if: list[str] = option(
        [], "--fail-if CONDITION", "'efficiency@1024 < 0.6'; may be repeated."
    ),
    allow: list[str] = option(
        [],
        "--allow CODES",
        "Let a prediction pass for which these reasons speak against trusting it, as in "
        "--allow not-representative; may be repeated.",
    ),
    base: Path | None = option(
        None, "--base STUDY", "Prediction whose values are base.time@512, ..."
    ),
    json_: bool = JSON_OPTION,
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
            conditions=[_as_json(finding) for finding in findings],
            reasons=to_data(reasons),
            allowed=sorted(allowed),
        )
    else:
        rows = [
            [_word(finding, bool(against)), finding.condition.text, _values(finding)]
            for finding in findings
        ]
        out(table(rows, ["gate", "fails if", "predicted"], left=3))
    if failed:
        say(
            f"p3s: gate failed: {failed} of {plural(len(findings), 'condition')} "
            f"{'is' if failed == 1 else 'are'} true"
        )
    _say(reasons, against, open_=code == 3)
    return code


def _say(reasons: list[Reason], against: list[Reason], open_: bool) -> None:
    """Say what is to be minded, then what keeps the gate from passing and how to allow it."""
    for reason in reasons:
        if reason not in against:
            say(f"mind ({reason.code}): {reason.text}")
    for reason in against:
        say(f"p3s: no pass ({reason.code}): {reason.sentence}")
    if open_:
        codes = ",".join(dict.fromkeys(reason.code for reason in against))
        say(f"to pass all the same: --allow {codes}")


def _word(finding: Finding, untrusted: bool) -> str:
    """Return the result; a question mark where the intervals leave it open."""
    word = "FAILED" if finding.met else "no pass" if untrusted else "passed"
    return word + ("?" if finding.certain is False else "")


def _values(finding: Finding) -> str:
    return ", ".join(f"{name} = {_text(name, value)}" for name, value in finding.values)


def _text(name: str, value: Value) -> str:
    import math

    from p3s.base.text import factor, percent, seconds
    from p3s.predict.gate import COST, RATIO, TIME

    share = name.removeprefix("base.").startswith(("efficiency", "unknown"))

    def one(number: float) -> str:
        if value.kind == TIME:
            return seconds(number)
        if value.kind == COST:
            return f"{number:.3g} core-h"
        if value.kind == RATIO:
            return percent(number) if share else factor(number)
        return f"{number:g}"

    if math.isinf(value.value):
        return f"none up to {value.low:g}"
    if value.low == value.high:
        return one(value.value)
    return f"{one(value.value)} ({one(value.low)} to {one(value.high)})"


def _as_json(finding: Finding) -> dict[str, Any]:
    import math

    def finite(number: float) -> float | None:
        return number if math.isfinite(number) else None

    return {
        "fail_if": finding.condition.text,
        "failed": finding.met,
        "certain": finding.certain,
        "values": {
            name: {
                "value": finite(value.value),
                "low": finite(value.low) if value.known else None,
                "high": finite(value.high) if value.known else None,
            }
            for name, value in finding.values
        },
    }
