"""Which settings of a workload have models alike, and the laws of the numbers these differ in."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from itertools import chain, product
from typing import Any

import numpy as np

from p3s.base.settings import Setting, setting_name
from p3s.costs.parameters.tree import Differs, Leaves, join, numbering, rules_of
from p3s.costs.parameters.types import FITTED, Law, Means, Number, find_number
from p3s.laws.counts import WorkLaw
from p3s.laws.exact import evaluate_int
from p3s.laws.expr import Expr, num
from p3s.model.evaluate import ScaledRows, generate, model_grid
from p3s.model.grid.at import GridRule
from p3s.model.law_types import Amount
from p3s.model.sizes.amounts import fit_amount
from p3s.model.sizes.observed import env_of
from p3s.model.types import Model

#: Numbers in a rule of sizes up to which laws for all of them are tried; of factors in these.
_MOST_NUMBERS, _SMALL = 3, 16


@dataclass
class Member:
    """A setting with its model: number, of every item in the reference's order; tree: its rules."""

    setting: Setting
    model: Model
    number: list[int]
    tree: dict[str, Any]
    _rows: dict[int, ScaledRows] = field(default_factory=dict)

    def rows(self, n: int) -> ScaledRows:
        """Return the rows of the own model at a traced count."""
        if n not in self._rows:
            self._rows[n] = generate(self.model, n)
        return self._rows[n]


@dataclass
class Alike:
    """Settings whose models are alike: one tree of rules and its leaves.

    values: of each leaf, one per member: a number, or the means at each count.
    """

    members: list[Member]
    tree: dict[str, Any]
    leaves: Leaves


def alike(models: Sequence[tuple[Setting, Model]]) -> tuple[list[Alike], dict[str, str]]:
    """Return the settings by models that are alike, and why settings are in none with others.

    Each setting is in one part; parts with most settings first. The reference of a part, whose
    order of items is kept, is its first setting.
    """
    parts: list[list[Member]] = []
    why: dict[str, str] = {}
    for setting, model in models:
        for part in parts:
            try:
                number = numbering(model, part[0].model)
                member = Member(setting, model, number, rules_of(model, number))
                whole = _joinable([*part, member])
            except Differs as err:
                why[setting_name(setting)] = (
                    _what(str(err), part[0].model) + f" than at {setting_name(part[0].setting)}"
                )
                continue
            part[:] = whole
            break
        else:
            parts.append([Member(setting, model, list(range(len(model.items))), rules_of(model))])
    out = []
    for part in sorted(parts, key=lambda p: -len(p)):
        leaves = Leaves()
        out.append(Alike(part, join([each.tree for each in part], leaves), leaves))
    left = {setting_name(part.members[0].setting) for part in out if len(part.members) == 1}
    return out, {name: text for name, text in why.items() if name in left}


def _joinable(members: list[Member]) -> list[Member]:
    """Return the members as trees that can be joined; raises Differs.

    Where they differ in the order of events alone (iterations listed one by one), that is left out.
    """
    whole = _same_shapes(members)
    known = all(each.tree["order"] is not None for each in whole)
    try:
        if known:
            join([each.tree for each in whole], Leaves())
            return whole
    except Differs as err:
        if not str(err).startswith(".order") and ".when" not in str(err):
            raise
    whole = [replace(each, tree=_without_order(each.tree)) for each in whole]
    join([each.tree for each in whole], Leaves())
    return whole


def _without_order(tree: Mapping[str, Any]) -> dict[str, Any]:
    items = [
        {
            **item,
            "loops": None,
            "at": None,
            "slots": [{**slot, "when": None} for slot in item["slots"]],
        }
        for item in tree["items"]
    ]
    return {**tree, "items": items, "order": None}


#: What differs, by keys in the path of an item; the first four before all that is inside of them.
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


