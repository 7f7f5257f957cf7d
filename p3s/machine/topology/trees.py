"""Trees of switches: chains from the root, links between two, what is below; and fat trees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from p3s.base.arrays import Bools, Floats, Ints
from p3s.base.errors import P3SError
from p3s.machine.topology.fabric import About, Fabric, Level, Routes, compress, several

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


def links_between(chain: Ints, first: int, second: int) -> list[int]:
    """Return the switches of which the links upwards are between two switches, ascending."""
    both = common(chain[first], chain[second])
    return sorted(int(s) for side in (first, second) for s in chain[side][~both] if s >= 0)


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
        object.__setattr__(self, "up", up)
        names = self.names or tuple(map(str, range(len(up))))
        object.__setattr__(self, "chain", chains(self.about.source, up, names, MAX_LEVELS + joined))
        missing = self.nodes + len(up) - len(self.rate)
        rate = np.append(self.rate, np.full(missing, np.nan))
        object.__setattr__(self, "rate", rate)

    @property
    def nodes(self) -> int:  # type: ignore[override]
        """Number of nodes."""
        return len(self.switch_of)

    @property
    def switches(self) -> int:  # type: ignore[override]
        """Number of switches."""
        return len(self.up)

    @property
    def text(self) -> str:
        """What it is, for people."""
        return f"tree of {self.switches} switches, {self.nodes} nodes"

    def levels(self) -> tuple[Level, ...]:
        """Return the switches of the nodes, those above them and so on."""
        found, place = [], self.switch_of
        for level in range(1, self.chain.shape[1] + 1):
            found.append(_level(level, place))
            place = np.where(self.up[place] < 0, place, self.up[place])
        return several(found)

    def cables(self) -> Ints:
        """Return the ends: cable ``nodes`` + s is the one above switch s (the root has none)."""
        nodes = np.stack([np.arange(self.nodes), self.nodes + self.switch_of], axis=1)
        above = np.where(self.up < 0, np.arange(len(self.up)), self.up)
        switches = self.nodes + np.stack([np.arange(len(self.up)), above], axis=1)
        return np.concatenate([nodes, switches])

    def between(self, first: Ints, second: Ints) -> Routes:
        """Return the links up as far as both have no switch in common, and down again."""
        a, b = self.chain[self.switch_of[first]], self.chain[self.switch_of[second]]
        below = ~common(a, b)
        cable = 2 * self.nodes
        up = np.where(below & (a >= 0), cable + 2 * a, -1)
        down = np.where(below & (b >= 0), cable + 2 * b + 1, -1)
        depth = self.chain.shape[1]
        columns = [*(up[:, k] for k in reversed(range(depth))), *(down[:, k] for k in range(depth))]
        return compress(columns, len(first))

    def _passed(self, first: Ints, second: Ints) -> Ints:
        """Return how many links between switches messages pass."""
        a, b = self.chain[self.switch_of[first]], self.chain[self.switch_of[second]]
        below = ~common(a, b)
        passed = (below & (a >= 0)).sum(axis=1) + (below & (b >= 0)).sum(axis=1)
        return np.asarray(passed, dtype=np.int64)

    def sharing(self, one: int, other: int, nodes: Ints) -> Bools:
        """Return which pairs of nodes share a link between switches with a pair."""
        switch = self.switch_of[nodes]
        shared = np.zeros((len(nodes), len(nodes)), dtype=bool)
        ends = int(self.switch_of[one]), int(self.switch_of[other])
        for link in links_between(self.chain, *ends):
            side = (self.chain[switch] == link).any(axis=1)
            shared |= side[:, None] != side[None, :]
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
    rate: Floats = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rate", np.full(self.nodes + len(self.joins), np.nan))

    @property
    def nodes(self) -> int:  # type: ignore[override]
        """Number of nodes."""
        return len(self.switch_of)

    @property
    def switches(self) -> int:  # type: ignore[override]
        """Number of switches."""
        return len(self.names)

    @property
    def text(self) -> str:
        """What it is, for people."""
        return f"{self.switches} switches that are no tree, {self.nodes} nodes"

    def cables(self) -> Ints:
        """Return the ends of the cables, those of nodes first."""
        nodes = np.stack([np.arange(self.nodes), self.nodes + self.switch_of], axis=1)
        return np.concatenate([nodes, self.nodes + self.joins])

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

    def _passed(self, first: Ints, second: Ints) -> Ints:
        """Return how many links between switches messages pass at least."""
        some, row = np.unique(self.switch_of[first], return_inverse=True)
        return np.asarray(self.hops(some)[row, self.switch_of[second]], dtype=np.int64)


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
    rate: Floats = field(init=False)

    def __post_init__(self) -> None:
        parts = [
            np.full(number, rate)
            for number, rate in zip((self.nodes, *self._cables()), self.speed, strict=True)
        ]
        object.__setattr__(self, "rate", np.concatenate(parts))

    @property
    def nodes(self) -> int:  # type: ignore[override]
        """Number of nodes."""
        return int(np.prod(self.down))

    @property
    def text(self) -> str:
        """What it is, for people."""
        if not self.above:
            return "one switch"
        levels = zip((*self.down[:-1], 0), (*self.above, 0), strict=True)
        told = ", then ".join(
            f"{below} below a switch and {up} above" for below, up in levels if up
        )
        return f"fat tree, {told}"

    def levels(self) -> tuple[Level, ...]:
        """Return the leaves, and the groups of nodes that share the switches of a level."""
        node = np.arange(self.nodes)
        sizes = np.cumprod(self.down)
        return several([_level(k, node // size) for k, size in enumerate(sizes, 1)])

    def _groups(self, level: int) -> int:
        """Return how many groups of nodes have switches of a level (0: leaves) of their own."""
        return int(np.prod(self.down[level + 1 :]))

    def _copies(self, level: int) -> int:
        """Return how many switches of a level a group of nodes has."""
        return int(np.prod(self.above[:level]))

    def _number(self, level: int) -> int:
        return self._groups(level) * self._copies(level)

    def _cables(self) -> list[int]:
        return [self._number(level) * up for level, up in enumerate(self.above)]

    @property
    def switches(self) -> int:  # type: ignore[override]
        """Number of switches, those of the lowest level first."""
        return sum(self._number(level) for level in range(len(self.down)))

    def _first(self, level: int) -> tuple[int, int]:
        """Return the first switch of a level, and the first cable above it."""
        return (
            self.nodes + sum(self._number(k) for k in range(level)),
            self.nodes + sum(self._cables()[:level]),
        )

    def cables(self) -> Ints:
        """Return the ends of the cables, those of each level together."""
        node = np.arange(self.nodes)
        parts = [np.stack([node, self._first(0)[0] + node // self.down[0]], axis=1)]
        for level, up in enumerate(self.above):
            low = np.repeat(np.arange(self._number(level)), up)
            choice = np.tile(np.arange(up), self._number(level))
            group, copy = np.divmod(low, self._copies(level))
            high = group // self.down[level + 1] * self._copies(level + 1) + copy * up + choice
            here, there = self._first(level)[0], self._first(level + 1)[0]
            parts.append(np.stack([here + low, there + high], axis=1))
        return np.concatenate(parts)

    def between(self, first: Ints, second: Ints) -> Routes:
        """Return the links up to the lowest level with a common switch, and down again."""
        up: list[Ints] = []
        down: list[Ints] = []
        copy = np.zeros(len(first), dtype=np.int64)  # which of a group's switches, of this level
        a, b, rest = first // self.down[0], second // self.down[0], second
        for level, number in enumerate(self.above):
            climbs = a != b
            choice = rest % number
            cable = self._first(level)[1]
            for group, into, side in ((a, up, 0), (b, down, 1)):
                switch = group * self._copies(level) + copy
                into.append(np.where(climbs, 2 * (cable + switch * number + choice) + side, -1))
            copy, rest = copy * number + choice, rest // number
            a, b = a // self.down[level + 1], b // self.down[level + 1]
        return compress([*up, *reversed(down)], len(first))
