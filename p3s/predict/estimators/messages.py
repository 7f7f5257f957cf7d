"""What messages cost for the dependency simulation, wherever the figures are from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from p3s.simulate.network import Network
from p3s.simulate.steps import Ints

if TYPE_CHECKING:
    from p3s.program.collectives.rules import Library
    from p3s.program.creation import OwnPart
    from p3s.program.packing import PackCosts

#: Typical costs, the least and the largest.
Costs = tuple[Network, Network, Network]


def _alike(_nodes: int, _among: Ints | None = None) -> Ints | None:
    """Say nothing of distances: all nodes are equally far apart."""
    return None


class On(Protocol):
    """Costs on a number of nodes in a row; ``among``: those of them that are simulated, all."""

    def __call__(self, nodes: int, among: Ints | None = None, /) -> Costs: ...


class Distance(Protocol):
    """Distances between nodes in a row, as :class:`On`."""

    def __call__(self, nodes: int, among: Ints | None = None, /) -> Ints | None: ...


@dataclass(frozen=True)
class Messages:
    """What messages cost on a machine, and what is said of them.

    ``name``: of the estimator, ``machine``: that of the figures. ``library``: whose algorithms
    collectives take. ``cores``: ranks of a node, where nobody says it. ``on``: costs for a number
    of nodes; ``distance``: between nodes, where no topology is given. ``levels``: whether these
    costs know of switches. ``said``, ``of_runs``, ``ends``: notes, in this order. ``hosts``: where
    costs were measured. ``queues``: links of nodes have queues. ``why_not``: why times do not tell
    how fast a program is, "" if they do. ``own``: what making a communicator takes a rank by
    itself, ``packing``: what datatypes with gaps cost, where that was measured.
    """

    name: str
    machine: str
    library: Library
    cores: int
    on: On
    said: Callable[[Network], list[str]]
    of_runs: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    distance: Distance = _alike
    levels: bool = False
    hosts: tuple[str, ...] = ()
    queues: bool = True
    why_not: str = ""
    own: OwnPart | None = None
    packing: PackCosts | None = None
