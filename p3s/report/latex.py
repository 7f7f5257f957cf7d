"""The model as LaTeX: a table per phase as the thesis's Table 5.4, verdicts, hold-out.

The fragment is plain ASCII and needs only the packages longtable and array; names are escaped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from p3s.laws.counts import WorkLaw
from p3s.laws.symbolic import to_latex
from p3s.model import text
from p3s.model.partners import relations
from p3s.report.equations import VERDICT_HEAD, chosen_phases, holdout, verdict_rows
from p3s.report.places import Places
from p3s.report.rules import PhaseRules, Rule, phase_rules
from p3s.text import percent, plural, visible
from p3s.trace.ops import RECV, SEND
from p3s.version import __version__

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


def escaped(words: str, limit: int = 400) -> str:
    """Return text for LaTeX: printable, special characters escaped, other letters by number."""
    out = []
    for char in visible(words, limit):
        out.append(
            _SPECIAL.get(char)
            or (char if char.isascii() else rf"\textless{{}}U+{ord(char):04X}\textgreater{{}}")
        )
    return "".join(out)


def render(model: Mapping[str, Any], places: Places, everything: bool = False) -> str:
    """Return a fragment to be read with \\input: grid, a table per phase, verdicts, hold-out."""
    shown, hidden = chosen_phases(phase_rules(model, places), everything)
    counts = ", ".join(str(int(n)) for n in model["counts"])
    lines = [
        f"% Equations fitted at {counts} processes by p3s {__version__}.",
        r"% Needs \usepackage{longtable,array}.",
        "",
        rf"\noindent Process grid: {escaped(text.grid_text(model), 2000)}.",
        r"$n$: processes; $r$: rank; $p_d$, $c_d$: extent of the grid and coordinate in dimension "
        rf"$d$; work in {escaped(str(model['work_unit']))} before one call "
        "of $b$ bytes after one of $b_0$, $m$ of them on a rank.",
        "",
    ]
    for phase in shown:
        lines += [*_phase(model, phase), ""]
    if hidden:
        share = percent(sum(phase.share["time"] for phase in hidden))
        lines += [
            rf"\noindent {plural(len(hidden), 'more phase')} with {escaped(share)} of the "
            "time left out.",
            "",
        ]
    lines += [*_verdicts(model), "", *_holdout(model)]
    return "\n".join(lines) + "\n"


# ---- phases ------------------------------------------------------------------------------------
def _phase(model: Mapping[str, Any], phase: PhaseRules) -> list[str]:
    law = model["phases"][phase.phase]["weight"]
    since = f", from {int(law['from'])} processes on" if "from" in law else ""
    place = rf"at \texttt{{{escaped(phase.place, 160)}}}; " if phase.place else ""
    title = (
        rf"\textbf{{Phase {phase.phase}}}: {escaped(phase.name)}; {place}"
        rf"$w(n) = {_law(model, law)}$ ({escaped(phase.weight_verdict)}{since}); "
        rf"{escaped(percent(phase.share['time']))} of the time"
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
        lines += _rule(model, rule)
    return [*lines, r"\hline", r"\end{longtable}"]


def _rule(model: Mapping[str, Any], rule: Rule) -> list[str]:
    item = model["items"][rule.calls[0]]
    slot = item["slots"][max(rule.slot, 0)]
    one = len(rule.calls) == 1 and (rule.slot >= 0 or len(item["slots"]) == 1)
    terms = text.one_segment(model, rule.calls[0]) if one and rule.slot < 0 else None
    work = f"${_work(slot['work'])}$" if one else escaped(rule.work)
    if terms is not None:
        work = f"${_segment(model, terms)}$"
    size = (
        escaped(rule.volume)
        if len(item["slots"]) > 1 and rule.slot < 0
        else _volume(model, item, slot)
    )
    cells = [
        escaped(rule.label),
        rf"\texttt{{{escaped(rule.call)}}}",
        _destination(model, item, slot),
        size,
        work,
        escaped(rule.verdict),
    ]
    facts = [rf"\texttt{{{escaped(rule.place, 160)}}}"]
    facts += [f"for {escaped(rule.condition)}"] if rule.condition else []
    facts += [escaped(rule.repeats)] if rule.repeats else []
    return [
        " & ".join(cells) + r" \\",
        rf" & \multicolumn{{5}}{{{_BELOW}}}{{{'; '.join(facts)}}} \\",
    ]


def _destination(model: Mapping[str, Any], item: Mapping[str, Any], slot: Mapping[str, Any]) -> str:
    relation = slot["relation"]
    word = text.kind_word(item["kind"])
    moved = relations.latex(relation)
    if moved and item["kind"] in (SEND, RECV):
        return f"{word} ${moved}$"
    words = text.in_words_of(model, text.destination(item, slot))
    return escaped(f"{word} {words}" if words else "")


def _law(model: Mapping[str, Any], law: Mapping[str, Any]) -> str:
    """Return a count or size law in math mode."""
    if "expr" in law:
        return _math(model, law["expr"])
    if "total" in law:
        return rf"\frac{{1}}{{m}}\,{_math(model, law['total'])}"
    if "follows" in law:
        return r"\mathrm{as\ posted}"
    if "expr" in law["stat"]:
        from sympy import latex

        return rf"\approx {latex(text.decimal(law['stat']['expr']))}"
    return rf"\approx {_work(law['stat'])}"


def _math(model: Mapping[str, Any], expr: list[Any]) -> str:
    source = to_latex(expr)
    if int(model["grid"]["family"]["ndims"]) == 1:
        source = source.replace("c_{0}", "r").replace("p_{0}", "n")
    return source


def _volume(model: Mapping[str, Any], item: Mapping[str, Any], slot: Mapping[str, Any]) -> str:
    if not text.volume(item, slot):
        return ""
    law, width = slot["elements"], slot["elem_bytes"]
    if "expr" in law:
        return f"${_math(model, text.bytes_of(law['expr'], width))}$"
    if "expr" in law["stat"]:
        from sympy import latex

        return rf"$\approx {latex(text.decimal(text.bytes_of(law['stat']['expr'], width)))}$"
    words = _law(model, law)
    return f"${words}$" if width == 1 else rf"${int(width)} \cdot ({words})$"


def _work(law: Mapping[str, Any]) -> str:
    terms = []
    for coefficient, power, log in WorkLaw.from_json(dict(law)).terms:
        term = _number(coefficient)
        if power:
            term += r"\,n" + (f"^{{{power}}}" if power != 1 else "")
        if log:
            term += r"\,\log_{2} n" if log == 1 else rf"\,(\log_{{2}} n)^{{{int(log)}}}"
        terms.append(term)
    return " + ".join(terms) or "0"


def _segment(model: Mapping[str, Any], terms: Sequence[Sequence[Any]]) -> str:
    """Return the work of a segment in math mode; names as in text.segment_text."""
    parts = []
    for coefficient, expr, factor in terms:
        part = _number(coefficient)
        if expr != ["num", 1, 1]:
            part += rf"\,\left({_math(model, expr)}\right)"
        name = text.FACTORS.get(factor, "")
        part += {"b": r"\,b", "b0": r"\,b_{0}", "1/m": "/m"}.get(name, "")
        parts.append(part)
    return " + ".join(parts) or "0"


def _number(value: float) -> str:
    short = f"{value:.4g}"
    mantissa, _, exponent = short.partition("e")
    return rf"{mantissa} \cdot 10^{{{int(exponent)}}}" if exponent else mantissa


# ---- how sure ----------------------------------------------------------------------------------
def _verdicts(model: Mapping[str, Any]) -> list[str]:
    rows = verdict_rows(model)
    if not rows:
        return []
    return [
        r"\begin{tabular}{@{}lrrr@{}}",
        *_table_rows([VERDICT_HEAD, *rows]),
        r"\end{tabular}",
        r"\par\noindent The verdicts are of messages, sizes and weights; work is "
        + escaped(text.work_sure(model))
        + ".",
    ]


def _table_rows(rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [" & ".join(map(escaped, row)) + r" \\" for row in rows]
    return [lines[0] + r" \hline", *lines[1:]]


def _holdout(model: Mapping[str, Any]) -> list[str]:
    lines = [re.sub(r"\s+", " ", line.strip()) for line in holdout(model)]
    return [r"\par\noindent " + escaped("; ".join(lines), 2000) + "."]
