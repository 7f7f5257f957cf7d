"""Messages whose buffers no measured cost is of: memory of a device, datatypes with gaps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from p3s.text import processes
from p3s.trace.ops import COLLECTIVE, NEIGHBOR, SEND, kind_of

if TYPE_CHECKING:
    import numpy as np

    from p3s.trace import RankTrace
    from p3s.trace.types import Call

#: Totals of a run over sends and collectives: messages, and of these device and scattered (of a
#: datatype that is not contiguous), with their bytes.
Uses = dict[str, int]
_KINDS = ("device", "scattered")
_MOVES = frozenset({SEND, COLLECTIVE, NEIGHBOR})


def marks(calls: Sequence[Call]) -> dict[str, np.ndarray]:
    """Return columns over the calls of a run: which move data, of which kind, and their bytes."""
    import numpy as np

    moves = np.array([kind_of(call.op) in _MOVES for call in calls], dtype=bool)
    return {
        "messages": moves,
        "device": moves & np.array([call.memory != 0 for call in calls], dtype=bool),
        "scattered": moves & np.array([call.block != 0 for call in calls], dtype=bool),
        "bytes": np.array([call.bytes for call in calls], dtype=np.int64),
    }


def add_rank(uses: Uses, columns: Mapping[str, np.ndarray], rank: RankTrace) -> None:
    """Add one rank to the totals of its run; ``columns``: of :func:`marks`."""
    import numpy as np

    times = np.bincount(np.asarray(rank.call), minlength=len(columns["bytes"]))
    found = {"messages": int(times[columns["messages"]].sum())}
    for kind in _KINDS:
        mine = columns[kind]
        found[kind] = int(times[mine].sum())
        found[f"{kind}_bytes"] = int((times[mine] * columns["bytes"][mine]).sum())
    add(uses, found)


def add(uses: Uses, other: Uses) -> None:
    """Add the totals of other ranks of the same run."""
    for key, value in other.items():
        uses[key] = uses.get(key, 0) + value


def sentences(by_count: Mapping[str, Any]) -> list[str]:
    """Return lines for people from count -> totals, of the largest count; none for usual ones."""
    if not by_count:
        return []
    np_ = max(by_count, key=int)
    return [
        f"{text} at {processes(int(np_))}: {what}"
        for kind, what in (
            ("device", "from or into device memory; the network's figures are of host memory"),
            ("scattered", "of datatypes that are not contiguous; packing them is in no cost"),
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
