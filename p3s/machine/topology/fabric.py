"""A network of nodes and switches: its directed links, which a message passes, what they carry."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from p3s.base.arrays import Bools, Floats, Ints
from p3s.base.errors import P3SError

_SPEED = re.compile(r"([0-9]*\.?[0-9]+)([kmgt]?)(bit/s|bit|bps|b/s|byte/s)", re.IGNORECASE)
_PREFIX = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_TIME = re.compile(r"([0-9]*\.?[0-9]+)(ns|us|ms|s)")
_NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}


def speed_of(text: str) -> float | None:
    """Return bytes per ns of a text like 200Gbit/s or 12.5GB/s; None where it is none."""
    match = _SPEED.fullmatch(text.strip())
    if match is None or not float(match[1]) > 0:
        return None
    in_bytes = match[3] == "B/s" or match[3].lower() == "byte/s"
    return float(match[1]) * _PREFIX[match[2].lower()] * (1.0 if in_bytes else 0.125) * 1e-9


def ns_of(text: str) -> float | None:
    """Return ns of a text like 300ns or 2us; None where it is no time."""
    match = _TIME.fullmatch(text.strip())
    return None if match is None else float(match[1]) * _NS[match[2]]


@dataclass(frozen=True, eq=False)
class Level:
    """Components of a network of one kind, each made of nodes or of components of the level below.

    ``name``: what one of them is called, also in names of columns that count them (sw, r).
    ``letter``: begins the names of columns with their traffic (S, R). ``of``: component of each
    node.
    """

    name: str
    letter: str
    of: Ints

    @property
    def number(self) -> int:
        """How many components the nodes are in."""
        return len(np.unique(self.of))

    def at(self, nodes: Ints) -> Level:
        """Return the level of some nodes, in their order."""
        return Level(self.name, self.letter, self.of[nodes])


def several(levels: Sequence[Level]) -> tuple[Level, ...]:
    """Return the levels that tell nodes apart: not those where all are in one component."""
    return tuple(level for level in levels if level.number > 1)


@dataclass(frozen=True)
class Routes:
    """The links that messages pass, in order.

    The k-th message passes ``link[start[k]:start[k + 1]]``.
    """

    start: Ints
    link: Ints

    def __len__(self) -> int:
        return len(self.start) - 1

    def of(self, message: int) -> list[int]:
        """Return the links of one message."""
        return [int(x) for x in self.link[self.start[message] : self.start[message + 1]]]

    @property
    def message(self) -> Ints:
        """The number of the message of each entry of ``link``."""
        return np.repeat(np.arange(len(self), dtype=np.int64), np.diff(self.start))


def compress(hops: Sequence[Ints], messages: int) -> Routes:
    """Return routes from columns, one for each hop that a message may make; -1: it makes none."""
    table = np.empty((messages, len(hops)), dtype=np.int32)
    for k, column in enumerate(hops):
        table[:, k] = column
    passed = table >= 0
    start = np.zeros(messages + 1, dtype=np.int64)
    np.cumsum(passed.sum(axis=1), out=start[1:])
    return Routes(start, table[passed].astype(np.int64))


def join_routes(parts: Sequence[Routes]) -> Routes:
    """Return the routes of the messages of all parts, one after the other."""
    counts = [np.diff(part.start) for part in parts]
    start = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(np.concatenate(counts))])
    return Routes(start, np.concatenate([part.link for part in parts]))


def loads(routes: Routes, nbytes: Floats | Ints, links: int) -> Floats:
    """Return the bytes that each of ``links`` links carries; ``nbytes``: of each message."""
    each = np.repeat(np.asarray(nbytes, dtype=np.float64), np.diff(routes.start))
    carried = np.bincount(routes.link, weights=each, minlength=links)
    return np.asarray(carried, dtype=np.float64)


#: Messages that are routed at a time: bounds the memory.
_CHUNK = 1 << 16


@dataclass(frozen=True)
class Extra:
    """What a message takes longer for each further switch: ns over bytes, straight between."""

    nbytes: tuple[float, ...] = (0.0,)
    ns: tuple[float, ...] = (0.0,)
    known: bool = False


@dataclass(frozen=True)
class About:
    """What is known of a network beside its form.

    ``source``: what it was read from. ``hosts``: names of its nodes, none where nobody has said
    them. ``extra``: time for further switches. ``fair``: messages on one link share its rate; else
    they pass one after the other. ``notes``: what was assumed, for people.
    """

    source: str
    hosts: tuple[str, ...] = ()
    extra: Extra = Extra()
    fair: bool = True
    notes: tuple[str, ...] = ()


def rates(*parts: tuple[int, float]) -> Floats:
    """Return a column with so many times each rate."""
    return np.repeat([rate for _, rate in parts], [number for number, _ in parts])


class Fabric(ABC):
    """Nodes, switches and the cables between them; subclasses say how messages are routed.

    ``text``: what it is, for people. ``switch_of``: switch of each node. ``switches``: how many.
    ``rate``: bytes per ns of each cable in each direction, NaN where nobody has said it.
    """

    about: About
    text: str
    switch_of: Ints
    switches: int
    rate: Floats

    def _derive(self, **values: object) -> None:
        """Set what follows from the fields, which are frozen."""
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(self.switch_of)

    @abstractmethod
    def trunks(self) -> Ints:
        """Return the pairs of switches that cables join, shape (cables, 2)."""

    @abstractmethod
    def between(self, first: Ints, second: Ints) -> Routes:
        """Return the links between switches from each first node to its second, another one."""

    def levels(self) -> tuple[Level, ...]:
        """Return what nodes are in, the lowest level first; none where the network has no levels.

        A level that all nodes are in together is left out.
        """
        return ()

    def cables(self) -> Ints:
        """Return the ends of the cables, shape (cables, 2): those of nodes, then trunks.

        Node k is k, switch s is ``nodes`` + s.
        """
        node_cables = np.stack([np.arange(self.nodes), self.nodes + self.switch_of], axis=1)
        return np.concatenate([node_cables, self.nodes + self.trunks()])

    @cached_property
    def between_switches(self) -> Bools:
        """Which directed links join two switches."""
        return np.asarray((self.ends >= self.nodes).all(axis=1) & self.used, dtype=bool)

    @cached_property
    def used(self) -> Bools:
        """Which directed links lead anywhere; the others are there to number all alike."""
        return np.asarray(self.ends[:, 0] != self.ends[:, 1], dtype=bool)

    @property
    def links(self) -> int:
        """Number of directed links."""
        return 2 * len(self.rate)

    @cached_property
    def ends(self) -> Ints:
        """Where each directed link begins and ends, shape (links, 2)."""
        cables = self.cables()
        return np.stack([cables, cables[:, ::-1]], axis=1).reshape(-1, 2)

    def routes(self, first: Ints, second: Ints) -> Routes:
        """Return the links from each first node to its second one, out of the one into the other.

        A message inside a node passes none. Errors: P3SError for a node that is not there.
        """
        first, second = self._check_nodes(first), self._check_nodes(second)
        parts = [
            self._part(first[k : k + _CHUNK], second[k : k + _CHUNK])
            for k in range(0, max(len(first), 1), _CHUNK)
        ]
        return parts[0] if len(parts) == 1 else join_routes(parts)

    def _part(self, first: Ints, second: Ints) -> Routes:
        apart = first != second
        inner = self.between(first, second)
        counts = np.where(apart, np.diff(inner.start) + 2, 0)
        start = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])
        link = np.empty(int(start[-1]), dtype=np.int64)
        is_node_link = np.zeros(len(link), dtype=bool)
        out, into = start[:-1][apart], start[1:][apart] - 1
        is_node_link[out] = is_node_link[into] = True
        link[out], link[into] = 2 * first[apart], 2 * second[apart] + 1
        link[~is_node_link] = inner.link
        return Routes(start, link)

    def distances(self, first: Ints, second: Ints) -> Ints:
        """Return the switches that a message passes from each first node to its second one.

        0 inside a node, 1 where both hang on one switch.
        """
        first, second = self._check_nodes(first), self._check_nodes(second)
        hops = np.zeros(len(first), dtype=np.int64)
        for k in range(0, len(first), _CHUNK):
            a, b = first[k : k + _CHUNK], second[k : k + _CHUNK]
            hops[k : k + _CHUNK] = np.where(a != b, self._links_passed(a, b) + 1, 0)
        return hops

    def _links_passed(self, first: Ints, second: Ints) -> Ints:
        """Return how many links between switches messages pass."""
        return np.diff(self.between(first, second).start)

    def apart(self, nodes: Ints) -> Ints:
        """Return the distances between some nodes, shape (nodes, nodes)."""
        number = len(nodes)
        hops = self.distances(np.repeat(nodes, number), np.tile(nodes, number))
        return hops.reshape(number, number)

    def sharing(self, one: int, other: int, nodes: Ints) -> Bools:
        """Return which pairs of nodes share a link between switches with a pair, as far as known.

        Shape (nodes, nodes). Where the ways are not looked at every pair counts that leaves its
        switch.
        """
        return np.asarray((self.apart(nodes) > 1) & (self.apart(np.array([one, other])).max() > 1))

    def numbers(self, names: Sequence[str]) -> Ints:
        """Return which node of the network each node of a run is.

        ``names``: host names, "" where nobody has said one (the next in order), "+n7" for the
        eighth. Errors: P3SError for a host that the network does not name, or one number too many.
        """
        source = self.about.source
        number_of = {name: i for i, name in enumerate(self.about.hosts)}
        number_of |= {name.split(".", 1)[0]: i for name, i in list(number_of.items())}
        numbers_found = []
        for node, name in enumerate(names):
            if name and not name.startswith("+n"):
                number = number_of.get(name, number_of.get(name.split(".", 1)[0], -1))
                if number < 0:
                    raise P3SError(
                        f"{source}: does not name node {name}; add it, or leave the topology out"
                    )
            else:
                number = int(name[2:]) if name else node
            if number >= self.nodes:
                raise P3SError(
                    f"{source}: has {self.nodes} nodes, the run needs {number + 1}; add nodes"
                )
            numbers_found.append(number)
        return np.array(numbers_found, dtype=np.int64)

    def loads(self, first: Ints, second: Ints, nbytes: Floats | Ints) -> Floats:
        """Return the bytes that each directed link carries for messages between nodes."""
        total = np.zeros(self.links)
        for k in range(0, len(first), _CHUNK):
            part = slice(k, k + _CHUNK)
            total += loads(self.routes(first[part], second[part]), nbytes[part], self.links)
        return total

    def _check_nodes(self, nodes: Ints) -> Ints:
        checked = np.asarray(nodes, dtype=np.int64)
        if len(checked) and not (int(checked.min()) >= 0 and int(checked.max()) < self.nodes):
            raise P3SError(
                f"{self.about.source}: has {self.nodes} nodes, number {int(checked.max())} is"
                " asked for; add nodes"
            )
        return checked
