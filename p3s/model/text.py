"""The words of an equation: destination, volume, repetitions and work of a rule, one line each.

Names of the columns are those of the thesis's Table 5.4. Pages, LaTeX and the report are made of
these words in p3s/report.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cache
from typing import Any

from p3s.errors import P3SError
from p3s.laws.counts import WorkLaw
from p3s.laws.expr import evaluate, mul, num, symbols_of
from p3s.laws.symbolic import to_sympy, to_text
from p3s.model.grid import guards
from p3s.model.grid.grids import GridRule
from p3s.model.grid.stated import Statement
from p3s.model.partners import communicator_laws, relations
from p3s.scores import work_off
from p3s.trace.ops import COLLECTIVE, COMM, COMPLETION, RECV, SEND

Model = Mapping[str, Any]
#: Who takes part where no guard was found.
NO_RULE = "ranks without a rule"


def unit_of(model: Model) -> str:
    """Return the unit of work in a word: ``ns`` or ``instructions``."""
    return "instructions" if model.get("work_unit") == "instructions" else "ns"


def law_text(law: Mapping[str, Any], unit: str = "") -> str:
    """Return a count or size law as one line."""
    if "expr" in law:
        return expression(law["expr"])
    if "total" in law:
        return f"{expression(law['total'])} in all, shared evenly"
    if "follows" in law:
        numerator, denominator = law["factor"]
        if numerator == denominator:
            return "as posted"
        return f"as posted x {numerator}" + (f"/{denominator}" if denominator != 1 else "")
    return "about " + amount_text(law["stat"], unit)


def amount_text(stat: Mapping[str, Any], unit: str = "") -> str:
    """Return a statistical amount, its constants with four figures."""
    if "expr" not in stat:
        return WorkLaw.from_json(dict(stat)).text(unit)
    return str(decimal(stat["expr"])) + (f" {unit}" if unit else "")


def decimal(expr: list[Any], figures: int = 4) -> Any:
    """Return an expression in sympy with decimal numbers of ``figures`` for its constants."""
    import sympy

    values: dict[str, Any] = {}

    def named(part: Any) -> Any:
        if not isinstance(part, list):
            return part
        if part[0] == "num" and (part[2] != 1 or abs(part[1]) >= 1000):
            name = f"constant{len(values)}"
            values[name] = sympy.Float(part[1], figures) / part[2]
            return ["sym", name]
        return [named(each) for each in part]

    found = to_sympy(named(expr))
    return found.xreplace(
        {symbol: values[symbol.name] for symbol in found.free_symbols if symbol.name in values}
    )


def expression(expr: list[Any]) -> str:
    """Return an expression as text; the same one is simplified only once."""
    return _expression(_frozen(expr))


@cache
def _expression(frozen: tuple[Any, ...]) -> str:
    return to_text(_thawed(frozen))


def _frozen(expr: Any) -> Any:
    return tuple(map(_frozen, expr)) if isinstance(expr, list) else expr


def _thawed(expr: Any) -> Any:
    return list(map(_thawed, expr)) if isinstance(expr, tuple) else expr


def weight_text(law: Mapping[str, Any]) -> str:
    """Return the law of a phase's weight as one line."""
    since = f" (from {law['from']} processes on)" if "from" in law else ""
    return law_text(law) + since


def destination(item: Mapping[str, Any], slot: Mapping[str, Any]) -> str:
    """Return the partner of a message or the ranks of a collective; empty for other calls."""
    if item["kind"] in (SEND, RECV):
        return partner(slot["relation"])
    if item["kind"] in (COLLECTIVE, COMM):
        text = place_text(slot["place"])
        root = slot.get("root")
        return f"{text}, root {root_text(root)}" if root is not None else text
    return ""


def partner(relation: Mapping[str, Any] | None) -> str:
    """Return a partner as a function of rank or grid coordinates, as ``(c1 + 1) mod p1``."""
    if relation is None:
        return "?"
    try:
        return relations.text(relation)
    except P3SError:  # of another version: named, and refused where it is evaluated
        return str(relation["kind"])


