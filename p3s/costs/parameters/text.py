"""The rules of a model that follow the parameters, as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from p3s.base.ops import COMPLETION
from p3s.costs.parameters.tree import leaves_of
from p3s.costs.parameters.types import FITTED, Law, Number, Part
from p3s.laws.symbolic import to_text


def rules(part: Part) -> list[str]:
    """Return a line per distinct rule of an item or phase that follows the parameters."""
    found: dict[str, dict[str, None]] = {}
    for item in part.tree["items"]:
        op = item["op"].removeprefix("MPI_")
        for slot in item["slots"]:
            for key, name in (("elements", "elements"), ("count", "calls of a rank")):
                if key == "elements" and item["kind"] == COMPLETION:
                    continue
                for text in _texts(slot[key], part.laws):
                    found.setdefault(f"{name} = {text}", {})[op] = None
    for phase in part.tree["phases"]:
        for text in _texts(phase["weight"], part.laws):
            found.setdefault(f"weight = {text}", {})[phase["name"]] = None
    return [f"{text}   {', '.join(names)}" for text, names in found.items()]


def is_ordered(part: Part) -> bool:
    """Tell whether the order of events follows rules that hold at all settings."""
    return part.tree["order"] is not None


def _texts(law: Any, laws: Sequence[Law]) -> list[str]:
    """Return the equations in a law that follow the parameters, with how sure they are."""
    if not isinstance(law, dict):
        return []
    out = []
    for key in ("expr", "total"):
        if key in law and (used := leaves_of(law[key])):
            states = {laws[k].state for k in used}
            state = next(s for s in ("fitted", "open", "exact") if s in states)
            out.append(f"{_text(law[key], laws)}  [{state}]")
    if "stat" in law and "points" in law["stat"]:
        out.append("means, fitted  [fitted]")
    return out


def _text(expr: Any, laws: Sequence[Law]) -> str:
    """Return an expression as text, exact laws of the parameters in place."""

    def shown(tree: Any) -> Any:
        if isinstance(tree, list):
            if len(tree) == 2 and tree[0] == "num" and isinstance(tree[1], dict):
                return _number(laws[tree[1]["law"]])
            return [shown(part) for part in tree]
        return tree

    return to_text(shown(expr))


def _number(law: Law) -> Any:
    """Return a number as an expression in the parameters; one without an exact law, rounded."""
    if not isinstance(law, Number):
        raise TypeError("a law of means is no number")
    exact = law.expr if law.state != FITTED else None
    return exact or ["num", round(sum(c for c, _ in law.terms)), 1]
