"""Iterations: which iteration of a loop each row of the tables belongs to, where that tells rows
apart.

A call in a loop may have another partner, size or root in every turn. Where these are a function of
the index of one loop around it, on every rank and at every count, its rows get that index (0 based,
counted in each entry of the loop); a row that occurs in several iterations is split. All other rows
have turn 0."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from p3s.base.arrays import Ints
from p3s.signature.parse import compact, loop_indices, nodes_of, parse
from p3s.signature.structure import Structure, structure
from p3s.signature.tables import PointTable, first_rows, node_of_row

#: A loop of more iterations than this is none that numbers the blocks or stages of an exchange.
MAX_TURNS = 1024


@dataclass(frozen=True)
class _Alike:
    """Ranks of one count with equal codes at equal nodes.

    codes: of all events; node: of each event, in the union tree; level: columns are loop indices.
    rows: how many rows each of the ranks has; group: of these rows, of the first rank.
    """

    ranks: list[int]
    codes: Ints
    node: Ints
    index: Ints
    rows: int
    group: Ints

    def seen(self, node: int, level: int) -> tuple[Ints, Ints]:
        """Return the index at a level and the row of the node's events."""
        events = np.flatnonzero((self.node == node) & (self.codes >= 0))
        return self.index[events, level - 1], self.codes[events]


def with_turns(tables: Sequence[PointTable], s: Structure | None = None) -> list[PointTable]:
    """Return the tables with the column ``turn`` and rows split by it.

    s: the structure of exactly these tables, made if none is given. Without the sequences of all
    ranks (too many events) every iteration is 0.
    """
    plain = [replace(t, turn=np.zeros(len(t.rank), dtype=np.int64)) for t in tables]
    if any(set(np.unique(t.rank).tolist()) - set(t.sequences) for t in tables):
        return plain
    s = s or structure(tables)
    classes = [list(_alike(t, s)) for t in tables]
    level = _levels([c for each in classes for c in each], len(s.nodes), s.nest.levels)
    period = [np.ones(len(s.nodes), dtype=np.int64) for _ in tables]
    for v in np.flatnonzero(level).tolist():
        found = _periods([[c.seen(v, int(level[v])) for c in each] for each in classes])
        if max(found) > MAX_TURNS:
            level[v] = 0
        for k, p in enumerate(found):
            period[k][v] = p
    if not level.any():
        return plain
    return [_split(t, mine, level, p) for t, mine, p in zip(plain, classes, period, strict=True)]


def _alike(t: PointTable, s: Structure) -> Iterator[_Alike]:
    number = {node: k for k, node in enumerate(s.nodes)}
    union = np.array([number.get(node, -1) for node in t.nodes], dtype=np.int64)
    of_row, first = node_of_row(t), first_rows(t)
    bounds = {r: (a, int(np.searchsorted(t.rank, r, side="right"))) for r, a in first.items()}
    shared: dict[tuple[int, bytes], list[int]] = {}
    for rank, codes in t.sequences.items():
        a, b = bounds.get(rank, (0, 0))
        # What the iterations say depends on nodes and groups, these only on which are equal.
        _, same = np.unique(t.group[a:b], return_inverse=True)
        shared.setdefault((id(codes), of_row[a:b].tobytes() + same.tobytes()), []).append(rank)
    for ranks in shared.values():
        a, b = bounds.get(ranks[0], (0, 0))
        codes = t.sequences[ranks[0]]
        node = union[nodes_of(codes, a, of_row)]
        yield _Alike(
            ranks,
            codes.astype(np.int64),
            node,
            loop_indices(parse(s.nest, node)),
            b - a,
            t.group[a:b],
        )


def _levels(classes: Sequence[_Alike], nodes: int, levels: int) -> Ints:
    """Return per node the level of the loop whose index its rows are a function of (0: none).

    First of all rows; else of those to one partner, with one tag.
    """
    whole = np.ones((nodes, levels + 1), dtype=bool)
    apart = np.ones((nodes, levels + 1), dtype=bool)
    varies = np.zeros(nodes, dtype=bool)
    sizes = np.zeros(nodes, dtype=bool)
    for c in classes:
        moving = c.codes >= 0
        groups_of = np.unique(c.group)  # numbered densely, to index by
        order = np.flatnonzero(moving)[np.argsort(c.node[moving], kind="stable")]
        kinds, where = np.unique(c.node[order], return_index=True)
        for v, events in zip(kinds.tolist(), np.split(order, where[1:]), strict=True):
            rows = c.codes[events]
            if np.all(rows == rows[0]):
                continue
            varies[v] = True
            groups = np.searchsorted(groups_of, c.group[rows])
            sizes[v] |= not _function(groups, rows)
            for level in range(1, levels + 1):
                index = c.index[events, level - 1]
                if index[0] < 0:
                    whole[v, level] = apart[v, level] = False
                    continue
                whole[v, level] &= _function(index, rows)
                if sizes[v]:
                    apart[v, level] &= _function(index * len(groups_of) + groups, rows)
    out = np.zeros(nodes, dtype=np.int64)
    for v in np.flatnonzero(varies).tolist():
        for fits in (whole[v], apart[v] & sizes[v]):
            found = np.flatnonzero(fits[1:])
            if not out[v] and len(found):
                out[v] = found[-1] + 1
    return out


