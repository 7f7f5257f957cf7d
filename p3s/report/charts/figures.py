"""Figures that matplotlib draws: their looks, and what they are as markup and as files."""

from __future__ import annotations

import io
import logging
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from html import escape
from importlib import resources
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from p3s.base.text import seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Draws onto axes, and labels them with what they show.
Chart = Callable[["Axes"], None]
_CSS = (resources.files("p3s.report") / "templates" / "report.css").read_text("utf-8")
#: Light colours of the report by the names of their variables.
COLOURS: Mapping[str, str] = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", _CSS.partition("}")[0]))
#: What stands for a colour on a page of the report, whose style sheet knows the theme.
ON_PAGE = {colour: f"var(--{name})" for name, colour in reversed([*COLOURS.items()])}
_FONT = "DejaVu Sans"
_STYLE = {
    "font.family": _FONT,
    "text.color": COLOURS["soft"],
    "axes.titlelocation": "left",
    "axes.titlesize": "medium",
    "axes.titleweight": "bold",
    "axes.titlepad": 9,
    "axes.edgecolor": COLOURS["soft"],
    "axes.labelcolor": COLOURS["soft"],
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "grid.color": COLOURS["line"],
    "xtick.color": COLOURS["soft"],
    "ytick.color": COLOURS["soft"],
    "ytick.left": False,
    "legend.frameon": False,
    "legend.borderpad": 0,
    "legend.borderaxespad": 0,
    "legend.handlelength": 1.4,
    "legend.handletextpad": 0.5,
    "legend.columnspacing": 1.4,
    "lines.solid_joinstyle": "round",
    "svg.fonttype": "none",
    "svg.hashsalt": "p3s",
    "pdf.fonttype": 42,
}
#: A group with its name, properties of an element, and references to another one.
_GROUP, _STYLED = re.compile(r'<g id="([^"]*)"'), re.compile(r'style="([^"]*)"')
_REFERENCE = re.compile(r'(id="|href="#|url\(#)')


@contextmanager
def _style(points: float = 10.0) -> Iterator[None]:
    """Draw in the style of the report; nothing is said of glyphs that a font lacks."""
    log = logging.getLogger("matplotlib")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        import matplotlib.style

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with matplotlib.style.context(
                ["default", {**_STYLE, "font.size": points, "hatch.linewidth": 0.1 * points}]
            ):
                yield
    finally:
        log.setLevel(level)


def draw(
    chart: Chart, width: float, height: float, points: float = 12.5, legend: bool = True
) -> Figure:
    """Return a new figure of width x height (in points); ``points``: size of its labels."""
    with _style(points):
        from matplotlib.figure import Figure

        figure = Figure(figsize=(width / 72, height / 72), dpi=72)
        axes = figure.add_subplot()
        chart(axes)
        _lay_out(figure, points, legend)
    return figure


