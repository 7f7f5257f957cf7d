"""Reasons not to trust a model, each from the figures that it follows from; and what helps.

Advice is in words, with complete commands. A command that traces comes last, behind a colon: it
may be one in parentheses.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from p3s.base.errors import P3SError
from p3s.base.ops import COLLECTIVE, IO, SEND, kind_of
from p3s.base.text import join_words, over, plural, processes
from p3s.laws.statistics import PER_DOUBLING
from p3s.model.comparison import Comparison, HoldOut, Moved
from p3s.model.law_types import Order
from p3s.model.order.kinds import Kinds
from p3s.predict.commands import NO_STUDY, Proposals
from p3s.predict.estimated import TYPICAL
from p3s.predict.times import draws, ends_of
from p3s.predict.types import CHANCE_LIMIT, Count, Reason, few

#: Share of the program without a rule, or left out, above which a prediction is not trusted.
UNKNOWN_LIMIT = 0.10
#: Share of the messages and collectives of a held-out count that the model must get right.
HOLDOUT_LIMIT = 0.9
#: How far work may be off where the model was checked, as a share of it.
WORK_LIMIT = 0.25

#: Kinds of calls that nouns of comparisons stand for.
_KINDS = {"message": SEND, "collective": COLLECTIVE, "file call": IO}
_UNKNOWN = frozenset({"unknown", "not seen", "not_seen"})


# ---- the model -----------------------------------------------------------------------------
def verdict_share(head: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return the share of events, bytes and work per verdict, each between 0 and 1."""
    raw = head.get("share") or {}
    share: dict[str, dict[str, float]] = {verdict: {} for verdict in raw}
    for what in ("events", "bytes", "work"):
        values = {verdict: float(entry.get(what) or 0.0) for verdict, entry in raw.items()}
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
    shares = [verdict_share(head), head.get("traced_share") or {}]
    return {
        what: max(
            sum(float(share[verdict].get(what, 0.0)) for verdict in _UNKNOWN & share.keys())
            for share in shares
        )
        for what in ("time", "work", "events")
    }


def _not_modelled(head: Mapping[str, Any]) -> dict[str, float]:
    """Return the share of time and of events in calls of kinds that are not modelled."""
    rows = head.get("not_modelled") or ()
    return {
        what: sum(float(row.get(f"share_of_{what}") or 0.0) for row in rows)
        for what in ("time", "events")
    }


def of_calls(head: Mapping[str, Any]) -> list[Reason]:
    """Say when calls of kinds that are not modelled are too much; ``head``: model or scaled."""
    gone = _not_modelled(head)
    if max(gone.values()) <= UNKNOWN_LIMIT:
        return []
    ops = [row["op"] for row in head["not_modelled"]]
    return [
        Reason(
            "left-out",
            f"calls that are not modelled ({few(ops)}) are {100 * gone['time']:.0f} % of the "
            f"time and {100 * gone['events']:.0f} % of the events of the traced runs (limit "
            f"{100 * UNKNOWN_LIMIT:.0f} %)",
            "trace a run without these calls, or one in which they matter less",
        )
    ]


def of_rules(head: Mapping[str, Any], commands: Proposals = NO_STUDY) -> list[tuple[Reason, float]]:
    """Say when too much is left out, or has no rule, and the share of the run time of that.

    ``head``: scaled.json of a count. What has no rule is not in its times: its share is that of the
    traced run, all where that is not known.
    """
    gone, found = _not_modelled(head), []
    found += [(each, gone["time"]) for each in of_calls(head)]
    rest = {what: share - gone.get(what, 0.0) for what, share in _unknown(head).items()}
    if max(rest.values()) > UNKNOWN_LIMIT:
        text = (
            f"{100 * max(rest.values()):.1f} % of the program has no rule (limit "
            f"{100 * UNKNOWN_LIMIT:.0f} %)"
        )
        share = max(rest["time"], rest["work"]) if head.get("traced_share") else 1.0
        found.append((Reason("no-rule", text, another(commands)), share))
    return found


def of_structure(head: Mapping[str, Any], commands: Proposals = NO_STUDY) -> list[Reason]:
    """Say where process grids or partners that explain all traces differ at the count of a head."""
    if open_share(head) <= UNKNOWN_LIMIT:
        return []
    found = head["open"]
    chance = float(found.get("chance", 1.0))
    n = int(head["n"])
    used = _extents(head["grid"])
    grids = [each for each in map(_extents, found["grids"]) if each != used]
    what = f"process grids {join_words([used, *grids], 'or')}" if grids else "several partners"
    return [
        Reason(
            "open",
            f"at {processes(n)} the traced runs allow {what}: {plural(found['calls'], 'call')} "
            f"({100 * found['bytes']:.0f} % of the bytes) would differ; what is used is right with "
            f"a probability of {min(100 * (1 - chance), 99):.0f} %{' or more' * (chance < 0.01)}",
            another(commands),
            chance > CHANCE_LIMIT,
        )
    ]


