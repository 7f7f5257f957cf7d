"""Collective calls, and the algorithms that there are for each.

An algorithm is a function with a decorator that names it; all there is to it is in one place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from p3s.program.collectives.job import Job, whole
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


def in_turn(*calls: str) -> Algorithm:
    """Return an algorithm of other calls, each as the library would choose it, with member 0."""

    def write(w: Writer, job: Job) -> None:
        for call in calls:
            at = job.at if COLLECTIVES[call].blocks else whole(job.p, job.nbytes)
            job.perform(w, call, at, 0)

    return write
