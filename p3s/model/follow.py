"""Completions of requests: where and as often as the requests were posted.

One call completes one request, or all that a rank posted in an iteration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from p3s.model.grid.atom import DEAR
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

    So do those of ranks that take many words to say. seen: what was traced of each item.
    """
    posts = [k for k, item in enumerate(items) if _posts(item)]
    if not posts:
        return list(items)

    def totals(k: int) -> dict[int, np.ndarray]:
        rows = seen[k].rows
        return {n: np.bincount(rows[n].rank, weights=rows[n].count, minlength=n) for n in counts}

    times = {k: totals(k) for k in posts}
    groups = _groups(items, posts)
    out = list(items)
    for k, item in enumerate(items):
        if item.kind != COMPLETION or _plain(item):
            continue
        law = _following(totals(k), groups, items, times, counts)
        if law is not None:
            slot = replace(item.slots[0], guard=Guard(), count=law, why=())
            out[k] = replace(item, slots=(slot,))
    return out


def _plain(item: Item) -> bool:
    """Tell whether a completion is made equally often by ranks that few words tell."""
    slot = item.slots[0]
    constant = slot.count.expr is not None and slot.count.expr[0] == "num"
    return len(item.slots) == 1 and slot.guard is not None and constant and slot.guard.cost <= DEAR


def _following(
    mine: dict[int, np.ndarray],
    groups: Sequence[Sequence[int]],
    items: Sequence[Item],
    times: Mapping[int, Mapping[int, np.ndarray]],
    counts: Sequence[int],
) -> CountLaw | None:
    """Return the law by which completions follow what is posted, None if there is none."""
    for together in (None, "all", "alike"):
        for group in groups:
            law = CountLaw(follows=tuple(group), factor=(1, 1), together=together)
            total = {n: posted(law, items, {j: times[j][n] for j in group}) for n in counts}
            factor = _factor(mine, total, counts)
            if factor is not None and (together is None or factor == (1, 1)):
                return replace(law, factor=factor)
    return None


def posted(law: CountLaw, items: Sequence[Item], times: Mapping[int, np.ndarray]) -> np.ndarray:
    """Return how often a completion that follows others has something to complete, per rank.

    times: how often each rank posts the requests of an item.
    """
    follows = law.follows or ()
    if law.together is None:
        return np.asarray(np.sum([times[j] for j in follows], axis=0))
    sets: dict[str, list[np.ndarray]] = {}
    for j in follows:
        alike = repr([slot.count.expr for slot in items[j].slots])
        sets.setdefault(alike if law.together == "alike" else "", []).append(times[j])
    return np.asarray(np.sum([np.max(each, axis=0) for each in sets.values()], axis=0))


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
