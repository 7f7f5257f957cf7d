"""What was traced against what the rules say: shares and values of every item, kept in the model.

``p3s explain`` shows these tables; they are made once, from the same tables as the model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from p3s.characterize.tables import PointTable
from p3s.model.evaluate import Model, generate, model_grid
from p3s.model.tree import assign
from p3s.trace.ops import COLLECTIVE, RECV, SEND

#: Classes of ranks kept per item and count, sizes and partners kept per class.
MAX_CLASSES, MAX_SIZES, MAX_PEERS = 8, 6, 4

#: (rank, partner or -1, bytes) -> calls
Cells = Counter[tuple[int, int, int]]


def add_measured(model: Model, tables: Sequence[PointTable]) -> None:
    """Give every item ``share`` (of the largest count) and ``measured`` (per count, ascending).

    share: events, bytes and time, between 0 and 1; measured: docs/formats.md, model.json.
    """
    for item in model["items"]:
        item["measured"] = []
    for t in sorted(tables, key=lambda t: t.np):
        of_row = _items_of_rows(model, t)
        _add_shares(model, t, of_row)
        ruled = _ruled(model, t.np)
        traced = _traced(model, t, of_row, ruled)
        for i, item in enumerate(model["items"]):
            if traced[i] or ruled[i]:
                item["measured"].append(_point(t.np, traced[i], ruled[i]))


def _items_of_rows(model: Model, t: PointTable) -> np.ndarray:
    """Return the item of every row, the number of items where there is none."""
    split = {(s, o): bool(v) for s, o, v in model["tag_splits"]}
    of_row = assign(model["items"], t, model_grid(model, t.np), split).of_row
    result: np.ndarray = np.minimum(of_row, len(model["items"]))
    return result


def _add_shares(model: Model, t: PointTable, of_row: np.ndarray) -> None:
    """Set the share of every item; the last call, of the largest count, is what stays."""
    amounts = {
        "events": t.count.astype(float),
        "bytes": t.nbytes.astype(float) * t.count,
        "time": (t.work + t.elapsed_ns).astype(float),
    }
    none = len(model["items"])
    for item in model["items"]:
        item["share"] = {}
    for name, amount in amounts.items():
        total = float(amount.sum())
        mine = np.bincount(of_row, weights=amount, minlength=none + 1)
        for i, item in enumerate(model["items"]):
            item["share"][name] = float(mine[i]) / total if total else 0.0


def _sized(kind: str) -> bool:
    """Whether the bytes of a kind are a size (of a completion they are requests)."""
    return kind in (SEND, RECV, COLLECTIVE)


def _ruled(model: Model, n: int) -> list[Cells]:
    rows = generate(model, n)
    out: list[Cells] = [Counter() for _ in model["items"]]
    sized = [_sized(item["kind"]) for item in model["items"]]
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


def _traced(model: Model, t: PointTable, of_row: np.ndarray, ruled: Sequence[Cells]) -> list[Cells]:
    """Return the traced calls of every item.

    Where two items of a call have the same partner (a grid with two ranks in a row), each gets
    what its rule says as long as there are calls; the rest stays with the first.
    """
    items = model["items"]
    related = [item["relation"] is not None for item in items]
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
            out[i][(r, peer, b if _sized(items[i]["kind"]) else 0)] += k
    by_node: dict[int, list[int]] = {}
    for i, item in enumerate(items):
        if related[i]:
            by_node.setdefault(item["node"], []).append(i)
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
    out: Counter[int] = Counter()
    for _, b, k in rows:
        out[b] += k
    return tuple(sorted(out.items()))


def _point(n: int, traced: Cells, ruled: Cells) -> dict[str, Any]:
    """Return the values of one item at one count: ranks in classes of equal values and rule."""
    true, rule = _by_rank(traced), _by_rank(ruled)
    classes: dict[tuple[Any, ...], list[int]] = {}
    for r in sorted({*true, *rule}):
        a, b = true.get(r, []), rule.get(r, [])
        peers = [q for q, _, _ in a] == [q for q, _, _ in b]
        classes.setdefault((_sizes(a), _sizes(b), a == b, peers), []).append(r)
    ordered = sorted(classes.items(), key=lambda entry: (entry[0][2], -len(entry[1]), entry[1][0]))
    # those that differ first: they are what one wants to see
    shown, rest = ordered[:MAX_CLASSES], ordered[MAX_CLASSES:]
    point: dict[str, Any] = {
        "n": n,
        "ranks": [len(true), len(rule)],
        "calls": [sum(traced.values()), sum(ruled.values())],
        "classes": [_class(ranks, true, rule, key[2]) for key, ranks in shown],
    }
    if rest:
        point["more"] = {
            "classes": len(rest),
            "ranks": sum(len(ranks) for _, ranks in rest),
            "differ": sum(len(ranks) for key, ranks in rest if not key[2]),
        }
    return point


def _class(
    ranks: Sequence[int],
    true: dict[int, list[tuple[int, int, int]]],
    rule: dict[int, list[tuple[int, int, int]]],
    equal: bool,
) -> dict[str, Any]:
    first = ranks[0]
    entry: dict[str, Any] = {
        "ranks": len(ranks),
        "rank": first,
        "traced": _values(true.get(first, [])),
    }
    if not equal:
        entry["rule"] = _values(rule.get(first, []))
    return entry


def _values(rows: Sequence[tuple[int, int, int]]) -> dict[str, Any]:
    sizes = _sizes(rows)
    peers = sorted({q for q, _, _ in rows if q >= 0})
    out: dict[str, Any] = {"calls": sum(k for _, _, k in rows)}
    if any(b for b, _ in sizes):
        out["sizes"] = [list(s) for s in sizes[:MAX_SIZES]]
        if len(sizes) > MAX_SIZES:
            out["more_sizes"] = len(sizes) - MAX_SIZES
    if peers:
        out["peers"] = peers[:MAX_PEERS]
        if len(peers) > MAX_PEERS:
            out["more_peers"] = len(peers) - MAX_PEERS
    return out


__all__ = ["add_measured"]
