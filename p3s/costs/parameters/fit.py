"""The laws of the parameters from the models of several settings; models of others from them.

The code is the same at all settings, so is its cost at the same work per turn: what computation
costs at a setting that was not traced is a law of the points of all others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from p3s.base.errors import P3SError
from p3s.base.ops import COMPLETION
from p3s.base.settings import MIN_SETTINGS, Setting, parse_setting, setting_name
from p3s.costs.gather import measured_at, own_points, x_scale
from p3s.costs.parameters.alike import Alike, alike, laws_of, nearest
from p3s.costs.parameters.derive import FamilyLaws, leave_out, model_at, summary
from p3s.costs.parameters.laws import FITTED, Call, Equation, Family, Law, Number, Part, SettingInfo
from p3s.costs.parameters.structure import Path, below, replace_numbers, value_at
from p3s.costs.parameters.work import fit_family_work, symbol
from p3s.costs.points import Point
from p3s.model.compare import compare
from p3s.model.comparison import HoldOut
from p3s.model.types import Model
from p3s.signature.clock import TIMES
from p3s.signature.tables import PointTable
from p3s.signature.times import Times


@dataclass(frozen=True)
class TracedSetting:
    """A traced setting: its signatures by count, and its model, None where these are too few."""

    setting: Setting
    tables: Sequence[PointTable]
    model: Model | None

    @property
    def name(self) -> str:
        """The name of the setting."""
        return setting_name(self.setting)


def fit_family(names: Sequence[str], traced: Sequence[TracedSetting]) -> Family:
    """Return the laws of parameters with these names; at least two settings must have a model."""
    parts, alone = alike([(one.setting, one.model) for one in traced if one.model is not None])
    tables = {one.name: one.tables for one in traced}
    family = Family(
        parameters=tuple(names),
        settings=tuple(
            SettingInfo(one.name, tuple(t.np for t in one.tables), one.model is not None)
            for one in traced
        ),
        alone=alone,
        parts=tuple(_part(part, tables) for part in parts if len(part.members) >= MIN_SETTINGS),
        checks=(),
    )
    models = {one.name: one.model for one in traced if one.model is not None}
    checks = tuple(_check(family, models, one) for one in traced if one.model is None)
    return replace(family, checks=checks)


def _part(part: Alike, tables_of: Mapping[str, Sequence[PointTable]]) -> Part:
    """Return the laws of settings that are alike, with what leaving one out showed."""
    every = tuple(range(len(part.members)))
    names = [setting_name(m.setting) for m in part.members]
    tables = {m: tables_of[names[m]] for m in every}
    last = max(every, key=lambda m: (math.prod(part.members[m].setting.values()), m))
    rest = tuple(m for m in every if m != last)
    laws = laws_of(part, every)
    if len(rest) < MIN_SETTINGS:
        missed: tuple[Call, ...] = ()
        held = HoldOut(
            max(part.members[last].model.counts),
            False,
            "only two values of the parameters have models alike",
            setting=names[last],
        )
    else:
        without = FamilyLaws(part, rest, laws_of(part, rest), fit_family_work(part, rest, tables))
        held, missed = leave_out(without, last, tables[last])
    return Part(
        settings=tuple(names),
        ordered=part.members[0].model.order is not None,
        equations=tuple(_equations(part.members[0].model, laws)),
        laws={symbol(path): law for path, law in laws.items()},
        work=fit_family_work(part, every, tables),
        holdout=held,
        missed=missed,
    )


#: What equations are of, by the field of the model that holds them.
_OF = {"elements": "elements", "count": "calls of a rank", "weight": "weight"}


def _equations(model: Model, laws: Mapping[Path, Law]) -> list[Equation]:
    """Return each distinct equation of an item or a phase that follows the parameters."""
    found: dict[str, Equation] = {}
    for place in dict.fromkeys(path[: 6 if path[0] == "items" else 4] for path in laws):
        of, form = _OF.get(str(place[-2])), place[-1]
        if of is None or form not in ("expr", "total", "stat"):
            continue
        if place[0] == "items":
            item = model.items[int(place[1])]
            name = item.op.removeprefix("MPI_")
            if of == "elements" and item.kind == COMPLETION:
                continue
        else:
            name = model.phases[int(place[1])].name
        used = below(laws, *place)
        states = {law.state for law in used.values()}
        state = next(s for s in ("fitted", "open", "exact") if s in states)
        shown = {path: _round_law(law) for path, law in used.items() if isinstance(law, Number)}
        expr = None if form == "stat" else replace_numbers(value_at(model, place), shown)
        made = found.setdefault(f"{of} {expr} {state}", Equation(of, expr, state, ()))
        names = tuple(dict.fromkeys((*made.names, name)))
        found[f"{of} {expr} {state}"] = replace(made, names=names)
    return list(found.values())


def _round_law(law: Number) -> list[object]:
    """Return a number as an expression in the parameters; one without an exact law, rounded."""
    exact = law.expr if law.state != FITTED else None
    return exact or ["num", round(sum(c for c, _ in law.terms)), 1]


def _check(family: Family, models: Mapping[str, Model], one: TracedSetting) -> HoldOut:
    """Compare the family with a setting that has too few counts for a model of its own."""
    n = max(t.np for t in one.tables)
    try:
        model = model_at(fitted_of(choose(family, one.setting), models), one.setting)
        each = tuple(summary(compare(model, t)) for t in one.tables)
    except P3SError as err:
        return HoldOut(n, False, str(err), setting=one.name)
    return HoldOut(n, True, setting=one.name, each=each)


def choose(family: Family, setting: Setting) -> Part:
    """Return the part of a family that the setting nearest to the wanted one is in.

    Raises P3SError where no other setting is like that one: nothing says what lies between.
    """
    names = [s.name for s in family.settings if s.modelled]
    near = names[nearest([parse_setting(name) for name in names], setting)[0]]
    for part in family.parts:
        if near in part.settings:
            return part
    why = family.alone.get(near, "a structure of its own")
    raise P3SError(
        f"no model at {setting_name(setting)}: the nearest traced value, {near}, "
        f"has {why}, and no other is like it; trace more values near it, or this one itself"
    )


def fitted_of(part: Part, models: Mapping[str, Model]) -> FamilyLaws:
    """Return a part of family.json with the models of its settings, by name.

    Raises P3SError where they are not those that the laws were fitted to.
    """
    made = alike([(parse_setting(name), models[name]) for name in part.settings])[0][0]
    path_of = {symbol(path): path for path in made.numbers}
    if len(made.members) != len(part.settings) or path_of.keys() != part.laws.keys():
        raise P3SError("family.json is not of these models; run p3s model again")
    laws = {path_of[name]: law for name, law in part.laws.items()}
    every = tuple(range(len(made.members)))
    return FamilyLaws(made, every, laws, part.work, part.holdout, part.missed)


def derive_model(
    family: Family,
    part: Part,
    models: Mapping[str, Model],
    times: Mapping[str, Sequence[Times]],
    setting: Setting,
) -> tuple[Model, list[Point]]:
    """Return the model at a setting, and the points of all traced ones for its laws of cost.

    part: of the family, as :func:`choose` says; models, times: of its settings, by name. Work there
    is what was counted, or where work is time what the family's laws say: cost is then a factor on
    them, and the points' counts are those at which a rank of the derived workload holds as much.
    Where work is counted no count is given: x is all that is needed.
    """
    fitted = fitted_of(part, models)
    model = model_at(fitted, setting)
    left_out = tuple(s.name for s in family.settings if s.modelled and s.name not in part.settings)
    if model.derived is not None:
        model = replace(model, derived=replace(model.derived, left_out=left_out))
    points: list[Point] = []
    held = x_scale(model, model.counts) if model.work_unit in TIMES else None
    for traced in fitted.settings:
        name = setting_name(traced)
        if not times.get(name):
            continue
        there = model_at(fitted, traced)
        own = None if held is None else x_scale(there, there.counts)
        for t in times[name]:
            for p in own_points(measured_at(there, t), f"at/{name}"):
                n = None
                if held is not None and own is not None and own[p.phase] > 0:
                    n = t.np * float(held[p.phase] / own[p.phase])
                points.append(p._replace(n=n))
    return model, points
