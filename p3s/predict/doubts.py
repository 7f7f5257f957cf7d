"""Reasons not to trust a prediction, each from the figures that it follows from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from p3s.base.text import figures, joined, over, plural, processes, seconds
from p3s.model.comparison import Comparison, HoldOut
from p3s.predict.advice import again, another, measure
from p3s.predict.commands import NO_STUDY, Commands
from p3s.predict.reasons import Reason
from p3s.predict.residual import RESIDUAL_LIMIT, is_off, off_by
from p3s.predict.types import Count, Residual

if TYPE_CHECKING:
    from p3s.predict.measured import Measured
    from p3s.simulate.followed import Followed

#: Share of the program without a rule, or left out, above which a prediction is not trusted.
UNKNOWN_LIMIT = 0.10
#: How many times the largest traced count may be exceeded.
EXTRAPOLATION_LIMIT = 32.0
#: Share of the messages and collectives of a held-out count that the model must get right.
HOLDOUT_LIMIT = 0.9
#: Share of the run time that may rest on loops whose iterations went on changing in the simulation.
UNSETTLED_LIMIT = 0.10
#: By which share smaller grids may miss communication that they stand for.
STAND_INS_LIMIT = 0.10
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


def of_reach(
    ratio: float, traced: Sequence[int] = (), commands: Commands = NO_STUDY
) -> list[Reason]:
    """Say when the largest count is too far from the traced ones."""
    if ratio <= EXTRAPOLATION_LIMIT:
        return []
    larger = commands.larger(max(traced, default=1))
    return [
        Reason(
            "extrapolated",
            f"the largest count is {ratio:.0f} times the largest traced count (limit "
            f"{EXTRAPOLATION_LIMIT:.0f})",
            f"trace a larger count: {commands.trace(larger)}"
            if larger
            else "try a larger input, which may run at a larger count",
        )
    ]


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
def of_runs(runs: Mapping[int, Measured], commands: Commands = NO_STUDY) -> list[Reason]:
    """Say at which counts measured times do not tell how fast the program is."""
    instead = "CPU time and estimated communication stand in for the run time"
    advice = "give each rank a core of its own to compare run times"
    reasons = []
    shared = [n for n, run in sorted(runs.items()) if run.shared_cores and not run.elsewhere]
    if shared:
        reasons.append(
            Reason(
                "shared-cores",
                f"at {processes(shared)} the traced ranks shared cores: {instead}",
                advice,
                False,
            )
        )
    for n, run in sorted(runs.items()):
        if not (run.shared_cores or run.elsewhere or run.on_core):
            reasons.append(
                Reason(
                    "off-core",
                    f"at {processes(n)} the traced ranks computed without a core for "
                    f"{100 * run.off_core:.0f} % of the run (other load on the machine, sleeping, "
                    f"input or output): {instead}",
                    f"trace it again on idle cores: {again(n, commands)}",
                    False,
                )
            )
    return reasons


def contradicting(
    found: Mapping[int, tuple[str, float]], base: int, commands: Commands = NO_STUDY
) -> list[Reason]:
    """Say which traced count contradicts the others, by what and how much.

    ``found``: count -> what is off, and how many times as long it takes; ``base``: the count that
    speedups relate to.
    """
    return [
        Reason(
            "contradicts",
            f"the run at {processes(n)} contradicts the others: its {what} is {ratio:.2g} times "
            "what they suggest, as if it had been disturbed; it is left out of the baseline, and "
            f"speedups relate to {processes(base)}",
            f"leave it out ({commands.of('model', '--without', str(n))}), or trace it again, as "
            f"repeats that agree are believed: {again(n, commands)}",
            False,
        )
        for n, (what, ratio) in sorted(found.items())
    ]


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


def of_stand_ins(rows: Sequence[Count], commands: Commands = NO_STUDY) -> list[Reason]:
    """Say where smaller process grids, simulated instead of all ranks, are far off, or may be."""
    from p3s.program.types import MOST_RANKS

    talks = {
        row.n: row.stand_ins
        for row in rows
        if row.stand_ins is not None and row.comm_s > UNSETTLED_LIMIT * row.model_s
    }
    off = {n: one for n, one in talks.items() if one.most_missed > STAND_INS_LIMIT}
    unchecked = [n for n, one in talks.items() if one.checked_n is None and n not in off]
    measured = {row.n for row in rows if row.time_from == "measured"}
    found = []
    if off:
        n = max(off, key=lambda n: off[n].most_missed)
        what = (
            f"miss communication by {100 * off[n].most_missed:.0f} % where that can be checked "
            f"(limit {100 * STAND_INS_LIMIT:.0f} %)"
        )
        found.append((n, what, bool(off.keys() - measured)))
    if unchecked:
        what = "that could be checked at no smaller count, with every rank in few enough steps"
        found.append((max(unchecked), what, bool(set(unchecked) - measured)))
    return [
        Reason(
            "stand-ins",
            f"at {processes(n)} smaller process grids were simulated instead of all ranks, and "
            + what,
            (
                f"simulate every rank ({commands.predict([n], '--every-rank')})"
                if n <= MOST_RANKS
                else f"take it as a trend: of more than {MOST_RANKS:,} processes not every rank "
                "can be simulated"
            ),
            against,
        )
        for n, what, against in found
    ]


def of_residuals(
    residuals: Sequence[Residual], rows: Sequence[Count], base: Count, commands: Commands = NO_STUDY
) -> list[Reason]:
    """Say where a run that tells took far longer, or far less, than the model says.

    Where the time of ``base`` is measured, speedups compare it with the model: there any model
    counts.
    """
    time = {row.n: row.model_s for row in rows}
    found = []
    for entry in residuals:
        whole = time.get(entry.n, 0.0)
        tells = entry.representative or (entry.n == base.n and base.time_from == "measured")
        if not tells or whole <= 0:
            continue
        ratio = off_by(entry, whole)
        if is_off(ratio):
            found.append((max(ratio, 1 / max(ratio, 1e-9)), entry))
    if not found:
        return []
    _, worst = max(found, key=lambda pair: pair[0])
    n, took = worst.n, "the program took" if worst.what == "run time" else "computation took"
    return [
        Reason(
            "model-off",
            f"at {processes(n)} {took} {worst.measured_s / max(worst.model_s, 1e-12):.2g} "
            f"times as long as the model says (limit {RESIDUAL_LIMIT:g}): something is not "
            f"modelled, or the machine was busy with something else{_rests_on(base)}",
            "see the report's list of gaps for what is left out, and trace it again on idle "
            f"cores: {again(n, commands)}",
        )
    ]


def _rests_on(base: Count) -> str:
    """Say what speedups relate to where it is not the time of the model."""
    return (
        ""
        if base.time_from != "computation"
        else (
            f"; speedups relate to the computation measured at {processes(base.n)}, with the "
            f"model's communication ({seconds(base.time_s)}; the model says "
            f"{seconds(base.model_s)})"
        )
    )


def few(names: Sequence[str], most: int = 5) -> str:
    """Return names with commas, those beyond ``most`` counted."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more if more else joined(names)
