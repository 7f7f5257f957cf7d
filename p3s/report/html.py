"""The report as one HTML file that opens from disk and requests nothing."""

from __future__ import annotations

import base64
import hashlib
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from p3s.base.serialise import to_data
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
from p3s.model.text import work_sure
from p3s.pipeline.content import StudyContent
from p3s.predict.types import Count, Prediction, untrusted
from p3s.report.call_tree import CallTree, Node, tree_of, weight
from p3s.report.charts.curves import efficiency_chart, speedup_chart
from p3s.report.charts.draw import Log, Svg, log_ends, spaced
from p3s.report.charts.flame import STEP_NAMES, flame_chart, growth, step_of
from p3s.report.charts.ranges import (
    estimate_chart,
    interval_chart,
    residual_chart,
    shares_chart,
    verdict_class,
)
from p3s.report.charts.stacks import MEASURES, Legend, kind_legend, phase_legend, stack_chart
from p3s.report.costs import (
    KIND_NAMES,
    KINDS,
    SORTS,
    PhaseCurves,
    kinds_of,
    law_rows,
    limit_text,
    phase_costs,
    phase_curves,
    stacks_of,
    sure,
)
from p3s.report.counts import count_table
from p3s.report.efficiencies import efficiencies_of
from p3s.report.equations import VERDICT_HEAD, holdout_rows, markup, next_text, verdict_rows
from p3s.report.files import files_of
from p3s.report.matrices import matrix_view
from p3s.report.phase_table import ACCOUNT_HEAD, account_notes, account_rows
from p3s.report.places import phase_places
from p3s.report.sections import (
    RULE_HEAD,
    Part,
    commands_of,
    computation_of,
    equations_of,
    facts_of,
    instructions_of,
    plain,
    quoted_source,
)
from p3s.report.sure import (
    ESTIMATE_HEAD,
    PARTS,
    RESIDUAL_HEAD,
    SHARES_HEAD,
    change,
    estimates_of,
    figure_sentences,
    figures,
    lines,
    reasons_of,
    residual_cells,
    residuals_of,
    shares_of,
    warning_of,
)
from p3s.report.what_if import what_if_of
from p3s.signature.unmodelled import sentences

if TYPE_CHECKING:
    from jinja2 import Environment, Template
    from markupsafe import Markup


def gaps_of(content: StudyContent) -> list[str]:
    """Return what was not modelled, not measured or approximated, none twice."""
    prediction, replays = content.prediction, content.replays
    gaps = lines(prediction.notes) + lines(prediction.not_modelled)
    if prediction.unknown_share:
        gaps.append(f"no rule is known for {percent(prediction.unknown_share)} of the program")
    largest = prediction.last.n
    gaps += _named("no rule", content.unknown)
    gaps += [visible(line, 400) for line in sentences(to_data(content.model.not_modelled))]
    for n, replayed in replays.items():
        gaps += _named(f"not measured at {processes(n)}", replayed.get("unmeasured"))
    if largest in replays:
        gaps += _named(f"taken to cost nothing at {largest}", replays[largest].get("left_out"))
        shares = replays[largest].get("shares") or {}
        parts = [f"{visible(how)} {percent(share)}" for how, share in shares.items() if share]
        if parts:
            gaps.append(f"events by origin of their cost at {largest}: {', '.join(parts)}")
    return list(dict.fromkeys(gaps))


def _named(what: str, entries: Any, limit: int = 5) -> list[str]:
    """Return a list of entries as one line, the first few in full."""
    if not isinstance(entries, list) or not entries:
        return []
    shown = "; ".join(visible(plain(entry)) for entry in entries[:limit])
    more = f" and {len(entries) - limit} more" if len(entries) > limit else ""
    return [f"{what}: {shown}{more}"]


WIDTH, HEIGHT = 360.0, 210.0
LEFT, RIGHT, TOP, BOTTOM = 62.0, 14.0, 10.0, 28.0


