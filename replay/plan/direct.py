"""Collectives that are executed as such, because all members of the communicator are loaded."""

from __future__ import annotations

import numpy as np

from p3s.base.ops import ROOTED, blocking_of
from p3s.replay.plan.program import Collective
from p3s.simulate.steps import Bools, Ints, Op, Steps

#: The call that stands for each MPI call; v-variants only where all counts are the same.
_NUMBERS = {
    "MPI_Barrier": Collective.BARRIER,
    "MPI_Bcast": Collective.BCAST,
    "MPI_Reduce": Collective.REDUCE,
    "MPI_Allreduce": Collective.ALLREDUCE,
    "MPI_Gather": Collective.GATHER,
    "MPI_Gatherv": Collective.GATHER,
    "MPI_Scatter": Collective.SCATTER,
    "MPI_Scatterv": Collective.SCATTER,
    "MPI_Allgather": Collective.ALLGATHER,
    "MPI_Allgatherv": Collective.ALLGATHER,
    "MPI_Alltoall": Collective.ALLTOALL,
    "MPI_Reduce_scatter_block": Collective.REDUCE_SCATTER_BLOCK,
    "MPI_Scan": Collective.SCAN,
    "MPI_Exscan": Collective.EXSCAN,
}

#: Counts of bytes are MPI's int.
MAX_COLLECTIVE_BYTES = (1 << 31) - 1


def collective_numbers(calls: tuple[str, ...]) -> Ints:
    """Return the Collective of each MPI call, -1 where there is none."""
    numbers = [int(_NUMBERS.get(blocking_of(name), -1)) for name in calls]
    return np.asarray(numbers, dtype=np.int64)


def calls_of_comms(steps: Steps) -> tuple[Ints, Ints]:
    """Return the collective steps, communicator by communicator, and the number of each call.

    The k-th call of a rank on a communicator is call k of it; equal numbers are the same call.
    """
    where = np.flatnonzero(steps.is_op(Op.COLLECTIVE, Op.ICOLLECTIVE))
    comm = steps.comm[where]
    rank = steps.rank[where]
    order = np.lexsort((where, rank, comm))
    where, comm, rank = where[order], comm[order], rank[order]
    new = np.ones(len(where), dtype=bool)
    new[1:] = (comm[1:] != comm[:-1]) | (rank[1:] != rank[:-1])
    begin = np.maximum.accumulate(np.where(new, np.arange(len(where)), 0))
    ordinal = np.arange(len(where)) - begin
    _, call = np.unique(np.stack((comm, ordinal)), axis=1, return_inverse=True)
    return where, call.reshape(-1)


def fits(steps: Steps, loaded: Ints) -> Bools:
    """Return which steps are collectives that can be executed as such by the ranks ``loaded``.

    The call has to be known to the inner loop, all members have to be loaded and to make it, with
    the same bytes (at most MAX_COLLECTIVE_BYTES), root and call. ``steps`` may hold other ranks.
    """
    result = np.zeros(len(steps), dtype=bool)
    where, call = calls_of_comms(steps)
    if len(where) == 0:
        return result
    comms = np.unique(steps.comm[where])
    inside = np.array(
        [
            int(c) in steps.members
            and len(steps.members[int(c)]) > 0
            and bool(np.isin(steps.members[int(c)], loaded).all())
            for c in comms
        ]
    )
    sizes = np.array([len(steps.members.get(int(c), ())) for c in comms])
    place = np.searchsorted(comms, steps.comm[where])
    numbers = collective_numbers(steps.calls)[steps.call[where]]
    good = inside[place] & (numbers >= 0) & (steps.bytes[where] <= MAX_COLLECTIVE_BYTES)
    rooted = np.array([blocking_of(name) in ROOTED for name in steps.calls])[steps.call[where]]
    good &= ~rooted | (steps.peer[where] >= 0)
    number = int(call.max()) + 1
    same = np.bincount(call, minlength=number)[call] == sizes[place]
    for column in (
        numbers,
        steps.bytes[where],
        np.where(rooted, steps.peer[where], -1),
        steps.op[where],
    ):
        low = np.full(number, np.iinfo(np.int64).max)
        high = np.full(number, np.iinfo(np.int64).min)
        np.minimum.at(low, call, column)
        np.maximum.at(high, call, column)
        same &= (low == high)[call]
    result[where] = good & same
    return result
