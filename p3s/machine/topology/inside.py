"""What is inside of a node: cores, caches, sockets, memory, as hwloc has them, and for threads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from p3s.base.arrays import Ints
from p3s.base.errors import P3SError, UsageError
from p3s.base.foreign_formats import ReadBy, refuse_foreign
from p3s.machine.topology.fabric import About
from p3s.machine.topology.trees import Tree

_LARGEST = 64 << 20
#: Kinds of objects that a socket is; caches that cores may share, the largest first.
_SOCKETS = ("Package", "Socket")
_L3, _L2 = "L3Cache", "L2Cache"
#: Memory that belongs to the cores beside it (hwloc 2) or in it (hwloc 1).
_MEMORY = "NUMANode"


@dataclass(frozen=True, eq=False)
class Inside:
    """The cores of a node in the order of the file, by numbers from 0 on.

    socket, domain: of each core; the memory next to it is its (NUMA) domain. cache: the last one
    that it shares. l3, l2: caches of these levels; a core without one counts as one of its own.
    smt: hardware threads of a core; memory: bytes of the node, None where not told.
    """

    source: str
    socket: Ints
    cache: Ints
    domain: Ints
    l3: Ints
    l2: Ints
    smt: int = 1
    memory: float | None = None

    def __len__(self) -> int:
        return len(self.socket)

    @property
    def caches(self) -> Ints:
        """How many cores share each cache."""
        return np.bincount(self.cache)

    @property
    def sockets(self) -> int:
        """Number of sockets."""
        return int(self.socket.max()) + 1

    def tree(self) -> Tree:
        """Return caches as nodes that hang on sockets."""
        of = self.socket[np.unique(self.cache, return_index=True)[1]]
        up = np.full(self.sockets, -1, dtype=np.int64)
        return Tree(About(self.source), of, up, np.full(len(of), np.nan))


def read_inside(path: Path) -> Inside:
    """Read what ``lstopo --of xml`` has written of a node.

    Errors: P3SError, in one line, where it cannot be read or has no cores.
    """
    refuse_foreign(path, ReadBy.NODE)
    try:
        if path.stat().st_size > _LARGEST:
            raise P3SError(f"{path}: larger than {_LARGEST >> 20} MB; no node has so much to tell")
        root = ElementTree.parse(path).getroot()
    except OSError as err:
        raise P3SError(f"{path}: cannot be read: {err.strerror}") from err
    except (ElementTree.ParseError, UnicodeDecodeError, ValueError) as err:
        raise P3SError(f"{path}: no XML of hwloc ({err}); write it with lstopo --of xml") from err
    cores = np.array(list(_cores(root)) if root.tag == "topology" else [], dtype=np.int64)
    if not len(cores):
        raise P3SError(f"{path}: tells of no cores; write it with lstopo --of xml FILE")
    socket, l3, l2, domain, threads = cores.T
    none_shared = -1 - np.arange(len(cores))
    shared = np.where(l3 >= 0, l3, l2)
    pair = np.unique(np.stack([socket, shared]), axis=1, return_inverse=True)[1]
    return Inside(
        str(path),
        _in_order(socket),
        _in_order(pair.ravel()),
        _in_order(domain),
        _in_order(np.where(l3 >= 0, l3, none_shared)),
        _in_order(np.where(l2 >= 0, l2, none_shared)),
        int(threads.max()),
        _memory(root),
    )


def _in_order(values: Ints) -> Ints:
    """Return values as numbers from 0 on in the order of their first appearance."""
    _, first, place = np.unique(values, return_index=True, return_inverse=True)
    return np.asarray(np.argsort(np.argsort(first))[place.ravel()], dtype=np.int64)


def _cores(root: ElementTree.Element) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield the cores in the order of the file, with their hardware threads.

    Numbers of the socket, caches and memory around each; -1: none of the objects is one.
    """
    stack = [(root, -1, -1, -1, -1)]
    number = 0
    while stack:
        element, socket, l3, l2, domain = stack.pop()
        number += 1
        kind = element.get("type", "")
        if kind in _SOCKETS:
            socket = number
        l3 = number if kind == _L3 else l3
        l2 = number if kind == _L2 else l2
        if kind == _MEMORY or any(_is_memory(each) for each in element.findall("object")):
            domain = number
        if kind == "Core":
            threads = max(1, len(element.findall("object[@type='PU']")))
            yield socket, l3, l2, domain, threads
            continue
        stack += [(each, socket, l3, l2, domain) for each in reversed(element.findall("object"))]


def _is_memory(item: ElementTree.Element) -> bool:
    """Return whether an object is memory beside cores: it has none inside, or is its cache."""
    kind = item.get("type")
    return (kind == _MEMORY and item.find(".//object[@type='Core']") is None) or kind == "MemCache"


