"""``p3s gate``: conditions on a prediction, for continuous integration."""

from __future__ import annotations

from pathlib import Path

from p3s.base.errors import GateFailure, UsageError
from p3s.base.text import plural
from p3s.cli.common import allowed_codes, emit, out, say


def gate(
    study_dir: Path,
    fail_if: list[str],
    allow: list[str],
    base: Path | None,
    format_: str,
    json_: bool,
) -> int:
    """Fail, with exit code 4, when a condition on the prediction is true.

    No pass, and exit code 3, when none is, but the prediction is not to be trusted; 1 or 2 when a
    condition cannot be decided.
    """
    from p3s.base.serialise import to_data
    from p3s.pipeline.records import as_of_now
    from p3s.pipeline.saved import PredictionFile
    from p3s.predict.gate import check, parse
    from p3s.predict.types import filter_untrusted, prefix_reasons
    from p3s.report.gates import FORMATS, as_json, gates_text

    if format_ and format_ not in FORMATS:
        raise UsageError(f"--format {format_}: is not one of {', '.join(FORMATS)}")
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
    reasons = [
        *prediction.reasons,
        *(() if other is None else prefix_reasons(other.reasons, "base")),
    ]
    against = filter_untrusted(reasons, allowed)
    code = GateFailure.exit_code if failed else 3 if against else 0
    if json_:
        emit(
            "gate",
            passed=code == 0,
            exit_code=code,
            conditions=[as_json(finding) for finding in findings],
            reasons=to_data(reasons),
            allowed=sorted(allowed),
        )
    elif format_:
        at = study_dir / "prediction.json" if study_dir.is_dir() else study_dir
        out(FORMATS[format_](findings, against, str(at)))
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
