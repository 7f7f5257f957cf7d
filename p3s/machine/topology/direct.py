"""Networks whose nodes have a switch of their own or share it with few: torus, mesh, dragonfly."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from p3s.base.arrays import Ints
from p3s.machine.topology.fabric import About, Fabric, Level, Routes, compress, rates, several


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

    def __post_init__(self) -> None:
        number = math.prod(self.dims)
        self._derive(
            text=f"{'torus' if self.wrap else 'mesh'} of {' x '.join(map(str, self.dims))} nodes",
            switch_of=np.arange(number),
            switches=number,
            rate=rates((number, self.speed[0]), (number * len(self.dims), self.speed[1])),
        )

    def trunks(self) -> Ints:
        """Return the ends; a mesh's last switches have a cable to themselves, which is not used."""
        node = self.switch_of
        parts = [np.zeros((0, 2), dtype=np.int64)]
        for d, extent in enumerate(self.dims):
            stride = math.prod(self.dims[:d])
            last = node // stride % extent + 1 == extent
            after_last = node - (extent - 1) * stride if self.wrap else node
            parts.append(np.stack([node, np.where(last, after_last, node + stride)], axis=1))
        return np.concatenate(parts)

    def steps(self, dimension: int, first: Ints, second: Ints) -> Ints:
        """Return how far messages go in a dimension, less than 0 where it is downwards."""
        extent, stride = self.dims[dimension], math.prod(self.dims[:dimension])
        ahead = second // stride % extent - first // stride % extent
        if not self.wrap:
            return ahead
        up = ahead % extent
        return np.where(2 * up <= extent, up, up - extent)

    def _links_passed(self, first: Ints, second: Ints) -> Ints:
        """Return how many links between switches messages pass."""
        far = [np.abs(self.steps(d, first, second)) for d in range(len(self.dims))]
        return np.asarray(np.sum(far, axis=0), dtype=np.int64)

    def between(self, first: Ints, second: Ints) -> Routes:
        """Return the links, dimension after dimension."""
        start = np.zeros(len(first) + 1, dtype=np.int64)
        np.cumsum(self._links_passed(first, second), out=start[1:])
        link = np.empty(int(start[-1]), dtype=np.int64)
        place, position = start[:-1], first
        for d, extent in enumerate(self.dims):
            stride, hops = math.prod(self.dims[:d]), self.steps(d, first, second)
            number = np.abs(hops)
            # Of every hop in this dimension: which it is of its message's.
            hop = np.arange(int(number.sum())) - np.repeat(np.cumsum(number) - number, number)
            down = hops < 0
            at = position // stride % extent
            base = self.nodes * (1 + d) + position - at * stride
            low = np.repeat(at - down, number) + hop * np.repeat(1 - 2 * down, number)
            low += extent * ((low < 0).astype(np.int64) - (low >= extent))
            link[np.repeat(place, number) + hop] = 2 * (
                np.repeat(base, number) + low * stride
            ) + np.repeat(down, number)
            place, position = place + number, position + ((at + hops) % extent - at) * stride
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
    parallel: int = field(init=False)
    first_outside: int = field(init=False)

    def __post_init__(self) -> None:
        groups, each, nodes, out = self.shape
        parallel = each * out // (groups - 1) if groups > 1 else 0
        switches = groups * each
        inside, outside = groups * math.comb(each, 2), math.comb(groups, 2) * parallel
        counts = (switches * nodes, inside, outside)
        self._derive(
            text=f"dragonfly of {groups} groups of {each} switches with {nodes} nodes",
            switch_of=np.arange(switches * nodes) // nodes,
            switches=switches,
            rate=rates(*zip(counts, self.speed, strict=True)),
            parallel=parallel,
            first_outside=switches * nodes + inside,
        )

    def levels(self) -> tuple[Level, ...]:
        """Return the switches and the groups."""
        group = self.switch_of // self.shape[1]
        return several([Level("sw", "S", self.switch_of), Level("g", "G", group)])

    def _inside(self, a: Ints, b: Ints) -> Ints:
        """Return the link between two switches of a group."""
        each = self.shape[1]
        cable = self.nodes + a // each * math.comb(each, 2) + _pair(a % each, b % each, each)
        return np.asarray(2 * cable + (a > b), dtype=np.int64)

    def _outside(self, a: Ints, b: Ints, index: Ints) -> Ints:
        """Return the link between two groups."""
        cable = self.first_outside + _pair(a, b, self.shape[0]) * self.parallel + index
        return np.asarray(2 * cable + (a > b), dtype=np.int64)

    def _gate(self, group: Ints, other: Ints, cable: Ints) -> Ints:
        """Return the switch of a group that has a cable to another one."""
        groups, each, _, out = self.shape
        behind = (other - group - 1) % groups
        return np.asarray(group * each + (cable * (groups - 1) + behind) // out, dtype=np.int64)

    def trunks(self) -> Ints:
        """Return the ends: inside groups, then between groups."""
        groups, each = self.shape[:2]
        base = np.arange(groups)[:, None] * each
        inside = [(base + side).ravel() for side in np.triu_indices(each, 1)]
        low, high = (np.repeat(side, self.parallel) for side in np.triu_indices(groups, 1))
        cable_index = np.tile(np.arange(self.parallel), math.comb(groups, 2))
        outside = [self._gate(low, high, cable_index), self._gate(high, low, cable_index)]
        return np.concatenate([np.stack(inside, axis=1), np.stack(outside, axis=1)])

    def between(self, first: Ints, second: Ints) -> Routes:
        """Return the links to the other group's cable, over it, and to the switch there."""
        groups, each = self.shape[:2]
        a, b = self.switch_of[first], self.switch_of[second]
        if groups == 1:
            return compress([np.where(a != b, self._inside(a, b), -1)], len(first))
        group, other_group = a // each, b // each
        cable_index = (first + second) % self.parallel
        out = np.where(group != other_group, self._gate(group, other_group, cable_index), b)
        into = np.where(group != other_group, self._gate(other_group, group, cable_index), b)
        columns = [
            np.where(a != out, self._inside(a, out), -1),
            np.where(group != other_group, self._outside(group, other_group, cable_index), -1),
            np.where(into != b, self._inside(into, b), -1),
        ]
        return compress(columns, len(first))


def _pair(one: Ints, other: Ints, number: int) -> Ints:
    """Return the place of pairs of ``number`` in a row: (0, 1), (0, 2), ..., (1, 2), ..."""
    low, high = np.minimum(one, other), np.maximum(one, other)
    return np.asarray(low * number - low * (low + 1) // 2 + high - low - 1, dtype=np.int64)
