"""Trees of switches: chains from the root, links between two, what is below; and fat trees."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from p3s.base.arrays import Bools, Floats, Ints, starts
from p3s.base.errors import P3SError
from p3s.machine.topology.fabric import About, Fabric, Level, Routes, compress, rates, several

#: Switches above one another, at most: fat trees that are built have up to five levels. Tables of
#: a tree have this many columns at most, so that they grow with its switches, not their square.
MAX_LEVELS = 64


def chains(source: str, up: Ints, names: Sequence[str], most: int = MAX_LEVELS) -> Ints:
    """Return for each switch the switches from its root to itself, -1 behind it.

    ``up``: the switch above each, -1 above a root. Shape (switches, levels). Errors: P3SError for
    switches in a circle, and for more than ``most`` levels.
    """
    if not len(up):
        return np.zeros((0, 1), dtype=np.int64)
    _check_circle(source, up, names)
    steps = [np.arange(len(up), dtype=np.int64)]
    while (steps[-1] >= 0).any():
        if len(steps) > most:
            raise P3SError(
                f"{source}: more than {MAX_LEVELS} switches are above one another; leave out those "
                "that join only one switch"
            )
        last = steps[-1]
        steps.append(np.where(last >= 0, up[np.maximum(last, 0)], -1))
    table = np.stack(steps[:-1], axis=1)[:, ::-1]
    order = np.argsort(table < 0, axis=1, kind="stable")
    return np.asarray(np.take_along_axis(table, order, axis=1), dtype=np.int64)


def _check_circle(source: str, up: Ints, names: Sequence[str]) -> None:
    """Raise P3SError where a switch is above itself."""
    above = up
    for _ in range(len(up).bit_length()):  # doubles how far above each time
        above = np.where(above >= 0, above[np.maximum(above, 0)], -1)
    if (above >= 0).any():
        name = names[int(np.argmax(above >= 0))]
        raise P3SError(f"{source}: the switches above {name} go round in a circle")


def common(first: Ints, second: Ints) -> Bools:
    """Return which switches of two chains, or of chains row by row, are above both."""
    return np.logical_and.accumulate((first == second) & (first >= 0), axis=-1)


@dataclass(frozen=True, eq=False)
class Tree(Fabric):
    """Switches with one way between any two: the one above each, of any depth.

    Trees that are not joined are as if one more switch stood above them all. ``switch_of``: of each
    node; ``up``: the switch above each, -1 above the root; ``names``: of the switches, that one
    more has none; ``chain``: as of :func:`chains`.
    """

    about: About
    switch_of: Ints
    up: Ints
    rate: Floats
    names: tuple[str, ...] = ()
    chain: Ints = field(init=False)

    def __post_init__(self) -> None:
        up = self.up
        joined = bool((up < 0).sum() > 1)
        if joined:
            up = np.append(np.where(up < 0, len(up), up), -1)
        names = self.names or tuple(map(str, range(len(up))))
        unknown = np.full(self.nodes + len(up) - len(self.rate), np.nan)
        self._derive(
            text=f"tree of {len(up)} switches, {self.nodes} nodes",
            switches=len(up),
            up=up,
            rate=np.append(self.rate, unknown),
            chain=chains(self.about.source, up, names, MAX_LEVELS + joined),
        )

    def levels(self) -> tuple[Level, ...]:
        """Return the switches of the nodes, those above them and so on."""
        levels_found, place = [], self.switch_of
        for level in range(1, self.chain.shape[1] + 1):
            levels_found.append(_level(level, place))
            place = np.where(self.up[place] < 0, place, self.up[place])
        return several(levels_found)

    def trunks(self) -> Ints:
        """Return the ends: cable ``nodes`` + s is the one above switch s (the root has none)."""
        switch = np.arange(self.switches)
        return np.stack([switch, np.where(self.up < 0, switch, self.up)], axis=1)

    def _ways(self, first: Ints, second: Ints) -> tuple[Ints, Ints]:
        """Return the switches below which messages pass a link upwards, and downwards; else -1."""
        a, b = self.chain[self.switch_of[first]], self.chain[self.switch_of[second]]
        both = common(a, b)
        return np.where(both, -1, a), np.where(both, -1, b)

    def between(self, first: Ints, second: Ints) -> Routes:
        """Return the links up as far as both have no switch in common, and down again."""
        up, down = (
            np.where(way >= 0, 2 * (self.nodes + way) + side, -1).T
            for side, way in enumerate(self._ways(first, second))
        )
        return compress([*up[::-1], *down], len(first))

    def _links_passed(self, first: Ints, second: Ints) -> Ints:
        """Return how many links between switches messages pass."""
        up, down = self._ways(first, second)
        return np.asarray((up >= 0).sum(axis=1) + (down >= 0).sum(axis=1), dtype=np.int64)

    def sharing(self, one: int, other: int, nodes: Ints) -> Bools:
        """Return which pairs of nodes share a link between switches with a pair."""
        chain = self.chain[self.switch_of[nodes]]
        shared = np.zeros((len(nodes), len(nodes)), dtype=bool)
        links = np.concatenate(self._ways(np.array([one]), np.array([other]))).ravel()
        for link in links[links >= 0]:
            below = (chain == link).any(axis=1)
            shared |= below[:, None] != below
        return shared

    @property
    def speed(self) -> Floats:
        """Bytes per ns of the link above each switch, NaN where nobody has said it."""
        return self.rate[self.nodes :]


def _level(number: int, of: Ints) -> Level:
    return Level(f"sw{number}", f"S{number}", of)


@dataclass(frozen=True, eq=False)
class Graph(Fabric):
    """Switches that are no tree: how far nodes are apart is known, which way messages go is not.

    ``joins``: pairs of switches that are joined.
    """

    about: About
    switch_of: Ints
    joins: Ints
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        self._derive(
            text=f"{len(self.names)} switches that are no tree, {self.nodes} nodes",
            switches=len(self.names),
            rate=np.full(self.nodes + len(self.joins), np.nan),
        )

    def trunks(self) -> Ints:
        """Return the pairs of switches that are joined."""
        return self.joins

    def between(self, first: Ints, second: Ints) -> Routes:
        """Raise P3SError: no way is known."""
        raise P3SError(
            f"{self.about.source}: these switches are no tree, so that the ways of messages are "
            "not known; give a description of the network"
        )

    def hops(self, first: Ints) -> Ints:
        """Return the links from each of some switches to all; shape (first, switches)."""
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import shortest_path

        ends = (self.joins[:, 0], self.joins[:, 1])
        graph = coo_array((np.ones(len(self.joins)), ends), shape=(self.switches, self.switches))
        far = shortest_path(graph.tocsr(), directed=False, unweighted=True, indices=first)
        return np.asarray(np.where(np.isfinite(far), far, -1), dtype=np.int64)

    def _links_passed(self, first: Ints, second: Ints) -> Ints:
        """Return how many links between switches messages pass at least."""
        switches, row = np.unique(self.switch_of[first], return_inverse=True)
        return np.asarray(self.hops(switches)[row, self.switch_of[second]], dtype=np.int64)


def one_switch(nodes: int) -> FatTree:
    """Return a network of which nothing is known: all nodes on one switch."""
    return FatTree(About("one switch"), (nodes,), (), (float("nan"),))


@dataclass(frozen=True, eq=False)
class FatTree(Fabric):
    """Levels of switches, each joined to several above it (an extended generalised fat tree).

    ``down``: how many nodes or switches hang below a switch of each level, the lowest first.
    ``above``: how many switches of the next level each of a level is joined to; none above the
    last one. Routes go up as far as necessary, and by D-mod-k: which of the switches above is
    taken depends on the destination alone (Zahavi, "D-Mod-K routing", 2010, as in SimGrid).
    Source of the form: Öhring et al., "On generalized fat trees", 1995.
    """

    about: About
    down: tuple[int, ...]
    above: tuple[int, ...]
    speed: tuple[float, ...]
    copies: list[int] = field(init=False)
    first_switch: Ints = field(init=False)
    first_cable: Ints = field(init=False)

    def __post_init__(self) -> None:
        down, above, nodes = self.down, self.above, math.prod(self.down)
        # Of each level: the switches of a group of nodes, and of all groups.
        copies = [math.prod(above[:level]) for level in range(len(down))]
        number = [math.prod(down[level + 1 :]) * each for level, each in enumerate(copies)]
        cables = [nodes, *(each * up for each, up in zip(number, above, strict=False))]
        levels = zip(down, above, strict=False)
        shape = ", then ".join(f"{below} below a switch and {up} above" for below, up in levels)
        self._derive(
            text=f"fat tree, {shape}" if above else "one switch",
            switch_of=np.arange(nodes) // down[0],
            switches=sum(number),
            rate=rates(*zip(cables, self.speed, strict=True)),
            copies=copies,
            first_switch=starts(number),
            first_cable=starts(cables)[1:],
        )

    def levels(self) -> tuple[Level, ...]:
        """Return the leaves, and the groups of nodes that share the switches of a level."""
        node = np.arange(self.nodes)
        sizes = np.cumprod(self.down)
        return several([_level(k, node // size) for k, size in enumerate(sizes, 1)])

    def trunks(self) -> Ints:
        """Return the ends of the cables, those of each level together."""
        parts = [np.zeros((0, 2), dtype=np.int64)]
        for level, up in enumerate(self.above):
            first, above, _ = self.first_switch[level : level + 3]
            low = np.repeat(np.arange(above - first), up)
            choice = np.tile(np.arange(up), above - first)
            group, copy = np.divmod(low, self.copies[level])
            high = group // self.down[level + 1] * self.copies[level + 1] + copy * up + choice
            parts.append(np.stack([first + low, above + high], axis=1))
        return np.concatenate(parts)

    def between(self, first: Ints, second: Ints) -> Routes:
        """Return the links up to the lowest level with a common switch, and down again."""
        up: list[Ints] = []
        down: list[Ints] = []
        copy = np.zeros(len(first), dtype=np.int64)  # which of a group's switches, of this level
        a, b, rest = self.switch_of[first], self.switch_of[second], second
        for level, number in enumerate(self.above):
            climbs = a != b
            choice = rest % number
            for group, into, side in ((a, up, 0), (b, down, 1)):
                switch = group * self.copies[level] + copy
                cable = self.first_cable[level] + switch * number + choice
                into.append(np.where(climbs, 2 * cable + side, -1))
            copy, rest = copy * number + choice, rest // number
            a, b = a // self.down[level + 1], b // self.down[level + 1]
        return compress([*up, *reversed(down)], len(first))
