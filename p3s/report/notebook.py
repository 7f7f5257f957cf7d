"""A prediction as a piece of HTML for notebooks: static, without script, style sheet or request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from p3s.predict import saved, types
from p3s.predict.reasons import untrusted
from p3s.report.charts.curves import Size, speedup_chart
from p3s.report.charts.looks import ON_ANY_PAGE, inlined
from p3s.report.counts import count_rows, counts_head, thinned
from p3s.report.places import places_of
from p3s.report.verdict import figure_sentences, reasons_of, warning_of
from p3s.study import Study
from p3s.text import plural

if TYPE_CHECKING:
    import pandas

SIZE = Size(560.0, 340.0)
#: Rows of the table.
MAX_COUNTS = 24


class Prediction(saved.PredictionFile):
    """A saved prediction that a notebook shows as verdict, curve and table."""

    def to_frame(self) -> pandas.DataFrame:
        """Return a row per count as a data frame; needs pandas."""
        import pandas

        return pandas.DataFrame(self.columns())

    def _repr_html_(self) -> str:
        """Return it as static HTML."""
        source = self.source
        return fragment(self.content, {} if source is None else places_of(Study(source.parent)))


def fragment(prediction: types.Prediction, places: Mapping[str, str] | None = None) -> str:
    """Return verdict, curve and table; every text escaped, looks by attributes of the drawing.

    places: where the calls of a phase are in the program, by its number.
    """
    said = [f"<p>{line}</p>" for line in _verdict(prediction, places)]
    table = count_rows(prediction)
    shown = thinned(table, MAX_COUNTS)
    head = "".join(f"<th>{escape(name)}</th>" for name in counts_head(prediction))
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


def _verdict(prediction: types.Prediction, places: Mapping[str, str] | None) -> Iterator[str]:
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
            yield escape(f"caution: {reason.sentence}")


def picture(prediction: types.Prediction) -> str:
    """Return the report's speedup curve as an SVG drawing that is legible on white and black.

    Where it is not to be trusted the drawing says so, and the curve is hatched.
    """
    drawing = inlined(speedup_chart(prediction, size=SIZE), ON_ANY_PAGE)
    drawing.set("width", f"{SIZE.width:g}")
    drawing.set("font-family", "sans-serif")
    return ElementTree.tostring(drawing, "unicode")
