"""Completions of requests: where and as often as the requests were posted.

One call completes one request, or all that a rank posted in an iteration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Literal

import numpy as np

from p3s.base.ops import (
    COLLECTIVE,
    COMPLETION,
    HALF_OF_ONE,
    RECV,
    SEND,
    lacks_waiter,
    leaves_request,
    like,
)
from p3s.model.grid.at import DEAR, Guard
from p3s.model.law_types import CountLaw
from p3s.model.sizes.observed import ObservedRows
from p3s.model.types import Item

#: Largest denominator of completions per request.
_MOST = 64
#: Whether each request has a completion of its own, or those posted in an iteration have one.
_TOGETHER: tuple[Literal["all", "alike"] | None, ...] = (None, "all", "alike")


def follow_posts(
    items: Sequence[Item], seen: Sequence[ObservedRows], counts: Sequence[int]
) -> list[Item]:
    """Return the items; completions whose number has no law follow the requests that are posted.

    So do those of ranks that take many words to say. seen: what was traced of each item.
    """
    posts = [k for k, item in enumerate(items) if _posts(item)]
    if not posts:
        return list(items)

    ends = np.cumsum(counts)[:-1]  # ranks of all counts stand in a row

    def totals(k: int) -> np.ndarray:
        rows = [(n, seen[k].rows[n]) for n in counts]
        return np.concatenate([np.bincount(r.rank, weights=r.count, minlength=n) for n, r in rows])

    open_ = [k for k, item in enumerate(items) if item.kind == COMPLETION and not _plain(item)]
    laws = _following([totals(k) for k in open_], items, {k: totals(k) for k in posts}, ends)
    out = list(items)
    for k, law in zip(open_, laws, strict=True):
        if law is not None:
            slot = replace(items[k].slots[0], guard=Guard(), count=law, why=())
            out[k] = replace(items[k], slots=(slot,))
    return out


def _plain(item: Item) -> bool:
    """Tell whether a completion is made equally often by ranks that few words tell."""
    slot = item.slots[0]
    constant = slot.count.expr is not None and slot.count.expr[0] == "num"
    return len(item.slots) == 1 and slot.guard is not None and constant and slot.guard.cost <= DEAR


def _following(
    completions: Sequence[np.ndarray],
    items: Sequence[Item],
    times: Mapping[int, np.ndarray],
    ends: np.ndarray,
) -> list[CountLaw | None]:
    """Return the laws by which completions follow what is posted, None where there is none.

    completions, times: how often each rank completes, and posts the requests of an item, ranks of
    all counts in a row that is parted at ``ends``.
    """
    found: list[CountLaw | None] = [None] * len(completions)
    left = np.arange(len(completions))
    mine = np.array(completions)
    starts = [0, *ends]
    for together, group in product(_TOGETHER, _groups(items, times)):
        if not len(left):
            break
        if not group:
            continue
        law = CountLaw(follows=tuple(group), factor=(1, 1), together=together)
        total = count_posted(law, items, times)
        at = int(np.argmax(np.add.reduceat(total, starts)))
        den = int(np.add.reduceat(total, starts)[at])
        if not den:
            continue
        num = np.add.reduceat(mine[left], starts, axis=1)[:, at]
        hit = (num > 0) & np.all(mine[left] * den == total * num[:, None], axis=1)
        for k, made in zip(left[hit].tolist(), num[hit].tolist(), strict=True):
            g = int(np.gcd(int(made), den))
            factor = (int(made) // g, den // g)
            if factor == (1, 1) or (together is None and factor[1] <= _MOST):
                found[k] = replace(law, factor=factor)
        left = np.array([k for k in left.tolist() if found[k] is None], dtype=np.int64)
    return found


def count_posted(
    law: CountLaw, items: Sequence[Item], times: Mapping[int, np.ndarray]
) -> np.ndarray:
    """Return how often a completion that follows others has something to complete, per rank.

    times: how often each rank posts the requests of an item.
    """
    follows = law.follows or ()
    if law.together is None:
        return np.asarray(np.sum([times[j] for j in follows], axis=0))
    sets: dict[str, list[np.ndarray]] = {}
    for j in follows:
        alike = _numbers(items[j])
        sets.setdefault(alike if law.together == "alike" else "", []).append(times[j])
    return np.asarray(np.sum([np.max(each, axis=0) for each in sets.values()], axis=0))


def _numbers(item: Item) -> str:
    """Return the equations of how often an item is posted, to tell items apart."""
    return repr([slot.count.expr for slot in item.slots])


def _posts(item: Item) -> bool:
    return leaves_request(item.op) or (
        item.kind in (SEND, RECV)
        and item.op not in HALF_OF_ONE
        and not lacks_waiter(item.op)
        and like(item.op).startswith(("MPI_I", "MPI_Send_init", "MPI_Recv_init"))
    )


def _groups(items: Sequence[Item], times: Mapping[int, np.ndarray]) -> list[list[int]]:
    """Return the sets of items whose requests a call may complete, the smaller ones first.

    Of call sites that post the same the first one stands for all.
    """
    posts = list(times)
    nodes: dict[int, list[int]] = {}
    for k in posts:
        nodes.setdefault(items[k].node, []).append(k)
    different: dict[object, list[int]] = {}
    for own in nodes.values():
        posted_by = [(items[k].kind, _numbers(items[k]), times[k].tobytes()) for k in own]
        different.setdefault(tuple(posted_by), own)
    groups = [
        *different.values(),
        [k for k in posts if items[k].kind == SEND],
        [k for k in posts if items[k].kind == RECV],
        [k for k in posts if items[k].kind == COLLECTIVE],
        [k for k in posts if items[k].kind != COLLECTIVE],
        list(posts),
    ]
    for a in different.values():
        for b in different.values():
            if items[a[0]].kind == RECV and items[b[0]].kind == SEND:
                groups.append(a + b)
    return groups