def _what(path: str, model: Model) -> str:
    """Return in words where a model differs, from a path such as .items[3].slots[0].guard."""
    if not path.startswith("."):
        return path
    item = re.match(r"\.items\[(\d+)\](.*)", path)
    if item is not None:
        keys = re.findall("[a-z_]+", item[2])
        keys = [*(key for key in keys[:1] if key in list(_DIFFERS)[:4]), *reversed(keys)]
        what = next((_DIFFERS[key] for key in keys if key in _DIFFERS), "another rule")
        return f"{what} ({model.items[int(item[1])].op})"
    parts = {".grid": "another process grid", ".items": "another rule (calls)"}
    parts |= {".phases": "other loops", ".order": "another order of calls"}
    return next(
        (text for name, text in parts.items() if path.startswith(name)), "another structure"
    )


# ---- sizes that some settings leave open ---------------------------------------------------
def _same_shapes(members: list[Member]) -> list[Member]:
    """Return the members with rules of sizes of one shape, where one meets what all have traced.

    Where sizes divide evenly, several ways of cutting them are alike; a setting at which they do
    not tells. Its shape, with the numbers of the others, has to give their traced bytes.
    """
    first = members[0].tree
    out = members
    for i, item in enumerate(first["items"]):
        for k in range(len(item["slots"])):
            laws = [_law_of(m.tree, i, k) for m in out]
            exprs = [law["expr"] for law in laws if law is not None and "expr" in law]
            if len(exprs) < len(out):
                continue
            found = [law for law in laws if law is not None]
            leaves = Leaves()
            try:
                join(exprs, leaves, f".items[{i}].slots[{k}].elements.expr")
            except Differs:
                out = _with_shape(out, i, k, found)
                continue
            settings = [m.setting for m in out]
            if any(find_number(settings, v).state == FITTED for v in leaves.values):
                with suppress(Differs):  # of one shape, but with numbers of chance
                    out = _with_shape(out, i, k, found, own=False)
    return out


def _straight(name: str, k: Fraction, c: Fraction, setting: Setting) -> Fraction:
    return k * setting[name] + c


def _law_of(tree: Mapping[str, Any], i: int, k: int) -> dict[str, Any] | None:
    slots = tree["items"][i]["slots"] if i < len(tree["items"]) else []
    return slots[k]["elements"] if k < len(slots) else None


def _with_shape(
    members: list[Member], i: int, k: int, laws: Sequence[Mapping[str, Any]], own: bool = True
) -> list[Member]:
    """Return the members with one rule of sizes; own: with the numbers they have is tried too."""
    path = f".items[{i}].slots[{k}].elements"
    settled = sorted(range(len(laws)), key=lambda m: bool(laws[m].get("rivals")))
    for m in settled:
        shape = laws[m]["expr"]
        first = [_with_numbers(shape, list(_numbers(law["expr"]))) for law in laws]
        settings = [each.setting for each in members]
        for exprs in chain([first] if own else [], _by_laws(shape, m, settings)):
            if all(
                expr is not None and (expr == law["expr"] or _meets(member, i, k, expr))
                for expr, law, member in zip(exprs, laws, members, strict=True)
            ):
                return [
                    _replaced(member, i, k, expr)
                    for member, expr in zip(members, exprs, strict=True)
                    if expr is not None
                ]
    raise Differs(path)


def _by_laws(shape: Expr, m: int, settings: Sequence[Setting]) -> Iterator[list[Expr | None]]:
    """Yield a shape at all settings with its numbers by the simplest laws, simplest first.

    Each number of member ``m`` is in proportion to a parameter, constant, or a parameter plus or
    minus a little; equal numbers follow one law.
    """
    numbers = list(_numbers(shape))
    distinct = [Fraction(a, b) for a, b in dict.fromkeys((n[1], n[2]) for n in numbers)]
    if not 0 < len(distinct) <= _MOST_NUMBERS:
        return
    options = [list(_number_laws(v, settings[m])) for v in distinct]
    for chosen in sorted(product(*options), key=lambda each: sum(cost for cost, _ in each)):
        law_of = dict(zip(distinct, (law for _, law in chosen), strict=True))
        yield [
            _with_numbers(shape, [num(law_of[Fraction(n[1], n[2])](setting)) for n in numbers])
            for setting in settings
        ]


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


def _with_numbers(shape: Expr, numbers: list[Expr]) -> Expr | None:
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


