"""Reasons not to trust a prediction, each from the figures that it follows from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from p3s.base.errors import P3SError
from p3s.base.text import figures, joined, over, plural, processes
from p3s.model.comparison import Comparison, HoldOut, Moved
from p3s.predict.advice import again, another, measure
from p3s.predict.commands import NO_STUDY, Commands
from p3s.predict.reasons import Reason
from p3s.predict.types import Count

if TYPE_CHECKING:
    from p3s.model.law_types import Order
    from p3s.model.order.kinds import Kinds
    from p3s.simulate.followed import Followed

#: Share of the program without a rule, or left out, above which a prediction is not trusted.
UNKNOWN_LIMIT = 0.10
#: Share of the messages and collectives of a held-out count that the model must get right.
HOLDOUT_LIMIT = 0.9
#: Share of the run time that may rest on loops whose iterations went on changing in the simulation.
UNSETTLED_LIMIT = 0.10
#: How far work may be off where the model was checked, as a share of it.
WORK_LIMIT = 0.25

_UNKNOWN = frozenset({"unknown", "not seen", "not_seen"})


# ---- the model -----------------------------------------------------------------------------
def verdict_share(head: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return the share of events, bytes and work per verdict, each between 0 and 1."""
    raw = head.get("share")
    if not isinstance(raw, Mapping):
        return {}
    share: dict[str, dict[str, float]] = {str(verdict): {} for verdict in raw}
    for what in ("events", "bytes", "work"):
        values = {
            str(verdict): float(entry.get(what) or 0.0)
            for verdict, entry in raw.items()
            if isinstance(entry, Mapping)
        }
        whole = sum(values.values())
        for verdict, value in values.items():
            share[verdict][what] = value / whole if whole > 0 else 0.0
    return share


def unknown_share(head: Mapping[str, Any]) -> float:
    """Return the share of the program whose rule is unknown, by time, work or events.

    The largest of them counts, of the scaled trace and of the traced run: what has no rule at
    all is not in the scaled trace.
    """
    return max(_unknown(head).values())


def _unknown(head: Mapping[str, Any]) -> dict[str, float]:
    traced = head.get("traced_share")
    shares = [verdict_share(head), traced if isinstance(traced, Mapping) else {}]
    return {
        what: max(
            sum(
                float(entry.get(what, 0.0))
                for verdict, entry in share.items()
                if verdict in _UNKNOWN and isinstance(entry, Mapping)
            )
            for share in shares
        )
        for what in ("time", "work", "events")
    }


