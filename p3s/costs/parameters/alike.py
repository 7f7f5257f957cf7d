"""Which settings of a workload have models alike, and the laws of the numbers these differ in.

Models get one numbering, and only what says which events a program has is compared: its grid, items
with their slots, phases, loops. The place of a number is the path to it, fields and positions from
the model inwards: ("items", 3, "slots", 0, "elements", "expr", 2).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from fractions import Fraction
from itertools import chain, product
from typing import Any

import numpy as np

from p3s.base.errors import P3SError
from p3s.base.settings import Setting, setting_name
from p3s.costs.parameters.laws import Law, Means, Number, find_number
from p3s.laws.exact import evaluate_int
from p3s.laws.exact import value_at as exact_at
from p3s.laws.expr import ARGUMENTS, Expr, add, mul, num, sym
from p3s.laws.lawfinder import find_law
from p3s.laws.worklaws import WorkLaw
from p3s.model.evaluate import ScaledRows, generate, model_grid
from p3s.model.law_types import Amount, CountLaw, LoopRule, Order, SizeLaw, Trips, When
from p3s.model.sizes.amounts import fit_amount
from p3s.model.sizes.observed import env_of
from p3s.model.types import Item, Model, Phase, ProcessGrid, Slot
from p3s.model.work_types import Case, Occurs, PhaseWork
from p3s.signature.tables import PointTable

#: Numbers in a rule of sizes up to which laws for all of them are tried; of factors in these.
_MOST_NUMBERS, _SMALL = 3, 16


@dataclass
class Traced:
    """A traced setting, with its signatures by count."""

    setting: Setting
    tables: Sequence[PointTable]

    @property
    def name(self) -> str:
        """The name of the setting."""
        return setting_name(self.setting)


@dataclass
class Member(Traced):
    """A traced setting with its model, items in the order of the reference's."""

    model: Model
    _rows: dict[int, ScaledRows] = field(default_factory=dict)

    def rows(self, n: int) -> ScaledRows:
        """Return the rows of the model at a traced count."""
        if n not in self._rows:
            self._rows[n] = generate(self.model, n)
        return self._rows[n]


@dataclass
class Alike:
    """Settings whose models are alike; numbers: those that differ, with a value of each member."""

    members: list[Member]
    numbers: Numbers = field(default_factory=dict)


def alike(traced: Iterable[Member]) -> tuple[list[Alike], dict[str, str]]:
    """Return the settings by models that are alike, and why settings are in none with others.

    Each setting is in one part; parts with most settings first. The reference of a part, whose
    order of items is kept, is its first setting.
    """
    parts: list[Alike] = []
    why: dict[str, str] = {}
    for one in traced:
        for k, part in enumerate(parts):
            reference = part.members[0]
            try:
                made = renumber_items(one.model, numbering(one.model, reference.model))
                parts[k] = _join_members([*part.members, replace(one, model=made)])
                break
            except Differs as err:
                what = _name_difference(err, reference.model)
                why[one.name] = f"{what} than at {reference.name}"
        else:
            made = renumber_items(one.model, range(len(one.model.items)))
            parts.append(Alike([replace(one, model=made)]))
    out = sorted(parts, key=lambda p: -len(p.members))
    left = {p.members[0].name for p in out if len(p.members) == 1}
    return out, {name: text for name, text in why.items() if name in left}


def _join_members(members: list[Member]) -> Alike:
    """Return members as models of one structure; raises Differs.

    Where they differ in the order of events alone (iterations listed one by one), that is left out.
    """
    whole = _same_shapes(members)
    if all(each.model.order is not None for each in whole):
        try:
            return _with_numbers(whole)
        except Differs as err:
            if err.path[:1] != ("order",) and "when" not in err.path:
                raise
    return _with_numbers([replace(each, model=_without_order(each.model)) for each in whole])


def _with_numbers(members: Sequence[Member]) -> Alike:
    numbers: Numbers = {}
    models = join_values([each.model for each in members], numbers)
    return Alike(
        [replace(each, model=model) for each, model in zip(members, models, strict=True)], numbers
    )


def _without_order(model: Model) -> Model:
    items = (
        replace(
            item, loops=None, at=None, slots=tuple(replace(slot, when=None) for slot in item.slots)
        )
        for item in model.items
    )
    return replace(model, items=tuple(items), order=None)