def _meets(member: Member, i: int, k: int, expr: Expr) -> bool:
    """Tell whether another rule gives the sizes that the own one has at all traced counts."""
    own = member.number.index(i)
    bytes_each = member.tree["items"][i]["slots"][k]["elem_bytes"]
    for n in member.model.counts:
        rows = member.rows(n)
        mine = np.flatnonzero((rows.item == own) & (rows.slot == k))
        peers = rows.peer[mine] if len(mine) and np.all(rows.peer[mine] >= 0) else None
        tree = member.model.items[own].slots[k].relation
        env = env_of(rows.grid, rows.rank[mine], peers, rows.stage[mine], rows.turn[mine], tree)
        try:
            sizes = evaluate_int(expr, env, undefined=-1) * bytes_each
        except (KeyError, ZeroDivisionError):
            return False
        if np.any(np.broadcast_to(sizes, (len(mine),)) != rows.nbytes[mine]):
            return False
    return True


def _replaced(member: Member, i: int, k: int, expr: Expr) -> Member:
    items = list(member.tree["items"])
    slots = list(items[i]["slots"])
    slots[k] = {**slots[k], "elements": {**slots[k]["elements"], "expr": expr}}
    items[i] = {**items[i], "slots": slots}
    return replace(member, tree={**member.tree, "items": items})


# ---- laws of the leaves --------------------------------------------------------------------
def laws_of(part: Alike, use: Sequence[int]) -> list[Law]:
    """Return the law of every leaf, from the members with these numbers."""
    members = [part.members[m] for m in use]
    settings = [m.setting for m in members]
    known: dict[Any, Number] = {}
    out: list[Law] = []
    for kind, values in zip(part.leaves.kind, part.leaves.values, strict=True):
        mine = [values[m] for m in use]
        if kind == "points":
            out.append(_means(settings, [m.model for m in members], mine))
            continue
        key = tuple(mine)
        if key not in known:
            known[key] = find_number(settings, mine)
        out.append(known[key])
    return out


def _means(settings: Sequence[Setting], models: Sequence[Model], stats: Sequence[Any]) -> Means:
    amount = "expr" in stats[0]
    shared = sorted(set.intersection(*(set(m.counts) for m in models)))
    counts = []
    for n in shared or sorted({n for m in models for n in m.counts}):
        values = []
        for model, stat in zip(models, stats, strict=True):
            if amount:
                dims = model_grid(model, n).dims
                env = {"n": n, **{f"p{d}": p for d, p in enumerate(dims)}}
                values.append(float(np.max(Amount.from_json(stat).value(env))))
            else:
                values.append(float(WorkLaw.from_json(stat).value(n)))
        counts.append((n, find_number(settings, values)))
    return Means("fitted", amount, tuple(counts))


def number_at(law: Law, setting: Setting) -> Fraction | float:
    """Return a number of the rules at a setting; whole numbers stay whole (the next lower one)."""
    if not isinstance(law, Number):
        raise ValueError("a law of means is no number")
    value = law.value(setting)
    if not law.whole:
        return value
    if law.expr is None:
        return Fraction(max(round(float(value)), 0))
    return Fraction(Fraction(value).__floor__())


def points_at(law: Law, setting: Setting, grid: Mapping[str, Any]) -> dict[str, Any]:
    """Return a law of means at a setting, fitted to the means at each count there.

    grid: the family of the process grid, as in a model.
    """
    from p3s.laws.lawfinder import find_law

    if not isinstance(law, Means):
        raise ValueError("a number is no law of means")
    points = [(n, max(float(mean.value(setting)), 0.0)) for n, mean in law.counts]
    if not law.amount:
        return find_law(points, "work").fit.to_json()
    envs = []
    family = GridRule.from_json(dict(grid))
    for n, _ in points:
        dims = family.dims(n) or ()
        envs.append({"n": n, **{f"p{d}": p for d, p in enumerate(dims)}})
    return fit_amount(envs, [v for _, v in points], [1.0] * len(points), len(envs[0]) - 1).to_json()


def sure(law: Law, setting: Setting) -> bool:
    """Tell whether the law of a leaf is exact at a setting."""
    return isinstance(law, Number) and law.settled(setting)
