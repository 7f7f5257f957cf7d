"""The report as one HTML file that opens from disk and requests nothing."""

from __future__ import annotations

import base64
import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from p3s.base.study import write_bytes
from p3s.base.text import (
    NOT_KNOWN,
    command_line,
    factor,
    percent,
    processes,
    seconds,
    span,
    visible,
)
from p3s.base.version import __version__
from p3s.model import text
from p3s.pipeline.content import StudyContent
from p3s.predict.types import Prediction, filter_untrusted
from p3s.report import costs, counts, details, equations, sections, sure
from p3s.report.call_tree import CallTree, Node, tree_of, weight
from p3s.report.charts import bars, curves, figures, flame
from p3s.report.charts.cells import matrix_part
from p3s.report.charts.flame import growth, step_of
from p3s.report.phase_table import account
from p3s.report.places import phase_places
from p3s.report.show import Page, Part

if TYPE_CHECKING:
    from jinja2 import Environment, Template
    from markupsafe import Markup


#: Style sheet and script of all pages.
_OWN = ("report.css", "report.js")
#: Rows of a tree from which on small branches are folded at first, and what is small.
FOLDED, SMALL = 40, 0.02
#: Deeper rows are not moved in further.
MAX_DEPTH = 14


#: What a cell shows, and what it is sorted by ("": last).
Cell = tuple[str, str]


@dataclass(frozen=True)
class CallRow:
    """A node of the call tree: how deep it is, its cells; ``step``: how much it grows.

    ``closed``: what is in it is folded at first.
    """

    node: Node
    depth: int
    cells: list[Cell]
    step: int
    closed: bool


@dataclass(frozen=True)
class CallRows:
    """The rows of a tree under their heads, and what is to be kept in mind."""

    head: list[str]
    rows: list[CallRow]
    said: list[str]


def call_rows(tree: CallTree, prediction: Prediction) -> CallRows:
    """Return the rows of a tree from the top down."""
    nodes = list(tree.root.walk())
    head, said = ["call path"], []
    if tree.traced_n is not None:
        head += [f"traced at {tree.traced_n:,}", "share"]
        said = [
            "Traced: computation and MPI, mean over the ranks. Predicted: of the rank that takes "
            "longest; the model tells times of loops, not of single calls in one."
        ]
        run = next((row for row in prediction.counts if row.n == tree.traced_n), None)
        if run is not None and not run.representative:
            said.append("The traced ranks shared cores: their times in MPI tell little.")
    head += [f"predicted at {tree.n:,}", "share", "computation", "MPI"]
    head.append(f"core time over that at {tree.base_n:,}")
    rows = [_row(tree, node, depth, len(nodes) > FOLDED and depth > 0) for depth, node in nodes]
    return CallRows(head, rows, [*said, *([tree.cut] if tree.cut else [])])


def _row(tree: CallTree, node: Node, depth: int, many: bool) -> CallRow:
    whole, spent = tree.root, node.spent
    cells = _format_times(node.traced_s, whole.traced_s) if tree.traced_n is not None else []
    step = -1
    if spent is None:
        cells += [_cell(None, seconds)] * 5
    else:
        ratio = growth(tree, spent, node.before)
        cells += _format_times(spent.total(), whole.spent.total() if whole.spent else None)
        talked = sum(value for kind, value in spent.items() if kind not in ("compute", "io"))
        cells += [_cell(spent["compute"], seconds), _cell(talked, seconds)]
        if spent:
            step = step_of(ratio)
        cells.append(("new", "1e99") if ratio is None and step >= 0 else _cell(ratio, factor))
    calls_only = all(each.kind == "call" for each in node.body)
    closed = many and bool(node.body) and (weight(node, whole) < SMALL or calls_only)
    return CallRow(node, min(depth, MAX_DEPTH), cells, step, closed)


def _format_times(value: float | None, whole: float | None) -> list[Cell]:
    """Return a time and its share."""
    known = value if whole else None
    share = None if value is None or not whole else value / whole
    return [_cell(known, seconds), _cell(share, percent)]


def _cell(value: float | None, shown: Callable[[float | None], str]) -> Cell:
    return (NOT_KNOWN, "") if value is None else (shown(value), f"{value:.4g}")


