"""The model at a setting that was never traced: the rules with numbers in place of laws."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from p3s.characterize.tables import PointTable
from p3s.errors import P3SError
from p3s.laws.lawfinder import find_law
from p3s.laws.symbolic import to_text
from p3s.model.compare import compare
from p3s.model.evaluate import Model, generate, model_grid
from p3s.model.judge import VERDICTS, phase_key
from p3s.model.work.workload import rank_work
from p3s.parameters.align import Alike, number_at, points_at, sure
from p3s.parameters.paramlaws import Number
from p3s.parameters.tree import fill, leaves_of, nearest
from p3s.parameters.work import places_at
from p3s.settings import Setting, setting_name, value_text
from p3s.trace.ops import COMPLETION


@dataclass(frozen=True)
class Fitted:
    """Settings alike with the laws fitted to some of them: all there is to make a model of.

    use: numbers of the members they were fitted to; laws: of every leaf; work: of segments.
    """

    part: Alike
    use: tuple[int, ...]
    laws: Sequence[Mapping[str, Any]]
    work: Mapping[str, Any]

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


def model_at(fitted: Fitted, setting: Setting, missed: Missed | None = None) -> Model:
    """Return the model at a setting; missed: what the family got wrong at one left out.

    Raises P3SError where a law has no value there.
    """
    part, laws = fitted.part, fitted.laws
    order = [fitted.use[k] for k in nearest(fitted.settings, setting)]
    near = part.members[order[0]]
    grid = part.tree["grid"]

    def filled(tree: Any) -> Any:
        return fill(
            tree, lambda k: number_at(laws[k], setting), lambda k: points_at(laws[k], setting, grid)
        )

    base = [near.model["items"][near.number.index(i)] for i in range(len(part.tree["items"]))]
    counts = sorted({n for m in fitted.use for n in part.members[m].model["counts"]})
    model: Model = {
        "schema": "p3s.model",
        "schema_version": 1,
        "counts": counts,
        "grid": {**near.model["grid"], "family": grid},
        "tag_splits": part.tree["tag_splits"],
        "items": [
            _item(own, filled(rules)) for own, rules in zip(base, part.tree["items"], strict=True)
        ],
        "phases": _phases(fitted, order, filled, setting),
        "work_unit": near.model["work_unit"],
        "work_units": {str(n): near.model["work_unit"] for n in counts},
        "tracing": {},
        "sites": {k: v for m in fitted.use for k, v in part.members[m].model["sites"].items()},
        **{
            key: near.model[key]
            for key in ("unmodelled_ops", "not_modelled", "first_seen", "growth", "admissible")
            if key in near.model
        },
        "order": filled(part.tree["order"]),
        "next": [],
    }
    model["grid"]["dims"] = {str(n): list(model_grid(model, n).dims) for n in counts}
    model["holdout"] = missed.report if missed is not None else None
    _judge(model, fitted, order, setting, missed)
    _sums(model)
    ratio = outside(fitted.settings, setting)
    model["derived"] = {
        "setting": {name: value_text(value) for name, value in setting.items()},
        "from": [setting_name(s) for s in fitted.settings],
        "outside": ratio,
    }
    return model


def _item(own: Mapping[str, Any], rules: Mapping[str, Any]) -> dict[str, Any]:
    """Return an item: the rules at the setting, and what the nearest setting says besides."""
    kept = {
        k: v for k, v in own.items() if k not in ("measured", "holdout", "share", "met_holdout")
    }
    slots = []
    for mine, slot in zip(own["slots"], rules["slots"], strict=True):
        slots.append(
            {
                **mine,
                **slot,
                "work_points": [],
                "count": {**_about(mine["count"]), **slot["count"]},
                "elements": {
                    "even": False,
                    "open": False,
                    **_about(mine["elements"]),
                    **slot["elements"],
                    "rivals": [],
                },
            }
        )
    made = {**kept, **rules, "slots": slots}
    if made.get("stages_of") is None:
        made.pop("stages_of", None)
    if made["at"] is None:  # no order of events holds at all settings
        for slot in slots:
            slot.pop("when", None)
        del made["at"], made["loops"]
    return made


def _about(law: Mapping[str, Any]) -> dict[str, Any]:
    return {key: law[key] for key in ("points", "free") if key in law}


def _phases(
    fitted: Fitted, order: Sequence[int], filled: Any, setting: Setting
) -> list[dict[str, Any]]:
    part = fitted.part
    near = part.members[order[0]]
    doublings = math.log2(outside(fitted.settings, setting))
    places = places_at(part, order, fitted.work, setting, filled, doublings)
    out = []
    for own, rules in zip(near.model["phases"], filled(part.tree["phases"]), strict=True):
        mine = [places[(p["place"][0], p["place"][1])] for p in own["work"]["places"]]
        weight = {**_about(own["weight"]), **rules["weight"]}
        out.append(
            {
                **own,
                **rules,
                "weight": weight,
                "weight_points": [],
                "work": {**own["work"], "measured": {}, "points": [], "places": mine},
            }
        )
    return out


def _sums(model: Model) -> None:
    """Fill in what follows from the rules: laws of work by slot and phase, shares by verdict."""
    items, phases, counts = model["items"], model["phases"], model["counts"]
    per_slot: dict[tuple[int, int], list[tuple[int, float]]] = {}
    per_phase: list[list[tuple[int, float]]] = [[] for _ in phases]
    for n in counts:
        rows = generate(model, n)
        for key in sorted(set(zip(rows.item.tolist(), rows.slot.tolist(), strict=True))):
            mine = (rows.item == key[0]) & (rows.slot == key[1])
            mean = float(
                (rows.work[mine] * rows.repeat[mine]).sum() / max(int(rows.repeat[mine].sum()), 1)
            )
            per_slot.setdefault(key, []).append((n, mean))
        found = rank_work(
            model,
            rows.grid,
            {c: getattr(rows, c) for c in ("rank", "item", "nbytes", "repeat")},
            widths=False,
        )
        work, _ = found.per_phase(len(phases))
        for k in range(len(phases)):
            there = np.isin(found.ranks, rows.rank[rows.phase == k])
            if there.any():
                per_phase[k].append((n, float(work[k][there].mean())))
    for (i, k), points in per_slot.items():
        items[i]["slots"][k]["work"] = find_law(points, "work").fit.to_json()
    for phase, points in zip(phases, per_phase, strict=True):
        if points:
            phase["work"].update(
                points=[list(p) for p in points], law=find_law(points, "work").fit.to_json()
            )
    model["shares"] = _shares(model, generate(model, max(counts)))


def _shares(model: Model, rows: Any) -> dict[str, dict[str, float]]:
    """Return the share of events, bytes and computation per verdict; sets that of every item."""
    out: dict[str, dict[str, float]] = {v: {} for v in VERDICTS}
    amounts = {
        "events": rows.repeat.astype(float),
        "bytes": (rows.repeat * rows.nbytes).astype(float),
        "time": rows.repeat * rows.work,
    }
    items = model["items"]
    for item in items:
        item["share"] = {}
    for name, amount in amounts.items():
        total = float(amount.sum())
        each = np.bincount(rows.item, amount, len(items)) / total if total else np.zeros(len(items))
        for v in VERDICTS:
            out[v][name] = float(sum(each[i] for i, it in enumerate(items) if it["verdict"] == v))
        for i, item in enumerate(items):
            item["share"][name] = float(each[i])
    return out


# ---- how sure it is --------------------------------------------------------------------------
@dataclass(frozen=True)
class Missed:
    """What a family fitted without one setting got wrong there.

    report: as of a hold-out, at the largest count, with "setting"; calls: (site, op, tag) of the
    calls missed at any count; phases: keys of the phases whose weight was missed.
    """

    report: dict[str, Any]
    calls: frozenset[tuple[Any, ...]]
    phases: tuple[tuple[str, ...], ...]


def leave_out(fitted: Fitted, member: int, tables: Sequence[PointTable]) -> Missed:
    """Return how a family that was fitted without a member does at all its counts."""
    left = fitted.part.members[member]
    name = setting_name(left.setting)
    try:
        model = model_at(fitted, left.setting)
        reports = [compare(model, t) for t in sorted(tables, key=lambda t: t.np)]
    except P3SError as err:
        return Missed(
            {"n": max(left.model["counts"]), "setting": name, "possible": False, "why": str(err)},
            frozenset(),
            (),
        )
    items = model["items"]
    calls: set[tuple[Any, ...]] = set()
    phases: set[tuple[str, ...]] = set()
    for report in reports:
        calls |= {
            (items[i]["site"], items[i]["op"], items[i]["tag"]) for i in report["items_wrong"]
        }
        calls |= {(site, "", None) for site in report["unseen_sites"]}
        phases |= {
            tuple(phase_key(model["phases"][w["phase"]], items))
            for w in report["weights"]["each"]
            if w["true"] != w["predicted"]
        }
    last = {
        **reports[-1],
        "setting": name,
        "possible": True,
        "each": [summary(r) for r in reports],
        "weights_missed": [list(p) for p in sorted(phases)],
        "phases_seen": [phase_key(p, items) for p in model["phases"]],
    }
    return Missed(last, frozenset(calls), tuple(sorted(phases)))


def summary(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers of a comparison with a run, without its lists."""
    return {
        "n": report["n"],
        "p2p_triples": report["p2p_triples"],
        "collectives": report["collectives"],
        "weights": {k: report["weights"][k] for k in ("phases", "exact")},
        "order": None
        if not report["order"]
        else {k: report["order"][k] for k in ("ranks", "equal")},
        "work": {k: report["work"][k] for k in ("mean_abs_error", "max_abs_error", "total_error")},
    }