def open_share(head: Mapping[str, Any]) -> float:
    """Return the share of the calls that would differ, by events or bytes, whichever is more."""
    found = head.get("open")
    return max(found["events"], found["bytes"]) if found else 0.0


def _extents(dims: Iterable[int]) -> str:
    return "x".join(map(str, dims))


def judge_holdout(
    holdout: HoldOut | None, limit: float = HOLDOUT_LIMIT, commands: Proposals = NO_STUDY
) -> list[Reason]:
    """Say when the model, fitted without the largest traced count, missed that count.

    ``limit`` is the share of its messages, collectives and calls on files that must be equal, each.
    """
    if holdout is None:
        return []
    there = holdout.comparison
    if there is None:
        text = f"the model could not be checked on a held-out count: {holdout.problem}"
        return [Reason("not-held-out", text, another(commands))]
    work = work_missed(holdout, there.work.off, commands)
    text = f"fitted without {holdout.without}, the model misses"
    return [*_calls_missed("holdout-missed", text, there, another(commands), limit), *work]


def _calls_missed(
    code: str, text: str, there: Comparison, advice: str, limit: float = HOLDOUT_LIMIT
) -> list[Reason]:
    """Say what a model misses of a run: messages, collectives, calls on files, iterations."""
    wrong = [name for name, right in measure_agreement(there) if right < limit]
    if off := there.weights.phases - there.weights.exact:
        wrong.append(f"{off} of {plural(there.weights.phases, 'phase weight')}")
    return [Reason(code, f"{text} {join_words(wrong)}", advice)] if wrong else []


def measure_agreement(there: Comparison) -> list[tuple[str, float]]:
    """Return how many messages, collectives and calls on files differ, and the share that is right.

    What the model left open is right.
    """
    found = []
    for name, pair in there.told:
        whole = max(pair.true, pair.predicted)
        left_open = sum(
            call.calls_left_open for call in there.slots if kind_of(call.op) == _KINDS[name]
        )
        right = (pair.equal + left_open) / whole if whole else 1.0
        found.append((f"{whole - pair.equal:,} of {plural(whole, name)}", right))
    return found


def work_missed(
    holdout: HoldOut, off: float, commands: Proposals = NO_STUDY, advice: str = ""
) -> list[Reason]:
    """Say when the work was off where a model was checked that was fitted without that count.

    ``advice``: what to do [default: trace a larger count, or this one again].
    """
    if off <= WORK_LIMIT:
        return []
    rather = "trace a larger count, or this one again with repeats on idle cores"
    return [
        Reason(
            "holdout-work",
            f"fitted without {holdout.without}, the model's computation there is off by "
            f"{over(off, WORK_LIMIT)}",
            advice or f"{rather}: {again(holdout.n, commands)}",
        )
    ]


def of_validation(result: Comparison, commands: Proposals = NO_STUDY) -> list[Reason]:
    """Say what a comparison with a run at a count that was not modelled speaks against."""
    run, this_count = f"in the run at {processes(result.n)}", again(result.n, commands)
    off, share = result.work.off, result.unmodelled.share_of_time
    found = []
    if off > WORK_LIMIT:
        text = f"{run} the model's computation is off by {over(off, WORK_LIMIT)}"
        advice = f"add this count to the traced ones and validate at another: {this_count}"
        found.append(Reason("validate-work", text, advice))
    text, advice = f"{run} the model misses", f"trace this count too: {this_count}"
    found += _calls_missed("validate-missed", text, result, advice)
    if share > UNKNOWN_LIMIT:
        text = (
            f"{run} events that the model leaves out are {100 * share:.0f} % of the time "
            f"(limit {100 * UNKNOWN_LIMIT:.0f} %)"
        )
        advice = "calls of kinds that are not modelled stay out; others come in with this count"
        found.append(Reason("left-out", text, f"{advice}: {this_count}"))
    return found


# ---- the order of calls ---------------------------------------------------------------------
def of_order(
    order: Order | None,
    holdout: HoldOut | None,
    limit: float = HOLDOUT_LIMIT,
    commands: Proposals = NO_STUDY,
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
    holdout: HoldOut | None, limit: float, commands: Proposals, kinds: Kinds | None
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
    limit: float, commands: Proposals, kinds: Kinds, counts: Sequence[int]
) -> list[Reason]:
    for n in sorted(counts, reverse=True):
        try:
            at, new = kinds.unseen(n, kinds.model.counts)
            _, waiting = kinds.unseen(n, kinds.model.counts, wait=True)
        except P3SError:
            continue
        if _too_many(Moved(at, tuple(new.tolist()), at), limit):
            against = _too_many(Moved(at, tuple(waiting.tolist()), at), limit)
            text = (
                f"at {processes(at)} {len(new):,} of {plural(at, 'rank')} make calls together that "
                "no traced rank makes together: nothing tells in which order"
                + (
                    ""
                    if against
                    else "; those calls only start messages, so that matters little to the run time"
                )
            )
            return [Reason("order", text, another(commands), against)]
    return []