def _periods(seen: Sequence[Sequence[tuple[Ints, Ints]]]) -> list[int]:
    """Return per count after how many iterations a node's rows repeat; seen: index and row of
    events.

    Loops that hold nothing but another loop are one with it (structure.md: 12 = 4 * 3). The
    period is the number of iterations over a number that is the same at all counts, or itself the
    same; else it is the number of turns.
    """
    content = [[_content(i, r) for i, r in each if len(i)] for each in seen]
    turns = [max((len(c) for c in each), default=0) for each in content]
    there = [k for k, t in enumerate(turns) if t]
    fewest = min(turns[k] for k in there)

    def repeats(k: int, period: int) -> bool:
        return all(_repeats(c, period) for c in content[k])

    for parts in range(min(fewest, MAX_TURNS), 1, -1):
        if all(turns[k] % parts == 0 for k in there) and all(
            repeats(k, turns[k] // parts) for k in there
        ):
            return [max(t // parts, 1) for t in turns]
    for period in range(2, min(fewest // 2, MAX_TURNS) + 1):
        if all(repeats(k, period) for k in there):
            return [period] * len(turns)
    return [max(t, 1) for t in turns]


def _content(index: Ints, row: Ints) -> Ints:
    """Return per index a number that says which rows it has, -1 where it has none."""
    rows = int(row.max()) + 1
    pairs = np.unique(index * rows + row)
    at, first = np.unique(pairs // rows, return_index=True)
    known: dict[bytes, int] = {}
    out = np.full(int(index.max()) + 1, -1, dtype=np.int64)
    what, ends = pairs % rows, [*first[1:].tolist(), len(pairs)]
    out[at] = [
        known.setdefault(what[start:end].tobytes(), len(known))
        for start, end in zip(first.tolist(), ends, strict=True)
    ]
    return out


def _repeats(content: Ints, period: int) -> bool:
    a, b = content[period:], content[:-period]
    if len(a) and min(a[0], b[0]) >= 0 and a[0] != b[0]:
        return False
    return bool(np.all((a == b) | (a < 0) | (b < 0)))


def _function(of: Ints, value: Ints) -> bool:
    """Tell whether ``value`` is a function of ``of`` (small numbers, not negative)."""
    last = np.empty(int(of.max()) + 1, dtype=np.int64)
    last[of] = value
    return bool(np.array_equal(last[of], value))


def _split(t: PointTable, classes: Sequence[_Alike], level: Ints, period: Ints) -> PointTable:
    """Return a table with its rows split by iteration, and its sequences in the new rows."""
    parts: dict[int, tuple[Ints, Ints, Ints, Ints]] = {}
    sequences: dict[int, np.ndarray] = {}
    for c in classes:
        turn = np.zeros(len(c.codes), dtype=np.int64)
        deep = level[c.node]
        chosen = np.flatnonzero((deep > 0) & (c.codes >= 0))
        turn[chosen] = c.index[chosen, deep[chosen] - 1] % period[c.node[chosen]]
        moving = np.flatnonzero(c.codes >= 0)
        key = c.codes[moving] * (int(turn.max(initial=0)) + 1) + turn[moving]
        names, first, inverse, count = np.unique(
            key, return_index=True, return_inverse=True, return_counts=True
        )
        codes = c.codes.copy()
        codes[moving] = inverse
        small = compact(codes)
        cells = c.codes[moving][first], turn[moving][first], count, first
        for rank in c.ranks:
            sequences[rank] = small
            parts[rank] = cells
    begin = first_rows(t)
    order = sorted(parts)
    none = np.zeros(0, dtype=np.int64)
    row = np.concatenate([parts[r][0] + begin.get(r, 0) for r in order] or [none])
    turns, count, first = (
        np.concatenate([parts[r][k] for r in order] or [none]) for k in (1, 2, 3)
    )
    return replace(
        t,
        rank=t.rank[row],
        group=t.group[row],
        nbytes=t.nbytes[row],
        elem_bytes=t.elem_bytes[row],
        count=count,
        first=first,
        turn=turns,
        work=_shared_out(t.work, row, count),
        elapsed_ns=_shared_out(t.elapsed_ns, row, count),
        sequences=dict(sorted(sequences.items())),
    )


def _shared_out(total: np.ndarray, row: Ints, count: Ints) -> Ints:
    """Share the sum of each old row among its new ones by their events, to the last unit."""
    upto = np.cumsum(count)
    starts = np.flatnonzero(np.append(True, row[1:] != row[:-1])) if len(row) else row
    lengths = np.diff(np.append(starts, len(row)))
    base = np.repeat(np.append(0, upto)[starts], lengths)
    whole = np.repeat(np.add.reduceat(count, starts), lengths) if len(row) else count
    share, left = np.divmod(total[row], np.maximum(whole, 1))  # the product could be too large
    done = upto - base
    out: Ints = share * count + left * done // whole - left * (done - count) // whole
    return out


def needless(rank: Ints, group: Ints, nbytes: Ints) -> bool:
    """Tell whether every rank has one group and size only: its turn says nothing."""
    _, first, which = np.unique(rank, return_index=True, return_inverse=True)
    same = first[which]
    return bool(np.all(group == group[same]) and np.all(nbytes == nbytes[same]))
