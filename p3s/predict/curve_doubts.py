"""Reasons not to trust a curve: its efficiencies, intervals and trends."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from p3s.base.text import processes, seconds
from p3s.capture.other_calls import OtherCall
from p3s.predict.advice import again, another, narrower, narrower_by
from p3s.predict.commands import NO_STUDY, Commands
from p3s.predict.doubts import few
from p3s.predict.outside import SHARE
from p3s.predict.reasons import OTHER_CALLS, Reason
from p3s.predict.types import Count

#: Efficiency that is not believed: caches give some more than 1, disturbed runs anything.
EFFICIENCY_LIMIT = 1.2
#: A process that computes this part, or more, of what it does at a count so many times smaller
#: does not share the work with the others.
SAME_WORK, _GROWN = 0.8, 4
#: Efficiency of weak scaling above which the input does not grow with the processes.
WEAK_LIMIT = 1.05
#: High over low end of an interval from which it says that the time is not known.
WIDE = 4.0
#: Half width of an interval, relative, above which its run time is not relied upon.
UNSURE, ROUNDING = 0.10, 1e-9


def of_efficiency(rows: Sequence[Count], base: int, commands: Commands = NO_STUDY) -> list[Reason]:
    """Say where the efficiency is above what can be believed."""
    found = [
        row
        for row in rows
        if row.efficiency > EFFICIENCY_LIMIT and not (row.contradicts or row.below_traced)
    ]
    if not found:
        return []
    worst = max(found, key=lambda row: row.efficiency)
    return [
        Reason(
            "superlinear",
            f"the efficiency is {100 * worst.efficiency:.0f} % at {processes(worst.n)} "
            f"(limit {100 * EFFICIENCY_LIMIT:.0f} %): the time at {processes(base)} is too long, "
            "or the others are too short",
            f"trace {base} again with repeats on quiet cores, what stays is the program's own: "
            f"{again(base, commands)}",
        )
    ]


def of_growth(rows: Sequence[Count], base: Count, traced: Collection[int]) -> list[Reason]:
    """Say where a process computes as much at the largest count as at the base.

    Then the input may grow with the processes, and a speedup compares different problems. Only
    where the traced counts show it, which are a factor of 2 apart at least.
    """
    if not _as_much([row for row in rows if row.n in traced]):
        return []
    last = rows[-1]
    if last.n < _GROWN * base.n or last.efficiency >= 0.5:
        return []
    first, there = base.compute_s, last.compute_s
    if there < SAME_WORK * first or first < 0.5 * base.model_s:
        return []
    if base.time_s > WEAK_LIMIT * last.time_s:
        return []
    return [
        Reason(
            "same-work",
            f"each process computes {seconds(there)} at {processes(last.n)} and "
            f"{seconds(first)} at {base.n}: if the input grows with the processes, its "
            f"efficiency is that of weak scaling, {100 * base.time_s / last.time_s:.0f} % "
            f"(run times {base.n} over "
            f"{last.n}), and the speedup says nothing",
            "trace the program with its size as a parameter (p3s characterize --param) to predict "
            "other sizes (p3s predict --weak)",
            False,
        )
    ]


def _as_much(traced: Sequence[Count]) -> bool:
    """Tell whether a process computes as much at the largest traced count as at the smallest."""
    if not traced or traced[-1].n < 2 * traced[0].n:
        return False
    first, last = (row.compute_s for row in (traced[0], traced[-1]))
    return SAME_WORK * first <= last <= first / SAME_WORK


def of_intervals(
    rows: Sequence[Count],
    traced: Sequence[int] = (),
    commands: Commands = NO_STUDY,
    odd: Collection[int] = (),
) -> list[Reason]:
    """Say where an interval is so wide that the run time is not relied upon.

    ``odd``: traced counts that contradict the others.
    """
    found = [row for row in rows if _is_wide(row)]
    if not found:
        return []
    worst = max(found, key=_span)
    parts = worst.interval_parts.known()
    widest = max(parts, key=lambda name: _width(parts[name]), default="work")
    where = f"at {worst.n} it" if len(found) > 1 else "it"
    less = narrower_by(worst, traced, commands)
    return [
        Reason(
            "wide",
            f"the run time at {processes([row.n for row in found])} is uncertain by more than "
            f"{100 * UNSURE:.0f} %: {where} lies between {seconds(worst.low_s)} and "
            f"{seconds(worst.high_s)}{f' ({less})' if less else ''}",
            narrower(widest, worst, traced, commands, odd),
        )
    ]


def _is_wide(row: Count) -> bool:
    """Tell whether the interval of a row's time is too wide to rely upon it."""
    return row.time_from != "measured" and _span(row) > UNSURE + ROUNDING


