"""The laws of the parameters from the models of several settings; models of others from them.

The model at a setting that was never traced is the nearest one with other numbers in its rules. The
code is the same at all settings, so is its cost at the same work per turn: what computation costs
at a setting that was not traced is a law of the points of all others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeVar

import numpy as np

from p3s.base.errors import P3SError
from p3s.base.ops import COMPLETION
from p3s.base.settings import MIN_SETTINGS, Setting, parse_setting, setting_name, value_text
from p3s.costs.gather import measured_at, own_points, work_of, x_scale
from p3s.costs.parameters.alike import (
    Alike,
    Member,
    Path,
    Traced,
    alike,
    below,
    laws_of,
    nearest,
    numbers_at,
    replace_numbers,
    value_at,
)
from p3s.costs.parameters.laws import (
    FITTED,
    Call,
    Equation,
    Family,
    Law,
    Means,
    Number,
    Part,
    SettingInfo,
)
from p3s.costs.parameters.work import fit_family_work, symbol, symbols, work_at
from p3s.costs.points import Point
from p3s.laws.counts import WorkLaw
from p3s.laws.lawfinder import find_law
from p3s.laws.symbolic import to_text
from p3s.model.compare import compare
from p3s.model.comparison import Comparison, HoldOut, Summary
from p3s.model.evaluate import generate, model_grid
from p3s.model.judge import phase_key
from p3s.model.law_types import CountLaw, SizeLaw
from p3s.model.reasons import VERDICTS, Code, Reason, Verdict
from p3s.model.types import Derived, Item, Model, Phase, Share
from p3s.model.work_types import Segment
from p3s.signature.clock import TIMES
from p3s.signature.times import Times


def fit_family(names: Sequence[str], traced: Sequence[Traced]) -> Family:
    """Return the laws of parameters with these names; at least two settings must have a model."""
    members = {one.name: one for one in traced if isinstance(one, Member)}
    parts, alone = alike(members.values())
    family = Family(
        parameters=tuple(names),
        settings=tuple(
            SettingInfo(one.name, tuple(t.np for t in one.tables), one.name in members)
            for one in traced
        ),
        alone=alone,
        parts=tuple(_part(part) for part in parts if len(part.members) >= MIN_SETTINGS),
        checks=(),
    )
    models = {name: one.model for name, one in members.items()}
    checks = tuple(_check(family, models, one) for one in traced if one.name not in members)
    return replace(family, checks=checks)


def _part(part: Alike) -> Part:
    """Return the laws of settings that are alike, with what leaving one out showed."""
    every = range(len(part.members))
    last = max(every, key=lambda m: (math.prod(part.members[m].setting.values()), m))
    rest, left = [m for m in every if m != last], part.members[last]
    missed: tuple[Call, ...] = ()
    if len(rest) < MIN_SETTINGS:
        why = "only two values of the parameters have models alike"
        held = HoldOut(max(left.model.counts), False, why, setting=left.name)
    else:
        held, missed = leave_out(fit_laws(part, rest), left)
    fitted, reference = fit_laws(part, every), part.members[0].model
    return Part(
        settings=tuple(m.name for m in part.members),
        ordered=reference.order is not None,
        equations=tuple(_equations(reference, fitted.laws)),
        laws={symbol(path): law for path, law in fitted.laws.items()},
        work=fitted.work,
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
        shown = {path: law.shown for path, law in used.items() if isinstance(law, Number)}
        expr = None if form == "stat" else replace_numbers(value_at(model, place), shown)
        made = found.setdefault(f"{of} {expr} {state}", Equation(of, expr, state, ()))
        names = tuple(dict.fromkeys((*made.names, name)))
        found[f"{of} {expr} {state}"] = replace(made, names=names)
    return list(found.values())


def _check(family: Family, models: Mapping[str, Model], one: Traced) -> HoldOut:
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
    made = alike(Member(parse_setting(name), (), models[name]) for name in part.settings)[0][0]
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


AnyLaw = TypeVar("AnyLaw", CountLaw, SizeLaw)


@dataclass(frozen=True)
class FamilyLaws:
    """Settings alike with the laws fitted to some of them: all there is to make a model of.

    use: numbers of the members they were fitted to; laws: of every number; work: of segments.
    holdout, missed: what laws fitted without one setting got wrong there.
    """

    part: Alike
    use: tuple[int, ...]
    laws: Mapping[Path, Law]
    work: Mapping[str, Segment]
    holdout: HoldOut | None = None
    missed: Sequence[Call] = ()

    @property
    def settings(self) -> list[Setting]:
        """The settings that the laws were fitted to."""
        return [self.part.members[m].setting for m in self.use]


def fit_laws(part: Alike, use: Sequence[int]) -> FamilyLaws:
    """Return the laws of the members with some numbers."""
    return FamilyLaws(part, tuple(use), laws_of(part, use), fit_family_work(part, use))


def outside(settings: Sequence[Setting], wanted: Setting) -> float:
    """Return the ratio by which a setting lies outside those fitted, 1 inside."""
    ratio = 1.0
    for name, value in wanted.items():
        low, high = min(s[name] for s in settings), max(s[name] for s in settings)
        ratio = max(ratio, float(value / high), float(low / value))
    return ratio


def model_at(fitted: FamilyLaws, setting: Setting) -> Model:
    """Return the model at a setting; raises P3SError where a law has no value there."""
    order = [fitted.use[k] for k in nearest(fitted.settings, setting)]
    models = [fitted.part.members[m].model for m in order]
    beyond = outside(fitted.settings, setting)
    numbers = numbers_at(fitted.laws, setting, models[0])
    made = replace_numbers(models[0], numbers)
    counts = sorted({n for m in models for n in m.counts})
    work = work_at(fitted.part, order, fitted.work, setting, symbols(numbers), math.log2(beyond))
    model = replace(
        made,
        counts=tuple(counts),
        items=tuple(_item(item, [m.items[i] for m in models]) for i, item in enumerate(made.items)),
        phases=tuple(
            replace(
                phase,
                weight=_of_settings(phase.weight, [m.phases[k].weight for m in models]),
                weight_points=(),
                work=work[k],
            )
            for k, phase in enumerate(made.phases)
        ),
        work_units={str(n): made.work_unit for n in counts},
        tracing={},
        sites={k: v for m in models for k, v in m.sites.items()},
        order=None if made.order is None else replace(made.order, moved=()),
        holdout=fitted.holdout,
        shares={},
        next=(),
        derived=Derived(
            setting={name: value_text(value) for name, value in setting.items()},
            settings=tuple(setting_name(s) for s in fitted.settings),
            outside=beyond,
        ),
    )
    dims = {str(n): tuple(model_grid(model, n).dims) for n in counts}
    model = replace(model, grid=replace(model.grid, dims=dims))
    return _with_sums(_judge_items(model, fitted, models, setting))


def _item(item: Item, twins: Sequence[Item]) -> Item:
    """Return an item without what was found of the nearest setting's runs alone."""
    slots = tuple(
        replace(
            slot,
            work_points=(),
            count=_of_settings(slot.count, [twin.slots[k].count for twin in twins]),
            elements=replace(
                _of_settings(slot.elements, [twin.slots[k].elements for twin in twins]), rivals=()
            ),
        )
        for k, slot in enumerate(item.slots)
    )
    return replace(item, slots=slots, measured=None, holdout=None, share=None, met_holdout=None)


