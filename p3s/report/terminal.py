"""The prediction on a terminal: what it says, a table of counts, a small curve, what limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from p3s.base.text import aligned, paragraph, percent, processes, seconds, visible
from p3s.predict.types import Prediction, WeakPrediction, untrusted
from p3s.report.costs import KIND_NAMES
from p3s.report.counts import Point, count_rows, points_of, signs, thinned
from p3s.report.efficiencies import summary_line
from p3s.report.efficiencies import terminal_lines as efficiency_lines
from p3s.report.files import terminal_lines as file_lines
from p3s.report.sure import (
    estimates_of,
    figure_sentences,
    lines,
    reason_lines,
    reasons_of,
    residuals_of,
    verdict_sentences,
    warning_of,
)
from p3s.report.what_if import summary_lines, terminal_lines

WIDTH, HEIGHT = 56, 13
#: Lines of a kind; what is beyond is counted.
MAX_COUNTS, MAX_LIMITS, MAX_LINES = 40, 3, 12
#: Counts in the table of a summary.
SHORT = 12


def render(prediction: Prediction, places: Mapping[str, str] | None = None) -> str:
    """Return a prediction as text: what it says first, then table, curve, and how sure it is.

    places: where the calls of a phase are in the program, by its number.
    """
    rows = prediction.counts
    mind = [reason for reason in reasons_of(prediction) if not reason.untrustworthy]
    parts = [*_verdict(prediction, places), "", *_table(prediction, MAX_COUNTS)]
    parts += [""] if prediction.starts_only else ["", curve(points_of(prediction)), ""]
    parts += file_lines(prediction)
    parts += [] if prediction.starts_only else efficiency_lines(prediction)
    parts += terminal_lines(prediction)
    parts += [*_limits(prediction, rows[-1].n, places or {}), *_estimates(prediction, rows[-1].n)]
    parts += _residuals(prediction)
    parts += reason_lines(mind[:MAX_LIMITS])
    parts += _few("note", lines(prediction.notes))
    parts += _few("not included", lines(prediction.not_modelled))
    return "\n".join(parts)


def render_weak(result: WeakPrediction) -> str:
    """Return a prediction of weak scaling as text."""
    rows, warning = result.counts, warning_of(result)
    first, last = rows[0], rows[-1]
    text = [warning, ""] if warning else []
    text += [*aligned(count_rows(result)), ""]
    if first is not last:
        text.append(
            "Taken at face value: "
            * bool(warning)
            + f"Weak scaling with {result.weak}: from {first.n} to {last.n} processes the "
            f"time goes from {seconds(first.time_s)} to {seconds(last.time_s)}, an "
            f"efficiency of {percent(last.efficiency)}."
            + (
                f" It stays below {percent(result.knee_efficiency)} from "
                f"{processes(result.knee)} on."
                if result.knee and not warning
                else ""
            )
        )
    text += reason_lines(reasons_of(result))
    text += [f"note: {visible(note, 400)}" for note in result.notes]
    return "\n".join([*text, *signs(rows)])


def summary(prediction: Prediction, places: Mapping[str, str] | None = None) -> str:
    """Return what a report says first: verdict, table and limits; places: as of render."""
    mind = [reason for reason in reasons_of(prediction) if not reason.untrustworthy]
    parts = [*_verdict(prediction, places), "", *_table(prediction, SHORT), ""]
    parts += [*_limits(prediction, prediction.counts[-1].n, places or {})]
    parts += [] if prediction.starts_only else summary_line(prediction)
    parts += summary_lines(prediction)
    parts += reason_lines(mind[:MAX_LIMITS])
    if said := len(lines(prediction.notes)) + len(lines(prediction.not_modelled)):
        parts.append(f"notes: {said}, on the page")
    return "\n".join(parts)


def _table(prediction: Prediction, most: int) -> list[str]:
    """Return the table of counts, at most so many of them, and what its signs mean."""
    head, *table = count_rows(prediction)
    shown = thinned(table, most)
    parts = [*aligned([head, *shown])]
    if len(shown) < len(table):
        parts.append(f"{len(shown)} of {len(table)} counts; p3s report --csv has all")
    return [*parts, *signs(prediction.counts)]


def _verdict(prediction: Prediction, places: Mapping[str, str] | None) -> list[str]:
    """Return the verdict; of a prediction that is not to be trusted with the dearest reasons."""
    against = untrusted(reasons_of(prediction))
    if not against:
        return verdict_sentences(prediction, places)
    return [
        *paragraph(warning_of(prediction)),
        *reason_lines(against[:MAX_LIMITS]),
        "",
        *figure_sentences(prediction, places),
    ]


def _limits(prediction: Prediction, n: int, places: Mapping[str, str]) -> Iterator[str]:
    """Say which phases cost most of the core time that is lost, and from which count on."""
    if prediction.starts_only:
        return
    least = percent(prediction.knee_efficiency)
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


def _estimates(prediction: Prediction, n: int) -> Iterator[str]:
    """Say what the estimators give that were not chosen."""
    others = [each for each in estimates_of(prediction) if not each.chosen]
    known = [f"{each.name} {seconds(each.time)}" for each in others if each.time is not None]
    chosen = visible(prediction.estimator, 60)
    if chosen:
        why = visible(prediction.estimator_why, 200)
        yield f"estimator: {chosen}{f' ({why})' if why else ''}"
    if known:
        yield f"other estimators at {processes(n)}: {', '.join(known)}"


def _residuals(prediction: Prediction) -> Iterator[str]:
    """Say how far the model is from what was measured; in brackets where that tells little."""
    found: dict[str, list[str]] = {}
    for each in residuals_of(prediction):
        if each.ratio is not None:
            text = f"{each.ratio:.2f} at {each.n}"
            found.setdefault(each.what, []).append(text if each.representative else f"({text})")
    for what, texts in found.items():
        yield f"measured / model, {what}: {', '.join(thinned(texts, MAX_LINES))}"


def _few(what: str, texts: Sequence[str]) -> Iterator[str]:
    for text in texts[:MAX_LINES]:
        yield f"{what}: {text}"
    if len(texts) > MAX_LINES:
        left = len(texts) - MAX_LINES
        are = "is" if left == 1 else "are"
        yield f"{what}: {left} more {are} in prediction.json and the report"


def curve(points: Sequence[Point], width: int = WIDTH, height: int = HEIGHT) -> str:
    """Draw the speedup over the count, both logarithmic: ideal ., interval |, points o and *."""
    from p3s.report.charts.draw import Log, log_ends, times_label

    shown = [v for p in points for v in (p.speedup, p.low, p.high, p.ideal, p.model) if v]
    across = Log(points[0].n, points[-1].n, 0.0, 1.0)
    up = Log(*log_ends([1.0, *shown]), 0.0, 1.0)
    cells = [[" "] * width for _ in range(height)]

    def column(n: float) -> int:
        return round(across(n) * (width - 1))

    def line(speedup: float) -> int:
        return height - 1 - round(up(speedup) * (height - 1))

    first, last = points[0], points[-1]
    for x in range(width):
        share = x / (width - 1)
        cells[line(first.ideal * (last.ideal / first.ideal) ** share)][x] = "."
    for point in points:
        if point.low is not None and point.high is not None and not point.measured:
            top, bottom = line(point.high), line(point.low)
            for y in range(top, bottom + 1):
                cells[y][column(point.n)] = "|"
    for point in points:
        cells[line(point.speedup)][column(point.n)] = "o" if point.measured else "*"

    labels = {line(tick): times_label(tick) for tick in up.powers()}
    text = [f"{labels.get(y, ''):>8} |{''.join(row)}".rstrip() for y, row in enumerate(cells)]
    text.append(" " * 9 + "+" + "-" * width)
    foot = [" "] * (width + 12)
    free = 0
    for point in points:
        name = str(point.n)
        at = min(10 + column(point.n), len(foot) - len(name))
        if at >= free:
            foot[at : at + len(name)] = name
            free = at + len(name) + 1
    text.append("".join(foot).rstrip())
    text.append(" " * 10 + "speedup over processes: o measured, * predicted, | interval, . ideal")
    return "\n".join(text)
