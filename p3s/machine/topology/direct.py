"""Networks whose nodes have a switch of their own or share it with few: torus, mesh, dragonfly."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from p3s.base.arrays import Floats, Ints
from p3s.machine.topology.fabric import About, Fabric, Level, Routes, compress, several


@dataclass(frozen=True, eq=False)
class Torus(Fabric):
    """A grid of switches with one node each; ``wrap``: its ends are joined (else it is a mesh).

    Nodes are numbered with the first dimension fastest. Routes go along one dimension after the
    other, the shorter way round, upwards where both are equal. Cable ``nodes`` + d x ``nodes`` + k
    leads from switch k to the next one in dimension d.
    """

    about: About
    dims: tuple[int, ...]
    wrap: bool
    speed: tuple[float, float]
    rate: Floats = field(init=False)

    def __post_init__(self) -> None:
        between = np.full(self.nodes * len(self.dims), self.speed[1])
        object.__setattr__(self, "rate", np.append(np.full(self.nodes, self.speed[0]), between))

    @property
    def nodes(self) -> int:  # type: ignore[override]
        """Number of nodes."""
        return int(np.prod(self.dims))

    @property
    def switches(self) -> int:  # type: ignore[override]
        """Number of switches."""
        return self.nodes

    @property
    def text(self) -> str:
        """What it is, for people."""
        return f"{'torus' if self.wrap else 'mesh'} of {' x '.join(map(str, self.dims))} nodes"

    def _stride(self, dimension: int) -> int:
        return int(np.prod(self.dims[:dimension]))

    def cables(self) -> Ints:
        """Return the ends; a mesh's last switches have a cable to themselves, which is not used."""
        node = np.arange(self.nodes)
        parts = [np.stack([node, self.nodes + node], axis=1)]
        for d, extent in enumerate(self.dims):
            stride = self._stride(d)
            at = node // stride % extent
            onward = np.where(at + 1 < extent, node + stride, node - (extent - 1) * stride)
            if not self.wrap:
                onward = np.where(at + 1 < extent, onward, node)
            parts.append(self.nodes + np.stack([node, onward], axis=1))
        return np.concatenate(parts)

    def steps(self, dimension: int, first: Ints, second: Ints) -> Ints:
        """Return how far messages go in a dimension, less than 0 where it is downwards."""
        extent, stride = self.dims[dimension], self._stride(dimension)
        ahead = second // stride % extent - first // stride % extent
        if not self.wrap:
            return ahead
        up = ahead % extent
        return np.where(2 * up <= extent, up, up - extent)

    def _passed(self, first: Ints, second: Ints) -> Ints:
        """Return how many links between switches messages pass."""
        far = [np.abs(self.steps(d, first, second)) for d in range(len(self.dims))]
        return np.asarray(np.sum(far, axis=0), dtype=np.int64)

    def between(self, first: Ints, second: Ints) -> Routes:
        """Return the links, dimension after dimension."""
        start = np.zeros(len(first) + 1, dtype=np.int64)
        np.cumsum(self._passed(first, second), out=start[1:])
        link = np.empty(int(start[-1]), dtype=np.int64)
        place, here = start[:-1], first
        for d, extent in enumerate(self.dims):
            stride, left = self._stride(d), self.steps(d, first, second)
            number = np.abs(left)
            # Of every hop in this dimension: which it is of its message's.
            hop = np.arange(int(number.sum())) - np.repeat(np.cumsum(number) - number, number)
            down = left < 0
            at = here // stride % extent
            base = self.nodes * (1 + d) + here - at * stride
            low = np.repeat(at - down, number) + hop * np.repeat(1 - 2 * down, number)
            low += extent * ((low < 0).astype(np.int64) - (low >= extent))
            link[np.repeat(place, number) + hop] = 2 * (
                np.repeat(base, number) + low * stride
            ) + np.repeat(down, number)
            place, here = place + number, here + ((at + left) % extent - at) * stride
        return Routes(start, link)


