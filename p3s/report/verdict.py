"""The result of a prediction in sentences, and its few most important figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

from p3s.predict.reasons import Reason, in_short, reasons_in, untrusted
from p3s.report.counts import core_hours, factors, not_known
from p3s.report.points import base_of, checked_rows
from p3s.report.values import amount, count, mapping, rows, words
from p3s.text import NOT_KNOWN, UNKNOWN, factor, interval, percent, processes, seconds, visible

#: Characters of a line of text.
WIDTH = 100
Rows = Sequence[Mapping[str, Any]]
_BECAUSE = {
    "compute": "computation that does not shrink",
    "transfer": "data on its way",
    "waiting": "waiting for each other",
    "software": "MPI software",
}


@dataclass(frozen=True)
class Figure:
    """One figure at the top of the page: what it is, its value, and a line below."""

    name: str
    value: str
    below: str
    tone: str = ""


def reasons_of(prediction: Mapping[str, Any], of: str = "") -> list[Reason]:
    """Return the reasons of a prediction in printable words; texts begin with ``of``."""
    return [
        Reason(
            words(each.code, 60),
            words(each.text, 600),
            words(each.advice, 1000),
            each.untrustworthy,
        )
        for each in reasons_in(prediction, of)
    ]


def reason_lines(reasons: Sequence[Reason]) -> list[str]:
    """Return reasons as lines of text: what is wrong, or to be minded, and what to do about it."""
    lines = []
    for reason in reasons:
        head = reason.code if reason.untrustworthy else "mind"
        lines += wrap(f"{head}: {reason.text}", WIDTH, subsequent_indent="    ")
        if reason.advice:  # in one line: a command that is broken in two cannot be copied
            lines.append(f"    what to do: {reason.advice}")
    return lines


def warning_of(prediction: Mapping[str, Any], what: str = "prediction") -> str:
    """Return that there is no trustworthy prediction, and why in a few words; "" if there is."""
    why = in_short(untrusted(reasons_of(prediction)))
    return f"There is no trustworthy {what}: {why}." if why else ""


def remedy_of(prediction: Mapping[str, Any]) -> str:
    """Return what would give a trustworthy prediction, as a sentence; "" where nothing is wrong."""
    found = dict.fromkeys(each.advice for each in untrusted(reasons_of(prediction)) if each.advice)
    return f"To get one: {'; '.join(found)}." if found else ""


def verdict_of(prediction: Mapping[str, Any]) -> str:
    """Return the result in a few sentences; no knee is named in times that are not trusted."""
    return " ".join(verdict_sentences(prediction))


def verdict_sentences(
    prediction: Mapping[str, Any], places: Mapping[str, str] | None = None
) -> list[str]:
    """Return the result, the most important sentence first.

    Where the prediction is not to be trusted that is what comes first, then what would give one.
    places: where the calls of a phase are in the program, by its number.
    """
    before = [warning_of(prediction), remedy_of(prediction)]
    return [*filter(None, before), *figure_sentences(prediction, places)]


def figure_sentences(
    prediction: Mapping[str, Any], places: Mapping[str, str] | None = None
) -> list[str]:
    """Return what the figures say, whether they are to be trusted or not."""
    warning = warning_of(prediction)
    found = checked_rows(prediction)
    first, last = base_of(prediction, found), found[-1]
    network = network_of(prediction)
    network = f", {network}" if network else ""
    if first is last:
        said = [
            f"At {processes(last['n'])} the program takes {seconds(last['time_s'])}"
            f"{_between(last)}{network}."
        ]
    else:
        change = (
            "stays about as fast"
            if abs(last["speedup"] - 1.0) < 0.02
            else "becomes slower"
            if last["speedup"] < 1
            else f"becomes {factor(last['speedup'])} as fast"
        )
        said = [
            f"From {first['n']} to {last['n']} processes the program {change} "
            f"({seconds(first['time_s'])} to {seconds(last['time_s'])}), an efficiency of "
            f"{percent(last['efficiency'])}{network}."
        ]
        said += [] if warning else _knee(prediction, found)
    phases = sorted(last["phases"], key=phase_time, reverse=True)
    whole = sum(map(phase_time, phases))
    if phases and whole > 0:
        top = phases[0]
        kind = (
            "communication" if _amount(top, "comm_s") > _amount(top, "compute_s") else "computation"
        )
        said.append(
            f"Phase {_named(top, places)} takes most of the time at {last['n']} "
            f"({percent(phase_time(top) / whole)}, mostly {kind})."
        )
    said += _limit(prediction, last, places)
    if warning:
        said[0] = f"Taken as they are, the figures say: {said[0][0].lower()}{said[0][1:]}"
    return said


def network_of(prediction: Mapping[str, Any]) -> str:
    """Return what network the prediction is for, "" where it is that of this machine."""
    network = mapping(prediction.get("network"))
    what = {"typical": "for a typical ", "file": "for "}.get(str(network.get("source")))
    label = words(network.get("label"), 80)
    return what + label if what and label else ""


def _between(row: Mapping[str, Any]) -> str:
    if unknown := not_known(row):
        return f" ({unknown})"
    low, high = amount(row.get("low_s")), amount(row.get("high_s"))
    return "" if low is None or high is None or low == high else f" ({interval(low, high)})"


def _knee(prediction: Mapping[str, Any], found: Rows) -> list[str]:
    threshold = amount(prediction.get("knee_efficiency"))
    threshold = 0.5 if threshold is None else threshold
    limit, knee = f"{100 * threshold:.3g} %", count(prediction.get("knee"))
    best = mapping(prediction.get("recommended"))
    n, efficiency = count(best.get("n")), amount(best.get("efficiency"))
    worth = []
    if n is not None and n < found[-1]["n"]:
        at = "" if efficiency is None else f" (efficiency {percent(efficiency)})"
        worth = [f"Up to {processes(n)} {'is' if n == 1 else 'are'} worth it{at}."]
    if knee and knee == found[-1]["n"]:
        return [f"Efficiency is below {limit} at {processes(knee)}.", *worth]
    if knee:
        return [f"Efficiency is below {limit} from {processes(knee)} on.", *worth]
    below = [row["n"] for row in found if row["efficiency"] < threshold]
    if below:
        return [f"Efficiency is below {limit} at {processes(below)}, above it later."]
    return [f"Efficiency stays above {limit} up to there."]


def _named(phase: Mapping[str, Any], places: Mapping[str, str] | None) -> str:
    """Return the name of a phase, and where it is."""
    place = (places or {}).get(str(phase.get("phase")))
    return visible(str(phase.get("name", "?"))) + (f" ({place})" if place else "")


def _limit(
    prediction: Mapping[str, Any], last: Mapping[str, Any], places: Mapping[str, str] | None
) -> list[str]:
    """Return what costs most of the lost core time, if something does."""
    limits = rows(prediction.get("limits"))
    if not limits:
        return []
    share, because = amount(limits[0].get("share")), _BECAUSE.get(str(limits[0].get("because")))
    if not share or because is None:
        return []
    lost = f"{percent(share)} of the core time lost at {processes(last['n'])}, mostly {because}"
    none: Mapping[str, Any] = {}
    top = max(last["phases"], key=phase_time, default=none)
    if top.get("phase", -3) == limits[0].get("phase"):
        return [f"It makes up {lost}."]
    return [f"What limits scaling first is {_named(limits[0], places)}: {lost}."]


def phase_time(phase: Mapping[str, Any]) -> float:
    """Return the time of a phase of a row, 0 where it is not known."""
    time = amount(phase.get("time_s"))
    return _amount(phase, "compute_s") + _amount(phase, "comm_s") if time is None else time


def _amount(phase: Mapping[str, Any], key: str) -> float:
    return amount(phase.get(key)) or 0.0


def figures(prediction: Mapping[str, Any]) -> list[Figure]:
    """Return the figures at the top of the page; a figure that is not known is left out."""
    found = checked_rows(prediction)
    base, last = base_of(prediction, found), found[-1]
    doubt = "doubtful" if warning_of(prediction) else ""
    shown = [Figure("Run time", seconds(last["time_s"]), _or_none(_between(last)[2:-1]), doubt)]
    if len(found) > 1:
        ends = factors(last)
        over = f"over {processes(base['n'])}"
        shown.append(
            Figure(
                "Speedup",
                factor(last["speedup"]),
                over if ends in (NOT_KNOWN, UNKNOWN) else ends,
                doubt,
            )
        )
        ideal = last["n"] / base["n"]
        shown.append(
            Figure(
                "Efficiency", percent(last["efficiency"]), f"ideal would be {factor(ideal)}", doubt
            )
        )
    best = mapping(prediction.get("recommended"))
    n, efficiency = count(best.get("n")), amount(best.get("efficiency"))
    if n is not None and not doubt:
        below = "" if efficiency is None else f"efficiency {percent(efficiency)}"
        shown.append(Figure("Worth using", f"{n:,}", below or "processes"))
    knee, limit = count(prediction.get("knee")), amount(prediction.get("knee_efficiency"))
    if limit is not None and len(found) > 1 and not doubt:
        shown.append(
            Figure(
                f"Below {100 * limit:.3g} % from",
                f"{knee:,}" if knee else "never",
                "processes on" if knee else f"up to {processes(last['n'])}",
            )
        )
    cost = amount(last.get("cost_core_h"))
    if cost is not None:
        shown.append(Figure("Core-hours", core_hours(cost), "one core per process", doubt))
    return shown


def _or_none(text: str) -> str:
    return text or "no interval is known"
