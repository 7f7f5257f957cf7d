"""Messages whose buffers no measured cost is of: memory of a device, datatypes with gaps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from p3s.base.ops import COLLECTIVE, NEIGHBOR, RECV, SEND, kind_of
from p3s.base.text import processes

if TYPE_CHECKING:
    from p3s.capture.types import Call

#: Totals of a run over sends and collectives: messages, and of these device and scattered (of a
#: datatype that is not contiguous), with their bytes.
Uses = Counter[str]
_KINDS = ("device", "scattered")
_COST = {True: "; packing and unpacking are added as software time", False: ""}
_MOVES = frozenset({SEND, COLLECTIVE, NEIGHBOR})
#: By place ("operation site"): bytes of its calls, those of datatypes with gaps, their pieces.
Pieces = dict[str, list[int]]


def marks(calls: Sequence[Call]) -> dict[str, np.ndarray]:
    """Return columns over the calls of a run: which move data, of which kind, and their bytes."""
    moves = np.array([kind_of(call.op) in _MOVES for call in calls], dtype=bool)
    return {
        "messages": moves,
        "device": moves & np.array([call.memory != 0 for call in calls], dtype=bool),
        "scattered": moves & np.array([call.block != 0 for call in calls], dtype=bool),
        "bytes": np.array([call.bytes for call in calls], dtype=np.int64),
    }


def add_rank(uses: Uses, columns: Mapping[str, np.ndarray], times: np.ndarray) -> None:
    """Add one rank to the totals of its run; ``columns``: of :func:`marks`.

    ``times``: how often the rank makes each call of the run.
    """
    totals = {"messages": int(times[columns["messages"]].sum())}
    for kind in _KINDS:
        mine = columns[kind]
        totals[kind] = int(times[mine].sum())
        totals[f"{kind}_bytes"] = int((times[mine] * columns["bytes"][mine]).sum())
    uses.update(totals)


def count_gaps(calls: Sequence[Call], node: np.ndarray, nodes: int) -> np.ndarray:
    """Return for each call of a run [node, bytes, bytes with gaps, pieces], of places with gaps.

    ``node``: of each call; receives count, too. Shape (number, 5), the call's number first.
    """
    moves = [kind_of(call.op) in _MOVES or kind_of(call.op) == RECV for call in calls]
    has_gaps = np.zeros(nodes, dtype=bool)
    has_gaps[[node[i] for i, call in enumerate(calls) if moves[i] and call.block]] = True
    rows = [
        (i, node[i], call.bytes, call.bytes * (call.block > 0), -(-call.bytes // (call.block or 1)))
        for i, call in enumerate(calls)
        if moves[i] and has_gaps[node[i]]
    ]
    table = np.array(rows, dtype=np.int64).reshape(-1, 5)
    table[table[:, 3] == 0, 4] = 0
    return table


def add_pieces(
    pieces: Pieces, rows: np.ndarray, nodes: Sequence[tuple[str, str]], times: np.ndarray
) -> None:
    """Add the pieces of one rank's messages to those of its run; ``rows``: of scattered.

    ``times``: how often the rank makes each call of the run.
    """
    if not len(rows):
        return
    times = times[rows[:, 0]]
    for number in np.unique(rows[:, 1]).tolist():
        mine = rows[:, 1] == number
        site, op = nodes[number]
        total = (times[mine, None] * rows[mine, 2:]).sum(axis=0).tolist()
        join_pieces(pieces, {f"{op} {site}": total})


def join_pieces(pieces: Pieces, other: Pieces) -> None:
    """Add the pieces of other ranks of the same run."""
    for key, values in other.items():
        totals = pieces.get(key, [0] * len(values))
        pieces[key] = [a + b for a, b in zip(totals, values, strict=True)]


def sentences(by_count: Mapping[str, Any], packed: bool = False) -> list[str]:
    """Return lines for people from count -> totals, of the largest count; none for usual ones.

    packed: whether packing is part of the times.
    """
    if not by_count:
        return []
    np_ = max(by_count, key=int)
    return [
        f"{text} at {processes(int(np_))} {explanation}"
        for kind, explanation in (
            ("device", "are in device memory, the network's figures are of host memory"),
            ("scattered", f"use non-contiguous datatypes{_COST[packed]}"),
        )
        if (text := _share(by_count[np_], kind))
    ]


def _share(uses: Any, kind: str) -> str:
    try:
        messages, mine, moved = (int(uses[k]) for k in ("messages", kind, f"{kind}_bytes"))
    except (KeyError, TypeError, ValueError):
        return ""
    share = 100 * mine / messages if messages > 0 else 0.0
    return f"{share:.3g} % of the messages ({moved:,} bytes)" if mine > 0 else ""
