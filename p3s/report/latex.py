"""The model as LaTeX: a table per phase as the thesis's Table 5.4, verdicts, hold-out.

The fragment is plain ASCII and needs only the packages longtable and array; names are escaped.
"""

from __future__ import annotations

from collections.abc import Sequence

from p3s.base.text import percent, plural, visible
from p3s.base.version import __version__
from p3s.model import text
from p3s.model.notation import LATEX
from p3s.model.types import Model
from p3s.report.equations import chosen_phases, holdout, verdict_table
from p3s.report.places import Places
from p3s.report.rules import Equation, PhaseRules, Rule, phase_rules

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "{''}",
    "–": "--",
    "…": r"\ldots{}",
    "×": r"$\times$",
    "µ": r"$\mu$",
    "±": r"$\pm$",
    "[": "{[}",
    "]": "{]}",
}
_COLUMNS = (
    r"@{}l l >{\raggedright\arraybackslash}p{0.22\linewidth} "
    r">{\raggedright\arraybackslash}p{0.22\linewidth} "
    r">{\raggedright\arraybackslash}p{0.16\linewidth} l@{}"
)
_BELOW = r">{\raggedright\arraybackslash\footnotesize}p{0.85\linewidth}@{}"


def escape_latex(words: str, limit: int = 400) -> str:
    """Return text for LaTeX: printable, special characters escaped, other letters by number."""
    out = []
    for char in visible(words, limit):
        out.append(
            _SPECIAL.get(char)
            or (char if char.isascii() else rf"\textless{{}}U+{ord(char):04X}\textgreater{{}}")
        )
    return "".join(out)


def render(model: Model, places: Places, everything: bool = False) -> str:
    """Return a fragment to be read with \\input: grid, a table per phase, verdicts, hold-out."""
    shown, hidden = chosen_phases(phase_rules(model, places), everything)
    counts = ", ".join(str(int(n)) for n in model.counts)
    lines = [
        f"% Equations fitted at {counts} processes by p3s {__version__}.",
        r"% Needs \usepackage{longtable,array}.",
        "",
        rf"\noindent Process grid: {escape_latex(text.grid_text(model), 2000)}.",
        r"$n$: processes; $r$: rank; $p_d$, $c_d$: extent of the grid and coordinate in dimension "
        rf"$d$; work in {escape_latex(str(model.work_unit))} before one call "
        "of $b$ bytes after one of $b_0$, $m$ of them on a rank.",
        "",
    ]
    for phase in shown:
        lines += [*_phase(model, phase), ""]
    if hidden:
        share = percent(sum(phase.share["time"] for phase in hidden))
        lines += [
            rf"\noindent {plural(len(hidden), 'more phase')} with {escape_latex(share)} of the "
            "time left out.",
            "",
        ]
    lines += [*_verdicts(model), "", *_holdout(model)]
    return "\n".join(lines) + "\n"


# ---- phases ------------------------------------------------------------------------------------
def _phase(model: Model, phase: PhaseRules) -> list[str]:
    law = model.phases[phase.phase].weight
    since = f", from {law.holds_from} processes on" if law.holds_from is not None else ""
    place = rf"at \texttt{{{escape_latex(phase.place, 160)}}}; " if phase.place else ""
    title = (
        rf"\textbf{{Phase {phase.phase}}}: {escape_latex(phase.name)}; {place}"
        rf"$w(n) = {_formula(phase.weight)}$ ({phase.weight_verdict}{since}); "
        rf"{escape_latex(percent(phase.share['time']))} of the time"
    )
    head = "rule & call & destination $f$ & volume $y$ (bytes) & work $i$ (fitted) & verdict"
    lines = [
        rf"\begin{{longtable}}{{{_COLUMNS}}}",
        rf"\multicolumn{{6}}{{@{{}}p{{\linewidth}}@{{}}}}{{{title}}} \\ \hline",
        rf"{head} \\ \hline",
        r"\endfirsthead",
        rf"{head} \\ \hline",
        r"\endhead",
    ]
    for rule in phase.rules:
        lines += _rule(rule)
    return [*lines, r"\hline", r"\end{longtable}"]


def _rule(rule: Rule) -> list[str]:
    cells = [
        escape_latex(rule.label),
        rf"\texttt{{{escape_latex(rule.call)}}}",
        *map(_cell, (rule.destination, rule.volume, rule.work)),
        escape_latex(rule.verdict),
    ]
    facts = [rf"\texttt{{{escape_latex(rule.place, 160)}}}"]
    facts += [f"for {escape_latex(rule.condition)}"] if rule.condition else []
    facts += [escape_latex(rule.repeats)] if rule.repeats else []
    return [
        " & ".join(cells) + r" \\",
        rf" & \multicolumn{{5}}{{{_BELOW}}}{{{'; '.join(facts)}}} \\",
    ]


def _cell(cell: Equation) -> str:
    formula = _formula(cell)
    return f"{escape_latex(cell.before)}${formula}$" if formula else escape_latex(cell.text)


def _formula(cell: Equation) -> str:
    return "" if cell.formula is None else cell.formula(LATEX)


# ---- how sure ----------------------------------------------------------------------------------
def _verdicts(model: Model) -> list[str]:
    table = verdict_table(model)
    if not table.rows:
        return []
    return [
        r"\begin{tabular}{@{}lrrr@{}}",
        *_table_rows([table.head, *table.rows]),
        r"\end{tabular}",
        r"\par\noindent The verdicts are of messages, sizes and weights; work is "
        + escape_latex(text.work_sure(model))
        + ".",
    ]


def _table_rows(rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [" & ".join(map(escape_latex, row)) + r" \\" for row in rows]
    return [lines[0] + r" \hline", *lines[1:]]


def _holdout(model: Model) -> list[str]:
    held = holdout(model)
    return [r"\par\noindent " + escape_latex("; ".join([held.lead, *held.notes]), 2000) + "."]
