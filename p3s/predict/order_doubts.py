"""Why not to trust times: the model has calls in an order in which no traced rank makes them."""

from __future__ import annotations

from collections.abc import Sequence

from p3s.base.errors import P3SError
from p3s.base.text import plural, processes
from p3s.model.comparison import HoldOut, Moved
from p3s.model.law_types import Order
from p3s.model.order.kinds import Kinds
from p3s.predict.advice import another
from p3s.predict.commands import NO_STUDY, Commands
from p3s.predict.doubts import HOLDOUT_LIMIT
from p3s.predict.reasons import Reason


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
