"""Collective calls, and the algorithms that there are for each.

An algorithm is a function with a decorator that names it; all there is to it is in one place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from p3s.program.collectives.job import Job
from p3s.program.collectives.writer import Writer

Algorithm = Callable[[Writer, Job], None]


@dataclass(frozen=True)
class Collective:
    """A collective call and its algorithms by name.

    blocks: its vector is one block for each member; varying: members may have different sizes;
    shared: its vector is divided evenly among the members.
    """

    name: str
    blocks: bool = False
    varying: bool = False
    shared: bool = False
    rooted: bool = False
    algorithms: dict[str, Algorithm] = field(default_factory=dict)


#: All calls by name.
COLLECTIVES = {
    call.name: call
    for call in (
        Collective("barrier"),
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
    )
}


def algorithm(name: str, *calls: str) -> Callable[[Algorithm], Algorithm]:
    """Return a decorator: the function writes an algorithm of these calls."""

    def register(function: Algorithm) -> Algorithm:
        for call in calls:
            COLLECTIVES[call].algorithms[name] = function
        return function

    return register
