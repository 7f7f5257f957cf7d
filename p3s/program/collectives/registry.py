"""Collective calls, and the algorithms that there are for each.

An algorithm is a function with a decorator that names it; all there is to it is in one place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from p3s.base.arrays import Ints
from p3s.program.collectives.job import Job, shares, whole
from p3s.program.collectives.writer import Writer

Algorithm = Callable[[Writer, Job], None]


@dataclass(frozen=True)
class Collective:
    """A collective call and its algorithms by name.

    blocks: its vector is one block for each member; varying: members may have different sizes;
    shared: its vector is divided evenly among the members; silent: its messages carry nothing of
    the program's.
    """

    name: str
    blocks: bool = False
    varying: bool = False
    shared: bool = False
    rooted: bool = False
    silent: bool = False
    algorithms: dict[str, Algorithm] = field(default_factory=dict)


#: Calls in which the members of a communicator agree on a new one, or on leaving it.
CREATIONS = (
    "comm_dup",
    "comm_dup_with_info",
    "comm_split",
    "comm_split_type",
    "comm_create",
    "comm_disconnect",
    "cart_create",
    "cart_sub",
    "graph_create",
    "dist_graph_create",
    "dist_graph_create_adjacent",
    "intercomm_create",
    "intercomm_merge",
)

#: All calls by name.
COLLECTIVES = {
    call.name: call
    for call in (
        Collective("barrier", silent=True),
        Collective("bcast", rooted=True),
        Collective("reduce", rooted=True),
        Collective("allreduce"),
        Collective("gather", blocks=True, rooted=True),
        Collective("gatherv", blocks=True, varying=True, rooted=True),
        Collective("scatter", blocks=True, rooted=True),
        Collective("scatterv", blocks=True, varying=True, rooted=True),
        Collective("allgather", blocks=True),
        Collective("allgatherv", blocks=True, varying=True),
        Collective("alltoall", blocks=True),
        Collective("alltoallv", blocks=True, varying=True),
        Collective("alltoallw", blocks=True, varying=True),
        Collective("reduce_scatter", shared=True),
        Collective("reduce_scatter_block", shared=True),
        Collective("scan"),
        Collective("exscan"),
        *(Collective(name, silent=True) for name in CREATIONS),
    )
}


def algorithm(name: str, *calls: str) -> Callable[[Algorithm], Algorithm]:
    """Return a decorator: the function writes an algorithm of these calls."""

    def register(function: Algorithm) -> Algorithm:
        for call in calls:
            COLLECTIVES[call].algorithms[name] = function
        return function

    return register


_LEAVING = "comm_disconnect"
#: Calls that gather colour and key of every member first; those of Open MPI and MPICH differ.
_SPLITS = {
    "agree": ("comm_split", "cart_sub"),
    "mask": ("comm_split", "comm_split_type", "cart_sub"),
}
_COUNTED = "dist_graph_create"
_FROM_FAR = "intercomm_create"
#: Bytes: of an integer, of colour and key, of the kind of a split, of MPICH's mask.
_INTEGER, _PAIR, _KIND, _MASK = 4, 8, 16, 260
#: Bytes of each member's numbers of neighbours in MPI_Dist_graph_create.
_DEGREES = {"agree": 16, "mask": 8}


def _each(job: Job, nbytes: int) -> Ints:
    return nbytes * np.arange(job.p + 1)


def _before(w: Writer, job: Job, call: str, how: str) -> None:
    """Write what comes before the agreement on a number."""
    if call in _SPLITS[how]:
        job.perform(w, "allgather", _each(job, _PAIR), 0)
    if call == _COUNTED:
        total = _DEGREES[how] * job.p
        job.perform(w, "reduce_scatter_block", shares(job.p, total, _INTEGER), 0)
    if call == _FROM_FAR:  # the leader tells of the other side; taken to be as large as this one
        job.perform(w, "bcast", whole(job.p, _PAIR * job.p), 0)


def _agreed(call: str) -> None:
    """Define how the members of a communicator agree in a call, in either library."""

    @algorithm("agree", call)
    def agree(w: Writer, job: Job) -> None:
        """As Open MPI: three nonblocking all-reductions of an integer; leaving is a barrier."""
        if call == _LEAVING:
            job.perform(w, "barrier", whole(job.p, 0), 0)
            return
        _before(w, job, call, "agree")
        if call == "comm_split_type":  # all must ask for the same
            job.perform(w, "allreduce", whole(job.p, _KIND), 0)
        for _ in range(3):
            job.perform(w, "iallreduce", whole(job.p, _INTEGER), 0)

    @algorithm("mask", call)
    def mask(w: Writer, job: Job) -> None:
        """As MPICH: one all-reduction of a mask; leaving sends nothing."""
        if call == _LEAVING:
            return
        _before(w, job, call, "mask")
        job.perform(w, "allreduce", whole(job.p, _MASK), 0)


for _call in CREATIONS:
    _agreed(_call)
