"""One tree of rules out of the models of several settings: what is equal stays, numbers get laws.

Only what says which events a program has is joined (:func:`rules_of`): items with their slots,
phases, loops. Their numbers, wherever they stand, are *leaves*: ``["num", {"law": k}]`` in an
expression, ``{"law": k}`` elsewhere, ``{"points": k}`` for a statistical law, each an index into
a list of laws.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from p3s.base.errors import P3SError
from p3s.base.serialise import to_data
from p3s.base.settings import Setting
from p3s.laws.expr import ARGUMENTS, num
from p3s.model.types import Model

_ITEM = (
    "site",
    "op",
    "kind",
    "tag",
    "tag_value",
    "relation",
    "place",
    "phase",
    "order",
    "loop_start",
    "loops",
    "at",
    "stages_of",
)
_SLOT = ("guard", "count", "elements", "elem_bytes", "turns", "root", "relation", "place", "when")
_PHASE = ("phase", "parent", "depth", "name", "items", "weight", "fused_stages")
#: What says how a law was found, and is not part of it.
_ABOUT = frozenset(
    {"points", "free", "rivals", "from", "stated", "means", "rel_half_width", "max_n", "band"}
)
#: Where numbers are names of things (an item, a place in an order, a direction), not amounts.
_NAMES = frozenset(
    {
        "site",
        "op",
        "kind",
        "tag",
        "tag_value",
        "phase",
        "order",
        "loop_start",
        "loops",
        "at",
        "stages_of",
        "parent",
        "depth",
        "items",
        "loop",
        "follows",
        "place",
        "factor",
        "grid",
        "tag_splits",
        "guard",
        "elem_bytes",
        "walk",
    }
)


class Differs(Exception):
    """Two models have another structure; the text says where."""


def rules_of(model: Model, number: Sequence[int] | None = None) -> dict[str, Any]:
    """Return what a model says of the events, as a tree of its own.

    number: new number of every item; the tree is then that of a model with its items so ordered.
    """
    data = to_data(model)
    items = data["items"]
    number = list(range(len(items))) if number is None else list(number)
    order = sorted(range(len(items)), key=lambda i: number[i])

    def again(many: Sequence[int] | None) -> list[int] | None:
        return None if many is None else sorted(number[i] for i in many)

    def slot(raw: Mapping[str, Any]) -> dict[str, Any]:
        out = {key: raw.get(key) for key in _SLOT}
        if "follows" in raw["count"]:
            out["count"] = {**raw["count"], "follows": again(raw["count"]["follows"])}
        out["when"] = [{**rule, "items": again(rule["items"])} for rule in raw.get("when") or ()]
        return out

    def loop(raw: Mapping[str, Any]) -> dict[str, Any]:
        trips = [{**rule, "items": again(rule["items"])} for rule in raw["trips"]]
        walk = raw["walk"]
        if walk is not None and walk.get("by") == "rules":
            walk = {**walk, "order": [again(mine) for mine in walk["order"]]}
        return {**raw, "trips": trips, "walk": walk}

    made = []
    for i in order:
        item = {key: items[i].get(key) for key in _ITEM}
        if item["stages_of"] is not None:
            item["stages_of"] = number[item["stages_of"]]
        made.append({**item, "slots": [slot(s) for s in items[i]["slots"]]})
    return {
        "grid": data["grid"]["family"],
        "tag_splits": sorted(data["tag_splits"]),
        "items": made,
        "phases": [
            {**{key: p[key] for key in _PHASE}, "items": [number[i] for i in p["items"]]}
            for p in data["phases"]
        ],
        "order": None
        if data["order"] is None
        else {"loops": [loop(raw) for raw in data["order"]["loops"]]},
    }


def numbering(model: Model, like: Model) -> list[int]:
    """Return for every item of a model its number in another one with the same calls.

    Raises Differs where the calls are not the same.
    """
    places: dict[tuple[str, str, Any], list[int]] = {}
    for i, item in enumerate(like.items):
        places.setdefault(item.key, []).append(i)
    mine: dict[tuple[str, str, Any], list[int]] = {}
    for i, item in enumerate(model.items):
        mine.setdefault(item.key, []).append(i)
    if {k: len(v) for k, v in places.items()} != {k: len(v) for k, v in mine.items()}:
        op = next(
            (k[1] for k in {**places, **mine} if len(places.get(k, ())) != len(mine.get(k, ()))),
            "?",
        )
        raise Differs(f"other calls ({op})")
    out = [0] * len(model.items)
    for k, here in mine.items():
        left = list(places[k])
        for i in here:
            found = next(
                (
                    j
                    for j in left
                    if like.items[j].relation == model.items[i].relation
                    and like.items[j].place == model.items[i].place
                ),
                left[0],
            )
            left.remove(found)
            out[i] = found
    return out


class Leaves:
    """The numbers that differ between settings: where they stand and what they are."""

    def __init__(self) -> None:
        self.where: list[str] = []
        self.kind: list[str] = []
        self.values: list[list[Any]] = []

    def add(self, path: str, kind: str, values: Sequence[Any]) -> int:
        """Keep the values of one leaf and return its number; kind: number or points."""
        self.where.append(path)
        self.kind.append(kind)
        self.values.append(list(values))
        return len(self.where) - 1


def join(trees: Sequence[Any], leaves: Leaves, path: str = "", names: bool = False) -> Any:
    """Return one tree with leaves of trees that are alike but for numbers; raises Differs.

    names: numbers here name things, and must be equal.
    """
    first = trees[0]
    if all(tree == first for tree in trees[1:]) and not _statistical(first):
        return first
    if all(isinstance(tree, dict) for tree in trees):
        if all("stat" in tree for tree in trees):
            return {"stat": {"points": leaves.add(path, "points", [t["stat"] for t in trees])}}
        keys = [key for key in first if key not in _ABOUT]
        if any([key for key in tree if key not in _ABOUT] != keys for tree in trees):
            raise Differs(path)
        return {
            key: join(
                [tree[key] for tree in trees],
                leaves,
                f"{path}.{key}",
                names or _names(path, key, first),
            )
            for key in keys
        }
    if all(_is_expr(tree) for tree in trees):
        return _join_exprs(trees, leaves, path, names)
    if all(isinstance(tree, list) for tree in trees):
        if len({len(tree) for tree in trees}) > 1:
            raise Differs(path)
        return [
            join(each, leaves, f"{path}[{k}]", names)
            for k, each in enumerate(zip(*trees, strict=True))
        ]
    if all(isinstance(tree, (int, float)) and not isinstance(tree, bool) for tree in trees):
        if names:
            raise Differs(path)
        return {
            "law": leaves.add(
                path, "number", [Fraction(t) if float(t).is_integer() else float(t) for t in trees]
            )
        }
    raise Differs(path)


def _statistical(tree: Any) -> bool:
    """Tell whether a tree is a law of means: those are equal by chance only."""
    return isinstance(tree, dict) and "stat" in tree


def _names(path: str, key: str, tree: Mapping[str, Any]) -> bool:
    """Tell whether what a key holds are names; samples of irregular partners have amounts."""
    if key == "relation":
        return (tree[key] or {}).get("kind") != "sample"
    # at the top these hold the items and the loops themselves
    return key in _NAMES and path + key not in ("items", "order", ".orderloops")


def _is_expr(tree: Any) -> bool:
    return (
        isinstance(tree, list) and bool(tree) and isinstance(tree[0], str) and tree[0] in ARGUMENTS
    )


def _join_exprs(trees: Sequence[Any], leaves: Leaves, path: str, names: bool) -> Any:
    """Return one expression; a factor of one and a summand of zero, left out, are put back."""
    if len({tree[0] for tree in trees}) > 1:
        trees = _padded(trees, path)
    op = trees[0][0]
    if op == "num":
        if names:
            raise Differs(path)
        return ["num", {"law": leaves.add(path, "number", [Fraction(t[1], t[2]) for t in trees])}]
    if len({len(tree) for tree in trees}) > 1:
        trees = _padded(trees, path)
    if op == "pow" and len({tuple(tree[2:]) for tree in trees}) > 1:
        raise Differs(path)
    if op in ("sym", "block") and len({tree[1] for tree in trees}) > 1:
        raise Differs(path)
    return [
        join(each, leaves, path, names) if isinstance(each[0], list) else each[0]
        for each in zip(*trees, strict=True)
    ]


def _padded(trees: Sequence[Any], path: str) -> list[Any]:
    for op, nothing in (("mul", num(1)), ("add", num(0))):
        longest = max((t for t in trees if t[0] == op), key=len, default=None)
        if longest is None or longest[1][0] != "num" and longest[-1][0] != "num":
            continue
        at_start = longest[1][0] == "num"

        def padded(
            tree: Any,
            op: str = op,
            nothing: Any = nothing,
            longest: Any = longest,
            at_start: bool = at_start,
        ) -> Any:
            if tree[0] == op and len(tree) == len(longest):
                return tree
            parts = tree[1:] if tree[0] == op else [tree]
            if len(parts) + 2 != len(longest):
                raise Differs(path)
            return [op, nothing, *parts] if at_start else [op, *parts, nothing]

        return [padded(tree) for tree in trees]
    raise Differs(path)


def fill(
    tree: Any, number: Callable[[int], Fraction | float], points: Callable[[int], dict[str, Any]]
) -> Any:
    """Return a tree without leaves: ``number(k)`` and ``points(k)`` stand in for the laws."""
    if isinstance(tree, dict):
        if set(tree) == {"law"}:
            value = number(tree["law"])
            return int(value) if float(value).is_integer() else float(value)
        if set(tree) == {"points"}:
            return points(tree["points"])
        return {key: fill(value, number, points) for key, value in tree.items()}
    if isinstance(tree, list):
        if len(tree) == 2 and tree[0] == "num" and isinstance(tree[1], dict):
            return num(_as_fraction(number(tree[1]["law"])))
        return [fill(part, number, points) for part in tree]
    return tree


def _as_fraction(value: Fraction | float) -> Fraction:
    return value if isinstance(value, Fraction) else Fraction(value).limit_denominator(10**9)


def leaves_of(tree: Any) -> list[int]:
    """Return the numbers of the leaves in a tree."""
    if isinstance(tree, dict):
        if set(tree) in ({"law"}, {"points"}):
            return [next(iter(tree.values()))]
        return [k for value in tree.values() for k in leaves_of(value)]
    if isinstance(tree, list):
        return [k for part in tree for k in leaves_of(part)]
    return []


def nearest(settings: Sequence[Setting], wanted: Setting) -> list[int]:
    """Return the numbers of settings by their distance from one, in ratios, nearest first."""

    def distance(setting: Setting) -> float:
        return math.hypot(
            *(math.log(float(setting[name]) / float(value)) for name, value in wanted.items())
        )

    if any(value <= 0 for s in (*settings, wanted) for value in s.values()):
        raise P3SError("model: a parameter is not above zero")
    return sorted(range(len(settings)), key=lambda k: (distance(settings[k]), k))
