"""What was traced against what the rules say: shares and values of every item, kept in the model.

``p3s explain`` shows these tables; they are made once, from the same tables as the model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from p3s.base.ops import COLLECTIVE, RECV, SEND
from p3s.model.evaluate import ScaledRows
from p3s.model.tree import item_of_rows
from p3s.model.types import Item, Measured, Model, MoreClasses, RankClass, Share, Values
from p3s.signature.tables import PointTable

#: Classes of ranks kept per item and count, sizes and partners kept per class.
MAX_CLASSES, MAX_SIZES, MAX_PEERS = 8, 6, 4

#: (rank, partner or -1, bytes) -> calls
Cells = Counter[tuple[int, int, int]]


@dataclass(frozen=True)
class MeasuredAt:
    """What was traced at a count, one entry per item: its share, and its values, None without."""

    shares: tuple[Share, ...]
    points: tuple[Measured | None, ...]


def measured_at(model: Model, t: PointTable, rows: ScaledRows) -> MeasuredAt:
    """Return what was traced at a count; rows: those of the model there."""
    of_row = item_of_rows(model.items, t, rows.grid, model.splits)
    ruled = _count_by_rule(model, rows)
    traced = _count_traced(model, t, of_row, ruled)
    known: dict[object, Measured] = {}  # calls of many sites go alike
    points: list[Measured | None] = []
    for true, rule in zip(traced, ruled, strict=True):
        what = (*true.items(), None, *rule.items())
        if len(what) > 1 and what not in known:
            known[what] = _point(t.np, true, rule)
        points.append(known.get(what))
    return MeasuredAt(tuple(shares_of(t, of_row, len(model.items))), tuple(points))


def with_measured(items: Sequence[Item], found: Sequence[MeasuredAt]) -> tuple[Item, ...]:
    """Return the items with what was traced of them at all counts, ascending; the shares are those
    at the largest."""
    points = zip(*(each.points for each in found), strict=True)
    return tuple(
        replace(item, share=share, measured=tuple(p for p in mine if p is not None))
        for item, share, mine in zip(items, found[-1].shares, points, strict=True)
    )


def shares_of(t: PointTable, of_row: np.ndarray, number: int) -> list[Share]:
    """Return the shares of so many sets of rows; of_row: the set of each row, ``number``: none."""
    amounts = (
        t.count.astype(float),
        t.nbytes.astype(float) * t.count,
        (t.work + t.elapsed_ns).astype(float),
    )
    parts = [
        np.bincount(of_row, weights=amount, minlength=number + 1)[:number]
        / (float(amount.sum()) or 1.0)
        for amount in amounts
    ]
    return [Share(*map(float, each)) for each in zip(*parts, strict=True)]


def _has_size(kind: str) -> bool:
    """Whether the bytes of a kind are a size (of a completion they are requests)."""
    return kind in (SEND, RECV, COLLECTIVE)


def _count_by_rule(model: Model, rows: ScaledRows) -> list[Cells]:
    out: list[Cells] = [Counter() for _ in model.items]
    sized = [_has_size(item.kind) for item in model.items]
    for i, r, q, b, k in zip(
        rows.item.tolist(),
        rows.rank.tolist(),
        rows.peer.tolist(),
        rows.nbytes.tolist(),
        rows.repeat.tolist(),
        strict=True,
    ):
        out[i][(r, q, b if sized[i] else 0)] += k
    return out


def _count_traced(
    model: Model, t: PointTable, of_row: np.ndarray, ruled: Sequence[Cells]
) -> list[Cells]:
    """Return the traced calls of every item.

    Where two items of a call have the same partner (a grid with two ranks in a row), each gets
    what its rule says as long as there are calls; the rest stays with the first.
    """
    items = model.items
    related = [item.relation is not None for item in items]
    out: list[Cells] = [Counter() for _ in items]
    for i, r, g, b, k in zip(
        of_row.tolist(),
        t.rank.tolist(),
        t.group.tolist(),
        t.nbytes.tolist(),
        t.count.tolist(),
        strict=True,
    ):
        if i < len(items):
            peer = t.groups[g].peer if related[i] else -1
            out[i][(r, peer, b if _has_size(items[i].kind) else 0)] += k
    by_node: dict[int, list[int]] = {}
    for i, item in enumerate(items):
        if related[i]:
            by_node.setdefault(item.node, []).append(i)
    for mine in by_node.values():
        if len(mine) > 1:
            _share_out([out[i] for i in mine], [ruled[i] for i in mine])
    return out


def _share_out(traced: Sequence[Cells], ruled: Sequence[Cells]) -> None:
    """Move calls between items of one call whose partners coincide, as their rules say."""
    for k, mine in enumerate(traced):
        for cell in list(mine):
            wanted = [rule.get(cell, 0) for rule in ruled]
            spare = mine[cell] - wanted[k]
            for other, count in enumerate(wanted):
                if other != k and count and spare > 0:
                    given = min(count - min(count, traced[other].get(cell, 0)), spare)
                    if given:
                        traced[other][cell] += given
                        mine[cell] -= given
                        spare -= given
            if not mine[cell]:
                del mine[cell]


def _by_rank(cells: Cells) -> dict[int, list[tuple[int, int, int]]]:
    """Return rank -> its (partner, bytes, calls), sorted."""
    out: dict[int, list[tuple[int, int, int]]] = {}
    for (r, q, b), k in cells.items():
        out.setdefault(r, []).append((q, b, k))
    return {r: sorted(rows) for r, rows in out.items()}


def _sizes(rows: Sequence[tuple[int, int, int]]) -> tuple[tuple[int, int], ...]:
    """Return the (bytes, calls) of one rank, whoever its partners are."""
    if len(rows) == 1:
        return (rows[0][1:],)
    out: Counter[int] = Counter()
    for _, b, k in rows:
        out[b] += k
    return tuple(sorted(out.items()))


def _point(n: int, traced: Cells, ruled: Cells) -> Measured:
    """Return the values of one item at one count: ranks in classes of equal values and rule."""
    true = _by_rank(traced)
    rule = true if traced.items() == ruled.items() else _by_rank(ruled)
    classes: dict[tuple[Any, ...], list[int]] = {}
    for r in sorted({*true, *rule}):
        a, b = true.get(r, []), rule.get(r, [])
        same = a == b
        peers = same or [q for q, _, _ in a] == [q for q, _, _ in b]
        sizes = _sizes(a)
        classes.setdefault((sizes, sizes if same else _sizes(b), same, peers), []).append(r)
    ordered = sorted(classes.items(), key=lambda entry: (entry[0][2], -len(entry[1]), entry[1][0]))
    # those that differ first: they are what one wants to see
    shown, rest = ordered[:MAX_CLASSES], ordered[MAX_CLASSES:]
    more = MoreClasses(
        classes=len(rest),
        ranks=sum(len(ranks) for _, ranks in rest),
        differ=sum(len(ranks) for key, ranks in rest if not key[2]),
    )
    return Measured(
        n=n,
        ranks=(len(true), len(rule)),
        calls=(sum(traced.values()), sum(ruled.values())),
        classes=tuple(_class(ranks, true, rule, key[2]) for key, ranks in shown),
        more=more if rest else None,
    )


def _class(
    ranks: Sequence[int],
    true: dict[int, list[tuple[int, int, int]]],
    rule: dict[int, list[tuple[int, int, int]]],
    equal: bool,
) -> RankClass:
    first = ranks[0]
    traced = _values(true.get(first, []))
    return RankClass(len(ranks), first, traced, None if equal else _values(rule.get(first, [])))


def _values(rows: Sequence[tuple[int, int, int]]) -> Values:
    sizes = _sizes(rows)
    if not any(b for b, _ in sizes):
        sizes = ()
    peers = sorted({q for q, _, _ in rows if q >= 0})
    return Values(
        calls=sum(k for _, _, k in rows),
        sizes=sizes[:MAX_SIZES],
        more_sizes=max(len(sizes) - MAX_SIZES, 0),
        peers=tuple(peers[:MAX_PEERS]),
        more_peers=max(len(peers) - MAX_PEERS, 0),
    )


__all__ = ["MeasuredAt", "measured_at", "with_measured"]
