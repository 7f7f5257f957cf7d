"""The report as one HTML file that opens from disk and requests nothing."""

from __future__ import annotations

import base64
import hashlib
import re
from collections import defaultdict
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from p3s.base.study import write_bytes
from p3s.base.text import processes
from p3s.report.charts.cells import CELLS, matrix_chart
from p3s.report.charts.curves import efficiency_chart, speedup_chart
from p3s.report.charts.flame import STEP_NAMES, flame_chart
from p3s.report.charts.ranges import (
    estimate_chart,
    interval_chart,
    residual_chart,
    shares_chart,
    verdict_class,
)
from p3s.report.charts.small import phase_chart
from p3s.report.charts.stacks import MEASURES, Legend, kind_legend, phase_legend, stack_chart
from p3s.report.costs import KIND_NAMES, KINDS
from p3s.report.matrices import MatrixView
from p3s.report.sure import ESTIMATE_HEAD, RESIDUAL_HEAD, SHARES_HEAD
from p3s.report.view import View

if TYPE_CHECKING:
    from jinja2 import Environment, Template
    from markupsafe import Markup

#: Style sheet and script of all pages.
_OWN = ("report.css", "report.js")


@dataclass(frozen=True)
class Figures:
    """The charts of a report as markup; empty where there is nothing to draw."""

    speedup: Markup
    efficiency: Markup
    stacks: list[tuple[str, str, str, Markup, Markup]]
    kinds: list[Legend]
    phases: list[Legend]
    curves: list[tuple[str, str, str, Markup]]
    curve_kinds: list[Legend]
    estimates: Markup
    interval: Markup
    residuals: Markup
    shares: Markup
    matrices: list[tuple[MatrixView, Markup, str]]
    flame: Markup
    growth: list[Legend]


def figures_of(view: View) -> Figures:
    """Draw all charts of a report."""
    from markupsafe import Markup

    stacks = view.stacks
    several = len(view.prediction.counts) > 1
    kinds = [kind for kind in KINDS if any(kind in curve.parts for curve in view.curves)]
    return Figures(
        Markup(speedup_chart(view.prediction, view.beside)),
        Markup(efficiency_chart(view.prediction, view.beside) if several else ""),
        [
            (
                key,
                name,
                what,
                Markup(stack_chart(stacks, key, by_phase=False)),
                Markup(stack_chart(stacks, key, by_phase=True)),
            )
            for key, (name, what) in MEASURES.items()
        ],
        kind_legend(stacks),
        phase_legend(stacks),
        [
            (
                curve.name,
                curve.share,
                view.equations.places.get(curve.key, ""),
                Markup(phase_chart(curve)),
            )
            for curve in view.curves
        ],
        [Legend(f"k-{kind}", KIND_NAMES[kind]) for kind in kinds],
        Markup(estimate_chart(view.estimates)),
        Markup(interval_chart(view.interval_parts, view.interval_whole)),
        Markup(residual_chart(view.residuals)),
        Markup(shares_chart(view.shares)),
        [_matrix(each) for each in view.matrices],
        Markup(flame_chart(view.tree)),
        [Legend(f"g-{k}", name) for k, name in enumerate(STEP_NAMES)],
    )


def _matrix(each: MatrixView) -> tuple[MatrixView, Markup, str]:
    from markupsafe import Markup

    if each.matrix is None:
        return each, Markup(""), ""
    ranks = max(-(-each.matrix.np // CELLS), 1)
    cell = "a pair of ranks" if ranks == 1 else f"{ranks} × {ranks} ranks"
    return each, Markup(matrix_chart(each.matrix, each.what)), f"{each.what}; a cell is {cell}"


def render(view: View) -> str:
    """Return the report as HTML: every text escaped, nothing loaded, its own script alone."""
    return page("report.html").render(
        view=view,
        figures=figures_of(view),
        verdict_class=verdict_class,
        shares_head=SHARES_HEAD,
        estimate_head=ESTIMATE_HEAD,
        residual_head=RESIDUAL_HEAD,
        names=KIND_NAMES,
        places=defaultdict(str, view.equations.places),
    )


def page(name: str) -> Template:
    """Return a page's template, given style sheet, script and policy."""
    found = environment().get_template(name)
    style, script = (template(file).strip() for file in _OWN)
    found.globals.update(style=style, script=script, policy=policy())
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
    found.filters["processes"] = processes
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


def write_html(view: View, path: Path) -> None:
    """Write the report to ``path``."""
    write_bytes(path, as_bytes(render(view)))


def as_bytes(text: str) -> bytes:
    """Return a page as its file has it."""
    return text.encode("utf-8", "backslashreplace")
