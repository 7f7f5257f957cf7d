"""A prediction as a piece of HTML for notebooks: static, without script, style sheet or request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from p3s.predict import saved
from p3s.predict.reasons import untrusted
from p3s.report.charts.draw import LINE
from p3s.report.counts import COUNTS_HEAD, count_rows, thinned
from p3s.report.curve import axes_of, edges_of, hatching
from p3s.report.places import places_of
from p3s.report.points import Point, base_of, checked_rows, points_of
from p3s.report.verdict import figure_sentences, reasons_of, warning_of
from p3s.study import Study
from p3s.text import factor, plural, processes

if TYPE_CHECKING:
    import pandas

WIDTH, HEIGHT = 520.0, 300.0
LEFT, RIGHT, TOP, BOTTOM = 56.0, 16.0, 12.0, 34.0
#: Rows of the table; labels on an axis.
MAX_COUNTS, MAX_LABELS = 24, 10
#: A blue and an orange that are legible on white and on black; all else has the colour of text.
PREDICTED, MEASURED = "#3b82d6", "#d97526"
#: Of the lines across what is not to be trusted.
WARNING = "#c2403e"


class Prediction(saved.Prediction):
    """A saved prediction that a notebook shows as verdict, curve and table."""

    def to_frame(self) -> pandas.DataFrame:
        """Return a row per count as a data frame; needs pandas."""
        import pandas

        return pandas.DataFrame(self.columns())

    def _repr_html_(self) -> str:
        """Return it as static HTML."""
        source = self.source
        return fragment(self.data, {} if source is None else places_of(Study(source.parent)))


def fragment(prediction: Mapping[str, Any], places: Mapping[str, str] | None = None) -> str:
    """Return verdict, curve and table; every text escaped, looks by attributes of the drawing.

    places: where the calls of a phase are in the program, by its number.
    """
    said = [f"<p>{line}</p>" for line in _verdict(prediction, places)]
    table = count_rows(prediction)
    shown = thinned(table, MAX_COUNTS)
    head = "".join(f"<th>{escape(name)}</th>" for name in COUNTS_HEAD)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell.strip())}</td>' for cell in row)}</tr>" for row in shown
    )
    more = ""
    if len(shown) < len(table):
        more = f"<p>{len(shown)} of {plural(len(table), 'count')}.</p>"
    return (
        f"<div>{''.join(said)}{picture(prediction)}"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}</div>"
    )


def _verdict(prediction: Mapping[str, Any], places: Mapping[str, str] | None) -> Iterator[str]:
    """Return the verdict; where it is not to be trusted, why and what to do comes before it."""
    warning, (first, *rest) = warning_of(prediction), figure_sentences(prediction, places)
    reasons = reasons_of(prediction)
    if warning:
        yield f"<b>{escape(warning)}</b>"
        for reason in untrusted(reasons):
            yield escape(f"{reason.code}: {reason.sentence}")
    yield (
        f"{escape(first)} {escape(' '.join(rest))}"
        if warning
        else f"<b>{escape(first)}</b> {escape(' '.join(rest))}"
    )
    for reason in reasons:
        if not reason.untrustworthy:
            yield escape(f"mind: {reason.sentence}")


def picture(prediction: Mapping[str, Any]) -> str:
    """Return the speedup curve as an SVG drawing, both axes logarithmic.

    Where it is not to be trusted the drawing says so, and the curve is hatched.
    """
    points = points_of(prediction)
    axes, warning = axes_of(points), wrap(warning_of(prediction), 70)
    above = LINE * len(warning)

    def across(n: float) -> float:
        return LEFT + axes.x(n) * (WIDTH - LEFT - RIGHT)

    def up(speedup: float) -> float:
        return HEIGHT - BOTTOM - axes.y(speedup) * (HEIGHT - TOP - BOTTOM)

    def x(n: float) -> str:
        return f"{across(n):.1f}"

    def y(speedup: float) -> str:
        return f"{up(speedup):.1f}"

    def path(pairs: Sequence[tuple[float, float]]) -> str:
        return " ".join(f"{x(n)},{y(speedup)}" for n, speedup in pairs)

    label = 'fill="currentColor" font-size="12" font-family="sans-serif"'
    base = base_of(prediction, checked_rows(prediction))["n"]
    parts = [
        f'<svg viewBox="0 {-above:g} {WIDTH:g} {HEIGHT + above:g}" width="{WIDTH:g}" '
        f'height="{HEIGHT + above:g}" role="img"><title>Speedup over the number of '
        f"processes, relative to {base}</title>"
    ]
    right, bottom = f"{WIDTH - RIGHT:g}", f"{HEIGHT - BOTTOM:g}"
    for tick in axes.ticks():
        parts.append(
            f'<line x1="{LEFT:g}" x2="{right}" y1="{y(tick)}" y2="{y(tick)}" '
            f'stroke="currentColor" opacity="0.15"/><text x="{LEFT - 7:g}" y="{y(tick)}" dy="4" '
            f'text-anchor="end" {label}>{tick:.3g}x</text>'
        )
    for point in thinned(list(points), MAX_LABELS):
        parts.append(
            f'<text x="{x(point.n)}" y="{bottom}" dy="18" text-anchor="middle" {label}>'
            f"{point.n}</text>"
        )
    ends = [(p.n, p.low, p.high) for p in points if p.low is not None and p.high is not None]
    if len(ends) > 1:
        around = [*((n, high) for n, _, high in ends), *((n, low) for n, low, _ in reversed(ends))]
        parts.append(f'<polygon points="{path(around)}" fill="{PREDICTED}" opacity="0.2"/>')
    ideal = path([(points[0].n, points[0].ideal), (points[-1].n, points[-1].ideal)])
    dashed = ' stroke-dasharray="6 4"' if warning else ""
    if warning:
        lines = "".join(hatching(edges_of(points, across, lambda _, value: up(value))))
        parts.append(f'<path d="{lines}" fill="none" stroke="{WARNING}" stroke-width="1.2"/>')
        parts += [
            f'<text x="4" y="{LINE * (k + 0.75) - above:g}" {label} font-weight="bold">'
            f"{escape(line)}</text>"
            for k, line in enumerate(warning)
        ]
    parts.append(
        f'<polyline points="{ideal}" fill="none" stroke="currentColor" opacity="0.5" '
        'stroke-dasharray="2 5"/>'
        f'<polyline points="{path([(p.n, p.speedup) for p in points])}" fill="none" '
        f'stroke="{PREDICTED}" stroke-width="1.5"{dashed}/>'
    )
    parts += [_mark(point, x(point.n), y(point.speedup)) for point in points]
    return "".join([*parts, "</svg>"])


def _mark(point: Point, x: str, y: str) -> str:
    """Return a square where it was measured, a circle where it is predicted, with its numbers."""
    said = f"{processes(point.n)}: {factor(point.speedup)}"
    if point.measured:
        return (
            f'<rect x="{x}" y="{y}" width="9" height="9" transform="translate(-4.5 -4.5)" '
            f'fill="{MEASURED}"><title>{said}, measured</title></rect>'
        )
    if point.low is not None and point.high is not None:
        said += f" ({factor(point.low)} to {factor(point.high)})"
    return (
        f'<circle cx="{x}" cy="{y}" r="4.5" fill="{PREDICTED}"><title>{said}, predicted</title>'
        "</circle>"
    )
