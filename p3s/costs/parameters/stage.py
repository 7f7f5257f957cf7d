"""The family stage: models of several settings in, family.json out; models of others from it.

The code is the same at all settings, so is its cost at the same work per turn: what computation
costs at a setting that was not traced is a law of the points of all others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from p3s.base.command_lines import another_value
from p3s.base.errors import P3SError
from p3s.base.serialise import Published
from p3s.base.settings import (
    MIN_COUNTS,
    MIN_SETTINGS,
    Setting,
    alike_in_threads,
    filled,
    parameters,
    parse_setting,
    setting_name,
    value_study,
    value_text,
)
from p3s.base.study import Study, write_json
from p3s.base.text import quoted
from p3s.costs.gather import (
    in_the_run,
    mean_of,
    measured_at,
    modelled_work,
    own_points,
    places_of,
    weights_at,
)
from p3s.costs.parameters.align import Alike, Member, alike, laws_of
from p3s.costs.parameters.derive import Fitted, leave_out, model_at, summary
from p3s.costs.parameters.tree import Leaves, nearest, numbering, rules_of
from p3s.costs.parameters.types import Check, Family, MissedRules, Part, SettingInfo
from p3s.costs.parameters.work import fit_family_work
from p3s.costs.stage import build as build_compute
from p3s.costs.thesis import Point
from p3s.model.comparison import HoldOut
from p3s.model.stage import as_file as model_file
from p3s.model.stage import load as load_model
from p3s.model.types import Model
from p3s.signature.clock import TIMES
from p3s.signature.store import load_table
from p3s.signature.tables import PointTable
from p3s.signature.times import load_times

FAMILY = Published("p3s.family", 1, Family, again="run p3s model again")


def family_path(root: Path) -> Path:
    """Return where the laws of the parameters are: family.json."""
    return Path(root) / "family.json"


def build(root: Path, say: Callable[[str], None] = lambda text: None) -> Family:
    """Fit the laws of a study's parameters to the models of its settings; write family.json.

    Every setting with at least three counts must have its model.json. Raises P3SError where
    fewer than two settings have one.
    """
    study = Study.open(Path(root))
    traced = alike_in_threads(study)
    models = [(s, at) for s, at in traced if len(at.signature_counts()) >= MIN_COUNTS]
    few = [(s, at) for s, at in traced if len(at.signature_counts()) < MIN_COUNTS]
    if len(models) < MIN_SETTINGS:
        names = ", ".join(setting_name(s) for s, _ in models) or "none"
        raise P3SError(
            f"{study.root}: laws of {', '.join(parameters(study))} need at least {MIN_SETTINGS} "
            f"values with {MIN_COUNTS} process counts each, there is {names}; add one: "
            + another_value(study)
        )
    loaded = [(s, load_model(at.root)) for s, at in models]
    units = {model.work_unit for _, model in loaded}
    if len(units) > 1:
        raise P3SError(
            f"{study.root}: work is in {' and in '.join(sorted(units))} at different "
            "values of the parameters; trace all of them with one --work"
        )
    parts, why = alike(loaded)
    roots = {setting_name(s): at.root for s, at in models}
    fitted = []
    for part in parts:
        if len(part.members) < MIN_SETTINGS:
            continue
        tables = {
            m: [load_table(roots[setting_name(member.setting)], n) for n in member.model.counts]
            for m, member in enumerate(part.members)
        }
        say(f"laws from {', '.join(setting_name(m.setting) for m in part.members)}")
        fitted.append(_part(part, tables))
    out = Family(
        parameters=tuple(parameters(study)),
        settings=tuple(_info(setting_name(s), at.signature_counts()) for s, at in traced),
        alone=why,
        parts=tuple(fitted),
        checks=(),
    )
    write_json(family_path(study.root), FAMILY.data(out))
    if few:
        checks = [check for setting, at in few for check in _check(study, out, setting, at)]
        out = replace(out, checks=tuple(checks))
        write_json(family_path(study.root), FAMILY.data(out))
    return out


def _info(name: str, counts: Sequence[int]) -> SettingInfo:
    return SettingInfo(name, tuple(counts), len(counts) >= MIN_COUNTS)


def _part(part: Alike, tables: Mapping[int, Sequence[PointTable]]) -> Part:
    """Return the laws of settings that are alike, with what leaving one out showed."""
    every = tuple(range(len(part.members)))
    last = max(every, key=lambda m: (math.prod(part.members[m].setting.values()), m))
    rest = tuple(m for m in every if m != last)
    laws = laws_of(part, every)
    work = fit_family_work(part, every, tables)
    if len(rest) < MIN_SETTINGS:
        missed = MissedRules((), ())
        held = HoldOut(
            max(part.members[last].model.counts),
            False,
            "only two values of the parameters have models alike",
            setting=setting_name(part.members[last].setting),
        )
    else:
        without = Fitted(part, rest, laws_of(part, rest), fit_family_work(part, rest, tables))
        held, missed = leave_out(without, last, tables[last])
    return Part(
        settings=tuple(setting_name(m.setting) for m in part.members),
        tree=part.tree,
        where=tuple(part.leaves.where),
        laws=tuple(laws),
        work=work,
        holdout=held,
        missed=missed,
    )


def load(root: Path) -> Family:
    """Return family.json, checked; P3SError where there is none, or it is damaged."""
    path = family_path(root)
    if not path.exists():
        raise P3SError(f"{path}: not there; run p3s model {quoted(root)}")
    return FAMILY.read(path)


def _fitted(study: Study, raw: Part) -> Fitted:
    """Return a part of family.json with the models of its settings."""
    members: list[Member] = []
    first: Model | None = None
    for name in raw.settings:
        setting = parse_setting(name)
        model = load_model(value_study(study, setting).root)
        first = first if first is not None else model
        number = numbering(model, first)
        members.append(Member(setting, model, number, rules_of(model, number)))
    leaves = Leaves()
    leaves.where = list(raw.where)
    part = Alike(members, dict(raw.tree), leaves)
    every = tuple(range(len(members)))
    return Fitted(part, every, raw.laws, raw.work, raw.holdout, raw.missed)


def choose(study: Study, family: Family, setting: Setting) -> Part:
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
        f"{study.root}: no model at {setting_name(setting)}: the nearest traced value, {near}, "
        f"has {why}, and no other is like it; trace more values near it, or this one itself"
    )


def instantiate(root: Path, setting: Setting) -> Path:
    """Return the study at a setting: the traced one, or one derived from the laws (written anew).

    The study's family.json must be there and the setting must name all its parameters.
    """
    study = Study.open(Path(root))
    at = value_study(study, setting)
    if len(at.signature_counts()) >= MIN_COUNTS and at.model_path.exists():
        return at.root
    family = load(study.root)
    part = choose(study, family, setting)
    fitted = _fitted(study, part)
    model = model_at(fitted, setting)
    left_out = [s.name for s in family.settings if s.modelled and s.name not in part.settings]
    if model.derived is not None:
        model = replace(model, derived=replace(model.derived, left_out=tuple(left_out)))
    command = filled(study.command(), setting)
    made = Study.create(at.root, command)
    made.update(
        derived=True,
        parent="../..",
        setting={name: value_text(value) for name, value in setting.items()},
    )
    write_json(made.model_path, model_file(model))
    build_compute(made.root, points_for(study, fitted, model))
    return made.root


def _check(study: Study, family: Family, setting: Setting, at: Study) -> list[Check]:
    """Compare the family with a setting that has too few counts for a model of its own."""
    from p3s.model.compare import compare

    name = setting_name(setting)
    try:
        model = model_at(_fitted(study, choose(study, family, setting)), setting)
        out = []
        for n in at.signature_counts():
            report = summary(compare(model, load_table(at.root, n)))
            out.append(Check(name, "", report.all_equal, report))
        return out
    except P3SError as err:
        return [Check(name, str(err))]


def points_for(study: Study, fitted: Fitted, model: Model) -> list[Point]:
    """Return the points of all traced settings for a derived model.

    study: that with the parameters; model: that at the setting. Work at traced settings is what
    was counted, or where work is time what the family's laws say: cost is then a factor on them,
    and the points' counts are those at which a rank of the derived workload holds as much. Where
    work is counted no count is given: x is all that is needed.
    """
    out: list[Point] = []
    held = _held(model) if model.work_unit in TIMES else None
    for m in fitted.use:
        setting = fitted.part.members[m].setting
        at = value_study(study, setting)
        times = [t for n in at.signature_counts() if (t := load_times(at.root, n)) is not None]
        if not times:
            continue
        there = model_at(fitted, setting)
        ratio = None if held is None else _ratio(held, _held(there))
        for t in times:
            for p in own_points(measured_at(there, t)):
                n = math.nan if ratio is None else p.n * float(ratio[p.phase])
                out.append(replace(p, source=f"at/{setting_name(setting)}", n=n))
    return out


def _held(model: Model) -> list[np.ndarray]:
    """Return n times the mean work of a rank per iteration of each place, by phase, at the smallest
    count."""
    n = min(model.counts)
    work, grid = modelled_work(model, n)
    places, phase = places_of(model)
    work = np.where(in_the_run(places), work, 0.0)
    mean = mean_of(work)
    weight = weights_at(model, n, grid)
    return [n * mean[phase == k] / weight[k] for k in range(len(weight))]


def _ratio(derived: list[np.ndarray], traced: list[np.ndarray]) -> np.ndarray:
    """Return per phase how many times as much there is to share out, by its largest place."""
    out = np.ones(len(derived))
    for k, (mine, theirs) in enumerate(zip(derived, traced, strict=True)):
        if len(mine) and mine.max() > 0:
            largest = int(np.argmax(mine))
            if theirs[largest] > 0:
                out[k] = mine[largest] / theirs[largest]
    return out
