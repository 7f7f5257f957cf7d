"""What the definitions of an archive say of ranks, communicators and places in the program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from p3s.base.errors import P3SError
from p3s.capture.records import RawComm

WORLD, SELF = "MPI_COMM_WORLD", "MPI_COMM_SELF"


@dataclass(frozen=True)
class Region:
    """A region: ``op``, of an MPI call its name, else empty; of another one its ``name``; ``file``
    and ``line``: where it is, of an MPI call where it is called; empty and 0 if not known."""

    op: str
    name: str
    file: str
    line: int


@dataclass(frozen=True)
class Communicator:
    """A communicator by the world ranks in it; ``sides``: of an intercommunicator its groups."""

    number: int
    members: tuple[int, ...]
    parent: int
    own: bool = False
    sides: tuple[tuple[int, ...], ...] = ()
    dims: tuple[int, ...] | None = None
    periods: tuple[bool, ...] | None = None

    def group(self, rank: int, other: bool) -> tuple[int, ...]:
        """Return the members in whose order ranks are meant: of this rank, or whom it talks to."""
        if self.own:
            return (rank,)
        if not self.sides:
            return self.members
        first, second = self.sides
        return second if (rank in first) == other else first

    def raw(self, rank: int, op: str) -> RawComm:
        """Return the record of a capture of this rank; op: the call that made it."""
        members = (rank,) if self.own else self.members
        return RawComm(
            self.number, self.parent, bool(self.sides), members, self.dims, self.periods, op
        )


@dataclass(frozen=True)
class Archive:
    """The definitions of an archive.

    ``rank_of``: by location, the rank and thread whose events it holds; ``hosts``: of the ranks;
    ``regions``, ``comms``: by reference, the world is number 0; ``ticks``: of the clock in a
    second; the run is from tick ``offset`` to ``end``; ``began_ns``: CLOCK_REALTIME at its begin,
    0: not known.
    """

    size: int
    rank_of: Mapping[int, tuple[int, int]]
    hosts: Sequence[str]
    regions: Mapping[int, Region]
    comms: Mapping[int, Communicator]
    ticks: int
    offset: int
    end: int
    began_ns: int


def read_definitions(otf2: Any, definitions: Any) -> Archive:
    """Return what an archive's definitions say; P3SError where they name no ranks of MPI."""
    enums = otf2.enums
    world = _world(enums, definitions)
    groups = [location.group for location in world]
    places = {group: rank for rank, group in enumerate(groups)}
    if len(places) != len(groups):
        raise P3SError("several ranks of MPI are one process in it")
    rank_of = {location._ref: (rank, 0) for rank, location in enumerate(world)}
    threads = [0] * len(world)
    for location in definitions.locations:
        rank = places.get(location.group, -1)
        cpu = location.type == enums.LocationType.CPU_THREAD
        if location._ref not in rank_of and rank >= 0 and cpu:
            threads[rank] += 1
            rank_of[location._ref] = (rank, threads[rank])
    clock = definitions.clock_properties
    time_known = clock.realtime_timestamp != otf2.enums.Undefined.TIMESTAMP.value
    return Archive(
        len(world),
        rank_of,
        [_host(group) for group in groups],
        {region._ref: _region(enums, region) for region in definitions.regions},
        _communicators(enums, definitions, places),
        clock.timer_resolution,
        clock.global_offset,
        clock.global_offset + clock.trace_length if clock.trace_length else 1 << 62,
        clock.realtime_timestamp if time_known and clock.realtime_timestamp < 1 << 62 else 0,
    )


def _world(enums: Any, definitions: Any) -> Sequence[Any]:
    """Return the locations of the ranks in their order."""
    for group in definitions.groups:
        if (
            group.group_type == enums.GroupType.COMM_LOCATIONS
            and group.paradigm == enums.Paradigm.MPI
            and group.members
        ):
            return list(group.members)
    raise P3SError("it names no ranks of MPI (no group of the locations that communicate by MPI)")


def _host(group: Any) -> str:
    """Return the name of the node of a process."""
    node = group.system_tree_parent
    while node is not None and node.class_name != "node" and node.parent is not None:
        node = node.parent
    if node is None or node.class_name != "node":
        node = group.system_tree_parent
    return str(node.name) if node is not None else ""


def _region(enums: Any, region: Any) -> Region:
    file, line = region.source_file or "", int(region.begin_line_number)
    line = line if 0 < line < 1 << 31 else 0
    if region.paradigm == enums.Paradigm.MPI or region.name.upper().startswith("MPI_"):
        line_known = line and file not in ("", "MPI")  # the file that Score-P says of its wrappers
        return Region(
            mpi_name(region.name), "", file if line_known else "", line if line_known else 0
        )
    return Region("", region.name, file, line)


def mpi_name(name: str) -> str:
    """Return the name of an MPI call as C has it: MPI_Send of MPI_SEND, PMPI_Send(), MPI_Send_c."""
    rest = name.strip().removesuffix("()").upper().removeprefix("P").removeprefix("MPI_")
    rest = rest.removesuffix("_C")
    return "MPI_" + rest[:1] + rest[1:].lower()


def frame(name: str, file: str, line: int) -> str:
    """Return the text of a frame of a call stack (p3s.capture.sites)."""
    text = f"{file or '?'}:{name or '?'}:{line}"
    return "".join(c if c.isprintable() else "?" for c in text)


def _communicators(
    enums: Any, definitions: Any, places: Mapping[Any, int]
) -> dict[int, Communicator]:
    size = len(places)
    topologies = {topology.communicator._ref: topology for topology in definitions.cart_topologies}
    refs = sorted(definitions.comms, key=lambda comm: comm._ref)
    intracomms = [comm for comm in refs if not hasattr(comm, "groupA")]
    members = {comm._ref: _ranks(enums, comm.group, places) for comm in intracomms}
    whole = [comm for comm in intracomms if members[comm._ref] == tuple(range(size))]
    if not whole:
        raise P3SError(f"it has no communicator of all {size} ranks")
    first = min(whole, key=lambda comm: (comm.name != WORLD, comm.parent is not None, comm._ref))
    number = {first._ref: 0}
    for comm in refs:
        number.setdefault(comm._ref, len(number))
    communicators = {}
    for comm in refs:
        parent = number[comm.parent._ref] if comm.parent is not None else -1
        sides: tuple[tuple[int, ...], ...] = ()
        is_self = False
        if hasattr(comm, "groupA"):
            sides = tuple(_ranks(enums, group, places) for group in (comm.groupA, comm.groupB))
            all_of = tuple(sorted({rank for side in sides for rank in side}))
        else:
            is_self = comm.group.group_type == enums.GroupType.COMM_SELF
            all_of = members[comm._ref]
        dims, periods = _grid(enums, topologies.get(comm._ref), len(all_of))
        communicators[comm._ref] = Communicator(
            number[comm._ref], all_of, parent, is_self, sides, dims, periods
        )
    return communicators


def _ranks(enums: Any, group: Any, places: Mapping[Any, int]) -> tuple[int, ...]:
    if group.group_type == enums.GroupType.COMM_SELF:
        return ()
    return tuple(places.get(location.group, -1) for location in group.members)


def _grid(
    enums: Any, topology: Any, size: int
) -> tuple[tuple[int, ...] | None, tuple[bool, ...] | None]:
    if topology is None:
        return None, None
    dims = tuple(int(dimension.size) for dimension in topology.dimensions)
    if not dims or prod(dims) != size:
        return None, None
    yes = enums.CartPeriodicity.TRUE
    return dims, tuple(d.cart_periodicity == yes for d in topology.dimensions)