def _of_settings(law: AnyLaw, twins: Sequence[AnyLaw]) -> AnyLaw:
    """Return a law; where those of other settings differ, without what is known of one of them."""
    if all(twin == twins[0] for twin in twins):
        return law
    if isinstance(law, SizeLaw):
        return replace(law, rivals=(), means=None)
    return replace(law, rivals=None, stated=None, holds_from=None)


def _with_sums(model: Model) -> Model:
    """Return the model with what follows from its rules: work by slot and phase, shares."""
    per_slot: dict[tuple[int, int], list[tuple[int, float]]] = {}
    per_phase: list[list[tuple[int, float]]] = [[] for _ in model.phases]
    for n in model.counts:
        rows = generate(model, n)
        for key in sorted(set(zip(rows.item.tolist(), rows.slot.tolist(), strict=True))):
            mine = (rows.item == key[0]) & (rows.slot == key[1])
            mean = float(
                (rows.work[mine] * rows.repeat[mine]).sum() / max(int(rows.repeat[mine].sum()), 1)
            )
            per_slot.setdefault(key, []).append((n, mean))
        found = work_of(model, rows, widths=False)
        work = found.per_phase()
        for k in range(len(model.phases)):
            there = np.isin(found.ranks, rows.rank[rows.phase == k])
            if there.any():
                per_phase[k].append((n, float(work[k][there].mean())))

    def law(points: Sequence[tuple[int, float]]) -> WorkLaw:
        return find_law(points, "work").fit

    items = tuple(
        replace(
            item,
            slots=tuple(
                replace(slot, work=law(per_slot[i, k])) if (i, k) in per_slot else slot
                for k, slot in enumerate(item.slots)
            ),
        )
        for i, item in enumerate(model.items)
    )
    phases = tuple(
        replace(phase, work=replace(phase.work, points=tuple(points), law=law(points)))
        if points
        else phase
        for phase, points in zip(model.phases, per_phase, strict=True)
    )
    return _with_shares(replace(model, items=items, phases=phases))