def _too_many(moved: Moved, limit: float) -> bool:
    return moved.ranks - len(moved.moved) < limit * moved.ranks


#: A typical network that is proposed where messages cannot be measured as in a run.
_NETWORK = "infiniband-hdr"
#: Points of a per cent of half width below which a run is not worth naming.
_LESS = 1.0
#: Repeats that tell a disturbed run from the others.
_REPEATS = 3


def again(counts: int | Sequence[int], commands: Proposals) -> str:
    """Return the command that traces counts again with repeats."""
    return commands.trace(counts, _REPEATS)


def another(commands: Proposals, traced: Sequence[int] = ()) -> str:
    """Return which count to trace next; what else helps where none is known.

    ``traced``: the counts of which repeats would tell something, too.
    """
    if commands.names_counts():
        return f"trace another count ({commands.next()} names the most useful one)"
    larger = commands.larger(max(traced, default=1))
    if larger:
        return f"trace a larger count: {commands.trace(larger)}"
    none = "no other count is known to work with this program"
    if traced:
        return f"{none}; trace these with repeats: {again(traced, commands)}"
    return f"{none}; a larger input may allow more"


def narrower_by(row: Count, traced: Sequence[int], commands: Proposals) -> str:
    """Return how wide a row's interval would be with the next larger count traced; "" if no less.

    What comes from laws of work and of cost shrinks with the doublings from the largest count, as
    the half width of a mean does and as laws of cost drift; the rest stays.
    """

    largest = max(traced, default=0)
    more = commands.larger(largest) if largest else None
    if more is None or not largest < row.n:
        return ""
    before, after = (max(math.log2(row.n / n), 0.0) for n in (largest, more))
    less = {"cost": after / before}
    less["work"] = (1.0 + PER_DOUBLING * after) / (1.0 + PER_DOUBLING * before) * (after > 0.0)
    parts = row.interval_parts.known()
    narrower = {
        name: (low ** less.get(name, 1.0), high ** less.get(name, 1.0))
        for name, (low, high) in parts.items()
    }
    rivals = row.interval_parts.rivals
    now, then = (ends_of(draws(each, rivals)) for each in (parts, narrower))
    old, new = (50.0 * (high - low) for low, high in (now, then))
    if not old - new > _LESS:
        return ""
    return f"tracing {more} too would narrow it from {old:.0f} % to about {new:.0f} % at {row.n}"


def measure(counts: Sequence[int], commands: Proposals, typical: bool = False) -> str:
    """Return what gives costs of messages that tell how fast a run is.

    ``typical``: those of a typical cluster are taken already.
    """
    here = "measure messages on nodes with a core for each rank (--hosts names them)"
    if typical:
        return here
    command = commands.predict(counts, "--network", _NETWORK)
    return f"{here}, or predict for a typical cluster ({command})"


def smaller(n: int, commands: Proposals) -> str:
    """Return how to show what a process computes at ``n``: with a smaller workload, if at all."""
    if named := smaller_named(n, commands):
        return named
    found = commands.smaller_input(n)
    if found and found["unmatched"]:
        counted = commands.trace(commands.traced(), work="instructions")
        return f"count instructions, which tell what a smaller workload stands for: {counted}"
    return another(commands)


def smaller_named(n: int, commands: Proposals) -> str:
    """Return that a smaller workload helps, where ``p3s next`` says which; else ""."""
    found = commands.smaller_input(n)
    if found is not None and (not found["phases"] or found["unmatched"]):
        return ""
    if found is None or found["arguments"]:
        return f"add a smaller workload ({commands.next(n)} names one)"
    return (
        "add a smaller workload, in another input file or build "
        f"({commands.next(n)} says how much smaller)"
    )


def narrower(
    part: str, row: Count, traced: Sequence[int], commands: Proposals, odd: Collection[int] = ()
) -> str:
    """Return what would make a part of a row's interval narrower.

    ``odd``: counts that contradict the others, whose points widen what the laws say.
    """
    if part in ("work", "cost") and odd:
        without = ",".join(map(str, sorted(odd)))
        command = commands.of("model", "--without", without)
        return f"leave out what contradicts the others ({command})"
    if part == "cost" and traced:
        named = smaller_named(row.n, commands)
        return f"{named + ', or ' if named else ''}trace with repeats: {again(traced, commands)}"
    if part == "replay":
        return measure([row.n], commands, row.estimator == TYPICAL)
    if part == "files":
        return (
            "measure the file system that the program uses, with as many processes as it will be "
            f"used by: {commands.measure_files()}"
        )
    if part == "residual" and traced:
        return f"trace these counts again on idle cores: {again(traced, commands)}"
    return another(commands, traced)