def _memory(root: ElementTree.Element) -> float | None:
    """Return the bytes of all memory of a node, None where the file tells none."""
    nodes = [each for each in root.iter("object") if each.get("type") == _MEMORY]
    total = sum(float(each.get("local_memory", "0")) for each in nodes)
    return total or None


_SHORT = re.compile(r"(\d+)x(\d+)(?:x(\d+))?(?:\+smt(\d+))?(?:\+(\d+(?:\.\d+)?)([KMGT])i?B)?", re.I)
_BYTES = {"K": 2.0**10, "M": 2.0**20, "G": 2.0**30, "T": 2.0**40}
_FORM = "sockets x cores (2x32) or sockets x domains x cores (2x4x8), perhaps +smt2 and +256GB"
#: No node has more cores: a short text must not fill the memory.
_MOST_CORES = 1 << 16


@dataclass(frozen=True)
class Node:
    """A node: cores of each memory domain, domains of each socket, cores of each shared cache.

    smt: hardware threads of a core. memory: bytes, None where not known. Cores are numbered as
    they lie in memory domains, these as they lie in sockets.
    """

    source: str
    domains: tuple[int, ...]
    sockets: tuple[int, ...]
    caches: tuple[int, ...]
    smt: int = 1
    memory: float | None = None

    def __post_init__(self) -> None:
        cores = sum(self.domains)
        fits = sum(self.sockets) == len(self.domains) and sum(self.caches) == cores
        least = min((*self.domains, *self.sockets, *self.caches, self.smt), default=0)
        if not fits or least < 1 or cores > _MOST_CORES:
            raise P3SError(f"{self.source}: domains, sockets and caches do not hold the same cores")

    @property
    def cores(self) -> int:
        """Number of cores."""
        return sum(self.domains)

    @property
    def slots(self) -> int:
        """Number of hardware threads."""
        return self.cores * self.smt

    @property
    def domain_of(self) -> Ints:
        """The memory domain of each core."""
        return np.repeat(np.arange(len(self.domains)), self.domains)

    @property
    def socket_of(self) -> Ints:
        """The socket of each core."""
        return np.repeat(np.arange(len(self.sockets)), self.sockets)[self.domain_of]

    @property
    def cache_of(self) -> Ints:
        """The shared cache of each core."""
        return np.repeat(np.arange(len(self.caches)), self.caches)

    @property
    def text(self) -> str:
        """The node for people, as :func:`read_node` reads it where all parts are alike."""
        same = len(set(self.domains)) == len(set(self.sockets)) == 1
        if not same:
            return f"{self.cores} cores in {len(self.domains)} memory domains"
        shape = (len(self.sockets), self.sockets[0], self.domains[0])
        words = "x".join(str(x) for x in (shape if shape[1] > 1 else shape[::2]))
        return words + (f"+smt{self.smt}" if self.smt > 1 else "")


def node_of(inside: Inside) -> Node:
    """Return a node as hwloc has it.

    Cores of one memory domain are taken together, domains of one socket too; a domain that spans
    sockets counts as part of its first one.
    """
    order = np.lexsort((inside.cache, inside.domain, inside.socket))
    domain = _in_order(inside.domain[order])
    order = order[np.argsort(domain, kind="stable")]
    first = np.unique(np.sort(domain), return_index=True)[1]
    changes = np.flatnonzero(np.diff(inside.cache[order])) + 1
    return Node(
        inside.source,
        tuple(np.bincount(domain).tolist()),
        tuple(np.unique(inside.socket[order][first], return_counts=True)[1].tolist()),
        tuple(np.diff([0, *changes, len(order)]).tolist()),
        inside.smt,
        inside.memory,
    )


def read_node(description: str) -> Node:
    """Return the node that a file of hwloc (``lstopo --of xml``) or a short text tells.

    2x32: 2 sockets of 32 cores, each one memory domain; 2x4x8+smt2+256GB: 2 sockets of 4 domains of
    8 cores of 2 hardware threads, with 256 GB. Errors: UsageError where it is neither, P3SError,
    in one line, where the file is damaged.
    """
    match = _SHORT.fullmatch(description.strip())
    if match is not None and not Path(description).is_file():
        return _of_short(description.strip(), match)
    if not Path(description).exists():
        raise UsageError(f"--node {description}: neither a file of lstopo --of xml nor {_FORM}")
    return node_of(read_inside(Path(description)))


def _of_short(description: str, match: re.Match[str]) -> Node:
    first, second, third, smt, memory, unit = match.groups()
    sockets, each, cores = (
        (int(first), int(second), int(third)) if third else (int(first), 1, int(second))
    )
    if min(sockets, each, cores, int(smt or 1)) < 1 or sockets * each * cores > _MOST_CORES:
        raise UsageError(f"--node {description}: no node has so many cores; write {_FORM}")
    domains = (cores,) * (sockets * each)
    size = float(memory) * _BYTES[unit.upper()] if memory else None
    return Node(description, domains, (each,) * sockets, domains, int(smt or 1), size)