def _with_shares(model: Model) -> Model:
    """Return the model with the shares of events, bytes and computation of items and verdicts."""
    rows = generate(model, max(model.counts))
    amounts = (
        rows.repeat.astype(float),
        (rows.repeat * rows.nbytes).astype(float),
        rows.repeat * rows.work,
    )
    parts = np.array(
        [
            np.bincount(rows.item, amount, len(model.items)) / (float(amount.sum()) or 1.0)
            for amount in amounts
        ]
    )
    each = [Share(*column) for column in parts.T.tolist()]
    verdicts = np.array([str(it.verdict) for it in model.items])
    shares = {str(v): Share(*parts[:, verdicts == str(v)].sum(axis=1).tolist()) for v in VERDICTS}
    items = tuple(replace(it, share=s) for it, s in zip(model.items, each, strict=True))
    return replace(model, items=items, shares=shares)


# ---- how sure it is --------------------------------------------------------------------------
def leave_out(fitted: FamilyLaws, left: Traced) -> tuple[HoldOut, tuple[Call, ...]]:
    """Return how a family that was fitted without a setting does at all its counts.

    The hold-out is at the largest of them; calls are missed that were at any.
    """
    tables = sorted(left.tables, key=lambda t: t.np)
    try:
        model = model_at(fitted, left.setting)
        reports = [compare(model, t) for t in tables]
    except P3SError as err:
        return HoldOut(tables[-1].np, False, str(err), setting=left.name), ()
    items = model.items
    calls: set[Call] = set()
    phases: set[tuple[str, ...]] = set()
    for report in reports:
        calls |= {items[i].key for i in report.items_wrong}
        calls |= {(site, "", None) for site in report.unseen_sites}
        phases |= {
            phase_key(model.phases[w.phase], items)
            for w in report.weights.each
            if w.true != w.predicted
        }
    last = HoldOut(
        n=reports[-1].n,
        possible=True,
        comparison=reports[-1],
        weights_missed=tuple(sorted(phases)),
        phases_seen=tuple(phase_key(p, items) for p in model.phases),
        setting=left.name,
        each=tuple(summary(r) for r in reports),
    )
    return last, tuple(sorted(calls, key=repr))


def summary(report: Comparison) -> Summary:
    """Return the numbers of a comparison with a run, without its lists."""
    order, work = report.order, report.work
    return Summary(
        n=report.n,
        p2p_triples=report.p2p_triples,
        collectives=report.collectives,
        files=report.files,
        weights=replace(report.weights, each=()),
        order={"ranks": order.ranks, "equal": order.equal} if order is not None else None,
        work={
            "mean_abs_error": work.mean_abs_error,
            "max_abs_error": work.max_abs_error,
            "total_error": work.total_error,
        },
    )


