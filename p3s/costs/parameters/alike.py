"""Which settings of a workload have models alike, and the laws of the numbers these differ in."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from itertools import chain, product
from typing import Any

import numpy as np

from p3s.base.errors import P3SError
from p3s.base.settings import Setting, setting_name
from p3s.costs.parameters.laws import Law, Means, Number, find_number
from p3s.costs.parameters.structure import (
    Differs,
    Numbers,
    Path,
    join_values,
    numbering,
    renumber_items,
    replace_numbers,
)
from p3s.laws.exact import evaluate_int
from p3s.laws.expr import Expr, num
from p3s.laws.lawfinder import find_law
from p3s.laws.worklaws import WorkLaw
from p3s.model.evaluate import ScaledRows, generate, model_grid
from p3s.model.law_types import Amount, SizeLaw
from p3s.model.sizes.amounts import fit_amount
from p3s.model.sizes.observed import env_of
from p3s.model.types import Model

#: Numbers in a rule of sizes up to which laws for all of them are tried; of factors in these.
_MOST_NUMBERS, _SMALL = 3, 16


@dataclass
class Member:
    """A setting with its model, items in the order of the reference's."""

    setting: Setting
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


def alike(models: Sequence[tuple[Setting, Model]]) -> tuple[list[Alike], dict[str, str]]:
    """Return the settings by models that are alike, and why settings are in none with others.

    Each setting is in one part; parts with most settings first. The reference of a part, whose
    order of items is kept, is its first setting.
    """
    parts: list[Alike] = []
    why: dict[str, str] = {}
    for setting, model in models:
        for k, part in enumerate(parts):
            reference = part.members[0]
            try:
                made = renumber_items(model, numbering(model, reference.model))
                parts[k] = _join_members([*part.members, Member(setting, made)])
                break
            except Differs as err:
                what = _name_difference(err, reference.model)
                why[setting_name(setting)] = f"{what} than at {setting_name(reference.setting)}"
        else:
            parts.append(Alike([Member(setting, renumber_items(model, range(len(model.items))))]))
    out = sorted(parts, key=lambda p: -len(p.members))
    left = {setting_name(p.members[0].setting) for p in out if len(p.members) == 1}
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


#: What differs, by fields in the path of an item; the first four before all that is inside of them.
_DIFFERS = {
    "relation": "other partners",
    "place": "another communicator",
    "phase": "another loop",
    "when": "other iterations",
    "guard": "other ranks",
    "count": "another rule of how often",
    "expr": "another rule",
    "elements": "another rule of sizes",
    "slots": "other sizes",
}
_OTHER_PARTS = {
    "grid": "another process grid",
    "items": "another rule (calls)",
    "phases": "other loops",
    "order": "another order of calls",
}


def _name_difference(err: Differs, model: Model) -> str:
    """Return in words where a model differs."""
    if not err.path:
        return str(err)
    part, *inside = err.path
    if part != "items" or not inside:
        return _OTHER_PARTS.get(str(part), "another structure")
    keys = [str(key) for key in inside if isinstance(key, str)]
    keys = [*(key for key in keys[:1] if key in list(_DIFFERS)[:4]), *reversed(keys)]
    what = next((_DIFFERS[key] for key in keys if key in _DIFFERS), "another rule")
    return f"{what} ({model.items[int(inside[0])].op})"


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
        first = [_with_numbers_of(shape, list(_numbers(law.expr))) for law in laws]
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
    numbers = [Fraction(n[1], n[2]) for n in _numbers(shape)]
    distinct = list(dict.fromkeys(numbers))
    if not 0 < len(distinct) <= _MOST_NUMBERS:
        return
    options = [list(_number_laws(v, settings[m])) for v in distinct]
    for chosen in sorted(product(*options), key=lambda each: sum(cost for cost, _ in each)):
        law_of = dict(zip(distinct, (law for _, law in chosen), strict=True))
        yield [
            _with_numbers_of(shape, [num(law_of[n](setting)) for n in numbers])
            for setting in settings
        ]


def _straight(name: str, k: Fraction, c: Fraction, setting: Setting) -> Fraction:
    return k * setting[name] + c


def _number_laws(
    value: Fraction, setting: Setting
) -> Iterator[tuple[float, Callable[[Setting], Fraction]]]:
    """Yield (cost, law) of a number of one setting."""
    for name, at in setting.items():
        k, c = value / at, value - at
        if k and k.denominator <= _SMALL and abs(k.numerator) <= _SMALL:
            yield 0.0 if k == 1 else 1.5, partial(_straight, name, k, Fraction(0))
        if c and abs(c) <= 2 and at > 8:
            yield 2.0, partial(_straight, name, Fraction(1), c)
    yield 1.0, lambda s: value


def _numbers(expr: Any) -> Iterator[Expr]:
    if isinstance(expr, list) and expr:
        if expr[0] == "num":
            yield expr
        else:
            for part in expr[1:]:
                yield from _numbers(part)


def _with_numbers_of(shape: Any, numbers: list[Expr]) -> Expr | None:
    """Return a shape with other numbers in the same order, None where there are not as many."""
    if len(list(_numbers(shape))) != len(numbers):
        return None
    left = list(numbers)

    def again(expr: Any) -> Any:
        if not isinstance(expr, list):
            return expr
        return left.pop(0) if expr[0] == "num" else [again(part) for part in expr]

    made: Expr = again(shape)
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