def place_text(place: Mapping[str, Any] | None) -> str:
    """Return the members of a communicator."""
    return "?" if place is None else communicator_laws.text(place)


def root_text(root: Mapping[str, Any]) -> str:
    """Return the root of a collective, a rank of its communicator."""
    if "expr" in root:
        return expression(root["expr"])
    if root.get("half"):
        return "half of the size"
    return "size-1" if root["index"] == -1 else str(root["index"])


def volume(item: Mapping[str, Any], slot: Mapping[str, Any]) -> str:
    """Return the bytes of one call as one line; empty for calls that move nothing."""
    if item["kind"] not in (SEND, RECV, COLLECTIVE):
        return ""
    law, width = slot["elements"], slot["elem_bytes"]
    if "expr" in law:
        return expression(bytes_of(law["expr"], width))
    if "expr" in law["stat"]:
        return "about " + amount_text({"expr": bytes_of(law["stat"]["expr"], width)})
    text = law_text(law)
    return text if width == 1 else f"{width}*({text})"


def bytes_of(elements: list[Any], width: int) -> list[Any]:
    """Return elements of ``width`` bytes as an expression in bytes."""
    if elements[0] == "num":
        return num(Fraction(elements[1], elements[2]) * width)
    return mul(num(width), elements)


def condition(slot: Mapping[str, Any]) -> str:
    """Return which ranks take part; empty when all do that have a partner."""
    guard = slot["guard"]
    if guard is None:
        return NO_RULE
    kept = [atom for atom in guard if atom != ["peer"]]
    return guards.text(kept) if kept else ""


def members(slot: Mapping[str, Any]) -> str:
    """Return which ranks take part, in full."""
    return NO_RULE if slot["guard"] is None else guards.text(slot["guard"])


def work_text(slot: Mapping[str, Any], unit: str = "") -> str:
    """Return the work before one call."""
    return WorkLaw.from_json(slot["work"]).text(unit)


def work_sure(model: Model) -> str:
    """Return how sure the work is: fitted, and by how much it was off at the hold-out."""
    held = model.get("holdout")
    off = work_off(held.get("work")) if isinstance(held, Mapping) else None
    if off is None:
        return "fitted, never checked"
    share = f"{100 * off:.0f}" if off >= 0.0995 else f"{100 * off:.1f}"
    return (
        f"fitted, ± {share} % at the hold-out"
        if off >= 0.0005
        else "fitted, ± less than 0.1 % at the hold-out"
    )


def no_trend(law: Mapping[str, Any]) -> str:
    """Return why the points of a work law do not tell how it goes on; "" where they do."""
    refused = WorkLaw.from_json(dict(law)).refused
    return f"no trend: {refused}" if refused else ""


def segments_of(model: Model, i: int) -> list[tuple[tuple[str, str] | None, str, float]]:
    """Return the segments that lead to call ``i``: (site, operation) before, work, error.

    None for the call before: the start of the run; the error is the relative one where left out.
    """
    phase = model["phases"][model["items"][i]["phase"]]
    for place in phase["work"].get("places", []):
        if i in place["items"]:
            return [
                (
                    (str(before[0]), str(before[1])) if before is not None else None,
                    segment_text(segment["terms"]),
                    float(segment["error"]),
                )
                for before, segment in zip(place["from"], place["segments"], strict=True)
            ]
    return []


def one_segment(model: Model, i: int) -> list[Any] | None:
    """Return the terms of the work before call ``i``; None if it depends on the call before."""
    phase = model["phases"][model["items"][i]["phase"]]
    for place in phase["work"].get("places", []):
        if i in place["items"] and place["segments"]:
            same = len({segment_text(s["terms"]) for s in place["segments"]}) == 1
            terms: list[Any] = place["segments"][0]["terms"]
            return terms if same else None
    return None


