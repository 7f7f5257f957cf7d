"""``p3s gate``: conditions on a prediction, for continuous integration."""

from __future__ import annotations

from pathlib import Path

from p3s.base.errors import GateFailed, UsageError
from p3s.base.text import plural
from p3s.cli.common import allowed_codes, emit, out, say
from p3s.cli.helptext import argument, option
from p3s.cli.options import JSON_OPTION

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
    from p3s.report.gates import as_json, gates_text

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
