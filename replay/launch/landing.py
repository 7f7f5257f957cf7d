"""Whether the processes of a replay are where they were planned to be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from p3s.base.errors import P3SError
from p3s.replay.plan.world import NODES, World


@dataclass(frozen=True)
class Place:
    """Where a process ran: name of the node, identity of its kernel, its cores, process id.

    ``node``: the node's name as Slurm has it, empty outside of Slurm.
    """

    name: str
    kernel: str
    cores: frozenset[int]
    pid: int = 0
    node: str = ""


def check_landing(world: World, places: Sequence[Place], hosts: Sequence[str] | None) -> None:
    """Raise P3SError when processes are not on the hosts asked for, one node on each.

    ``hosts``: of the four nodes, repeats allowed; None or empty: anywhere. Nodes may call
    themselves by other names than those asked for, unless it is the name of another one.
    """
    problem = landing_problem(world, [place.name for place in places], hosts)
    if problem and all(place.node for place in places):
        # Slurm's name of a node need not be the one that the node has itself.
        problem = landing_problem(world, [place.node for place in places], hosts) and problem
    if problem:
        raise P3SError(problem)


def landing_problem(world: World, names: Sequence[str], hosts: Sequence[str] | None) -> str | None:
    """Return what is wrong with where processes are, by the names their nodes have; or None."""
    if len(names) != world.size:
        return f"{world.size} processes were to be started, but {len(names)} were"
    if not hosts:
        return None
    where: list[set[str]] = [set() for _ in range(NODES)]
    for process, name in zip(world.processes, names, strict=True):
        where[process.node].add(_short(name))
    used = [node for node in range(NODES) if where[node]]
    for node in used:
        if len(where[node]) > 1:
            return (
                f"the processes for {hosts[node]} were started on "
                f"{' and '.join(sorted(where[node]))}; {_REMEDY}"
            )
    found = {node: next(iter(where[node])) for node in used}
    for node in used:
        for other in used[: used.index(node)]:
            if (hosts[node] == hosts[other]) != (found[node] == found[other]):
                return (
                    f"the processes for {hosts[other]} and {hosts[node]} were started on "
                    f"{found[other]} and {found[node]}; {_REMEDY}"
                )
        asked = _short(hosts[node])
        if asked != found[node] and asked in found.values():
            return f"the processes for {hosts[node]} were started on {found[node]}; {_REMEDY}"
    return None


_REMEDY = (
    "the launcher must put one block of ranks on each host, in their order: leave {np} out "
    "of --launcher, then P3S adds the hosts"
)


def _short(name: str) -> str:
    """Return a host name without its domain; addresses stay whole."""
    return name if name.replace(".", "").isdigit() or ":" in name else name.partition(".")[0]
