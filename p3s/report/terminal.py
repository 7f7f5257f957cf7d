"""The prediction on a terminal: one screen, and with --verbose what the page has, as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from p3s.base.text import ends, paragraph, percent, processes, seconds, visible
from p3s.predict.types import Prediction, Reason, WeakPrediction, filter_untrusted
from p3s.report import details
from p3s.report.costs import KIND_NAMES
from p3s.report.counts import MAX_COUNTS, count_cut, count_table, signs
from p3s.report.show import Page, Part, reason_lines, show, show_page
from p3s.report.sure import (
    figure_sentences,
    headline,
    lines,
    network_of,
    reasons_of,
    top_phase,
    warning_of,
)

#: Counts and reasons of a screen; limits and notes of everything.
SHORT, MAX_REASONS, MAX_LIMITS, MAX_LINES = 12, 3, 3, 12


def render(
    prediction: Prediction,
    places: Mapping[str, str] | None = None,
    *,
    explain: str = "",
    more: str = "",
    changes: bool = False,
    verbose: bool = False,
) -> str:
    """Return a prediction as text: what it says in a sentence, a table, the three main reasons.

    places: where the calls of a phase are in the program, by its number. explain: the command that
    shows what a phase's equations rest on, more: the words that say where the rest is. changes:
    with what they would save. verbose: all of it.
    """
    warning, reasons = warning_of(prediction), reasons_of(prediction)
    told = [*filter_untrusted(reasons), *(each for each in reasons if not each.untrustworthy)]
    most = MAX_COUNTS if verbose else SHORT
    text = [*paragraph(warning or headline(prediction)), ""]
    text += [show(count_table(prediction, most, wide=False)), *count_cut(prediction, most)]
    text += signs(prediction.counts)
    if verbose:
        text.append("")
        text += [*reason_lines(reasons), *figure_sentences(prediction, places)[not warning :], ""]
        text += [show(*_details(prediction, places or {}))]
        text += _few("note", lines(prediction.notes))
        text += _few("not included", lines(prediction.not_modelled))
        return "\n".join(text).rstrip()
    network = network_of(prediction)
    text += [*[f"The times are {network}."] * bool(network), ""]
    text += [show(details.what_if(prediction))] if changes else []
    text += _main(prediction, told, top_phase(prediction, places), explain)
    left = max(len(reasons) - MAX_REASONS, 0) + len(lines(prediction.notes))
    if more and (left := left + len(lines(prediction.not_modelled))):
        text.append(f"notes: {left}, {more}")
    return "\n".join(text).rstrip()


def _main(
    prediction: Prediction, reasons: Sequence[Reason], phase: str, explain: str
) -> Iterator[str]:
    """Yield the main reasons: what speaks against it, else what takes most time, and cautions.

    One screen has one thing to do: the cure of the first.
    """
    room = MAX_REASONS
    if phase and not warning_of(prediction) and not prediction.starts_only:
        room -= 1
        top = max(prediction.last.phases, key=lambda each: each.time_s)
        command = f" {explain} {top.phase}" if explain and top.phase >= 0 else ""
        yield from paragraph(phase, 0, 4)
        yield from [f"    its equations:{command}"] * bool(command)
    yield from reason_lines(reasons[:room], cures=1)


def _details(prediction: Prediction, places: Mapping[str, str]) -> list[Part | str | None]:
    """Return the parts of the page that tell of times."""
    if prediction.starts_only:
        return [details.files(prediction)]
    return [
        details.files(prediction),
        details.efficiencies(prediction),
        details.what_if(prediction),
        *_limits(prediction, places),
        "",
        details.interval_part(prediction),
        details.estimators(prediction),
        details.residuals(prediction),
    ]


def _limits(prediction: Prediction, places: Mapping[str, str]) -> Iterator[str]:
    """Yield which phases cost most of the core time that is lost, and from which count on."""
    least, n = percent(prediction.knee_efficiency), prediction.last.n
    for limit in prediction.limits[:MAX_LIMITS]:
        since = ""
        if limit.n is not None:
            since = f"; alone it keeps efficiency below {least} from {limit.n:,} processes on"
        place = places.get(str(limit.phase), "")
        name = visible(limit.name, 400) + (f" ({place})" if place else "")
        yield (
            f"limit: {percent(limit.share)} of the core time lost at {processes(n)} is in "
            f"{name}, mostly {KIND_NAMES[limit.because]}{since}"
        )


def _few(what: str, texts: Sequence[str]) -> Iterator[str]:
    yield from (f"{what}: {text}" for text in texts[:MAX_LINES])
    if len(texts) > MAX_LINES:
        left = len(texts) - MAX_LINES
        are = "is" if left == 1 else "are"
        yield f"{what}: {left} more {are} in prediction.json and the report"


def render_weak(result: WeakPrediction) -> str:
    """Return a prediction of weak scaling as text."""
    first, last, reasons = result.counts[0], result.counts[-1], reasons_of(result)
    warning, said = warning_of(result), ""
    if first is not last:
        told = seconds(first.time_s), seconds(last.time_s)
        said = (
            f"Weak scaling with {result.weak}: from {first.n} to {last.n} processes the "
            f"time {'goes from' if told[0] != told[1] else 'stays at'} {ends(*told)}, an "
            f"efficiency of {percent(last.efficiency)}."
        )
        if warning:
            said = f"Taken at face value: {said}"
        elif result.knee:
            below = percent(result.knee_efficiency)
            said += f" It stays below {below} from {processes(result.knee)} on."
    notes = [f"note: {visible(note, 400)}" for note in result.notes]
    part = Part("counts", tables=[count_table(result, wide=False)], notes=signs(result.counts))
    mind = [reason for reason in reasons if not reason.untrustworthy]
    page = Page("", "", [said], warning, filter_untrusted(reasons), mind, [part])
    return "\n".join([show_page(page), *notes])
