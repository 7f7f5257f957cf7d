"""The model as LaTeX: balanced, with cells where they belong, and no command out of a name."""

from __future__ import annotations

import re

import models
import pytest

from p3s.report.latex import escaped, render

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
    assert escaped('a_b%c\\d{e}$f&g#h^i~j<k>|"[1]') == (
        r"a\_b\%c\textbackslash{}d\{e\}\$f\&g\#h\textasciicircum{}i\textasciitilde{}j\textless{}k"
        r"\textgreater{}\textbar{}{''}{[}1{]}"
    )
    assert escaped("\u00e9\x1b") == r"\textless{}U+00E9\textgreater{}\textbackslash{}x1b"
    for name in models.HOSTILE:
        source = escaped(name)
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
    for block in source.split("\n"):
        text = re.sub(r"^%.*", "", block)
        bare = re.sub(r"\\[{}$&#%_]", "", text)
        assert bare.count("{") == bare.count("}") and bare.count("$") % 2 == 0, block
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
