"""The result of a prediction in sentences, and how sure it is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from p3s.base.text import (
    NOT_KNOWN,
    UNKNOWN,
    ends,
    factor,
    interval,
    percent,
    processes,
    seconds,
    visible,
)
from p3s.predict.types import (
    Count,
    Limit,
    PhaseAt,
    Prediction,
    Reason,
    filter_untrusted,
    in_short,
    prefix_reasons,
)
from p3s.report.counts import core_hours, factors, not_known

_BECAUSE = {
    "compute": "computation that does not shrink",
    "io": "files",
    "transfer": "data transfer",
    "waiting": "ranks waiting for each other",
    "software": "MPI software",
}


@dataclass(frozen=True)
class Figure:
    """One figure at the top of the page: what it is, its value, and a line below."""

    name: str
    value: str
    below: str
    tone: str = ""


def reasons_of(prediction: Prediction, of: str = "") -> list[Reason]:
    """Return the reasons of a prediction in printable words; texts begin with ``of``."""
    return [
        replace(
            each,
            code=visible(each.code, 60),
            text=visible(each.text, 600),
            advice=visible(each.advice, 1000),
        )
        for each in (prefix_reasons(prediction.reasons, of) if of else prediction.reasons)
    ]


def lines(texts: Sequence[str], limit: int = 400) -> list[str]:
    """Return texts as they can be printed, none empty and none twice."""
    return [line for line in dict.fromkeys(visible(each, limit) for each in texts) if line]


def warning_of(prediction: Prediction, what: str = "prediction") -> str:
    """Return that a prediction is not to be relied on, and why in a few words; "" if it is."""
    why = in_short(filter_untrusted(reasons_of(prediction)))
    return f"Do not rely on this {what}: {why}." if why else ""


def remedy_of(prediction: Prediction) -> str:
    """Return what would give a trustworthy prediction, as a sentence; "" where nothing is wrong."""
    found = dict.fromkeys(
        each.advice for each in filter_untrusted(reasons_of(prediction)) if each.advice
    )
    return f"To get one you can rely on: {'; '.join(found)}." if found else ""


def within(row: Count) -> str:
    """Return how well a predicted time is known: "within 8 %", "within 1.4 times"; "" if not."""
    low, high = row.low_s, row.high_s
    if row.time_from == "measured" or not_known(row) or not (low and high and row.time_s > 0):
        return ""
    times = max(high / row.time_s, row.time_s / low)
    if times < 1.195:
        return f"within {max(math.ceil(100 * (times - 1)), 1)} %"
    return f"within {math.ceil(10 * times) / 10:.1f} times"


def verdict_of(prediction: Prediction) -> str:
    """Return the result in a few sentences; no knee is named in times that are not trusted."""
    return " ".join(verdict_sentences(prediction))


def verdict_sentences(prediction: Prediction, places: Mapping[str, str] | None = None) -> list[str]:
    """Return the result, the most important sentence first.

    Where the prediction is not to be trusted that is what comes first, then what would give one.
    places: where the calls of a phase are in the program, by its number.
    """
    before = [warning_of(prediction), remedy_of(prediction)]
    return [*filter(None, before), *figure_sentences(prediction, places)]


def figure_sentences(prediction: Prediction, places: Mapping[str, str] | None = None) -> list[str]:
    """Return what the figures say, whether they are to be trusted or not."""
    network = network_of(prediction)
    said = [headline(prediction), *[f"The times are {network}."] * bool(network)]
    if not prediction.starts_only:
        several, trusted = len(prediction.counts) > 1, not warning_of(prediction)
        said += _knee(prediction) if several and trusted else []
        said += [*filter(None, [top_phase(prediction, places)]), *_limit(prediction, places)]
    if warning_of(prediction):
        said[0] = f"Taken at face value: {said[0][0].lower()}{said[0][1:]}"
    return said


def headline(prediction: Prediction) -> str:
    """Return the result in a sentence of some 20 words."""
    first, last = prediction.base, prediction.last
    if prediction.starts_only:
        launch = prediction.start_and_end[-1]
        said = (
            f"Nothing here scales: the program calls MPI in no loop, and at {processes(last.n)} it "
            f"takes {seconds(last.time_s)}; its launch took {seconds(launch.time_s)} at "
            f"{processes(launch.n)}."
        )
    elif first is last:
        time = f"{seconds(last.time_s)}{_between(last)}"
        said = f"At {processes(last.n)} the program takes {time}."
    else:
        known = within(last)
        known = f", {known}" if known else ""
        change = (
            "stays about as fast"
            if abs(last.speedup - 1.0) < 0.02
            else "becomes slower"
            if last.speedup < 1
            else f"becomes {factor(last.speedup)} as fast"
        )
        said = (
            f"From {first.n} to {last.n} processes the program {change} "
            f"({ends(seconds(first.time_s), seconds(last.time_s))}{known})."
        )
    rough = prediction.grade == "rough"
    return f"Roughly: {said[0].lower()}{said[1:]}" if rough else said


def top_phase(prediction: Prediction, places: Mapping[str, str] | None = None) -> str:
    """Return which phase takes most of the time at the largest count; "" where none does."""
    last = prediction.last
    phases = sorted(last.phases, key=attrgetter("time_s"), reverse=True)
    whole = sum(phase.time_s for phase in phases)
    if not phases or whole <= 0:
        return ""
    top = phases[0]
    parts = {"computation": top.compute_s, "communication": top.comm_s, "files": top.io_s}
    kind = max(parts, key=lambda part: parts[part])
    return (
        f"Phase {_name_phase(top, places)} takes most of the time at {last.n} "
        f"({percent(top.time_s / whole)}, mostly {kind})."
    )


def network_of(prediction: Prediction) -> str:
    """Return what network the prediction is for, "" where it is that of this machine."""
    network = prediction.network
    if network is None or not network.published:
        return ""
    label = visible(network.label, 80)
    return {"typical": "for a typical ", "file": "for "}[network.source] + label if label else ""


def _between(row: Count) -> str:
    if unknown := not_known(row):
        return f" ({unknown})"
    low, high = row.low_s, row.high_s
    return "" if low is None or high is None or low == high else f" ({interval(low, high)})"


def _knee(prediction: Prediction) -> list[str]:
    found, threshold, best = prediction.counts, prediction.knee_efficiency, prediction.recommended
    limit, knee = f"{100 * threshold:.3g} %", prediction.knee
    worth = []
    if best is not None and best.n < found[-1].n:
        are = "is" if best.n == 1 else "are"
        at = f" (efficiency {percent(best.efficiency)})"
        worth = [f"Up to {processes(best.n)} {are} worth using{at}."]
    if knee and knee == found[-1].n:
        return [f"Efficiency drops below {limit} at {processes(knee)}.", *worth]
    if knee:
        return [f"Efficiency drops below {limit} from {processes(knee)} on.", *worth]
    below = [row.n for row in found if row.efficiency < threshold]
    if below:
        return [f"Efficiency is below {limit} at {processes(below)}, above it later."]
    return [f"Efficiency stays above {limit} up to there."]


def _name_phase(phase: PhaseAt | Limit, places: Mapping[str, str] | None) -> str:
    """Return the name of a phase, and where it is."""
    place = (places or {}).get(str(phase.phase))
    return visible(phase.name) + (f" ({place})" if place else "")


def _limit(prediction: Prediction, places: Mapping[str, str] | None) -> list[str]:
    """Return what costs most of the lost core time, if something does."""
    if not prediction.limits or not prediction.limits[0].share:
        return []
    first, last = prediction.limits[0], prediction.last
    lost = (
        f"{percent(first.share)} of the core time lost at {processes(last.n)}, "
        f"mostly {_BECAUSE[first.because]}"
    )
    if last.phases and max(last.phases, key=attrgetter("time_s")).phase == first.phase:
        return [f"It accounts for {lost}."]
    return [f"Scaling is limited first by {_name_phase(first, places)}: {lost}."]


def figures(prediction: Prediction) -> list[Figure]:
    """Return the figures at the top of the page; a figure that is not known is left out."""
    base, last = prediction.base, prediction.last
    doubt = "doubtful" if warning_of(prediction) else ""
    shown = [Figure("Run time", seconds(last.time_s), _or_none(_between(last)[2:-1]), doubt)]
    if len(prediction.counts) > 1:
        ends = factors(last)
        over = f"over {processes(base.n)}"
        shown.append(
            Figure(
                "Speedup",
                factor(last.speedup),
                over if ends in (NOT_KNOWN, UNKNOWN) else ends,
                doubt,
            )
        )
        ideal = last.n / base.n
        shown.append(
            Figure("Efficiency", percent(last.efficiency), f"ideal would be {factor(ideal)}", doubt)
        )
    best = prediction.recommended
    if best is not None and not doubt:
        shown.append(Figure("Worth using", f"{best.n:,}", f"efficiency {percent(best.efficiency)}"))
    knee, limit = prediction.knee, prediction.knee_efficiency
    if len(prediction.counts) > 1 and not doubt:
        shown.append(
            Figure(
                f"Below {100 * limit:.3g} % from",
                f"{knee:,}" if knee else "never",
                "processes on" if knee else f"up to {processes(last.n)}",
            )
        )
    cost = core_hours(last.cost_core_h)
    return [*shown, Figure("Core-hours", cost, "one core per process", doubt)]


def _or_none(text: str) -> str:
    return text or "no interval is known"
