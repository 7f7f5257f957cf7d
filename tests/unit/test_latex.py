"""Equations as LaTeX and MathML."""

from __future__ import annotations

import re
from fractions import Fraction
from xml.etree import ElementTree

import models
import pytest
import test_symbolic
from hypothesis import given, settings
from hypothesis import strategies as st
from report_studies import HOSTILE

from p3s.base.text import visible
from p3s.laws.expr import add, block, mul, num, power, sym
from p3s.laws.symbolic import simplify_expr, sympy_to_mathml
from p3s.laws.worklaws import WorkLaw
from p3s.model.notation import LATEX, MATHML
from p3s.model.partners.relation import Relation
from p3s.report.equations import markup, maths
from p3s.report.latex import escape_latex, render
from p3s.report.rules import Equation, phase_rules

#: Everything the renderer itself writes, and what the equations need.
COMMANDS = {
    "usepackage",
    "noindent",
    "par",
    "begin",
    "end",
    "multicolumn",
    "textbf",
    "texttt",
    "hline",
    "endhead",
    "endfirsthead",
    "raggedright",
    "arraybackslash",
    "footnotesize",
    "linewidth",
    "textbackslash",
    "textasciicircum",
    "textasciitilde",
    "textless",
    "textgreater",
    "textbar",
    "ldots",
    "times",
    "mu",
    "pm",
    "cdot",
    "bmod",
    "log",
    "left",
    "right",
    "lfloor",
    "rfloor",
    "lceil",
    "rceil",
    "frac",
    "sqrt",
    "operatorname",
    "mathrm",
    "approx",
    "min",
    "max",
    "sum",
    "limits",
}


def commands(source: str) -> set[str]:
    return set(re.findall(r"\\([A-Za-z]+)", source))


def test_names_are_text():
    assert escape_latex('a_b%c\\d{e}$f&g#h^i~j<k>|"[1]') == (
        r"a\_b\%c\textbackslash{}d\{e\}\$f\&g\#h\textasciicircum{}i\textasciitilde{}j\textless{}k"
        r"\textgreater{}\textbar{}{''}{[}1{]}"
    )
    assert escape_latex("\u00e9\x1b") == r"\textless{}U+00E9\textgreater{}\textbackslash{}x1b"
    for name in models.HOSTILE:
        source = escape_latex(name)
        assert source.isascii() and source.isprintable()
        bare = re.sub(r"\\[{}$&#%_]|\\text[a-z]+\{\}|\\ldots\{\}|\{''\}|\{\[\}|\{\]\}", "", source)
        assert not set(bare) & set("\\{}$&#%_^~[]"), (name, source)


@pytest.mark.parametrize("everything", [False, True])
@pytest.mark.parametrize("name", models.ALL)
def test_a_fragment_is_whole(name, everything):
    source = render(models.ALL[name](), {}, everything)
    assert source.isascii() and commands(source) <= COMMANDS, commands(source) - COMMANDS
    opened = []
    for what, environment in re.findall(r"\\(begin|end)\{([a-z]+)\}", source):
        if what == "begin":
            opened.append(environment)
        else:
            assert opened.pop() == environment
    assert not opened
    for part in source.split("\n"):
        text = re.sub(r"^%.*", "", part)
        bare = re.sub(r"\\[{}$&#%_]", "", text)
        assert bare.count("{") == bare.count("}") and bare.count("$") % 2 == 0, part
        assert "%" not in bare and "#" not in bare
    rows = [
        re.sub(r"\\&", "", line)
        for line in source.split("\n")
        if line.endswith(r"\\") and not line.startswith((r"\multicolumn", " & \\multicolumn"))
    ]
    assert all(row.count("&") in (3, 5) for row in rows)


def test_a_row_has_destination_volume_and_weight():
    source = render(models.built("jacobi2d"), {})
    row = next(line for line in source.split("\n") if "Isend" in line and "c_{0} - 1" in line)
    assert r"$8 \operatorname{block}_{\mathrm{first}}\left(61, p_{1}, c_{1}\right)$" in row
    assert "$w(n) = 3$ (exact)" in source
    ring = render(models.built("ring"), {})
    assert r"to $(r + 1) \bmod n$" in ring and "c_{0}" not in ring
    assert render(models.built("ring"), {}) == ring


def test_the_mathematics_can_be_set():
    """matplotlib knows the part of TeX's mathematics that is used here."""
    from matplotlib.mathtext import MathTextParser

    parser = MathTextParser("path")
    for name in ("jacobi2d", "cg", "ring", "wavefront"):
        source = re.sub(r"\\\$", "", render(models.built(name), {}, True))
        for formula in set(re.findall(r"\$([^$]+)\$", source)):
            if "bmod" not in formula:  # not among the operators that matplotlib has
                parser.parse(f"${formula}$")


TAGS = {"math", "mrow", "mi", "mn", "mo", "mfrac", "msup", "msub", "msqrt", "mroot", "mtext"}
TAGS |= {"mspace", "munderover"}
N, R = sym("n"), sym("r")


