"""Which process counts to trace next, as text."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import wrap
from typing import Any

from p3s.report.equations import WIDTH, verdict_rows
from p3s.report.text import percent, visible


def render(model: Mapping[str, Any], command: str) -> str:
    """Return the counts that would decide most, why, and the command; or that none would."""
    wanted = model.get("next", [])
    open_ = open_share(model)
    if not wanted and open_:
        return "\n".join(wrap(
            f"{open_} are ambiguous, but no count that the program is known to accept, up to some "
            "ten times the largest, would decide them.", WIDTH))  # fmt: skip
    if not wanted:
        return "\n".join(wrap(
            "No further count is known to decide anything: no rule of this model is open between "
            "equally good ones. " + _rest(model), WIDTH))  # fmt: skip
    lines = []
    for each in wanted:
        grid = f" ({'x'.join(map(str, each['dims']))})" if each.get("dims") else ""
        lines.append(f"{each['n']} processes{grid}")
        told = each.get("decides") or [{"question": each["why"]}]
        for question in told:
            share = question.get("share")
            words = visible(str(question["question"]), 400)
            words += f" ({percent(share)} of the program)" if share is not None else ""
            lines += wrap(words, WIDTH, initial_indent="  ", subsequent_indent="    ")
    if open_:
        lines += wrap(f"open now: {open_}", WIDTH)
    return "\n".join([*lines, "", visible(command, 4000)])


def open_share(model: Mapping[str, Any]) -> str:
    """Return how much of the program is ambiguous, as text; empty when nothing is."""
    for verdict, calls, events, size, time in verdict_rows(model):
        if verdict == "ambiguous":
            return (f"{calls} call{'s' * (calls != '1')} with {events} of the events, "
                    f"{size} of the bytes, {time} of the time")  # fmt: skip
    return ""


def _rest(model: Mapping[str, Any]) -> str:
    weak = [f"{calls} {verdict}" for verdict, calls, *_ in verdict_rows(model)
            if verdict not in ("exact", "ambiguous") and calls != "0"]
    if not weak:
        return "A larger count still tests the model: p3s validate STUDY -n COUNT."
    return (f"What is not exact ({', '.join(weak)} calls) may still become so with any further "
            "count the program accepts.")  # fmt: skip
