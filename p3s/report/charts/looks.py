"""Charts with their looks in them: for pictures and notebooks, which have no style sheet.

The style sheet of the report says how everything looks; here its rules become attributes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from xml.etree import ElementTree

#: Legible on white and on black: texts and lines take the colour of the page's text.
ON_ANY_PAGE = {
    "ink": "currentColor",
    "soft": "currentColor",
    "line": "#8884",
    "tint": "#8882",
    "card": "none",
    "accent": "#3b82d6",
    "band": "#3b82d6",
    "measured": "#d97526",
    "good": "#2d9a57",
    "none": "#d0524e",
}
_LOOKS = {
    "fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "stroke-linejoin",
    "opacity", "font-size", "font-weight", "font-style", "paint-order", "shape-rendering",
    "visibility", "--c",
}  # fmt: skip
_MEDIA = re.compile(r"@media[^{]*\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}")
_RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
#: An element, its classes, or both, anywhere in a drawing.
_SELECTOR = re.compile(r"(svg )?([a-z]*)((?:\.[\w-]+)*)")
_VARIABLE = re.compile(r"var\((--[\w-]+)\)")

Looks = Mapping[str, str]
#: Element ("" any), classes, how specific the selector is, and what it says.
Rule = tuple[str, frozenset[str], tuple[int, int], Looks]


@cache
def _style() -> tuple[Looks, tuple[Rule, ...]]:
    """Return light colours and the rules for drawings, the ones that win last."""
    text = (resources.files("p3s.report") / "templates" / "report.css").read_text("utf-8")
    colours: dict[str, str] = {}
    rules: list[Rule] = []
    for selectors, body in _RULE.findall(_MEDIA.sub("", text)):
        said = dict(re.findall(r"([\w-]+):\s*([^;]+?)\s*(?:;|$)", body))
        for selector in map(str.strip, selectors.split(",")):
            if selector == ":root" and not colours:
                colours = {k: v for k, v in said.items() if k.startswith("--")}
            if (match := _SELECTOR.fullmatch(selector)) and selector != "svg":
                inside, element, classes = match.groups()
                names = frozenset(classes.split(".")[1:])
                weight = len(names), bool(inside) + bool(element)
                looks = {k: v for k, v in said.items() if k in _LOOKS}
                rules.append((element, names, weight, looks))
    return colours, tuple(sorted(rules, key=lambda rule: rule[2]))


def inline_styles(markup: str, colours: Mapping[str, str] | None = None) -> ElementTree.Element:
    """Return a chart as a tree whose elements say how they look, in light colours.

    ``colours``: others instead, by the name of their variable. What shows only under the pointer
    is left out, but for titles.
    """
    root = ElementTree.fromstring(markup)
    own, _ = _style()
    _inline(root, {**own, **{f"--{name}": value for name, value in (colours or {}).items()}})
    label = ElementTree.Element("title")
    label.text = root.get("aria-label")
    root.insert(0, label)
    return root


def _inline(parent: ElementTree.Element, colours: Looks) -> None:
    for element in list(parent):
        looks = _looks(element)
        if looks.get("visibility") == "hidden":
            parent.remove(element)
            continue
        inside = {**colours, **({"--c": looks["--c"]} if "--c" in looks else {})}
        for name, value in looks.items():
            if name != "--c":
                element.set(name, _resolve_colours(value, inside).removesuffix("px"))
        _inline(element, inside)


def _looks(element: ElementTree.Element) -> dict[str, str]:
    classes = set(element.get("class", "").split())
    found: dict[str, str] = {}
    for tag, names, _, looks in _style()[1]:
        if tag in ("", element.tag) and names <= classes and (names or tag):
            found.update(looks)
    return found


def _resolve_colours(value: str, colours: Looks) -> str:
    while match := _VARIABLE.search(value):
        value = value.replace(match[0], colours.get(match[1], "none"))
    return value
