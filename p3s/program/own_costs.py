"""What a rank does by itself in calls: making and freeing communicators, packing datatypes.

The messages by which the members of a communicator agree are p3s.program.collectives's. What is
left of such a call does not depend on the others: a base, which is that of the same call on
MPI_COMM_SELF, and what grows with the members, their table and the sorting of their keys.

Costs of messages are those of contiguous bytes, which a library copies as well: what packing others
adds is the difference. The high end is the whole of packing, for where it would not copy. Captures
do not tell how far apart the pieces are: the usual cost is the geometric mean of pieces that are
near to each other and of those on pages of their own, the ends take the cheaper and dearer ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from p3s.base.arrays import Floats, Ints
from p3s.program.collectives.choose import MPICH
from p3s.program.phase_cells import row_times
from p3s.program.scaled import COLLECTIVE, COMM, RECV, SEND, ScaledTrace

#: Table of a member, and a comparison of two keys, in ns: least, usual, largest. Sorting is that
#: of all keys of the parent at most, of one's own colour at least: none.
_MEMBER_NS = (0.5, 2.0, 10.0)
_COMPARE_NS = (0.0, 8.0, 16.0)
#: Calls that sort colours and keys.
_SORTS = ("MPI_Comm_split", "MPI_Comm_split_type", "MPI_Cart_sub", "MPI_Intercomm_merge")
_FREES = ("MPI_Comm_free", "MPI_Comm_disconnect")


@dataclass(frozen=True)
class OwnPart:
    """Times on MPI_COMM_SELF, ns, each least, usual, largest; ``measured``: on this machine."""

    dup: tuple[float, float, float]
    split: tuple[float, float, float]
    free: tuple[float, float, float]
    measured: bool = False


def usual_creation(family: str) -> OwnPart:
    """Return what is taken where nothing was measured: Open MPI 4.1 and MPICH 4.0 on one core.

    The usual ones are medians on a core of 2.6 GHz, the ends a third and three times of that.
    """
    dup, split, free = (650.0, 770.0, 60.0) if family == MPICH else (2700.0, 2900.0, 800.0)
    return OwnPart(_around(dup), _around(split), _around(free))


def _around(ns: float) -> tuple[float, float, float]:
    return (ns / 3, ns, 3 * ns)


def measured_creation(network: Mapping[str, Any]) -> OwnPart | None:
    """Return what ``p3s machine measure`` found ("create" of its costs of messages), or None.

    The high end is as far above the median as the least time is below.
    """
    measured = network.get("create")
    if not isinstance(measured, Mapping) or not {"dup", "split", "free"} <= set(measured):
        return None
    parts = []
    for name in ("dup", "split", "free"):
        low, median = (float(ns) for ns in measured[name])
        parts.append((low, median, 2 * median - low))
    return OwnPart(parts[0], parts[1], parts[2], measured=True)


def creation_ns(trace: ScaledTrace, phases: Sequence[int], costs: OwnPart) -> Floats:
    """Return the time of the run that each rank spends by itself in these calls.

    Shape (3, n, phases) in ns: least, usual, largest; waiting and messages are not in it.
    """
    rows = np.flatnonzero(trace.is_kind(COMM) & (trace.repeat > 0))
    each = (_time_calls(trace, rows, costs, end) * trace.repeat[rows] for end in range(3))
    return np.stack([row_times(trace, phases, rows, ns) for ns in each])


def _time_calls(trace: ScaledTrace, rows: Ints, costs: OwnPart, end: int) -> Floats:
    """Return the time of one call of each row."""
    sorts, frees = (trace.is_op(*names)[rows] for names in (_SORTS, _FREES))
    base = np.where(sorts, costs.split[end], np.where(frees, costs.free[end], costs.dup[end]))
    sizes = {c: max(len(them), 1) for c, them in trace.members.items()}
    k = np.array([sizes.get(c, 1) for c in trace.comm[rows].tolist()], dtype=np.float64)
    grows = np.where(frees, 0.0, _MEMBER_NS[end] * k)
    return np.asarray(base + grows + np.where(sorts, _COMPARE_NS[end] * k * np.log2(k), 0.0))


#: Medians on a core of 2.6 GHz of messages of 16 KiB, ns per byte, by the bytes in a row, last of
#: one piece: pack and unpack of near pieces, of far ones.
_BLOCKS = (8, 64, 512, 4096)
_OPENMPI = (
    (0.342, 0.327, 0.449, 0.420),
    (0.153, 0.148, 0.208, 0.137),
    (0.191, 0.172, 0.191, 0.171),
    (0.120, 0.111, 0.100, 0.089),
    (0.111, 0.113, 0.111, 0.113),
)
_MPICH = (
    (0.263, 0.232, 0.775, 0.542),
    (0.201, 0.183, 0.215, 0.177),
    (0.377, 0.309, 0.683, 0.589),
    (0.238, 0.227, 0.303, 0.265),
    (0.163, 0.135, 0.163, 0.135),
)
#: What figures of another machine may be off by.
_OTHER = 3.0


@dataclass(frozen=True)
class PackCosts:
    """ns per byte beyond contiguous bytes by the bytes in a row (``blocks``, ascending).

    pack, unpack: rows least, usual, largest, a column per block; ``measured``: on this machine.
    """

    blocks: tuple[int, ...]
    pack: Floats
    unpack: Floats
    measured: bool = False


def measured_packing(network: Mapping[str, Any]) -> PackCosts | None:
    """Return what ``p3s machine measure`` found ("pack" of its costs of messages), or None."""
    measured = network.get("pack")
    if not isinstance(measured, Mapping) or not {"whole", "near", "far"} <= set(measured):
        return None
    near, far = (np.array(measured[where], dtype=np.float64) for where in ("near", "far"))
    whole = measured["whole"][0]
    pack, unpack = (
        _ends(near[:, k : k + 2], far[:, k : k + 2], float(whole[k + 1])) for k in (1, 3)
    )
    return PackCosts(tuple(int(b) for b in near[:, 0]), pack, unpack, measured=True)


def usual_packing(family: str) -> PackCosts:
    """Return what is taken where nothing was measured: Open MPI 4.1 and MPICH 4.0 on one core.

    The ends are a third of the least and three times the largest of that core.
    """
    table = np.array(_MPICH if family == MPICH else _OPENMPI)
    sides = []
    for k in (0, 1):
        near, far = (np.stack((table[:-1, c],) * 2, axis=1) for c in (k, k + 2))
        ends = _ends(near, far, float(table[-1, k]))
        sides.append(ends * np.array([[1 / _OTHER], [1.0], [_OTHER]]))
    return PackCosts(_BLOCKS, sides[0], sides[1])


def _ends(near: Floats, far: Floats, whole: float) -> Floats:
    """Return least, usual, largest from columns least and median of near and far pieces."""
    middle = np.maximum(np.sqrt(near[:, 1] * far[:, 1]) - whole, 0.0)
    low = np.clip(np.minimum(near[:, 0], far[:, 0]) - whole, 0.0, middle)
    high = np.maximum(near[:, 1], 2 * far[:, 1] - far[:, 0])
    return np.stack((low, middle, np.maximum(high, middle)))


def ns_per_byte(blocks: Sequence[int], ns: Floats, block: float) -> float:
    """Return one end's cost at ``block`` bytes in a row.

    Between the measured ones on a line over the logarithm; a smaller piece costs what the smallest
    does; above the largest nothing changes.
    """
    if block < blocks[0]:
        return float(ns[0] * blocks[0] / block)
    return float(np.interp(np.log(block), np.log(blocks), ns))


def packing_ns(trace: ScaledTrace, phases: Sequence[int], costs: PackCosts) -> Floats:
    """Return the time of the run that each rank packs and unpacks.

    Shape (3, n, phases) in ns: least, usual, largest. Senders pack, receivers unpack; a rank of a
    collective packs its bytes, at the high end it unpacks as many.
    """
    total = np.zeros((3, trace.n, len(phases)))
    sends, receives, together = (trace.is_kind(k) for k in (SEND, RECV, COLLECTIVE))
    for call in trace.packed:
        mine = (trace.slot >= call.slots[0]) & (trace.slot <= call.slots[1])
        rows = np.flatnonzero(mine & (trace.repeat > 0) & (sends | receives | together))
        moved = call.share * trace.bytes[rows] * trace.repeat[rows].astype(np.float64)
        for end in range(3):
            pack, unpack = (
                ns_per_byte(costs.blocks, side[end], call.block[2 - end])
                for side in (costs.pack, costs.unpack)
            )
            both = pack + (unpack if end == 2 else 0.0)
            each = np.where(receives[rows], unpack, np.where(together[rows], both, pack))
            total[end] += row_times(trace, phases, rows, each * moved)
    return total