def tree(markup: str) -> ElementTree.Element:
    root = ElementTree.fromstring(f"<p>{markup}</p>")
    for part in root.iter():
        assert part.tag in TAGS | {"p"}
        if part.tag in ("mfrac", "msup", "msub", "mroot"):
            assert len(part) == 2, f"{part.tag} has two children"
        assert set(part.attrib) <= {"alttext", "displaystyle", "lspace", "rspace", "width"}
    return root


def words(markup: str) -> str:
    return "".join(tree(markup).itertext())


@pytest.mark.parametrize(
    ("expr", "shown"),
    [
        (mul(num(8), block("first", 351, sym("p1"), sym("c1"))), "8blockfirst(351,p1,c1)"),
        (["mod", add(sym("c0"), num(1)), sym("p0")], "(c0+1)modp0"),
        (["mod", add(R, ["quot", N, num(2)]), N], "(r+⌊n2⌋)modn"),
        (["mod", ["mod", R, num(8)], num(3)], "(rmod8)mod3"),
        (mul(num(3), power(N, Fraction(-1, 2))), "3n"),
        (power(N, Fraction(-2, 3)), "1n23"),
        (power(["log2", N], 2), "(log2n)2"),
        (mul(num(5), ["ceil", ["log2", N]]), "5⌈log2n⌉"),
        (["log2", add(N, num(1))], "log2(n+1)"),
        (add(mul(num(-1), N), num(1)), "1−n"),
        (["min", N, num(4)], "min(4,n)"),
        (["sum", sym("p0"), sym("j")], "∑j=0p0−1j"),
    ],
)
def test_expressions(expr, shown):
    assert words(sympy_to_mathml(simplify_expr(expr))) == shown


@settings(max_examples=100, deadline=None)
@given(st.recursive(test_symbolic.leaves, test_symbolic.grow, max_leaves=5))
def test_any_expression_is_well_formed(expr):
    tree(sympy_to_mathml(simplify_expr(expr)))


def test_laws_of_work_keep_the_order_of_their_terms():
    law = WorkLaw(
        ((5.4e6, Fraction(-1), 0), (3.0, Fraction(0), 1), (2.6e-5, Fraction(-2, 3), 1)), 0.1, 64
    )
    assert law.text() == "5.4e+06/n + 3*log2(n) + 2.6e-05*log2(n)/n**(2/3)"
    assert words(law.mathml()) == "5.4·106n+3log2n+2.6·10−5log2nn23"
    assert words(WorkLaw((), 0.0, 64).mathml()) == "0"


def test_work_of_segments():
    terms = [[2.0, mul(N, power(sym("p0"), -1)), "here"], [1.0, add(N, num(1)), "once"]]
    assert words(MATHML.segment(terms)) == "2bnp0+n+1m"
    assert LATEX.segment(terms[1:]) == r"\frac{n + 1}{m}"


@pytest.mark.parametrize(
    ("relation", "shown"),
    [
        ({"kind": "shift", "vec": [1, -2], "wrap": [True, False]}, "(c0+1)modp0,c1−2"),
        ({"kind": "shift", "vec": [-1], "wrap": [True]}, "(r−1)modn"),
        ({"kind": "opposite"}, "(r+⌊n2⌋)modn"),
        ({"kind": "mirror"}, "n−r−1"),
        ({"kind": "mirror", "axis": 1}, "−c1+p1−1"),
        ({"kind": "along", "by": -3, "wrap": True, "axis": 0}, "(c0−3)modp0"),
        ({"kind": "far", "k": 2, "sign": 1, "wrap": False}, "r+⌊n2⌋"),
        ({"kind": "stride", "sign": -1, "wrap": True}, "(−2s+r)modn"),
        ({"kind": "transpose"}, ""),
        ({"kind": "along", "by": 1, "wrap": True, "axis": {"kind": "modulo", "k": 2}}, ""),
    ],
)
def test_partners(relation, shown):
    assert words(MATHML.partner(Relation.load(relation))) == shown


@pytest.mark.parametrize("text", ["8", "830.5", "on all ranks", "", *HOSTILE])
def test_what_is_no_formula_stays_text(text):
    for found in (markup(Equation(text)), maths(text, "")):
        assert found.unescape() == visible(text, 600) and "<" not in found
    assert "<" not in maths("12", "<mn>12</mn>")


def test_a_formula_has_its_text_as_description():
    found = maths('to n "<', "<mi>n</mi>", "to ")
    assert found == 'to <math alttext="n &quot;&lt;"><mi>n</mi></math>'


@pytest.mark.parametrize("name", ["jacobi2d", "halo3d", "cg", "turned", "wavefront", "ring"])
def test_formulas_of_models_are_set(name: str) -> None:
    model = models.ALL[name]()
    found = []
    for phase in phase_rules(model, {}):
        found += [phase.weight, phase.work]
        for rule in phase.rules:
            found += [rule.destination, rule.volume, rule.work]
    for each in found:
        tree(markup(each))
    missed = [
        each.text
        for each in found
        if re.search(r"[*/]|log2|block_", each.text)
        and not re.search(r"\.\.|other|posted|\bc \w|dimension", each.text)
        and "<math" not in markup(each)
    ]
    assert not missed
    if name == "ring":
        every = "".join(map(markup, found))
        assert "<mi>r</mi>" in every and "<mi>c</mi>" not in every
