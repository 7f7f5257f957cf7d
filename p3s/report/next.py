"""Which process counts to trace next, as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from p3s.base.text import ends, figures, paragraph, percent, processes, seconds, visible
from p3s.model.types import Model
from p3s.report.equations import verdict_table
from p3s.report.show import hanging

#: What stands in a command for arguments that nobody but the user knows.
ARGUMENTS = "ARGUMENTS"


def render(model: Model, command: str, validate: str = "") -> str:
    """Return the counts that would decide most, why, and the command; or that none would.

    ``validate``: the command that tests the model at a larger count, "" where there is none.
    """
    wanted = model.next
    open_ = open_share(model)
    if not wanted and open_:
        return "\n".join(
            paragraph(
                f"{open_} are ambiguous, but no count that the program is known to accept, up to "
                "some ten times the largest, would decide them."
            )
        )
    if not wanted:
        text = paragraph(
            "No further count is known to decide anything: no rule of this model is open between "
            "equally good ones. " + _rest(model)
        )
        return "\n".join(
            text + (["", f"A larger count still tests it: {validate}"] if validate else [])
        )
    lines = []
    for each in wanted:
        grid = f" ({'x'.join(map(str, each.dims))})" if each.dims else ""
        lines.append(f"{processes(each.n)}{grid}")
        alike: dict[str, list[float]] = {}
        for decision in each.decides:
            alike.setdefault(decision.question, []).append(decision.share)
        for question, shares in alike.items():
            # each is what hangs on it at most, in events or bytes: they may overlap
            times = f"{len(shares)} calls, " if len(shares) > 1 else ""
            words = visible(question, 400)
            words += f" ({times}up to {percent(min(1.0, sum(shares)))} of the program)"
            lines += hanging(2, words)
    if open_:
        lines += paragraph(f"open now: {open_}")
    return "\n".join([*lines, "", command])


def open_share(model: Model) -> str:
    """Return how much of the program is ambiguous, as text; empty when nothing is."""
    for verdict, calls, events, size in verdict_table(model).rows:
        if verdict == "ambiguous":
            time = percent(model.shares[verdict].time)
            return (
                f"{calls} call{'s' * (calls != '1')} with {events} of the events, "
                f"{size} of the bytes, {time} of the time"
            )
    return ""


def _rest(model: Model) -> str:
    weak = [
        f"{calls} call{'s' * (calls != '1')} {verdict}"
        for verdict, calls, *_ in verdict_table(model).rows
        if verdict not in ("exact", "ambiguous") and calls != "0"
    ]
    if not weak:
        return ""
    return (
        f"What is not exact ({', '.join(weak)}) may still become so with any further "
        "count the program accepts."
    )


def render_far(far: Mapping[str, Any], unit: str, command: str) -> str:
    """Return which smaller workload would show what a process does at the target, or why none.

    command: what records it, with ARGUMENTS for those of the program, which are to be chosen; ""
    where it has none.
    """
    n = far["target"]
    lines: list[str] = []
    if far["above"]:
        lines += paragraph(
            f"At {processes(n)} {_phases([visible(a, 60) for a in far['above']])} "
            "with more work per iteration than was measured: no smaller workload shows that."
        )
    if not far["phases"]:
        if not far["above"]:
            lines += paragraph(
                f"No smaller input is needed for {processes(n)}: what a process computes in one "
                "iteration of each phase there has been measured."
            )
        return "\n".join(lines)
    lines += paragraph(
        f"A smaller input for {processes(n)}: there a process computes less in one iteration "
        "than in any run so far."
    )
    for p in far["phases"]:
        ever = f" ({p['outside']:.3g} times less than ever)" if p["outside"] else ""
        least, most = (_work(end, unit) for end in sorted(p["measured"]))
        lines += hanging(
            2,
            f"phase {p['phase']} {visible(str(p['name']), 60)}: {_work(p['work'], unit)}, measured "
            f"{'at' if least == most else 'from'} {ends(least, most)}{ever}",
        )
    lines += paragraph(
        f"An input of {_part(far['input'])} of the size gives each of {processes(far['at'])} what "
        f"it has at {n} of the whole: "
        + ", ".join(
            f"{m} stand for {round(x)}"
            for m, x in zip(far["counts"], far["stands_for"], strict=True)
        )
        + "."
    )
    uneven = [str(p["phase"]) for p in far["phases"] if not p["even"]]
    if uneven:
        lines += paragraph(
            f"In phase{'s' * (len(uneven) > 1)} {', '.join(uneven)} the total work is not the same "
            "at all counts: what the runs stand for there will be looked up, and may differ."
        )
    if far["unmatched"]:
        lines += paragraph(
            "But work is time in this study, and no message's size depends on the count: "
            "what such runs stand for could not be told. Trace with --work instructions."
        )
        return "\n".join(lines)
    if not command:
        return "\n".join(
            [
                *lines,
                *paragraph(
                    "The study's command has no arguments to change. If its input is in a file, "
                    "or set when the program is built, run it with such an input in another "
                    "directory, or build: p3s characterize --far adds these runs to the study."
                ),
            ]
        )
    lines += paragraph(
        "Only you know which arguments of the program make such an input; those of the whole "
        f"input are: {visible(str(far['arguments']), 400)}"
    )
    last = f"This line does not run as it is; put yours in place of {ARGUMENTS}:"
    return "\n".join([*lines, last, "", f"  {command}"])


def _work(work: float, unit: str) -> str:
    return f"{figures(work)} instructions" if unit == "instructions" else seconds(work * 1e-9)


def _phases(names: list[str]) -> str:
    return (
        f"there are phases ({', '.join(names)})"
        if len(names) > 1
        else f"there is a phase ({names[0]})"
    )


def _part(part: float) -> str:
    """Return a part of the work as a fraction where it nearly is one over a whole number."""
    whole = round(1 / part) if part > 0 else 0
    return f"1/{whole}" if whole > 1 and abs(part * whole - 1) < 0.02 else f"{part:.3g}"