#: What differs, by fields of the model, its items and their slots.
_DIFFERS = {
    "grid": "another process grid",
    "phases": "other loops",
    "order": "another order of calls",
    "relation": "other partners",
    "place": "another communicator",
    "phase": "another loop",
    "when": "other iterations",
    "guard": "other ranks",
    "count": "another number of calls",
    "slots": "other sizes",
}


def _name_difference(err: Differs, model: Model) -> str:
    """Return in words where a model differs."""
    if not err.path:
        return str(err)
    part, *inside = err.path
    if part != "items" or not inside:
        return _DIFFERS.get(str(part), "another structure")
    words = [_DIFFERS[str(key)] for key in inside if key in _DIFFERS]
    return f"{words[-1] if words else 'another rule'} ({model.items[int(inside[0])].op})"


# ---- sizes that some settings leave open ---------------------------------------------------
def _same_shapes(members: list[Member]) -> list[Member]:
    """Return the members with rules of sizes of one shape, where one meets what all have traced.

    Where sizes divide evenly, several ways of cutting them are alike; a setting at which they do
    not tells. Its shape, with the numbers of the others, has to give their traced bytes.
    """
    out = members
    for i, item in enumerate(members[0].model.items):
        for k in range(len(item.slots)):
            path: Path = ("items", i, "slots", k, "elements", "expr")
            laws = [law for m in out if (law := _size_of(m.model, i, k)) is not None]
            if len(laws) < len(out) or any(law.expr is None for law in laws):
                continue
            try:
                join_values([law.expr for law in laws], {}, path)
            except Differs:
                out = _with_shape(out, path, laws)
    return out


def _size_of(model: Model, i: int, k: int) -> SizeLaw | None:
    slots = model.items[i].slots
    return slots[k].elements if k < len(slots) else None


def _with_shape(members: list[Member], path: Path, laws: Sequence[SizeLaw]) -> list[Member]:
    """Return the members with one rule of sizes, with the numbers they have or by laws."""
    settings = [each.setting for each in members]
    for m in sorted(range(len(laws)), key=lambda m: bool(laws[m].rivals)):
        shape = laws[m].expr
        first = [_put_numbers(shape, list(_numbers(law.expr).values())) for law in laws]
        for exprs in chain([first], _by_laws(shape, m, settings)):
            if all(
                expr is not None and (expr == law.expr or _meets(member, path, expr))
                for expr, law, member in zip(exprs, laws, members, strict=True)
            ):
                return [
                    replace(member, model=replace_numbers(member.model, {path: expr}))
                    for member, expr in zip(members, exprs, strict=True)
                ]
    raise Differs(path[:-1])


def _by_laws(shape: Any, m: int, settings: Sequence[Setting]) -> Iterator[list[Expr | None]]:
    """Yield a shape at all settings with its numbers by the simplest laws, simplest first.

    Each number of member ``m`` is in proportion to a parameter, constant, or a parameter plus or
    minus a little; equal numbers follow one law.
    """
    numbers = list(_numbers(shape).values())
    distinct = list(dict.fromkeys(numbers))
    if not 0 < len(distinct) <= _MOST_NUMBERS:
        return
    options = [list(_number_laws(v, settings[m])) for v in distinct]
    for chosen in sorted(product(*options), key=lambda each: sum(cost for cost, _ in each)):
        law_of = dict(zip(distinct, (law for _, law in chosen), strict=True))
        yield [
            _put_numbers(shape, [exact_at(law_of[n], setting) for n in numbers])
            for setting in settings
        ]


def _number_laws(value: Fraction, setting: Setting) -> Iterator[tuple[float, Expr]]:
    """Yield (cost, law in the parameters) of a number of one setting."""
    for name, at in setting.items():
        k, c = value / at, value - at
        if k and k.denominator <= _SMALL and abs(k.numerator) <= _SMALL:
            yield 0.0 if k == 1 else 1.5, mul(num(k), sym(name))
        if c and abs(c) <= 2 and at > 8:
            yield 2.0, add(sym(name), num(c))
    yield 1.0, num(value)


def _numbers(expr: Any, path: Path = ()) -> dict[Path, Fraction]:
    """Return the numbers in an expression by their places."""
    if not isinstance(expr, list) or not expr:
        return {}
    if expr[0] == "num":
        return {path: Fraction(expr[1], expr[2])}
    parts = (_numbers(part, (*path, k)) for k, part in enumerate(expr))
    return {place: value for part in parts for place, value in part.items()}


