"""What conditions on a prediction come to: as text, as plain data, and as CI systems read it."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

from p3s.base.text import ends, factor, percent, seconds, table
from p3s.base.version import __version__
from p3s.predict.gate import COST, RATIO, TIME, Finding, Value
from p3s.predict.types import Reason


def gates_text(findings: Sequence[Finding], *, untrusted: bool) -> str:
    """Return the conditions as a table; a question mark where the intervals leave one open."""
    rows = []
    for each in findings:
        word = "FAILED" if each.met else "no pass" if untrusted else "passed"
        rows.append([word + "?" * (each.certain is False), each.condition.text, _values(each)])
    return table(rows, ["gate", "fails if", "predicted"], left=3)


def _values(finding: Finding) -> str:
    return ", ".join(f"{name} = {_text(name, value)}" for name, value in finding.values)


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


# ---- for CI systems ------------------------------------------------------------------------------
@dataclass(frozen=True)
class Problem:
    """What a CI system shows: a condition that is true, or a reason against the prediction.

    code: of the reason, ``gate`` of a condition; fails: whether the gate fails by it.
    """

    code: str
    text: str
    fails: bool


def problems(findings: Sequence[Finding], against: Sequence[Reason]) -> list[Problem]:
    """Return what speaks against passing: true conditions, then reasons."""
    met = [f"{each.condition.text}: {_values(each)}" for each in findings if each.met]
    return [
        *(Problem("gate", text, True) for text in met),
        *(Problem(each.code, each.sentence, False) for each in against),
    ]


def junit(findings: Sequence[Finding], against: Sequence[Reason], _path: str) -> str:
    """Return a test suite of JUnit's XML: a case for each condition, and one for the prediction."""
    cases = [(each.condition.text, "failure", [_values(each)] * each.met) for each in findings]
    cases.append(("the prediction is usable", "error", [each.sentence for each in against]))
    suite = ElementTree.Element("testsuite", name="p3s gate", tests=str(len(cases)))
    for kind in ("failure", "error"):
        number = sum(bool(texts) for _, which, texts in cases if which == kind)
        suite.set(f"{kind}s", str(number))
    for name, kind, texts in cases:
        case = ElementTree.SubElement(suite, "testcase", classname="p3s.gate", name=name)
        if texts:
            ElementTree.SubElement(case, kind, message=" ".join(texts))
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True)


def github(findings: Sequence[Finding], against: Sequence[Reason], _path: str) -> str:
    """Return workflow commands of GitHub Actions: an annotation for each problem."""
    escaped = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
    lines = [
        f"::{'error' if each.fails else 'warning'} title=p3s gate ({each.code})"
        f"::{each.text.translate(escaped)}"
        for each in problems(findings, against)
    ]
    return "\n".join(lines or ["::notice title=p3s gate::passed"])


def gitlab(findings: Sequence[Finding], against: Sequence[Reason], path: str) -> str:
    """Return GitLab's report of code quality: an entry for each problem."""
    entries = [
        {
            "description": each.text,
            "check_name": each.code,
            "fingerprint": hashlib.sha256(f"{each.code} {each.text}".encode()).hexdigest(),
            "severity": "major" if each.fails else "minor",
            "location": {"path": path, "lines": {"begin": 1}},
        }
        for each in problems(findings, against)
    ]
    return json.dumps(entries, indent=1)


def sarif(findings: Sequence[Finding], against: Sequence[Reason], path: str) -> str:
    """Return a log of SARIF 2.1.0 (OASIS): a result for each problem."""
    found = problems(findings, against)
    rules = [{"id": code} for code in dict.fromkeys(each.code for each in found)]
    results = [
        {
            "ruleId": each.code,
            "level": "error" if each.fails else "warning",
            "message": {"text": each.text},
            "locations": [{"physicalLocation": {"artifactLocation": {"uri": path}}}],
        }
        for each in found
    ]
    driver = {"name": "P3S", "version": __version__, "rules": rules}
    run = {"tool": {"driver": driver}, "results": results}
    schema = "https://json.schemastore.org/sarif-2.1.0.json"
    return json.dumps({"version": "2.1.0", "$schema": schema, "runs": [run]}, indent=1)


#: What --format names.
FORMATS: dict[str, Callable[[Sequence[Finding], Sequence[Reason], str], str]] = {
    "junit": junit,
    "github": github,
    "gitlab": gitlab,
    "sarif": sarif,
}
