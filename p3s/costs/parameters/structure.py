"""Models of several settings that are alike but for numbers: one numbering, and where they differ.

Only what says which events a program has is compared: its grid, items with their slots, phases,
loops. The place of a number is the path to it, fields and positions from the model inwards:
("items", 3, "slots", 0, "elements", "expr", 2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from fractions import Fraction
from typing import Any

from p3s.laws.expr import ARGUMENTS, num
from p3s.laws.worklaws import WorkLaw
from p3s.model.law_types import Amount, CountLaw, LoopRule, Order, SizeLaw, Trips, When
from p3s.model.types import Item, Model, Phase, ProcessGrid, Slot
from p3s.model.work_types import Case, Occurs, PhaseWork

Path = tuple[str | int, ...]
#: The values that a number has at each of the models, by its place.
Numbers = dict[Path, list[Any]]

#: Fields that are compared, by record, and whether numbers in them are amounts; else they name
#: things (an item, a position, a direction) and are equal. All fields of other records are.
_COMPARED: dict[type, dict[str, bool]] = {
    Model: {"grid": True, "tag_splits": False, "items": True, "phases": True, "order": True},
    ProcessGrid: {"family": False},
    Item: {
        **dict.fromkeys(("site", "op", "kind", "tag", "tag_value", "relation", "place"), False),
        **dict.fromkeys(("phase", "order", "loop_start", "loops", "at", "stages_of"), False),
        "slots": True,
    },
    Slot: {
        **dict.fromkeys(("guard", "elem_bytes", "relation", "place"), False),
        **dict.fromkeys(("elements", "count", "turns", "root", "when"), True),
    },
    CountLaw: {
        **dict.fromkeys(("expr", "total", "stat", "per_turn", "sample"), True),
        **dict.fromkeys(("follows", "factor", "together"), False),
    },
    SizeLaw: {"expr": True, "stat": True, "sample": True},
    When: {"items": False, "when": True},
    Phase: {
        **dict.fromkeys(("phase", "parent", "depth", "name", "items", "fused_stages"), False),
        "weight": True,
    },
    Order: {"loops": True},
    LoopRule: {"loop": False, "parent": False, "at": False, "walk": False, "trips": True},
    Trips: {"items": False, "when": True, "law": True},
    Case: {"present": False, "guard": False, "counts": True},
    Occurs: {"const": True, "expr": True, "share": True, "like": False, "rest": False},
}


class Differs(Exception):
    """Models have another structure: where, or in words."""

    def __init__(self, path: Path = (), text: str = "") -> None:
        super().__init__(text or str(path))
        self.path = path


# ---- one numbering -----------------------------------------------------------------------------
def numbering(model: Model, like: Model) -> list[int]:
    """Return for every item of a model its number in another one with the same calls.

    Raises Differs where the calls are not the same.
    """
    left: dict[tuple[str, str, int | None], list[int]] = {}
    for j, item in enumerate(like.items):
        left.setdefault(item.key, []).append(j)
    out = []
    for item in model.items:
        twins = left.get(item.key)
        if not twins:
            raise Differs(text=f"other calls ({item.op})")
        same = (
            j
            for j in twins
            if (like.items[j].relation, like.items[j].place) == (item.relation, item.place)
        )
        out.append(next(same, twins[0]))
        twins.remove(out[-1])
    missing = next((key for key, twins in left.items() if twins), None)
    if missing is not None:
        raise Differs(text=f"other calls ({missing[1]})")
    return out


def renumber_items(model: Model, number: Sequence[int]) -> Model:
    """Return a model with its items in another order; number: the new one of every item."""

    def again(many: Sequence[int] | None) -> tuple[int, ...] | None:
        return None if many is None else tuple(sorted(number[i] for i in many))

    def slot(one: Slot) -> Slot:
        count = replace(one.count, follows=again(one.count.follows))
        when = tuple(replace(rule, items=again(rule.items)) for rule in one.when or ())
        return replace(one, count=count, when=when)

    def loop(one: LoopRule) -> LoopRule:
        walk = one.walk
        if walk is not None and walk.by == "rules":
            walk = replace(walk, order=tuple(again(mine) or () for mine in walk.order))
        trips = tuple(replace(rule, items=again(rule.items)) for rule in one.trips)
        return replace(one, walk=walk, trips=trips)

    def work(one: PhaseWork) -> PhaseWork:
        places = []
        for place in one.places:
            rows = sorted(zip((number[i] for i in place.items), place.rows, strict=True))
            items = tuple(i for i, _ in rows)
            places.append(replace(place, items=items, rows=tuple(row for _, row in rows)))
        return replace(one, places=tuple(places))

    items = list(model.items)
    for new, item in zip(number, model.items, strict=True):
        stages_of = None if item.stages_of is None else number[item.stages_of]
        items[new] = replace(item, stages_of=stages_of, slots=tuple(map(slot, item.slots)))
    phases = tuple(
        replace(p, items=tuple(number[i] for i in p.items), work=work(p.work)) for p in model.phases
    )
    order = model.order
    if order is not None:
        order = replace(order, loops=tuple(map(loop, order.loops)))
    splits = tuple(sorted(model.tag_splits))
    return replace(model, items=tuple(items), phases=phases, order=order, tag_splits=splits)


# ---- numbers that differ -----------------------------------------------------------------------
def join_values(
    values: Sequence[Any], numbers: Numbers, path: Path = (), amount: bool = True
) -> Any:
    """Return values of one structure, the same but for factors of one and summands of zero.

    numbers: gets those that differ, each a Fraction, a float, or a law of means. amount: else all
    must be equal. Raises Differs.
    """
    first = values[0]
    if type(first) in _COMPARED and amount:
        return _joined_records(values, numbers, path, _COMPARED[type(first)])
    if all(value == first for value in values[1:]):
        return values
    if not amount or len({_shape(value) for value in values}) > 1:
        raise Differs(path)
    if isinstance(first, (WorkLaw, Amount)):
        numbers[path] = list(values)
        return values
    if is_dataclass(first):
        every = dict.fromkeys((field.name for field in fields(first)), True)
        return _joined_records(values, numbers, path, every)
    if _is_expr(first):
        return _joined_exprs(values, numbers, path)
    if isinstance(first, (list, tuple)):
        if len({len(value) for value in values}) > 1:
            raise Differs(path)
        parts = [
            join_values(each, numbers, (*path, k))
            for k, each in enumerate(zip(*values, strict=True))
        ]
        return [type(first)(each) for each in zip(*parts, strict=True)]
    if not isinstance(first, (int, float)) or isinstance(first, bool):
        raise Differs(path)
    numbers[path] = [Fraction(v) if float(v).is_integer() else float(v) for v in values]
    return values


def _joined_records(
    values: Sequence[Any], numbers: Numbers, path: Path, compared: Mapping[str, bool]
) -> list[Any]:
    kind = type(values[0])
    if any(type(value) is not kind for value in values):
        raise Differs(path)
    parts = {}
    for name, amount in compared.items():
        each = [getattr(value, name) for value in values]
        # a sample of irregular partners has amounts
        amount = amount or (name == "relation" and getattr(each[0], "kind", "") == "sample")
        parts[name] = join_values(each, numbers, (*path, name), amount)
    return [
        replace(value, **{name: each[k] for name, each in parts.items()})
        for k, value in enumerate(values)
    ]


def _shape(value: Any) -> object:
    """Return what is the same of values that can be joined."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float if number else _is_expr(value) or type(value)