def render(content: StudyContent, parts: Sequence[Part] = ()) -> str:
    """Return the report as HTML: every text escaped, nothing loaded, its own script alone.

    ``parts``: of extensions. The page asks the modules of its sections for what they show.
    """
    prediction, reasons = content.prediction, sure.reasons_of(content.prediction)
    tree = tree_of(content.phases, content.places, prediction)
    return page("report.html").render(
        content=content,
        model=content.model,
        prediction=prediction,
        parts=parts,
        scaling=[
            counts.counts_part(prediction),
            *filter(None, [details.efficiencies(prediction), details.what_if(prediction)]),
        ],
        how_sure=[
            details.interval_part(prediction),
            *filter(None, [details.estimators(prediction), details.residuals(prediction)]),
        ],
        files=details.files(prediction),
        account=account(content.phases) if content.phases else None,
        beside=[part.curve for part in parts if part.curve is not None],
        against=filter_untrusted(reasons),
        mind=[each for each in reasons if not each.untrustworthy],
        places=defaultdict(str, phase_places(content.model, content.places)),
        tree=tree,
        call_rows=call_rows(tree, prediction),
        gaps=sections.gaps_of(content),
        matrices=matrix_part(content.matrices),
        quoted=partial(sections.quoted_source, content),
        curves=costs.phase_curves(prediction),
        stacks=costs.stacks_of(prediction),
        held=equations.holdout(content.model),
        verdicts=equations.verdict_table(content.model),
        shares=details.verdict_shares(prediction),
        of_bars=bars,
        of_costs=costs,
        of_curves=curves,
        of_equations=equations,
        of_flame=flame,
        of_sections=sections,
        of_text=text,
        drawn=_draw,
        sure=sure,
    )


def _draw(chart: Callable[..., None], *content: object, **size: Any) -> Markup:
    """Return a chart of what it is given after its axes."""
    from markupsafe import Markup

    return Markup(figures.on_page(lambda axes: chart(axes, *content), **size))


def render_page(view: Page) -> str:
    """Return a page of parts as HTML, as :func:`render` does."""
    return page("parts.html").render(view=view)


def page(name: str) -> Template:
    """Return a page's template, given style sheet, script and policy."""
    found = environment().get_template(name)
    style, script = (template(file).strip() for file in _OWN)
    found.globals.update(style=style, script=script, policy=policy(), version=__version__)
    return found


def policy() -> str:
    """Return the Content-Security-Policy of all pages: their own style sheet and script alone."""
    style, script = (
        base64.b64encode(hashlib.sha256(template(file).strip().encode()).digest()).decode()
        for file in _OWN
    )
    return (
        f"default-src 'none'; style-src 'sha256-{style}'; script-src 'sha256-{script}'; "
        "base-uri 'none'; form-action 'none'"
    )


def environment() -> Environment:
    """Return the templates: texts are escaped, a name that is not known is an error."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    found = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=FunctionLoader(template),
    )
    found.filters["breakable"] = breakable
    found.filters["unbroken"] = unbroken
    found.filters |= {
        each.__name__: each
        for each in (processes, visible, seconds, span, percent, command_line, equations.next_text)
    }
    return found


def breakable(name: str) -> Markup:
    """Return the name of a phase, escaped, that may be broken between its calls."""
    from markupsafe import Markup, escape

    return Markup("+<wbr>").join(escape(part) for part in name.split("+"))


def unbroken(sentence: str) -> str:
    """Return a sentence in which no number is parted from its unit at the end of a line."""
    return re.sub(r"(?<=\d) (?=(?:%|s|ms|µs|ns)(?![A-Za-z]))", "\u00a0", sentence)


def template(name: str) -> str:
    """Return a template, or the style sheet, by its name."""
    return (resources.files("p3s.report") / "templates" / name).read_text(encoding="utf-8")


def write_html(content: StudyContent, path: Path, parts: Sequence[Part] = ()) -> None:
    """Write the report to ``path``; ``parts``: of extensions."""
    write_bytes(path, as_bytes(render(content, parts)))


def as_bytes(text: str) -> bytes:
    """Return a page as its file has it."""
    return text.encode("utf-8", "backslashreplace")