def _span(row: Count) -> float:
    """Return the half width of a row's interval, relative to its time; 0 if not known."""
    low, high = row.low_s, row.high_s
    if low is None or high is None or row.time_s <= 0:
        return 0.0
    return (high - low) / 2.0 / row.time_s


def _width(ends: Sequence[float]) -> float:
    return ends[1] / max(ends[0], 1e-300)


def of_emptied(
    heads: Mapping[int, Mapping[str, Any]],
    traced: Sequence[int] = (),
    commands: Commands = NO_STUDY,
) -> list[Reason]:
    """Say at which counts messages fall below one element; ``heads``: scaled.json by count.

    Programs take another way there than the one that was traced.
    """
    found = {n: head["emptied"] for n, head in sorted(heads.items()) if head.get("emptied")}
    if not found:
        return []
    first, calls = next(iter(found.items()))
    names = list(dict.fromkeys(str(call["op"]) for call in calls))
    ranks = max(int(call["ranks"]) for call in calls)
    return [
        Reason(
            "emptied",
            f"at {processes(list(found))} the model leaves less than one element per rank "
            f"({few(names)} on {ranks:,} of {processes(first)}), as at no traced count: what the "
            "program does then is not known, so the interval is open",
            another(commands, traced),
        )
    ]


def of_other_calls(
    found: Sequence[OtherCall],
    counts: Sequence[int],
    traced: Sequence[int] = (),
    commands: Commands = NO_STUDY,
    *,
    open_: bool = True,
) -> list[Reason]:
    """Say which calls may take over at ``counts``, all above the traced ones.

    ``open_``: whether their interval is open for that. Compilers copy calls, so that one in a
    function whose like ran counts only where its line shows it to be another.
    """
    if not counts:
        return []
    reasons = []
    if others := [each for each in found if not each.copied]:
        end = "; the interval is open" if open_ else ""
        reasons.append(
            Reason(
                OTHER_CALLS,
                f"at {processes(counts)} the program may exchange its data in another way: no "
                f"traced run reached its {_calls(others)}{end}",
                f"{another(commands, traced)}; if it depends on an option of the program, not on "
                "the count: --allow other-calls",
            )
        )
    if copies := [each for each in found if each.copied]:
        reasons.append(
            Reason(
                "copied-calls",
                f"no traced run reached some {_calls(copies)}: copies that the compiler made, or "
                "another way for larger counts",
                "compile the program with -g to tell which",
                False,
            )
        )
    return reasons


def _calls(found: Sequence[OtherCall]) -> str:
    calls = dict.fromkeys(each.call for each in found)
    names = dict.fromkeys(each.function for each in found)
    return f"calls of {few(list(calls))} in {few(list(names))}"


def of_trends(
    phases: Iterable[Mapping[str, Any]],
    row: Count,
    traced: Sequence[int] = (),
    commands: Commands = NO_STUDY,
) -> list[Reason]:
    """Say which phases' computation shows no clear trend; ``phases``: of the row's scaled.json."""
    found: dict[str, list[str]] = {}
    whole = row.compute_s
    large = {phase.phase for phase in row.phases if phase.compute_s > SHARE * whole}
    for phase in phases:
        about = phase.get("no_trend")
        if isinstance(about, Mapping) and phase.get("phase") in large:
            number = phase["phase"]  # the start and the end of a program have names instead
            found.setdefault(str(about.get("why")), []).append(
                str(number if number >= 0 else f'"{phase.get("name")}"')
            )
    return [
        Reason(
            "no-trend",
            f"the computation of phase{'s' * (len(names) > 1)} {few(names)} has no clear trend "
            f"({why}): the interval covers the laws that fit",
            another(commands, traced),
            False,
        )
        for why, names in found.items()
    ]