def _judge_items(
    model: Model, fitted: FamilyLaws, models: Sequence[Model], setting: Setting
) -> Model:
    """Return the model with verdicts: no better than those of the models it was made of."""
    held, missed = fitted.holdout, fitted.missed
    weights_missed = held.weights_missed if held is not None else ()
    items = []
    for i, item in enumerate(model.items):
        found = [m.items[i] for m in models]
        # what one setting leaves open another may settle; anything else is as at the worst
        settled = [each for each in found if each.verdict != Verdict.AMBIGUOUS]
        worst_item = max(settled or found, key=lambda each: VERDICTS.index(each.verdict))
        verdict, why = worst_item.verdict, worst_item.why
        for other, reason in _of_laws(_that_count(fitted.laws, i, item), setting).items():
            verdict = max(verdict, other, key=VERDICTS.index)
            why = (*why, reason)
        met = None
        if held is not None and held.possible:
            met = item.key not in missed and (item.site, "", None) not in missed
            if not met and verdict == Verdict.EXACT:
                verdict = Verdict.FITTED
                why = (*why, Reason(Code.MISSED_SETTING, name=held.setting))
        items.append(replace(item, verdict=verdict, why=why, met_holdout=met))
    phases = []
    for k, phase in enumerate(model.phases):
        worst = _of_weights([m.phases[k] for m in models])
        doubts = _of_laws(list(below(fitted.laws, "phases", k).values()), setting)
        wrong = phase_key(phase, model.items) in weights_missed
        if worst != Verdict.STATED and (doubts or wrong):
            doubt = Verdict.STATISTICAL if Verdict.STATISTICAL in doubts else Verdict.FITTED
            worst = max(worst, doubt, key=_weight_rank)
        phases.append(replace(phase, weight_verdict=worst))
    return replace(model, items=tuple(items), phases=tuple(phases))


def _of_weights(found: Sequence[Phase]) -> Verdict:
    """Return the verdict of a weight that several settings share: the worst.

    That a constant may be chance is no doubt where it follows the settings.
    """
    follows = len({phase.weight_points for phase in found}) > 1
    return max(
        (
            Verdict.EXACT
            if follows and phase.trips is not None and phase.trips.kind == "tolerance"
            else phase.weight_verdict
            for phase in found
        ),
        key=_weight_rank,
    )


def _that_count(laws: Mapping[Path, Law], i: int, item: Item) -> list[Law]:
    """Return the laws of an item; how many requests one call completes is no message."""
    return [
        law
        for path, law in below(laws, "items", i).items()
        if item.kind != COMPLETION or (path[0] == "slots" and "elements" not in path)
    ]


def _weight_rank(verdict: Verdict) -> int:
    return (Verdict.EXACT, Verdict.STATED, Verdict.FITTED, Verdict.STATISTICAL).index(verdict)


def _of_laws(laws: Sequence[Law], setting: Setting) -> dict[Verdict, Reason]:
    """Return the verdicts that some laws leave possible at a setting, and why."""
    out: dict[Verdict, Reason] = {}
    for law in laws:
        if law.settled(setting):
            continue
        if isinstance(law, Means) or law.state == FITTED:
            out[Verdict.STATISTICAL] = Reason(Code.NO_PARAMETER_LAW)
            continue
        text = to_text(law.expr) if law.expr is not None else ""
        value = law.value(setting)
        if law.rivals:
            out[Verdict.AMBIGUOUS] = Reason(Code.PARAMETER_LAWS, name=text)
        elif law.whole and isinstance(value, Fraction) and value.denominator != 1:
            out[Verdict.AMBIGUOUS] = Reason(Code.PARAMETER_FRACTION, name=text)
        else:
            out[Verdict.FITTED] = Reason(Code.PARAMETER_NUMBERS, name=text)
    return out