def all_equal(report: Mapping[str, Any]) -> bool:
    """Tell whether every message, collective and weight of a comparison is as predicted."""
    pairs = (report["p2p_triples"], report["collectives"])
    return (
        all(p["true"] == p["predicted"] == p["equal"] for p in pairs)
        and report["weights"]["phases"] == report["weights"]["exact"]
    )


def _judge(
    model: Model, fitted: Fitted, order: Sequence[int], setting: Setting, missed: Missed | None
) -> None:
    """Give every rule and weight its verdict: no better than those it was made of."""
    part = fitted.part
    for i, (item, rules) in enumerate(zip(model["items"], part.tree["items"], strict=True)):
        own = [part.members[m].model["items"][part.members[m].number.index(i)] for m in order]
        item["verdict"], item["why"] = _of_members([(o["verdict"], o["why"]) for o in own])
        for verdict, why in _of_laws(fitted.laws, _leaves_that_count(rules), setting):
            if VERDICTS.index(verdict) > VERDICTS.index(item["verdict"]):
                item["verdict"] = verdict
            item["why"] = [*item["why"], why]
        if missed is None or not missed.report.get("possible", False):
            continue
        name = missed.report["setting"]
        item["met_holdout"] = (item["site"], item["op"], item["tag"]) not in missed.calls and (
            item["site"],
            "",
            None,
        ) not in missed.calls
        if not item["met_holdout"] and item["verdict"] == "exact":
            item["verdict"] = "fitted"
            item["why"] = [*item["why"], f"the rules without {name} missed it there"]
    for phase, rules in zip(model["phases"], part.tree["phases"], strict=True):
        own = [part.members[m].model["phases"][phase["phase"]]["weight_verdict"] for m in order]
        verdict = max(own, key=_weight_rank)
        doubts = [v for v, _ in _of_laws(fitted.laws, leaves_of(rules["weight"]), setting)]
        key = tuple(phase_key(phase, model["items"]))
        if verdict == "exact" and (doubts or (missed is not None and key in missed.phases)):
            verdict = "statistical" if "statistical" in doubts else "fitted"
        phase["weight_verdict"] = verdict


