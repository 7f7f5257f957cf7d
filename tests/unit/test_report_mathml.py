"""Equations as MathML: a formula is set, what is none stays text, nothing else comes out."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import models
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_studies import HOSTILE

from p3s.model import text
from p3s.report.mathml import maths
from p3s.report.rules import phase_rules

TAGS = {"math", "mrow", "mi", "mn", "mo", "mfrac", "msup", "msub", "msqrt", "mtext", "mspace"}


def tree(markup: str) -> ElementTree.Element:
    root = ElementTree.fromstring(f"<p>{markup}</p>")
    for part in root.iter():
        assert part.tag in TAGS | {"p"}
        if part.tag in ("mfrac", "msup", "msub"):
            assert len(part) == 2, f"{part.tag} has two children"
        assert set(part.attrib) <= {
            "alttext",
            "displaystyle",
            "stretchy",
            "separator",
            "lspace",
            "rspace",
            "width",
        }
    return root


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("5.4e+06/n + 3*log2(n) ns", "5.4·106n+3log2n ns"),
        ("to (c0 + 1) mod p0", "to (c0+1)modp0"),
        ("about 36.72/sqrt(n)", "about 36.72n"),
        ("8*block_first(351, p1, c1)", "8blockfirst(351,p1,c1)"),
        ("from (r + n//2) mod n", "from (r+⌊n2⌋)modn"),
        ("3*n**(-1/2)", "3n"),
        ("n**(-2/3)", "1n2/3"),
        ("2.6e-05*1/sqrt(n)", "2.6·10−5n"),
        ("5*ceil(log2(n))", "5⌈log2n⌉"),
        ("-n + 1", "−n+1"),
        ("n - (r - 1)", "n−(r−1)"),
        ("-(n + 1)*2", "−(n+1)·2"),
    ],
)
def test_formulas(source: str, shown: str) -> None:
    found = maths(source)
    assert found.markup.count("<math") == 1
    assert "".join(tree(found.markup).itertext()) == shown


def test_a_difference_of_a_sum_keeps_its_brackets() -> None:
    words = "".join(tree(maths("n - (r + 1)").markup).itertext())
    assert words == "n−(r+1)"


@pytest.mark.parametrize(
    "source",
    [
        "8",
        "830.5",
        "on all ranks",
        "as posted x 3/4",
        "transpose of dimensions 0,1",
        "",
        "n n",
        "(n",
        "alert(n)",
        "n)",
        "n + ",
        "1..3, 4 sizes",
        "f(n)",
        "__import__('os')",
        "(" * 300,
        "-" * 300 + "1",
        "n" + "+n" * 300,
        *HOSTILE,
    ],
)
def test_what_is_no_formula_stays_text(source: str) -> None:
    found = maths(source)
    assert found.text == source and "<" not in found.markup


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="nrpc01 2.e+-*/()mod,<>&\"'log2_", max_size=40))
def test_any_text_is_well_formed(source: str) -> None:
    if not re.search("[\x00-\x08]", source):
        tree(maths(source).markup)


@pytest.mark.parametrize("name", ["jacobi2d", "halo3d", "cg", "turned", "wavefront"])
def test_formulas_of_models_are_set(name: str) -> None:
    model = models.ALL[name]()
    sources = {rule.volume for phase in phase_rules(model, {}) for rule in phase.rules}
    sources |= {text.in_words_of(model, text.weight_text(p["weight"])) for p in model["phases"]}
    formulas = [
        s
        for s in sources
        if re.search(r"[*/]|log2|block_", s)
        and ".." not in s
        and "other" not in s
        and "posted" not in s
    ]
    missed = [s for s in formulas if "<math" not in maths(s).markup]
    assert not missed
    for source in sources:
        tree(maths(source).markup)
