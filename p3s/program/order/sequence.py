"""What each rank does from the first event of the run to the last: rows in program order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from p3s.base.arrays import Bools, Ints, starts
from p3s.base.errors import P3SError
from p3s.base.tables import known_tables, numbers, read_table
from p3s.model.law_types import TraceOrder
from p3s.model.order.unfold import Unfolder
from p3s.program.order.calls import Rows
from p3s.program.order.completions import (
    EVENTS,
    Sample,
    count_completions,
    first_in_first_out,
    preferences,
)
from p3s.program.scaled import parts_of, read_order, scaled_head
from p3s.simulate.steps import RECEIVES as RECEIVE_OPS
from p3s.simulate.steps import Op


@dataclass(frozen=True)
class Kind:
    """Ranks that make the same calls in the same order (not to the same partners).

    ``first``: first row of each of the ``ranks``; each has ``rows`` of them. Every event of the run
    has an entry in ``row`` (counted from the rank's first), ``turns`` (shape events, levels:
    index in each loop around, -1 for none), ``begin``, ``end`` (the requests it completes are
    numbers begin to end - 1, oldest first). ``path``: loops around each row, shape rows, levels.
    ``posted``: event that leaves each request behind; ``half``: event of the send half of its
    MPI_Isendrecv, -1 for others. ``wants``: how many each event completes. ``some``: it calls
    MPI_Waitany or MPI_Waitsome, or completes requests in another order than that of begin, end."""

    ranks: Ints
    first: Ints
    rows: int
    row: Ints
    turns: Ints
    path: Ints
    begin: Ints
    end: Ints
    posted: Ints
    half: Ints
    wants: Ints
    some: bool


def sample_of(rows: Rows, kind: Kind) -> Sample:
    """Return the beginning of what a kind of ranks does; requests of other queues are none.

    Requests that events leave behind: 1 a send's, 2 a receive's, 3 a collective's.
    """
    row = kind.row[:EVENTS] + int(kind.first[0])
    op, usual = rows.op[row], rows.queue[row] == 0
    receives = np.isin(op, [int(o) for o in RECEIVE_OPS])
    posted = np.where(receives, 2, np.where(op == Op.ICOLLECTIVE, 3, 1))
    return Sample(
        posted * ((rows.posts[row] > 0) & usual),
        np.where(usual, kind.wants[:EVENTS], 0),
        rows.trace.slot[row],
        rows.trace.op[row],
    )


def with_preferences(kinds: Sequence[Kind], rows: Rows) -> tuple[list[Kind], Rows]:
    """Find out which completions complete sends only, or receives only (see completions)."""
    preferred = preferences([sample_of(rows, kind) for kind in kinds])
    if not preferred:
        return list(kinds), rows
    prefer = np.zeros(len(rows.op), dtype=np.int64)
    for slot, preference in preferred.items():
        prefer[(rows.trace.slot == slot) & (rows.wants > 0)] = preference
    return [
        replace(
            kind,
            some=kind.some
            or bool(prefer[int(kind.first[0]) : int(kind.first[0]) + kind.rows].any()),
        )
        for kind in kinds
    ], replace(rows, prefer=prefer)


#: Columns of a scaled trace that unfolding asks for.
UNFOLDED = ("rank", "slot", "stage", "turn", "peer", "repeat")


def unfolder_of(order: TraceOrder, columns: Mapping[str, Ints]) -> tuple[Unfolder, Ints]:
    """Return what unfolds rows into events, and the item of each row.

    columns: UNFOLDED, rows as they stand in the files. Raises P3SError for rules that the order
    does not hold.
    """
    base, slot = starts([len(item.slots) for item in order.items]), columns["slot"]
    if len(slot) and (slot.min() < 0 or slot.max() >= base[-1]):
        raise P3SError(
            "order.json: rows of the scaled trace have rules that it does not hold; "
            "run p3s scale again"
        )
    item = np.searchsorted(base, slot, side="right") - 1
    rows = SimpleNamespace(**{**columns, "item": item, "slot": slot - base[item], "grid": order})
    return Unfolder(order.items, order.loops or (), rows), item


def events_of(scaled: Path, rank: int) -> list[tuple[str, int, int]]:
    """Return (operation, partner, bytes) of all events of a rank in the order of the program.

    scaled: a directory STUDY/scaled/npNNNNNN; the partner is -1 where there is none. Raises
    P3SError when the trace has no such rank or no order.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    scaled = Path(scaled)
    order = read_order(scaled)
    if order.loops is None:
        raise P3SError(
            f"{scaled}: the order of events is not known: the traced runs had too many "
            "events to keep all sequences"
        )
    head = scaled_head(scaled)
    try:
        facts, types = known_tables(head), dict.fromkeys((*UNFOLDED, "bytes"), int)
        whole = (read_table(part, types, facts) for part in parts_of(scaled, head))
        table = pa.concat_tables([t.filter(pc.equal(t["rank"], rank)) for t in whole])
    except (pa.ArrowException, OSError, ValueError) as err:
        why = " ".join(str(err).split())[:120]
        raise P3SError(f"{scaled}: damaged ({why}); run p3s scale again") from err
    if not len(table):
        raise P3SError(f"{scaled}: holds no rows of rank {rank}")
    columns = {name: numbers(table.column(name)).astype(np.int64) for name in types}
    unfolder, item = unfolder_of(order, {name: columns[name] for name in UNFOLDED})
    return [
        (order.items[item[k]].op, int(columns["peer"][k]), int(columns["bytes"][k]))
        for k in unfolder.sequence(rank).tolist()
    ]


