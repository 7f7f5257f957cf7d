"""What a traced run is made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Int32s = NDArray[np.int32]
    Int64s = NDArray[np.int64]

#: Values of Call.peer and Call.root that are no rank.
NO_RANK = -1
ANY_SOURCE = -2
PROC_NULL = -3


@dataclass(frozen=True)
class Call:
    """One distinct MPI call: everything about an event except its times.

    ``site`` and ``comm`` index RunTrace.sites and .comms (comm -1: none, as in MPI_Waitall);
    ``peer`` and ``root`` are world ranks (-1 none, -2 unresolved MPI_ANY_SOURCE,
    -3 MPI_PROC_NULL); ``tag`` is -1 if there is none or MPI_ANY_TAG was never resolved.
    """

    op: str
    site: int
    comm: int
    peer: int
    bytes: int
    elem_bytes: int
    tag: int
    root: int


@dataclass(frozen=True)
class Site:
    """One place in the program: the call stack, innermost frame first.

    ``key`` (16 hex digits) is the same on all ranks, in all runs and at all process counts.
    """

    key: str
    frames: tuple[str, ...]


@dataclass(frozen=True)
class Comm:
    """One communicator, merged over the ranks that are in it.

    ``members`` are world ranks in the communicator's order (of an intercommunicator: both sides,
    sorted); ``ordinal`` counts communicators with the same members, the world being number 0;
    ``parent`` indexes RunTrace.comms or is -1; ``dims`` and ``periods`` are set if it is
    Cartesian, rank r of ``members`` then has the row-major coordinates of r.
    """

    members: tuple[int, ...]
    op: str
    parent: int
    dims: tuple[int, ...] | None
    periods: tuple[bool, ...] | None
    ordinal: int
    inter: bool = False


@dataclass(frozen=True)
class RankTrace:
    """The events of one rank in program order, as columns of equal length.

    ``call`` (int32) indexes RunTrace.calls; the times are int64 nanoseconds. ``complete`` is
    False if the rank never reached MPI_Finalize, or its file is missing or damaged; ``problem``
    then names the file and says what is wrong, else it is empty.
    """

    rank: int
    complete: bool
    call: Int32s
    start_ns: Int64s
    elapsed_ns: Int64s
    work_ns: Int64s
    failed_polls: int = 0
    failed_poll_ns: int = 0
    problem: str = ""


@dataclass(frozen=True)
class RunTrace:
    """One traced run: tables shared by all ranks, and the events of each rank.

    ``comms[0]`` is MPI_COMM_WORLD. ``unmodelled`` counts the events of calls that the model
    does not cover (p3s.trace.ops.is_modelled); ``missing`` are the ranks without a file.
    """

    np: int
    path: Path
    calls: tuple[Call, ...]
    comms: tuple[Comm, ...]
    sites: tuple[Site, ...]
    ranks: tuple[RankTrace, ...]
    work_unit: str = "cpu_ns"
    wall_ns: int | None = None
    unmodelled: dict[str, int] = field(default_factory=dict)
    missing: tuple[int, ...] = ()

    @property
    def problem(self) -> str:
        """What the first rank that is not complete says; empty if all ranks are complete."""
        for rank in self.ranks:
            if not rank.complete:
                return rank.problem or f"{self.path}: rank {rank.rank} is not complete"
        return ""