def _is_expr(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and isinstance(value[0], str)
        and value[0] in ARGUMENTS
    )


def _joined_exprs(exprs: Sequence[Any], numbers: Numbers, path: Path) -> list[Any]:
    """Return expressions of one shape; a factor of one and a summand of zero are put back."""
    if len({(expr[0], len(expr)) for expr in exprs}) > 1:
        exprs = _pad_exprs(exprs, path)
    if exprs[0][0] == "num":
        if any(expr != exprs[0] for expr in exprs):
            numbers[path] = [Fraction(expr[1], expr[2]) for expr in exprs]
        return list(exprs)
    parts = []
    for k, each in enumerate(zip(*exprs, strict=True)):
        if all(isinstance(part, list) for part in each):
            parts.append(_joined_exprs(each, numbers, (*path, k)))
        elif any(part != each[0] for part in each):
            raise Differs(path)
        else:
            parts.append(list(each))
    return [list(each) for each in zip(*parts, strict=True)]


def _pad_exprs(exprs: Sequence[Any], path: Path) -> list[Any]:
    for op, nothing in (("mul", num(1)), ("add", num(0))):
        longest = max((e for e in exprs if e[0] == op), key=len, default=None)
        if longest is None or "num" not in (longest[1][0], longest[-1][0]):
            continue
        out = []
        for expr in exprs:
            parts = expr[1:] if expr[0] == op else [expr]
            if len(parts) + 2 == len(longest):
                at_start = longest[1][0] == "num"
                parts = [nothing, *parts] if at_start else [*parts, nothing]
            if len(parts) + 1 != len(longest):
                raise Differs(path)
            out.append([op, *parts])
        return out
    raise Differs(path)


def replace_numbers(value: Any, numbers: Mapping[Path, Any]) -> Any:
    """Return a record or an expression with other numbers, laws or expressions at some places."""
    if () in numbers:
        new = numbers[()]
        if not isinstance(new, (int, float, Fraction)):
            return new
        if isinstance(value, list):
            return num(as_fraction(new))
        return int(new) if float(new).is_integer() else float(new)
    inside: dict[str | int, dict[Path, Any]] = {}
    for path, new in numbers.items():
        inside.setdefault(path[0], {})[path[1:]] = new
    if not inside:
        return value
    if isinstance(value, (list, tuple)):
        return type(value)(replace_numbers(part, inside.get(k, {})) for k, part in enumerate(value))
    return replace(
        value,
        **{
            str(name): replace_numbers(getattr(value, str(name)), new)
            for name, new in inside.items()
        },
    )


def value_at(value: Any, path: Path) -> Any:
    """Return what is at a place of a record."""
    for key in path:
        value = getattr(value, key) if isinstance(key, str) else value[key]
    return value


def below(numbers: Mapping[Path, Any], *path: str | int) -> dict[Path, Any]:
    """Return what is inside of a place, by the rest of the path."""
    return {p[len(path) :]: value for p, value in numbers.items() if p[: len(path)] == path}


def as_fraction(value: Fraction | float) -> Fraction:
    """Return a number as a fraction, of a real one the nearest with a small denominator."""
    return value if isinstance(value, Fraction) else Fraction(value).limit_denominator(10**9)