#: What a term of a segment is multiplied by besides its expression.
FACTORS = {"here": "b", "before": "b0", "once": "1/m"}


def segment_text(terms: Sequence[Sequence[Any]]) -> str:
    """Return the work of a segment; b: bytes of the message, b0: of the one before it.

    m: how many such segments a rank runs through.
    """
    parts = []
    for coefficient, expr, factor in terms:
        shape = expression(expr)
        shape = f"({shape})" if " + " in shape or " - " in shape else shape
        shapes = [shape] * (shape != "1") + [FACTORS.get(factor, "")] * bool(factor)
        number = f"{coefficient:.4g}"
        factors = [number, *shapes] if number != "1" or not shapes else shapes
        parts.append("*".join(factors).replace("*1/m", "/m"))
    return " + ".join(parts) or "0"


def repeats(model: Model, phase: Mapping[str, Any], slot: Mapping[str, Any]) -> str:
    """Return how often a call happens beside its phase; empty: once in every turn."""
    often, turns = _often(model, phase, slot["count"]), slot.get("turns")
    if turns is None:
        return often
    first, number, step = expression(turns["first"]), expression(turns["number"]), turns["step"]
    walk = f"{first}, {first} + {step}, ..." if first != "0" else f"0, {step}, ..."
    return (f"{often}, " if often else "") + f"in {number} iterations t = {walk}"


def _often(model: Model, phase: Mapping[str, Any], law: Mapping[str, Any]) -> str:
    ratio = _per_turn(model, phase["weight"], law)
    if ratio is not None:
        return "" if ratio == 1 else f"{ratio} times in every iteration"
    if "follows" in law:
        return law_text(law)
    words = law_text(law)
    return "once in the run" if words == "1" else f"{words} times in the run"


def _per_turn(model: Model, weight: Mapping[str, Any], law: Mapping[str, Any]) -> int | None:
    """Return the whole number of calls per iteration, where it is the same at every traced
    count."""
    if "expr" not in law or "expr" not in weight:
        return None
    if law["expr"] == weight["expr"]:
        return 1
    if symbols_of(law["expr"]) - {"n", "p0", "p1", "p2", "p3"}:
        return None
    found = set()
    for n, dims in model["grid"]["dims"].items():
        env = {"n": float(n), **{f"p{d}": float(p) for d, p in enumerate(dims)}}
        turns = float(evaluate(weight["expr"], env))
        calls = float(evaluate(law["expr"], env))
        if turns <= 0 or calls % turns:
            return None
        found.add(int(calls / turns))
    return found.pop() if len(found) == 1 and min(found) > 0 else None


def in_words_of(model: Model, line: str) -> str:
    """Return a line with r and n in place of the only coordinate and extent of a 1-D grid."""
    if int(model["grid"]["family"]["ndims"]) != 1:
        return line
    return re.sub(r"\bp0\b", "n", re.sub(r"\bc0\b", "r", line))


def grid_text(model: Model) -> str:
    """Return the rule of the process grid with its extents at the traced counts."""
    grid = model["grid"]
    dims = ", ".join(f"{n}: {'x'.join(map(str, d))}" for n, d in grid["dims"].items())
    known = Statement.from_json(grid.get("stated", {}))
    said = (
        f", stated: {known.text()}"
        if known.by_user
        else ", as in the program's arguments"
        if known
        else ""
    )
    return f"{grid['text']} ({dims}){said}"


def grid_extents(model: Model, n: int) -> str:
    """Return the extents at ``n`` processes, or why there are none."""
    dims = GridRule.from_json(model["grid"]["family"]).dims(n)
    return "x".join(map(str, dims)) if dims is not None else "none"


def kind_word(kind: str) -> str:
    """Return the word that leads to a rule's destination."""
    return {SEND: "to", RECV: "from", COLLECTIVE: "on", COMM: "of", COMPLETION: ""}.get(kind, "")