def _lay_out(figure: Figure, points: float, legend: bool) -> None:
    """Make room for labels, title and legend; constrained layout takes three times as long."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    (axes,), pad, below = figure.axes, 0.6 * points, 0.0
    canvas: Any = FigureCanvasAgg(figure)
    renderer = canvas.get_renderer()
    width, height = figure.bbox.size
    handles, names = axes.get_legend_handles_labels()
    for columns in range(len(names) if legend else 0, 0, -1):
        entries = figure.legend(
            *(handles, names),
            ncols=columns,
            loc="lower left",
            bbox_to_anchor=(pad / width, pad / height),
        )
        box = entries.get_window_extent(renderer)
        if box.width <= width - 2 * pad or columns == 1:
            below = box.height + pad
            break
        entries.remove()
    inner, outer = axes.bbox, axes.get_tightbbox(renderer, for_layout_only=True) or axes.bbox
    left = (inner.x0 - outer.x0 + pad) / width
    bottom = (inner.y0 - outer.y0 + pad + below) / height
    right = max(1 - (outer.x1 - inner.x1 + pad) / width, left + 0.1)
    top = max(1 - (outer.y1 - inner.y1 + pad) / height, bottom + 0.1)
    figure.subplots_adjust(left, bottom, right, top)


def on_page(chart: Chart, width: float = 560.0, height: float = 420.0, legend: bool = True) -> str:
    """Return a chart as markup for a page of the report, with the colours of its theme."""
    return as_markup(draw(chart, width, height, legend=legend), ON_PAGE)


def as_markup(figure: Figure, colours: Mapping[str, str], paper: str = "none") -> str:
    """Return a figure as an SVG element without style sheets, which a page may forbid.

    colours: what stands for those that it is drawn in. The name of an artist (``gid``) that has a
    space shows when the pointer is there. Names of elements differ from those of other figures.
    """
    _, _, body = _saved(figure, "svg", facecolor=paper).decode("utf-8").partition("</style>")
    body = re.sub(r"\s*\n\s*", " ", body.partition("</defs>")[2]).replace("> <", "><")
    body = body.replace("xlink:href", "href")
    body = _STYLED.sub(_as_attributes, _GROUP.sub(_as_title, body))
    body = re.sub(r'(?<=")#[0-9a-f]{6}(?=")', lambda m: colours.get(m[0], m[0]), body)
    own = sha256(body.encode()).hexdigest()[:8]
    width, height = 72 * figure.get_size_inches()
    return (
        f'<svg class="chart" viewBox="0 0 {width:g} {height:g}" role="img" stroke-linejoin="round" '
        f'aria-label="{escape(label_of(figure))}">' + _REFERENCE.sub(rf"\g<1>{own}", body)
    )


def _as_title(group: re.Match[str]) -> str:
    return f'<g class="hit"><title>{group[1]}</title' if " " in group[1] else "<g"


def _as_attributes(style: re.Match[str]) -> str:
    properties = (each.partition(": ") for each in style[1].split("; "))
    return " ".join(f'{key}="{value}"' for key, _, value in properties if key != "font-family")


def as_svg(figure: Figure) -> str:
    """Return a figure on white as an SVG element that stands alone."""
    width, height = 72 * figure.get_size_inches()
    head = '<svg class="chart"'
    alone = f'{head} xmlns="http://www.w3.org/2000/svg" width="{width:g}pt" height="{height:g}pt"'
    drawing = as_markup(figure, {}, COLOURS["card"])
    return drawing.replace(head, f'{alone} font-family="{_FONT}, Verdana, sans-serif"', 1)


def as_file(figure: Figure, kind: str) -> bytes:
    """Return a figure on white as "png", "pdf" or "svg"; the same bytes each time."""
    if kind == "svg":
        return f"<?xml version='1.0' encoding='utf-8'?>\n{as_svg(figure)}".encode()
    dpi = 150 if figure.get_figwidth() >= 5 else 300
    return _saved(figure, kind, facecolor=COLOURS["card"], dpi=dpi)


def label_of(figure: Figure) -> str:
    """Return what a figure shows."""
    return str(figure.axes[0].get_label())


def _saved(figure: Figure, kind: str, **settings: Any) -> bytes:
    metadata = {
        "svg": {"Date": None},
        "pdf": {"Title": label_of(figure), "CreationDate": None},
        "png": {},
    }
    data = io.BytesIO()
    with _style():
        figure.savefig(data, format=kind, metadata=metadata[kind], **settings)
    return data.getvalue()


# ---- what charts share ---------------------------------------------------------------------------
def name_axes(axes: Axes, what: str, name: str, warning: str = "", network: str = "") -> None:
    """Say what a chart shows, and above it the name of its vertical axis.

    warning: that it is not to be trusted, network: what it is for; both stand above the name.
    """
    axes.set_label(what)
    room = max(int(axes.bbox.width / (0.9 * letter_width(axes))), 12)
    lines = [line for text in (warning, network, name) for line in wrap(literal(text), room)]
    axes.set_title("\n".join(lines), color=COLOURS["none" if warning else "ink"])


def literal(text: str) -> str:
    """Return a text that is shown as it is: no formula, and not left out of a legend."""
    shown = text.replace("$", r"\$")
    return f"\u200b{shown}" if shown.startswith("_") else shown


def mark_counts(axes: Axes, places: Sequence[float], counts: Sequence[int]) -> None:
    """Label places of the horizontal axis with process counts, those that have room."""
    texts = fit(axes, places, [f"{n:,}" for n in counts])
    shown = [(place, text) for place, text in zip(places, texts, strict=True) if text]
    axes.set_xticks([place for place, _ in shown], [text for _, text in shown], minor=False)
    axes.set_xlabel("processes")


def fit(axes: Axes, places: Sequence[float], texts: Sequence[str], size: float = 1.0) -> list[str]:
    """Return labels of places on the horizontal axis, "" for those without room; the last stays.

    size: that of the labels over that of the axis's.
    """
    at = axes.get_xaxis_transform().transform([(place, 0.0) for place in places])[:, 0]
    shown, border = [""] * len(texts), math.inf
    for k in range(len(texts) - 1, -1, -1):
        half = 0.5 * (len(texts[k]) + 1) * size * letter_width(axes)
        if at[k] + half <= border:
            shown[k], border = texts[k], at[k] - half
    return shown


def tell(axes: Axes, places: Sequence[float], texts: Sequence[str]) -> None:
    """Make a column around each place, up to the next one, that tells a text under the pointer."""
    axes.set_xlim(axes.get_xlim())
    at = axes.get_xaxis_transform().transform([(place, 0.0) for place in places])[:, 0]
    inside = (at[1:] + at[:-1]) / 2
    borders = [(x, axes.bbox.y0) for x in (axes.bbox.x0, *inside, axes.bbox.x1)]
    ends = axes.transData.inverted().transform(borders)[:, 0]
    for k, text in enumerate(texts):
        if borders[k + 1][0] - borders[k][0] >= 1.5:
            span = axes.axvspan(ends[k], ends[k + 1], gid=text, zorder=9)
            span.set(color=COLOURS["soft"], alpha=0.002, linewidth=0)


def letter_width(axes: Axes) -> float:
    """Return the width of a letter of labels in pixels."""
    return 0.62 * float(axes.xaxis.label.get_fontsize()) * axes.figure.dpi / 72


def round_time(value: float, _place: object = None) -> str:
    """Return a round time without the digits that say that it is exact."""
    number, _, unit = seconds(value).partition(" ")
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number} {unit}"
