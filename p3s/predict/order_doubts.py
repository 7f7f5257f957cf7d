"""Why not to trust times: the model has calls in an order in which no traced rank makes them."""

from __future__ import annotations

from p3s.commands import NO_STUDY, Commands
from p3s.model.comparison import HoldOut, Moved
from p3s.model.law_types import Order
from p3s.predict.advice import another
from p3s.predict.doubts import HOLDOUT_LIMIT
from p3s.predict.reasons import Reason
from p3s.text import plural, processes


def of_order(
    order: Order | None,
    holdout: HoldOut | None,
    limit: float = HOLDOUT_LIMIT,
    commands: Commands = NO_STUDY,
) -> list[Reason]:
    """Say where ranks of the traced runs make the model's calls in another order.

    ``limit`` is the share of the ranks of a count whose order must be right; what the model knows
    of all counts goes before what it knew without the largest.
    """
    found = [each for each in order.moved if _too_many(each, limit)] if order else []
    if found:
        ranks = f"{sum(len(each.moved) for each in found):,}"
        text = (
            f"at {processes([each.n for each in found])} {ranks} of "
            f"{sum(each.ranks for each in found):,} ranks of the traced runs make their calls in "
            "another order than the model says"
        )
        advice = "rely on messages and sizes alone: no order was found that fits these runs"
        return [Reason("order", text, advice)]
    there = holdout.comparison if holdout else None
    if holdout is None or there is None or there.order is None:
        return []
    held = Moved(there.n, there.order.moved, there.order.ranks)
    if not _too_many(held, limit):
        return []
    text = (
        f"fitted without {holdout.without}, the model has the calls of "
        f"{len(held.moved):,} of {plural(held.ranks, 'rank')} there in another order"
    )
    return [Reason("order", text, another(commands))]


def _too_many(moved: Moved, limit: float) -> bool:
    return moved.ranks - len(moved.moved) < limit * moved.ranks
