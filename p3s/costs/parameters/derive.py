"""The model at a setting that was never traced: the rules with numbers in place of laws."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from p3s.base.errors import P3SError
from p3s.base.ops import COMPLETION
from p3s.base.serialise import from_data, to_data
from p3s.base.settings import Setting, setting_name, value_text
from p3s.costs.gather import work_of
from p3s.costs.parameters.align import Alike, number_at, points_at, sure
from p3s.costs.parameters.tree import fill, leaves_of, nearest
from p3s.costs.parameters.types import FITTED, Law, Means, MissedRules, SegmentLaws
from p3s.costs.parameters.work import places_at
from p3s.laws.counts import WorkLaw
from p3s.laws.lawfinder import find_law
from p3s.laws.symbolic import to_text
from p3s.model.compare import compare
from p3s.model.comparison import Comparison, HoldOut, Summary
from p3s.model.evaluate import generate, model_grid
from p3s.model.grid.at import GridRule
from p3s.model.judge import phase_key
from p3s.model.law_types import Order
from p3s.model.reasons import VERDICTS, Code, Reason, Verdict
from p3s.model.types import Derived, Item, Model, Phase, Share
from p3s.signature.tables import PointTable


@dataclass(frozen=True)
class Fitted:
    """Settings alike with the laws fitted to some of them: all there is to make a model of.

    use: numbers of the members they were fitted to; laws: of every leaf; work: of segments.
    holdout, missed: what laws fitted without one setting got wrong there.
    """

    part: Alike
    use: tuple[int, ...]
    laws: Sequence[Law]
    work: SegmentLaws
    holdout: HoldOut | None = None
    missed: MissedRules = MissedRules((), ())

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


def model_at(fitted: Fitted, setting: Setting) -> Model:
    """Return the model at a setting; raises P3SError where a law has no value there."""
    part, laws = fitted.part, fitted.laws
    order = [fitted.use[k] for k in nearest(fitted.settings, setting)]
    near = part.members[order[0]]
    grid = part.tree["grid"]

    def filled(tree: Any) -> Any:
        return fill(
            tree, lambda k: number_at(laws[k], setting), lambda k: points_at(laws[k], setting, grid)
        )

    base = [near.model.items[near.number.index(i)] for i in range(len(part.tree["items"]))]
    counts = sorted({n for m in fitted.use for n in part.members[m].model.counts})
    order_tree = filled(part.tree["order"])
    family = GridRule.from_json(grid)
    model = replace(
        near.model,
        counts=tuple(counts),
        grid=replace(near.model.grid, family=family, dims={}),
        tag_splits=from_data(tuple[tuple[str, str, bool], ...], part.tree["tag_splits"]),
        items=tuple(
            _item(own, filled(rules)) for own, rules in zip(base, part.tree["items"], strict=True)
        ),
        phases=_phases(fitted, order, filled, setting),
        work_units={str(n): near.model.work_unit for n in counts},
        tracing={},
        sites={k: v for m in fitted.use for k, v in part.members[m].model.sites.items()},
        order=None if order_tree is None else from_data(Order, order_tree),
        holdout=fitted.holdout,
        shares={},
        next=(),
        derived=Derived(
            setting={name: value_text(value) for name, value in setting.items()},
            settings=tuple(setting_name(s) for s in fitted.settings),
            outside=outside(fitted.settings, setting),
        ),
    )
    dims = {str(n): tuple(model_grid(model, n).dims) for n in counts}
    model = replace(model, grid=replace(model.grid, dims=dims))
    return _with_sums(_judged(model, fitted, order, setting))


def _item(own: Item, rules: Mapping[str, Any]) -> Item:
    """Return an item: the rules at the setting, and what the nearest setting says besides."""
    known = to_data(replace(own, measured=None, holdout=None, share=None, met_holdout=None))
    slots = []
    for mine, slot in zip(known["slots"], rules["slots"], strict=True):
        slots.append(
            {
                **mine,
                **slot,
                "work_points": [],
                "count": {**_about(mine["count"]), **slot["count"]},
                "elements": {**_about(mine["elements"]), **slot["elements"], "rivals": []},
            }
        )
    made = from_data(Item, {**known, **rules, "slots": slots})
    if made.at is None:  # no order of events holds at all settings
        slots_ = tuple(replace(slot, when=None) for slot in made.slots)
        made = replace(made, slots=slots_, loops=None)
    return made


def _about(law: Mapping[str, Any]) -> dict[str, Any]:
    return {key: law[key] for key in ("points", "free") if key in law}


def _phases(
    fitted: Fitted, order: Sequence[int], filled: Any, setting: Setting
) -> tuple[Phase, ...]:
    part = fitted.part
    near = part.members[order[0]]
    doublings = math.log2(outside(fitted.settings, setting))
    places = places_at(part, order, fitted.work, setting, filled, doublings)
    out = []
    for own, rules in zip(near.model.phases, filled(part.tree["phases"]), strict=True):
        known = to_data(own)
        weight = {**_about(known["weight"]), **rules["weight"]}
        made = from_data(Phase, {**known, **rules, "weight": weight, "weight_points": []})
        mine = tuple(places[p.place] for p in own.work.places)
        work = replace(own.work, measured={}, points=(), places=mine)
        out.append(replace(made, work=work))
    return tuple(out)


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
    parts = [
        np.bincount(rows.item, amount, len(model.items)) / (float(amount.sum()) or 1.0)
        for amount in amounts
    ]
    each = [Share(*map(float, values)) for values in zip(*parts, strict=True)]
    shares = {
        str(v): Share(
            *(
                float(sum(p[i] for i, it in enumerate(model.items) if it.verdict == v))
                for p in parts
            )
        )
        for v in VERDICTS
    }
    items = tuple(replace(it, share=s) for it, s in zip(model.items, each, strict=True))
    return replace(model, items=items, shares=shares)


# ---- how sure it is --------------------------------------------------------------------------
def leave_out(
    fitted: Fitted, member: int, tables: Sequence[PointTable]
) -> tuple[HoldOut, MissedRules]:
    """Return how a family that was fitted without a member does at all its counts.

    The hold-out is at the largest of them; rules are missed that were at any.
    """
    left = fitted.part.members[member]
    name = setting_name(left.setting)
    try:
        model = model_at(fitted, left.setting)
        reports = [compare(model, t) for t in sorted(tables, key=lambda t: t.np)]
    except P3SError as err:
        failed = HoldOut(max(left.model.counts), False, str(err), setting=name)
        return failed, MissedRules((), ())
    items = model.items
    calls: set[tuple[str, str, int | None]] = set()
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
    return last, MissedRules(tuple(sorted(calls, key=repr)), tuple(sorted(phases)))


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


def _judged(model: Model, fitted: Fitted, order: Sequence[int], setting: Setting) -> Model:
    """Return the model with verdicts: no better than those of the models it was made of."""
    part, held, missed = fitted.part, fitted.holdout, fitted.missed
    items = []
    for i, (item, rules) in enumerate(zip(model.items, part.tree["items"], strict=True)):
        own = [part.members[m].model.items[part.members[m].number.index(i)] for m in order]
        verdict, why = _of_members(own)
        for other, reason in _of_laws(fitted.laws, _leaves_that_count(rules), setting):
            verdict = max(verdict, other, key=VERDICTS.index)
            why = (*why, reason)
        met = None
        if held is not None and held.possible:
            met = item.key not in missed.calls and (item.site, "", None) not in missed.calls
            if not met and verdict == Verdict.EXACT:
                verdict = Verdict.FITTED
                why = (*why, Reason(Code.MISSED_SETTING, name=held.setting))
        items.append(replace(item, verdict=verdict, why=why, met_holdout=met))
    phases = []
    for phase, rules in zip(model.phases, part.tree["phases"], strict=True):
        worst = _of_weights([part.members[m].model.phases[phase.phase] for m in order])
        doubts = [v for v, _ in _of_laws(fitted.laws, leaves_of(rules["weight"]), setting)]
        wrong = phase_key(phase, model.items) in missed.phases
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


def _leaves_that_count(rules: Mapping[str, Any]) -> list[int]:
    """Return the leaves of an item; how many requests one call completes is no message."""
    if rules["kind"] != COMPLETION:
        return leaves_of(rules)
    return leaves_of(
        [{k: v for k, v in slot.items() if k != "elements"} for slot in rules["slots"]]
    )


def _weight_rank(verdict: Verdict) -> int:
    return (Verdict.EXACT, Verdict.STATED, Verdict.FITTED, Verdict.STATISTICAL).index(verdict)


def _of_members(found: Sequence[Item]) -> tuple[Verdict, tuple[Reason, ...]]:
    """Return the verdict of a rule that several settings share.

    What one setting leaves open (ambiguous) another may settle; anything else is as at the worst.
    """
    settled = [each for each in found if each.verdict != Verdict.AMBIGUOUS]
    worst = max(settled or found, key=lambda each: VERDICTS.index(each.verdict))
    return worst.verdict, worst.why


def _of_laws(
    laws: Sequence[Law], leaves: Sequence[int], setting: Setting
) -> list[tuple[Verdict, Reason]]:
    """Return the verdicts that the laws of some leaves leave possible at a setting, and why."""
    out: dict[Verdict, Reason] = {}
    for k in leaves:
        law = laws[k]
        if sure(law, setting):
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
    return list(out.items())