@dataclass(frozen=True, eq=False)
class Dragonfly(Fabric):
    """Groups of switches that are all joined to each other, and cables between all groups.

    ``shape``: groups, switches of a group, nodes of a switch, cables of a switch to other groups.
    The k-th of a group's cables goes to the group k + 1 behind it (all groups in turn; what is left
    over leads nowhere) and is on switch k / (cables of a switch). Routes are minimal: to
    the switch with the cable to the other group, over it, and on to the node's switch; of several
    cables between two groups the one that both nodes' numbers choose (their sum modulo the cables).
    Source: Kim et al., "Technology-driven, highly-scalable dragonfly topology", 2008.
    """

    about: About
    shape: tuple[int, int, int, int]
    speed: tuple[float, float, float]
    rate: Floats = field(init=False)

    def __post_init__(self) -> None:
        groups, each, _, _ = self.shape
        inside = groups * (each * (each - 1) // 2)
        counts = (self.nodes, inside, groups * (groups - 1) // 2 * self.parallel)
        parts = [np.full(n, rate) for n, rate in zip(counts, self.speed, strict=True)]
        object.__setattr__(self, "rate", np.concatenate(parts))

    @property
    def nodes(self) -> int:  # type: ignore[override]
        """Number of nodes."""
        return self.shape[0] * self.shape[1] * self.shape[2]

    @property
    def switches(self) -> int:  # type: ignore[override]
        """Number of switches."""
        return self.shape[0] * self.shape[1]

    @property
    def parallel(self) -> int:
        """Number of cables between two groups."""
        groups, each, _, out = self.shape
        return each * out // (groups - 1) if groups > 1 else 0

    @property
    def text(self) -> str:
        """What it is, for people."""
        groups, each, nodes, _ = self.shape
        return f"dragonfly of {groups} groups of {each} switches with {nodes} nodes"

    def levels(self) -> tuple[Level, ...]:
        """Return the switches and the groups."""
        switch = np.arange(self.nodes) // self.shape[2]
        return several([Level("sw", "S", switch), Level("g", "G", switch // self.shape[1])])

    def _inside(self, a: Ints, b: Ints) -> Ints:
        """Return the link between two switches of a group."""
        each = self.shape[1]
        group, low, high = a // each, np.minimum(a, b) % each, np.maximum(a, b) % each
        pair = low * each - low * (low + 1) // 2 + high - low - 1
        cable = self.nodes + group * (each * (each - 1) // 2) + pair
        return np.asarray(2 * cable + (a > b), dtype=np.int64)

    def _between(self, a: Ints, b: Ints, which: Ints) -> Ints:
        """Return the link between two groups."""
        groups, each = self.shape[:2]
        low, high = np.minimum(a, b), np.maximum(a, b)
        pair = low * groups - low * (low + 1) // 2 + high - low - 1
        first = self.nodes + groups * (each * (each - 1) // 2)
        link = 2 * (first + pair * self.parallel + which) + (a > b)
        return np.asarray(link, dtype=np.int64)

    def _gate(self, group: Ints, other: Ints, which: Ints) -> Ints:
        """Return the switch of a group that has a cable to another one."""
        groups, each, _, out = self.shape
        behind = (other - group - 1) % groups
        return np.asarray(group * each + (which * (groups - 1) + behind) // out, dtype=np.int64)

    def cables(self) -> Ints:
        """Return the ends: of nodes, inside groups, between groups."""
        groups, each, nodes, _ = self.shape
        node = np.arange(self.nodes)
        parts = [np.stack([node, self.nodes + node // nodes], axis=1)]
        low, high = np.triu_indices(each, 1)
        base = np.repeat(np.arange(groups) * each, len(low))
        ends = np.stack([base + np.tile(low, groups), base + np.tile(high, groups)], axis=1)
        parts.append(self.nodes + ends)
        low, high = (np.repeat(side, self.parallel) for side in np.triu_indices(groups, 1))
        which = np.tile(np.arange(self.parallel), groups * (groups - 1) // 2)
        ends = np.stack([self._gate(low, high, which), self._gate(high, low, which)], axis=1)
        parts.append(self.nodes + ends)
        return np.concatenate(parts).astype(np.int64)

    def between(self, first: Ints, second: Ints) -> Routes:
        """Return the links to the other group's cable, over it, and to the switch there."""
        groups, each, nodes, _ = self.shape
        a, b = first // nodes, second // nodes
        other = a // each != b // each
        if groups == 1:
            return compress([np.where(a != b, self._inside(a, b), -1)], len(first))
        which = (first + second) % self.parallel
        out = np.where(other, self._gate(a // each, b // each, which), b)
        into = np.where(other, self._gate(b // each, a // each, which), b)
        columns = [
            np.where(a != out, self._inside(a, out), -1),
            np.where(other, self._between(a // each, b // each, which), -1),
            np.where(other & (into != b), self._inside(into, b), -1),
        ]
        return compress(columns, len(first))