def phase_chart(curves: PhaseCurves) -> str:
    """Return the parts of one phase as lines; a part that is zero somewhere has a gap there."""
    svg = Svg(WIDTH, HEIGHT, f"Time of phase {curves.name} over the number of processes")
    values = [value for part in curves.parts.values() for value in part if value]
    low, high = log_ends(values, 10.0, 23.0)
    x = Log(curves.counts[0], curves.counts[-1], LEFT + 8, WIDTH - RIGHT - 8)
    y = Log(low, high, HEIGHT - BOTTOM, TOP)
    for tick in y.powers(10, 5):
        svg.line((LEFT, y(tick)), (WIDTH - RIGHT, y(tick)), "grid")
        svg.text(LEFT - 7, y(tick) + 4, _power(tick), anchor="end")
    texts = [f"{n:,}" for n in curves.counts]
    for k, shown in enumerate(spaced([x(n) for n in curves.counts], texts, 10)):
        if shown:
            svg.text(x(curves.counts[k]), HEIGHT - 9, texts[k], anchor="middle")
    svg.line((LEFT, HEIGHT - BOTTOM), (WIDTH - RIGHT, HEIGHT - BOTTOM), "axis")
    for kind, part in curves.parts.items():
        svg.group(f"series l-{kind}")
        run: list[tuple[float, float]] = []
        for n, value in [*zip(curves.counts, part, strict=True), (0, None)]:
            if value is not None and value >= low:
                run.append((x(n), y(value)))
                continue
            svg.polyline(run, "part")
            run = []
        for n, value in zip(curves.counts, part, strict=True):
            if value is not None and value >= low:
                svg.circle(
                    x(n),
                    y(value),
                    2.8,
                    "dot",
                    f"{processes(n)}, {KIND_NAMES[kind]}: {seconds(value)}",
                )
        svg.end()
    return svg.markup()


def _power(value: float) -> str:
    """Return a power of ten seconds as short as it can be."""
    for limit, by, unit in (
        (0.9e-6, 1e9, "ns"),
        (0.9e-3, 1e6, "µs"),
        (0.9, 1e3, "ms"),
        (0.9e4, 1.0, "s"),
    ):
        if value < limit or unit == "s" and value < 0.9e7:
            return f"{value * by:,.0f} {unit}"
    return f"{value:.0e} s".replace("e+0", "e").replace("e+", "e")


#: Rows of a tree from which on small branches are folded at first, and what is small.
FOLDED, SMALL = 40, 0.02
#: Deeper rows are not moved in further.
MAX_DEPTH = 14


@dataclass(frozen=True)
class Cell:
    """What a cell shows, and what it is sorted by ("": last)."""

    text: str
    value: str


@dataclass(frozen=True)
class CallRow:
    """A node: how deep it is, what it is, its cells; ``step``: how much it grows.

    ``closed``: what is in it is folded at first.
    """

    depth: int
    kind: str
    name: str
    where: str
    phase: str
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
    traced = tree.traced_n is not None
    head = ["call path"]
    head += [f"traced at {tree.traced_n:,}", "share"] if tree.traced_n is not None else []
    head += [f"predicted at {tree.n:,}", "share", "computation", "MPI"]
    head.append(f"core time over that at {tree.base_n:,}")
    many = len(nodes) > FOLDED
    rows = [_row(tree, node, depth, many and depth > 0, traced) for depth, node in nodes]
    said = []
    if traced:
        said = [
            "Traced: computation and MPI, mean over the ranks. Predicted: of the rank that takes "
            "longest; the model tells times of loops, not of single calls in one."
        ]
        run = next((row for row in prediction.counts if row.n == tree.traced_n), None)
        if run is not None and not run.representative:
            said.append("The traced ranks shared cores: their times in MPI tell little.")
    return CallRows(head, rows, [*said, *([tree.cut] if tree.cut else [])])


def _row(tree: CallTree, node: Node, depth: int, many: bool, traced: bool) -> CallRow:
    whole = tree.root
    cells = [*_timed(node.traced_s, whole.traced_s)] if traced else []
    spent, before = node.spent, node.before
    if spent is None:
        cells += [Cell(NOT_KNOWN, "")] * 5
        ratio, step = None, -1
    else:
        cells += _timed(spent.time_s, whole.spent.time_s if whole.spent else None)
        cells += [_time(spent.compute_s), _time(spent.comm_s)]
        ratio = growth(tree, spent.time_s, before.time_s if before else 0.0)
        step = step_of(ratio) if spent.time_s > 0 else -1
        cells.append(Cell("new", "1e99") if ratio is None and spent.time_s > 0 else _ratio(ratio))
    closed = many and bool(node.body) and (weight(node, whole) < SMALL or _calls_only(node))
    return CallRow(
        min(depth, MAX_DEPTH), node.kind, node.name, node.where, node.phase, cells, step, closed
    )


def _calls_only(node: Node) -> bool:
    return all(each.kind == "call" for each in node.body)


def _timed(value: float | None, whole: float | None) -> list[Cell]:
    """Return a time and its share."""
    if value is None or not whole:
        return [Cell(NOT_KNOWN, ""), Cell(NOT_KNOWN, "")]
    return [_time(value), Cell(percent(value / whole), f"{value / whole:.4g}")]


def _time(value: float) -> Cell:
    return Cell(seconds(value), f"{value:.4g}")


def _ratio(ratio: float | None) -> Cell:
    return Cell(NOT_KNOWN, "") if ratio is None else Cell(factor(ratio), f"{ratio:.4g}")


