"""Definitions of an OTF2 archive: what Score-P's tools and Vampir want to know of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from p3s.base import ops
from p3s.base.ops import blocking_of, kind_of
from p3s.capture.callpath import stack
from p3s.formats.run import Run, name_call

if TYPE_CHECKING:
    from p3s.capture import Call, RunTrace, Site

_COLLECTIVE = {"Reduce_scatter_block": "REDUCE_SCATTER_BLOCK"}


@dataclass
class Definitions:
    """Definitions of an archive: locations by (rank, thread), communicators, regions.

    ``regions``: of each call of the run its own; ``stacks``: of each site the regions of the
    functions around it, outermost first; ``place``: of each communicator the ranks in it;
    ``operation``: of each collective.
    """

    location: dict[tuple[int, int], Any]
    regions: dict[Call, Any]
    stacks: list[list[Any]]
    comm: list[Any]
    place: list[dict[int, int]]
    operation: dict[str, Any]

    @classmethod
    def of(cls, otf2: Any, out: Any, run: Run) -> Definitions:
        """Write the definitions of a run."""
        defs, enums = out.definitions, otf2.enums
        defs.paradigm(enums.Paradigm.MPI, "MPI", enums.ParadigmClass.PROCESS)
        location = _system(enums, defs, run)
        comms = _communicators(enums, defs, run.trace, location)
        regions = _Regions(enums, defs, run)
        stacks = [regions.functions(site) for site in run.trace.sites]
        return cls(
            location,
            {call: regions.call(call) for call in run.trace.calls},
            stacks,
            comms,
            [{rank: i for i, rank in enumerate(comm.members)} for comm in run.trace.comms],
            {
                call.op: _operation(enums, call.op)
                for call in run.trace.calls
                if kind_of(call.op) == ops.COLLECTIVE
            },
        )


def _system(enums: Any, defs: Any, run: Run) -> dict[tuple[int, int], Any]:
    """Define machine, nodes, processes and threads."""
    machine = defs.system_tree_node("machine", class_name="machine", parent=None)
    nodes: dict[str, Any] = {}
    location = {}
    for rank in range(run.trace.np):
        host = (run.hosts[rank] if run.hosts else "") or "node"
        if host not in nodes:
            nodes[host] = defs.system_tree_node(host, class_name="node", parent=machine)
            defs.system_tree_node_domain(nodes[host], enums.SystemTreeDomain.SHARED_MEMORY)
        group = defs.location_group(
            f"MPI Rank {rank}",
            location_group_type=enums.LocationGroupType.PROCESS,
            system_tree_parent=nodes[host],
        )
        for thread in range(run.threads[rank]):
            name = "Master thread" if not thread else f"Thread {thread}"
            location[rank, thread] = defs.location(
                name, type=enums.LocationType.CPU_THREAD, group=group
            )
    return location


def _communicators(
    enums: Any, defs: Any, run: RunTrace, location: Mapping[tuple[int, int], Any]
) -> list[Any]:
    mpi = enums.Paradigm.MPI
    defs.group(
        "",
        group_type=enums.GroupType.COMM_LOCATIONS,
        paradigm=mpi,
        members=[location[rank, 0] for rank in range(run.np)],
    )
    comms: list[Any] = []
    for k, comm in enumerate(run.comms):
        name = "MPI_COMM_WORLD" if k == 0 else f"{comm.op} {k}"
        group = defs.group(
            f"group of {name}",
            group_type=enums.GroupType.COMM_GROUP,
            paradigm=mpi,
            members=[location[r, 0] for r in comm.members if r >= 0],
        )
        parent = comms[comm.parent] if 0 <= comm.parent < k else None
        flags = enums.CommFlag.CREATE_DESTROY_EVENTS if k else enums.CommFlag.NONE
        comms.append(defs.comm(name, group=group, parent=parent, flags=flags))
        if comm.dims:
            _grid(enums, defs, comms[-1], name, comm.dims, comm.periods or ())
    return comms


def _grid(
    enums: Any, defs: Any, comm: Any, name: str, dims: Sequence[int], periods: Sequence[bool]
) -> None:
    """Define the grid of a Cartesian communicator and the place of its ranks in it."""
    kinds = (enums.CartPeriodicity.FALSE, enums.CartPeriodicity.TRUE)
    sides = tuple(
        defs.cart_dimension(f"dimension {k}", size=extent, cart_periodicity=kinds[bool(wraps)])
        for k, (extent, wraps) in enumerate(zip(dims, periods, strict=True))
    )
    grid = defs.cart_topology(f"grid of {name}", communicator=comm, dimensions=sides)
    for rank, coordinates in enumerate(product(*map(range, dims))):
        defs.cart_coordinate(grid, rank=rank, coordinates=coordinates)


class _Regions:
    """The regions of functions, and of MPI calls: one for each place that calls them."""

    def __init__(self, enums: Any, defs: Any, run: Run) -> None:
        self.enums, self.defs, self.run = enums, defs, run
        self._known: dict[tuple[str, str, int], Any] = {}

    def functions(self, site: Site) -> list[Any]:
        """Return the functions around a site, outermost first."""
        regions = []
        for where in reversed(stack(site.frames, self.run.places)):
            name, file = where.function or where.frame, where.file
            regions.append(self._region(name, file, 0, self.enums.RegionRole.FUNCTION, False))
        return regions

    def call(self, call: Call) -> Any:
        """Return the region of a call: its line is that of the place that calls it."""
        at = stack(self.run.trace.sites[call.site].frames, self.run.places)[:1]
        file, line = (at[0].file, at[0].line) if at and at[0].line else ("", 0)
        return self._region(name_call(call.op), file, line, _role(self.enums, call.op), True)

    def _region(self, name: str, file: str, line: int, role: Any, mpi: bool) -> Any:
        key = (name, file, line)
        if key not in self._known:
            paradigm = self.enums.Paradigm.MPI if mpi else self.enums.Paradigm.USER
            self._known[key] = self.defs.region(
                name,
                region_role=role,
                paradigm=paradigm,
                source_file=file or ("MPI" if mpi else None),
                begin_line_number=line,
                end_line_number=line,
            )
        return self._known[key]


def _role(enums: Any, op: str) -> Any:
    roles = enums.RegionRole
    kind = kind_of(op)
    if kind in (ops.SEND, ops.RECV):
        return roles.POINT2POINT
    if op in ("MPI_Barrier", "MPI_Ibarrier"):
        return roles.BARRIER
    if kind == ops.COLLECTIVE:
        return roles.COLL_OTHER
    return roles.RMA if kind == ops.RMA else roles.FILE_IO if kind == ops.IO else roles.FUNCTION


def _operation(enums: Any, op: str) -> Any:
    name = blocking_of(op).removeprefix("MPI_")
    return getattr(enums.CollectiveOp, _COLLECTIVE.get(name, name.upper()))
