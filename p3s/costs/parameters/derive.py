"""The model at a setting that was never traced: the nearest one with other numbers in its rules."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeVar

import numpy as np

from p3s.base.errors import P3SError
from p3s.base.ops import COMPLETION
from p3s.base.settings import Setting, setting_name, value_text
from p3s.costs.gather import work_of
from p3s.costs.parameters.alike import Alike, nearest, numbers_at
from p3s.costs.parameters.laws import FITTED, Call, Law, Means
from p3s.costs.parameters.structure import Path, below, replace_numbers
from p3s.costs.parameters.work import symbols, work_at
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
from p3s.signature.tables import PointTable

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
def leave_out(
    fitted: FamilyLaws, member: int, tables: Sequence[PointTable]
) -> tuple[HoldOut, tuple[Call, ...]]:
    """Return how a family that was fitted without a member does at all its counts.

    The hold-out is at the largest of them; calls are missed that were at any.
    """
    left = fitted.part.members[member]
    name = setting_name(left.setting)
    try:
        model = model_at(fitted, left.setting)
        reports = [compare(model, t) for t in sorted(tables, key=lambda t: t.np)]
    except P3SError as err:
        failed = HoldOut(max(left.model.counts), False, str(err), setting=name)
        return failed, ()
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
        setting=name,
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
        verdict, why = _of_members([m.items[i] for m in models])
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


def _of_members(found: Sequence[Item]) -> tuple[Verdict, tuple[Reason, ...]]:
    """Return the verdict of a rule that several settings share.

    What one setting leaves open (ambiguous) another may settle; anything else is as at the worst.
    """
    settled = [each for each in found if each.verdict != Verdict.AMBIGUOUS]
    worst = max(settled or found, key=lambda each: VERDICTS.index(each.verdict))
    return worst.verdict, worst.why


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