def _not_modelled(head: Mapping[str, Any]) -> dict[str, float]:
    """Return the share of time and of events in calls of kinds that are not modelled."""
    rows = head.get("not_modelled")
    found = [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []
    return {
        what: sum(float(row.get(f"share_of_{what}") or 0.0) for row in found)
        for what in ("time", "events")
    }


def of_calls(head: Mapping[str, Any]) -> list[Reason]:
    """Say when calls of kinds that are not modelled are too much; ``head``: model or scaled."""
    gone = _not_modelled(head)
    if max(gone.values()) <= UNKNOWN_LIMIT:
        return []
    ops = [str(row.get("op")) for row in head["not_modelled"] if isinstance(row, Mapping)]
    return [
        Reason(
            "left-out",
            f"calls that are not modelled ({few(ops)}) are {100 * gone['time']:.0f} % of the "
            f"time and {100 * gone['events']:.0f} % of the events of the traced runs (limit "
            f"{100 * UNKNOWN_LIMIT:.0f} %)",
            "trace a run without these calls, or one in which they matter less",
        )
    ]


def of_rules(heads: Iterable[Mapping[str, Any]], commands: Commands = NO_STUDY) -> list[Reason]:
    """Say when too much is left out, or has no rule; ``heads``: scaled.json of the counts."""
    reasons: dict[str, Reason] = {}
    for head in heads:
        gone = _not_modelled(head)
        if found := of_calls(head):
            reasons.setdefault("left-out", found[0])
        rest = max(share - gone.get(what, 0.0) for what, share in _unknown(head).items())
        if rest > UNKNOWN_LIMIT and "no-rule" not in reasons:
            reasons["no-rule"] = Reason(
                "no-rule",
                f"{100 * rest:.1f} % of the program has no rule (limit "
                f"{100 * UNKNOWN_LIMIT:.0f} %)",
                another(commands),
            )
    return list(reasons.values())


def missed(
    holdout: HoldOut | None, limit: float = HOLDOUT_LIMIT, commands: Commands = NO_STUDY
) -> list[Reason]:
    """Say when the model, fitted without the largest traced count, missed that count.

    ``limit`` is the share of its messages, collectives and calls on files that must be equal, each.
    """
    if holdout is None:
        return []
    there = holdout.comparison
    if there is None:
        return [
            Reason(
                "not-held-out",
                f"the model could not be checked on a held-out count: {holdout.problem}",
                another(commands),
            )
        ]
    reasons = []
    if wrong := _missed(there, limit):
        reasons.append(
            Reason(
                "holdout-missed",
                f"fitted without {holdout.without}, the model misses {joined(wrong)} there",
                another(commands),
            )
        )
    return reasons + work_missed(holdout, there.work.off, commands)


def _missed(there: Comparison, limit: float) -> list[str]:
    """Return what a model misses of a run: messages, collectives, calls on files, weights."""
    wrong = []
    for name, pair in there.told:
        whole = max(pair.true, pair.predicted)
        if pair.equal < limit * whole:
            wrong.append(f"{whole - pair.equal:,} of {plural(whole, name)}")
    off = there.weights.phases - there.weights.exact
    return wrong + ([f"{off} of {plural(there.weights.phases, 'phase weight')}"] if off else [])


def work_missed(
    holdout: HoldOut, off: float, commands: Commands = NO_STUDY, advice: str = ""
) -> list[Reason]:
    """Say when the work was off where a model was checked that was fitted without that count.

    ``advice``: what to do [default: trace a larger count, or this one again].
    """
    found = _work_off(
        off,
        holdout.n,
        "holdout-work",
        f"fitted without {holdout.without}, the model's computation there is off by",
        commands,
    )
    return [replace(each, advice=advice or each.advice) for each in found]


def _work_off(off: float, n: int, code: str, words: str, commands: Commands) -> list[Reason]:
    if off <= WORK_LIMIT:
        return []
    advice = (
        f"trace a larger count, or this one again with repeats on idle cores: {again(n, commands)}"
    )
    if code == "validate-work":
        advice = f"add this count to the traced ones and validate at another: {again(n, commands)}"
    return [Reason(code, f"{words} {over(off, WORK_LIMIT)}", advice)]


def of_validation(result: Comparison, commands: Commands = NO_STUDY) -> list[Reason]:
    """Say what a comparison with a run at a count that was not modelled speaks against."""
    n = result.n
    reasons = _work_off(
        result.work.off,
        n,
        "validate-work",
        f"in the run at {processes(n)} the model's computation is off by",
        commands,
    )
    if wrong := _missed(result, HOLDOUT_LIMIT):
        reasons.append(
            Reason(
                "validate-missed",
                f"in the run at {processes(n)} the model misses {joined(wrong)}",
                f"trace this count too: {again(n, commands)}",
            )
        )
    share = result.unmodelled.share_of_time
    if share > UNKNOWN_LIMIT:
        reasons.append(
            Reason(
                "left-out",
                f"in the run at {processes(n)} events that the model leaves out are "
                f"{100 * share:.0f} % of the time (limit {100 * UNKNOWN_LIMIT:.0f} %)",
                "calls of kinds that are not modelled stay out; others come in with this count: "
                f"{again(n, commands)}",
            )
        )
    return reasons


# ---- the runs ------------------------------------------------------------------------------


# ---- the prediction ------------------------------------------------------------------------
def of_communication(
    why_not: Mapping[int, str], rows: Sequence[Count], commands: Commands = NO_STUDY
) -> list[Reason]:
    """Say where communication does not tell how fast the program is.

    ``why_not``: why by count, "" where it tells. Where every such count was measured, the times do
    not rest on it.
    """
    counts: dict[str, list[int]] = {}
    for n, why in sorted(why_not.items()):
        if why:
            counts.setdefault(why, []).append(n)
    rests = {row.n for row in rows if row.time_from != "measured"}
    return [
        Reason(
            "not-representative",
            f"communication at {processes(where)} was not measured as in a real run: {why}",
            measure(where, commands),
            bool(rests & set(where)),
        )
        for why, where in counts.items()
    ]


def of_simulation(
    followed: Mapping[int, Followed], rows: Sequence[Count], commands: Commands = NO_STUDY
) -> list[Reason]:
    """Say where the simulation could not follow the messages of the model, or did not settle.

    ``followed``: by count. Where every such count was measured, the times do not rest on it.
    """
    share = {row.n: row.comm_s / row.model_s if row.model_s > 0 else 0.0 for row in rows}
    rests = {row.n for row in rows if row.time_from != "measured"}
    advice = another(commands)
    lost = {n: f for n, f in followed.items() if f.lost > 0}
    moving = {n: f for n, f in followed.items() if f.unsettled * share[n] > UNSETTLED_LIMIT}
    reasons = []
    if lost:
        n = max(lost, key=lambda n: lost[n].lost)
        one = lost[n]
        reasons.append(
            Reason(
                "unmatched",
                f"at {processes(n)} {one.unmatched:,.0f} of "
                f"{plural(round(one.messages), 'message')} ({few(one.calls)}) have "
                "no partner in the model: its rules contradict each other there, so the "
                "simulation leaves these messages out",
                advice,
                bool(rests & set(lost)),
            )
        )
    if stuck := {n: f for n, f in followed.items() if f.reordered}:
        n = max(stuck, key=lambda n: stuck[n].reordered)
        reasons.append(
            Reason(
                "deadlock",
                f"at {processes(n)} the model's order of calls deadlocks: "
                f"{plural(stuck[n].reordered, 'call')} had to be taken out of turn, so the times "
                "are not those of the program",
                advice,
                bool(rests & set(stuck)),
            )
        )
    if moving:
        n = max(moving, key=lambda n: moving[n].unsettled * share[n])
        one = moving[n]
        reasons.append(
            Reason(
                "not-settled",
                f"at {processes(n)} {100 * one.unsettled * share[n]:.0f} % of the time rests on "
                f"loops whose iterations still changed by up to {figures(100 * one.change)} % "
                "at the "
                f"end of the simulation (limit {100 * UNSETTLED_LIMIT:.0f} %)",
                advice,
                bool(rests & set(moving)),
            )
        )
    return reasons


def few(names: Sequence[str], most: int = 5) -> str:
    """Return names with commas, those beyond ``most`` counted."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more if more else joined(names)


# ---- the order of calls ---------------------------------------------------------------------
def of_order(
    order: Order | None,
    holdout: HoldOut | None,
    limit: float = HOLDOUT_LIMIT,
    commands: Commands = NO_STUDY,
    kinds: Kinds | None = None,
    counts: Sequence[int] = (),
) -> list[Reason]:
    """Say where ranks of the traced runs make the model's calls in another order.

    ``limit`` is the share of the ranks of a count whose order must be right; what the model knows
    of all counts goes before what it knew without the largest. What it had wrong there of ranks
    of ``kinds`` that no other count has, it could not know: that does not matter. What does is
    ranks of ``counts`` that make calls together that no traced rank makes together.
    """
    found = [each for each in order.moved if _too_many(each, limit)] if order else []
    if found:
        ranks = f"{sum(len(each.moved) for each in found):,}"
        text = (
            f"at {processes([each.n for each in found])} {ranks} of "
            f"{sum(each.ranks for each in found):,} ranks of the traced runs make their calls in "
            "another order than the model says"
        )
        advice = f"messages and sizes are valid; fit the run times alone: {commands.regress()}"
        return [Reason("order", text, advice)]
    held = _of_hold_out(holdout, limit, commands, kinds)
    return held or (_of_new_kinds(limit, commands, kinds, counts) if kinds is not None else [])


def _of_hold_out(
    holdout: HoldOut | None, limit: float, commands: Commands, kinds: Kinds | None
) -> list[Reason]:
    there = holdout.comparison if holdout else None
    if holdout is None or there is None or there.order is None:
        return []
    held = Moved(there.n, there.order.moved, there.order.ranks)
    if kinds is not None and _too_many(held, limit):
        held = _of_known_kinds(held, kinds)
    if not _too_many(held, limit):
        return []
    text = (
        f"fitted without {holdout.without}, the model has the calls of "
        f"{len(held.moved):,} of {plural(held.ranks, 'rank')} there in another order"
    )
    return [Reason("order", text, another(commands))]


def _of_known_kinds(held: Moved, kinds: Kinds) -> Moved:
    """Return the ranks of kinds that other counts have too: whose order the model could know."""
    try:
        _, new = kinds.unseen(held.n, [n for n in kinds.model.counts if n < held.n])
    except P3SError:
        return held
    return Moved(held.n, tuple(sorted({*held.moved} - {*new.tolist()})), held.ranks)


def _of_new_kinds(
    limit: float, commands: Commands, kinds: Kinds, counts: Sequence[int]
) -> list[Reason]:
    for n in sorted(counts, reverse=True):
        try:
            at, new = kinds.unseen(n, kinds.model.counts)
        except P3SError:
            continue
        if _too_many(Moved(at, tuple(new.tolist()), at), limit):
            text = (
                f"at {processes(at)} {len(new):,} of {plural(at, 'rank')} make calls together that "
                "no traced rank makes together: nothing tells in which order"
            )
            return [Reason("order", text, another(commands))]
    return []


def _too_many(moved: Moved, limit: float) -> bool:
    return moved.ranks - len(moved.moved) < limit * moved.ranks
