"""Completions of requests: as often as the requests were posted, where they have no law."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from p3s.model.grid.guards import Guard
from p3s.model.law_types import CountLaw
from p3s.model.sizes.observed import Observed
from p3s.model.types import Item
from p3s.trace.ops import COLLECTIVE, COMPLETION, HALF_OF_ONE, RECV, SEND, leaves_request

#: Largest denominator of completions per request.
_MOST = 64


def follow_posts(
    items: Sequence[Item], seen: Sequence[Observed], counts: Sequence[int]
) -> list[Item]:
    """Return the items; completions whose number has no law follow the requests that are posted.

    seen: what was traced of each item.
    """
    posts = [k for k, item in enumerate(items) if _posts(item)]
    if not posts:
        return list(items)

    def totals(k: int) -> dict[int, np.ndarray]:
        rows = seen[k].rows
        return {n: np.bincount(rows[n].rank, weights=rows[n].count, minlength=n) for n in counts}

    posted = {k: totals(k) for k in posts}
    groups = _groups(items, posts)
    sums = [{n: np.sum([posted[j][n] for j in group], axis=0) for n in counts} for group in groups]
    out = list(items)
    for k, item in enumerate(items):
        slot = item.slots[0]
        plain = slot.count.expr is not None and slot.count.expr[0] == "num"
        if item.kind != COMPLETION or (len(item.slots) == 1 and slot.guard is not None and plain):
            continue
        mine = totals(k)
        for group, total in zip(groups, sums, strict=True):
            factor = _factor(mine, total, counts)
            if factor is not None:
                count = CountLaw(follows=tuple(group), factor=factor)
                out[k] = replace(item, slots=(replace(slot, guard=Guard(), count=count, why=()),))
                break
    return out


def _posts(item: Item) -> bool:
    return leaves_request(item.op) or (
        item.kind in (SEND, RECV)
        and item.op not in HALF_OF_ONE
        and item.op.startswith(("MPI_I", "MPI_Send_init", "MPI_Recv_init"))
    )


def _groups(items: Sequence[Item], posts: Sequence[int]) -> list[list[int]]:
    """Return the sets of items whose requests a call may complete, the smaller ones first."""
    nodes: dict[int, list[int]] = {}
    for k in posts:
        nodes.setdefault(items[k].node, []).append(k)
    groups = [
        *nodes.values(),
        [k for k in posts if items[k].kind == SEND],
        [k for k in posts if items[k].kind == RECV],
        [k for k in posts if items[k].kind == COLLECTIVE],
        [k for k in posts if items[k].kind != COLLECTIVE],
        list(posts),
    ]
    for a in nodes.values():
        for b in nodes.values():
            if items[a[0]].kind == RECV and items[b[0]].kind == SEND:
                groups.append(a + b)
    return groups


def _factor(
    mine: dict[int, np.ndarray], total: dict[int, np.ndarray], counts: Sequence[int]
) -> tuple[int, int] | None:
    """Return the fraction of requests that completions are on every rank, None if there is none."""
    ratio = [(int(mine[n].sum()), int(np.sum(total[n]))) for n in counts]
    num, den = max(ratio, key=lambda x: x[1])
    if not den or not num or any(not np.array_equal(mine[n] * den, total[n] * num) for n in counts):
        return None
    g = int(np.gcd(num, den))
    return (num // g, den // g) if den // g <= _MOST else None
