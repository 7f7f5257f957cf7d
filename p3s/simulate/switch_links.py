"""Links between switches: a tree of them, what each carries, and which ones a message passes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from p3s.base.arrays import Floats, Ints, starts
from p3s.base.errors import P3SError
from p3s.machine.topology.fabric import About, Fabric
from p3s.machine.topology.fabric import Routes as Passed
from p3s.machine.topology.trees import Tree, chains

#: What TCP's answers take of the links back, as a share of a message's rate: Velho et al., "On the
#: validity of flow-level TCP network models", 2013, section 5.3.
ANSWERS = 0.05
#: Headers leave at least this share of a link's speed to messages.
LEAST_PAYLOAD = 0.8
_HERE = "links between switches"


@dataclass(frozen=True)
class Trunks:
    """Switches of a tree, the links between them, and the switch that each node hangs on.

    ``switch_of``: switch of every node. ``up``: the switch above each, -1: none (several of these:
    one more switch is thought to be above them). ``rate``: bytes per ns that the link between a
    switch and the one above it carries in each direction, inf where that is no limit or not known.
    ``burst``: bytes that pass it at once after a pause.
    """

    switch_of: tuple[int, ...]
    up: tuple[int, ...]
    rate: tuple[float, ...]
    burst: tuple[float, ...]

    def __post_init__(self) -> None:
        number = len(self.up)
        if not len(self.rate) == len(self.burst) == number:
            raise ValueError("the columns of the links between switches differ in length")
        if any(not 0 <= switch < number for switch in self.switch_of):
            raise ValueError("a node hangs on a switch that is not there")
        if any(not -1 <= above < number for above in self.up):
            raise ValueError("a switch is below one that is not there")
        if any(not rate > 0 for rate in self.rate):
            raise ValueError("a link between switches has no rate")
        if any(not (math.isfinite(burst) and burst >= 0) for burst in self.burst):
            raise ValueError("a burst between switches is no number of bytes")

    @property
    def upwards(self) -> Ints:
        """The switch above each, as a column."""
        return np.asarray(self.up, dtype=np.int64)

    @property
    def limited(self) -> bool:
        """Whether any of the links is a limit."""
        return any(math.isfinite(rate) for rate in self.rate)

    def on(self, switch_of: Sequence[int]) -> Trunks:
        """Return the same links with other nodes on the switches."""
        return replace(self, switch_of=tuple(int(switch) for switch in switch_of))

    def of_some(self, nodes: Ints) -> Trunks:
        """Return the links for some of the nodes: each carries their share of all that share it."""
        every = np.asarray(self.switch_of, dtype=np.int64)
        switches = every[nodes]
        all_below, below = (self._below(of) for of in (every, switches))
        rate = np.asarray(self.rate) * np.where(below > 0, below / np.maximum(all_below, 1), 1.0)
        return replace(self, switch_of=tuple(switches.tolist()), rate=tuple(rate.tolist()))

    def _below(self, switch_of: Ints) -> Floats:
        """Return how many nodes there are below each switch."""
        below_count = np.zeros(len(self.up))
        switch = switch_of
        while len(switch):
            np.add.at(below_count, switch, 1.0)
            switch = self.upwards[switch]
            switch = switch[switch >= 0]
        return below_count

    def to_json(self) -> dict[str, Any]:
        """Return them as plain data; a rate is null where it is no limit."""
        return {
            "switch_of": list(self.switch_of),
            "up": list(self.up),
            "rate_bytes_per_ns": [r if math.isfinite(r) else None for r in self.rate],
            "burst_bytes": list(self.burst),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Trunks:
        """Return the links of plain data. Errors: KeyError, TypeError, ValueError."""
        trunks = cls(
            tuple(int(switch) for switch in data["switch_of"]),
            tuple(int(switch) for switch in data["up"]),
            tuple(math.inf if r is None else float(r) for r in data["rate_bytes_per_ns"]),
            tuple(float(burst) for burst in data["burst_bytes"]),
        )
        try:
            chains(_HERE, trunks.upwards, [str(switch) for switch in range(len(trunks.up))])
        except P3SError as err:
            raise ValueError(err) from err
        return trunks


def tree(sizes: Sequence[int], rates: Sequence[float], nodes: int, link: float) -> Trunks | None:
    """Return the links above groups of nodes in a row; None where none of them is a limit.

    ``sizes``: nodes of a group, ascending, each a multiple of the one before. ``rates``: bytes per
    ns for every node of a group that leave it at most; ``link``: those of a node's own link, which
    are no limit. A group that the nodes do not fill has as much as its nodes.
    """
    up: list[int] = []
    rate: list[float] = []
    counts = [-(-nodes // size) for size in sizes]
    for level, (size, each) in enumerate(zip(sizes, rates, strict=True)):
        above = sum(counts[: level + 1])
        for group in range(counts[level]):
            nodes_below = min(size, nodes - group * size)
            up.append(above + group * size // sizes[level + 1] if level + 1 < len(sizes) else -1)
            rate.append(each * nodes_below if each < link else math.inf)
    if counts[:1] == [1] or not any(map(math.isfinite, rate)):
        return None
    return Trunks(
        tuple(node // sizes[0] for node in range(nodes)), tuple(up), tuple(rate), (0.0,) * len(rate)
    )


@dataclass(frozen=True)
class Routes:
    """The limited links between any two switches that have nodes.

    ``place_of``: of every node, the number of its switch among the ``places`` that have nodes.
    The way from place a to b passes ``link[start[a * places + b]:start[a * places + b + 1]]`` one
    after the other; ``rate``, ``burst``: of every link, both directions of one next to each other.
    """

    place_of: Ints
    places: int
    start: Ints
    link: Ints
    rate: Floats
    burst: Floats


def _drop_unlimited(
    passed: Passed, code: Ints, place_of: Ints, places: int, rate: Floats, burst: Floats, nodes: int
) -> Routes:
    """Return routes without links that are no limit, and without those of nodes, the first.

    ``passed``: of pairs of places with these codes. ``nodes``: their number.
    ``rate``, ``burst``: of each directed link.
    """
    limited = np.isfinite(rate)
    limited[:nodes] = False
    keep = limited[passed.link]
    counts = np.zeros(places * places, dtype=np.int64)
    counts[code] = np.bincount(passed.message[keep], minlength=len(code))
    link = (np.cumsum(limited) - 1)[passed.link[keep]]
    return Routes(place_of, places, starts(counts), link, rate[limited], burst[limited])


@dataclass(frozen=True)
class Wires:
    """The links of a network of any form. ``node``: which of its nodes each node of a run is.

    ``rate``: bytes per ns that a cable carries in each direction, inf where it is no limit.
    """

    fabric: Fabric
    node: tuple[int, ...]
    rate: tuple[float, ...]

    def ways(self, nodes: int, first: Ints, second: Ints) -> Routes:
        """Return the limited links between these nodes of a run, and back; no others are there."""
        one, two = np.concatenate([first, second]), np.concatenate([second, first])
        code = np.unique(one * nodes + two)
        number = np.asarray(self.node, dtype=np.int64)
        passed = self.fabric.routes(number[code // nodes], number[code % nodes])
        rate = np.repeat(np.asarray(self.rate, dtype=np.float64), 2)
        node_links = 2 * self.fabric.nodes  # the links of nodes are known otherwise
        return _drop_unlimited(
            passed, code, np.arange(nodes), nodes, rate, np.zeros(len(rate)), node_links
        )


def routes(trunks: Trunks) -> Routes:
    """Return the ways between the switches: up as far as necessary, and down again.

    Links that are no limit are left out. Errors: P3SError where switches go round in a circle.
    """
    used, place_of = np.unique(np.asarray(trunks.switch_of, dtype=np.int64), return_inverse=True)
    places, nowhere = len(used), np.full(len(used), np.nan)
    tree_of_switches = Tree(About(_HERE), used, trunks.upwards, np.append(nowhere, trunks.rate))
    code = np.arange(places * places)
    passed = tree_of_switches.between(code // places, code % places)
    burst = np.zeros(len(tree_of_switches.rate))
    burst[places : places + len(trunks.burst)] = trunks.burst
    rate, burst = np.repeat(tree_of_switches.rate, 2), np.repeat(burst, 2)
    return _drop_unlimited(passed, code, place_of.reshape(-1), places, rate, burst, 2 * places)