def _leaves_that_count(item: Mapping[str, Any]) -> list[int]:
    """Return the leaves of an item; how many requests one call completes is no message."""
    if item["kind"] != COMPLETION:
        return leaves_of(item)
    return leaves_of([{k: v for k, v in slot.items() if k != "elements"} for slot in item["slots"]])


def _weight_rank(verdict: str) -> int:
    return ("exact", "stated", "fitted", "statistical").index(verdict)


def _of_members(found: Sequence[tuple[str, Sequence[str]]]) -> tuple[str, list[str]]:
    """Return the verdict of a rule that several settings share.

    What one setting leaves open (ambiguous) another may settle; anything else is as at the worst.
    """
    settled = [each for each in found if each[0] != "ambiguous"]
    verdict, why = max(settled or found, key=lambda each: VERDICTS.index(each[0]))
    return verdict, list(why)


def _of_laws(
    laws: Sequence[Mapping[str, Any]], leaves: Sequence[int], setting: Setting
) -> list[tuple[str, str]]:
    """Return the verdicts that the laws of some leaves leave possible at a setting, and why."""
    out: dict[str, str] = {}
    for k in leaves:
        law = laws[k]
        if sure(law, setting):
            continue
        if "amount" in law or law["state"] == "fitted":
            out["statistical"] = "a number follows no exact law of the parameters"
            continue
        number = Number.from_json(law)
        text = to_text(number.expr) if number.expr is not None else ""
        value = number.value(setting)
        if law["rivals"]:
            out["ambiguous"] = f"{text} is one of several laws that meet the traced values"
        elif number.whole and isinstance(value, Fraction) and value.denominator != 1:
            out["ambiguous"] = f"{text} is no whole number there: taken without its fraction"
        else:
            out["fitted"] = f"{text} has as many numbers as there are traced values"
    return list(out.items())
