"""The order of events of a run against that of the model, rank by rank."""

from __future__ import annotations

from typing import Any

import numpy as np

from p3s.base.ops import COLLECTIVE, IO, RECV, SEND
from p3s.model.comparison import Difference, OrderAgreement
from p3s.model.order.unfold import Unfolder
from p3s.model.types import Model
from p3s.signature.tables import PointTable, first_rows

Event = tuple[str, int, int]


def compare_order(
    model: Model, t: PointTable, rows: Any, modelled: np.ndarray | None = None
) -> OrderAgreement | None:
    """Return how many ranks do all their calls in the order of the model, and the first that not.

    modelled: for every row of the table whether the model has it (None: all); what it leaves out
    is counted elsewhere (compare) and is no difference of order. Compared are operation, partner,
    bytes of every event that moves something (of completions and the like the operation);
    ``first``: rank, position (0: the first such event), expected (in the run) and found (in the
    model), null where one of them has ended. ``events``: how many of all ranks lie before the
    first difference of their rank; ``equal_but_bytes``: ranks whose operations and partners are
    in order; ``shuffled``: those whose partners alone are in another one; ``moved``: those whose
    calls are, sizes and what is not as often in both left aside. None where the run was
    too long to keep all sequences or the model holds no order.
    """
    if model.order is None or len(t.sequences) < len(np.unique(t.rank)):
        return None
    code: dict[Event, int] = {}
    ours = _codes(model, rows, code)
    theirs = np.array(
        [
            code.setdefault(_event(g.op, g.kind, g.peer, size), len(code))
            for g, size in ((t.groups[gi], int(b)) for gi, b in zip(t.group, t.nbytes, strict=True))
        ],
        dtype=np.int64,
    )
    unfolder = Unfolder(model.items, model.order.loops, rows)
    begin = first_rows(t)
    equal = alike = total = bare = 0
    first: Difference | None = None
    names = list(code)
    plain: dict[tuple[str, int], int] = {}
    nobody: dict[tuple[str, int], int] = {}
    partnerless = np.array([nobody.setdefault(e[::2], len(nobody)) for e in names], dtype=np.int64)
    shuffled: list[int] = []
    moved: list[int] = []
    sizeless = np.array([plain.setdefault(e[:2], len(plain)) for e in names], dtype=np.int64)
    for rank, codes in sorted(t.sequences.items()):
        row = codes[codes >= 0].astype(np.int64) + begin.get(rank, 0)
        a = theirs[row if modelled is None else row[modelled[row]]]
        b = ours[unfolder.sequence(rank)]
        upto = min(len(a), len(b))
        differ = np.flatnonzero(a[:upto] != b[:upto])
        same = int(differ[0]) if len(differ) else upto
        total += len(a)
        alike += same
        bare += len(a) == len(b) and bool(np.array_equal(sizeless[a], sizeless[b]))
        if same == len(a) == len(b):
            equal += 1
            continue
        if np.array_equal(partnerless[a], partnerless[b]) and _same_events(a, b):
            shuffled.append(int(rank))
        if _moved(sizeless[a], sizeless[b]):
            moved.append(int(rank))
        if first is None:
            first = Difference(
                rank=rank,
                position=same,
                expected=text(names[a[same]]) if same < len(a) else None,
                found=text(names[b[same]]) if same < len(b) else None,
            )
    return OrderAgreement(
        ranks=len(t.sequences),
        equal=equal,
        equal_but_bytes=int(bare),
        events={"true": total, "equal": alike},
        first=first,
        shuffled=tuple(shuffled),
        moved=tuple(moved),
    )


def _same_events(a: np.ndarray, b: np.ndarray) -> bool:
    """Tell whether two sequences hold the same events, in whatever order."""
    return bool(np.array_equal(np.sort(a), np.sort(b)))


def _moved(a: np.ndarray, b: np.ndarray) -> bool:
    """Tell whether the events that are as often in both sequences come in another order."""
    values, inverse = np.unique(np.concatenate([a, b]), return_inverse=True)
    ours, theirs = inverse[: len(a)], inverse[len(a) :]
    often = [np.bincount(each, minlength=len(values)) for each in (ours, theirs)]
    same = often[0] == often[1]
    return not np.array_equal(ours[same[ours]], theirs[same[theirs]])


def _codes(model: Model, rows: Any, code: dict[Event, int]) -> np.ndarray:
    items = model.items
    return np.array(
        [
            code.setdefault(_event(items[i].op, items[i].kind, peer, size), len(code))
            for i, peer, size in zip(
                rows.item.tolist(), rows.peer.tolist(), rows.nbytes.tolist(), strict=True
            )
        ],
        dtype=np.int64,
    )


def _event(op: str, kind: str, peer: int, size: int) -> Event:
    if kind in (SEND, RECV):
        return op, peer, size
    return op, -1, size if kind in (COLLECTIVE, IO) else -1


def text(event: Event) -> str:
    """Return an event for people."""
    op, peer, size = event
    where = f" with {peer}" if peer >= 0 else ""
    return f"{op}{where}" + (f", {size} bytes" if size >= 0 else "")