def kinds_in_order(rows: Rows, order: TraceOrder) -> Iterator[Kind]:
    """Yield the kinds of ranks; order: order.json with its loops known."""
    trace, items = rows.trace, order.items
    written = np.lexsort((trace.place, trace.rank))  # as the rows stand in the files
    unfolder, item = unfolder_of(order, {name: getattr(trace, name)[written] for name in UNFOLDED})
    rank = trace.rank[written]
    levels = max((len(item.loops or ()) for item in items), default=0)
    paths = np.full((len(items), levels), -1, dtype=np.int64)
    for k, ordered in enumerate(items):
        paths[k, : len(ordered.loops or ())] = ordered.loops or ()
    for ranks, first, local, turns in unfolder.kinds():
        a = int(first[0])
        b = int(np.searchsorted(rank, ranks[0], side="right"))
        path = np.full((b - a, levels), -1, dtype=np.int64)
        path[written[a:b] - a] = paths[item[a:b]]
        row = (written[a:b] - a)[local]
        wide = np.full((len(row), levels), -1, dtype=np.int64)
        wide[:, : turns.shape[1]] = turns[:, :levels]
        for group in _alike(rows, first, b - a):
            yield _kind(rows, ranks[group], first[group], b - a, row, wide, path, [len(row)])


def kinds_by_phase(rows: Rows) -> Iterator[tuple[Kind, dict[int, Ints]]]:
    """Yield kinds where the order is not known, and the events of each phase.

    A phase is its rows once each in the order of their index. A completion that comes before
    anything is outstanding belongs to the iteration before of a loop: it is moved to the end.
    """
    trace = rows.trace
    ranks, first = np.unique(trace.rank, return_index=True)
    bounds = np.concatenate((first, [trace.rows]))
    alike: dict[bytes, list[int]] = {}
    for k in range(len(ranks)):
        a, b = int(bounds[k]), int(bounds[k + 1])
        key = b"".join(
            column[a:b].tobytes() for column in (trace.op, trace.phase, trace.repeat, rows.wants)
        )
        alike.setdefault(key, []).append(k)
    for them in alike.values():
        a, b = int(bounds[them[0]]), int(bounds[them[0] + 1])
        order: list[Ints] = []
        ends: list[int] = []
        events: dict[int, Ints] = {}
        at = 0
        for phase in np.unique(trace.phase[a:b]).tolist():
            mine = np.flatnonzero((trace.phase[a:b] == phase) & (trace.repeat[a:b] > 0))
            wants = rows.wants[a:b][mine]
            early = _early(rows.posts[a:b][mine], wants, rows.queue[a:b][mine])
            order += [mine[~early], mine[early]]
            events[phase] = np.arange(at, at + len(mine))
            at += len(mine)
            ends.append(at)
        row = np.concatenate(order) if order else np.zeros(0, dtype=np.int64)
        no_turns = np.full((max(b - a, len(row)), 0), -1, dtype=np.int64)
        yield (
            _kind(
                rows,
                ranks[them],
                first[them],
                b - a,
                row,
                no_turns[: len(row)],
                no_turns[: b - a],
                ends,
            ),
            events,
        )


def _early(posts: Ints, wants: Ints, queue: Ints) -> Bools:
    """Return which completions come before anything is outstanding in their queue."""
    early = np.zeros(len(posts), dtype=bool)
    for each in np.unique(queue).tolist():
        of_queue = np.flatnonzero(queue == each)
        begin, end = first_in_first_out(posts[of_queue], wants[of_queue])
        early[of_queue] = (wants[of_queue] > 0) & (begin == end)
    return early


def _alike(rows: Rows, first: Ints, each: int) -> list[Ints]:
    """Part ranks by how many requests their completions complete, which no rule fixes."""
    wants = rows.wants[first[:, None] + np.arange(each)]
    if (wants == wants[0]).all():
        return [np.arange(len(first))]
    _, group_of_rank = np.unique(wants, axis=0, return_inverse=True)
    group_of_rank = group_of_rank.reshape(-1)
    return [np.flatnonzero(group_of_rank == k) for k in range(int(group_of_rank.max()) + 1)]


def _kind(
    rows: Rows,
    ranks: Ints,
    first: Ints,
    number: int,
    row: Ints,
    turns: Ints,
    path: Ints,
    ends: Sequence[int],
) -> Kind:
    """Return a kind with its requests; ends: events where what is outstanding is forgotten."""
    mine = slice(int(first[0]), int(first[0]) + number)
    posts, wants, half, queue = (
        column[mine][row] for column in (rows.posts, rows.wants, rows.half, rows.queue)
    )
    begin, end = np.zeros(len(row), dtype=np.int64), np.zeros(len(row), dtype=np.int64)
    wants, posted = wants.copy(), [np.zeros(0, dtype=np.int64)]
    for each in np.unique(queue).tolist():
        of_queue = queue == each
        first_request, a = sum(map(len, posted)), 0
        posted.append(np.flatnonzero((posts > 0) & of_queue))
        for b in ends:
            at = a + np.flatnonzero(of_queue[a:b])
            before = first_request + int(posts[:a][of_queue[:a]].sum())
            wants[at] = count_completions(posts[at], wants[at], rows.many[mine][row[at]])
            x, y = first_in_first_out(posts[at], wants[at])
            begin[at], end[at] = x + before, y + before
            a = b
    by_queue = np.concatenate(posted)
    halves = np.full(len(by_queue), -1, dtype=np.int64)
    behind = by_queue > 0
    behind[behind] = half[by_queue[behind] - 1] > 0
    halves[behind] = by_queue[behind] - 1
    op = rows.op[mine][row]
    completes_some = bool(np.isin(op, [int(Op.WAITANY), int(Op.WAITSOME)]).any())
    return Kind(
        ranks, first, number, row, turns, path, begin, end, by_queue, halves, wants, completes_some
    )