def _put_numbers(shape: Any, numbers: Sequence[Fraction | None]) -> Expr | None:
    """Return a shape with other numbers in the same order, None where there are not as many."""
    places = list(_numbers(shape))
    if len(places) != len(numbers) or None in numbers:
        return None
    made: Expr = replace_numbers(shape, dict(zip(places, numbers, strict=True)))
    return made


def _meets(member: Member, path: Path, expr: Expr) -> bool:
    """Tell whether another rule gives the sizes that the own one has at all traced counts."""
    i, k = int(path[1]), int(path[3])
    slot = member.model.items[i].slots[k]
    for n in member.model.counts:
        rows = member.rows(n)
        mine = np.flatnonzero((rows.item == i) & (rows.slot == k))
        peers = rows.peer[mine] if len(mine) and np.all(rows.peer[mine] >= 0) else None
        env = env_of(
            rows.grid, rows.rank[mine], peers, rows.stage[mine], rows.turn[mine], slot.relation
        )
        try:
            sizes = evaluate_int(expr, env, undefined=-1) * slot.elem_bytes
        except (KeyError, ZeroDivisionError):
            return False
        if np.any(np.broadcast_to(sizes, (len(mine),)) != rows.nbytes[mine]):
            return False
    return True


# ---- laws of the numbers -------------------------------------------------------------------
def laws_of(part: Alike, use: Sequence[int]) -> dict[Path, Law]:
    """Return the law of every number that differs, from the members with these numbers."""
    members = [part.members[m] for m in use]
    settings = [m.setting for m in members]
    known: dict[Any, Number] = {}
    out: dict[Path, Law] = {}
    for path, values in part.numbers.items():
        mine = [values[m] for m in use]
        if isinstance(mine[0], (WorkLaw, Amount)):
            out[path] = _means(settings, [m.model for m in members], mine)
            continue
        if tuple(mine) not in known:
            known[tuple(mine)] = find_number(settings, mine)
        out[path] = known[tuple(mine)]
    return out


def _means(
    settings: Sequence[Setting], models: Sequence[Model], laws: Sequence[WorkLaw | Amount]
) -> Means:
    shared = sorted(set.intersection(*(set(m.counts) for m in models)))
    counts = []
    for n in shared or sorted({n for m in models for n in m.counts}):
        values = [
            float(np.max(law.value(model_grid(model, n).symbols)))
            if isinstance(law, Amount)
            else float(law.value(n))
            for model, law in zip(models, laws, strict=True)
        ]
        counts.append((n, find_number(settings, values)))
    return Means("fitted", isinstance(laws[0], Amount), tuple(counts))


def numbers_at(laws: Mapping[Path, Law], setting: Setting, model: Model) -> dict[Path, Any]:
    """Return numbers and means at a setting; model: one with the grid that all have."""
    return {
        path: law.rounded(setting) if isinstance(law, Number) else _means_at(law, setting, model)
        for path, law in laws.items()
    }


def _means_at(law: Means, setting: Setting, model: Model) -> WorkLaw | Amount:
    """Return a law of means at a setting, fitted to the means at each count there."""
    points = [(n, max(float(mean.value(setting)), 0.0)) for n, mean in law.counts]
    if not law.amount:
        return find_law(points, "work").fit
    envs = [
        {"n": n, **{f"p{d}": p for d, p in enumerate(model.grid.family.dims(n) or ())}}
        for n, _ in points
    ]
    return fit_amount(envs, [v for _, v in points], [1.0] * len(points), len(envs[0]) - 1)


def nearest(settings: Sequence[Setting], wanted: Setting) -> list[int]:
    """Return the numbers of settings by their distance from one, in ratios, nearest first."""

    def distance(setting: Setting) -> float:
        return math.hypot(
            *(math.log(float(setting[name]) / float(value)) for name, value in wanted.items())
        )

    if any(value <= 0 for s in (*settings, wanted) for value in s.values()):
        raise P3SError("model: a parameter is not above zero")
    return sorted(range(len(settings)), key=lambda k: (distance(settings[k]), k))


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
            order = sorted(range(len(place.items)), key=lambda k: number[place.items[k]])
            items = tuple(number[place.items[k]] for k in order)
            through = tuple(place.through[k] for k in order if place.through)
            places.append(replace(place, items=items, through=through))
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