#: Style sheet and script of all pages.
_OWN = ("report.css", "report.js")
#: What limits scaling: so many are listed.
MAX_LIMITS = 6


def render(content: StudyContent, parts: Sequence[Part] = ()) -> str:
    """Return the report as HTML: every text escaped, nothing loaded, its own script alone.

    ``parts``: of extensions.
    """
    prediction, program = content.prediction, content.program
    last, reasons = prediction.last, reasons_of(prediction)
    beside = [part.curve for part in parts if part.curve is not None]
    model, stacks = content.model, stacks_of(prediction)
    places = phase_places(model, content.places)
    tree, curves = tree_of(content.phases, content.places, prediction), phase_curves(prediction)
    phases, phases_cut = phase_costs(prediction)
    laws, laws_cut = law_rows(prediction)
    first, rows = holdout_rows(model)
    kinds = [kind for kind in KINDS if any(kind in curve.parts for curve in curves)]
    whole = _whole(last)
    return page("report.html").render(
        title=visible(program.name) or "study",
        command=visible(command_line(program.command), 400),
        version=__version__,
        sentences=figure_sentences(prediction, places),
        warning=warning_of(prediction),
        figures=figures(prediction),
        against=untrusted(reasons),
        mind=[each for each in reasons if not each.untrustworthy],
        baseline_n=prediction.baseline_n,
        largest_n=last.n,
        beside=beside,
        known=any(row.speedup_low is not None for row in prediction.counts),
        speedup=speedup_chart(prediction, beside),
        efficiency=efficiency_chart(prediction, beside) if len(prediction.counts) > 1 else "",
        measures=MEASURES,
        stacks=stacks,
        stack_chart=stack_chart,
        kinds=kind_legend(stacks),
        coloured=phase_legend(stacks),
        limits=prediction.limits[:MAX_LIMITS],
        limit_text=limit_text,
        names=KIND_NAMES,
        places=defaultdict(str, places),
        counts=count_table(prediction),
        efficiencies=efficiencies_of(prediction),
        what_if=what_if_of(prediction),
        flame=flame_chart(tree),
        growth=[Legend(f"g-{k}", name) for k, name in enumerate(STEP_NAMES)],
        call_rows=call_rows(tree, prediction),
        phases=phases,
        phases_cut=phases_cut,
        whole=sum(phase.time_s for phase in last.phases),
        sorts=SORTS,
        kinds_of=kinds_of,
        sure=sure,
        curves=curves,
        curve_kinds=[Legend(f"k-{kind}", KIND_NAMES[kind]) for kind in kinds],
        phase_chart=phase_chart,
        laws=laws,
        laws_cut=laws_cut,
        equations=equations_of(content),
        rule_head=RULE_HEAD,
        quoted=partial(quoted_source, content),
        markup=markup,
        verdict_head=VERDICT_HEAD,
        verdicts=verdict_rows(model),
        work_sure=work_sure(model),
        next=[next_text(each) for each in model.next],
        instructions=instructions_of(content),
        computation=computation_of(content),
        files=files_of(prediction),
        account_head=ACCOUNT_HEAD,
        account=[] if content.phases is None else account_rows(content.phases),
        account_notes=[] if content.phases is None else account_notes(content.phases),
        estimator=visible(prediction.estimator, 60),
        estimator_why=visible(prediction.estimator_why, 600),
        estimates=(estimates := estimates_of(prediction)),
        estimate_head=ESTIMATE_HEAD,
        estimate_chart=estimate_chart(estimates),
        interval_how=visible(prediction.interval_how, 600),
        interval_parts=last.interval_parts.known(),
        interval_names=PARTS,
        change=change,
        interval_chart=interval_chart(last, whole),
        residuals=(residuals := residuals_of(prediction)),
        residual_head=RESIDUAL_HEAD,
        residual_chart=residual_chart(residuals),
        shares=(shares := shares_of(prediction)),
        shares_head=SHARES_HEAD,
        shares_chart=shares_chart(shares),
        verdict_class=verdict_class,
        holdout=[f"{first[0].upper()}{first[1:]}.", *(f"{name}: {row}" for name, row in rows)],
        gaps=gaps_of(content),
        matrices=[matrix_view(*each) for each in content.matrices],
        parts=parts,
        facts=facts_of(content),
        commands=commands_of(program, prediction),
    )


def _whole(row: Count) -> tuple[float, float] | None:
    """Return the interval of the model's time at a count, as factors."""
    time, low, high = (row.model_s, row.model_low_s, row.model_high_s)
    if not time or low is None or high is None or low <= 0:
        return None
    return low / time, high / time


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
    found.filters |= {
        each.__name__: each for each in (processes, visible, seconds, span, percent, residual_cells)
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
