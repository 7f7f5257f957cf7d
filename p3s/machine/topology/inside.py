"""The cores of a node, the cache that each shares, its socket and its memory, as hwloc has them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np

from p3s.base.errors import P3SError
from p3s.base.foreign_formats import ReadBy, refuse_foreign
from p3s.machine.topology.fabric import About
from p3s.machine.topology.trees import Tree
from p3s.machine.topology.units import Ints

_LARGEST = 64 << 20
#: Kinds of objects that a socket is; caches that cores may share, the largest first.
_SOCKETS = ("Package", "Socket")
_CACHES = ("L3Cache", "L2Cache")
#: Memory that belongs to the cores beside it (hwloc 2) or in it (hwloc 1).
_MEMORY = "NUMANode"


@dataclass(frozen=True)
class Core:
    """A core: its socket, its number there, and the last cache that it shares, from 0 on.

    domain: the memory next to it (NUMA domain), from 0 on.
    """

    socket: int
    number: int
    cache: int
    domain: int = 0


@dataclass(frozen=True)
class Inside:
    """The cores of a node, those of a cache and of a socket together.

    smt: hardware threads of a core; memory: bytes of the node, None where not told.
    """

    source: str
    cores: tuple[Core, ...]
    smt: int = 1
    memory: float | None = None

    @property
    def caches(self) -> Ints:
        """How many cores share each cache."""
        return np.bincount([core.cache for core in self.cores])

    @property
    def sockets(self) -> int:
        """Number of sockets."""
        return len({core.socket for core in self.cores})

    def tree(self) -> Tree:
        """Return caches as nodes that hang on sockets."""
        pairs = sorted({(core.cache, core.socket) for core in self.cores})
        of = np.array([socket for _, socket in pairs], dtype=np.int64)
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
    found = list(_cores(root)) if root.tag == "topology" else []
    if not found:
        raise P3SError(f"{path}: tells of no cores; write it with lstopo --of xml FILE")
    smt = max(each.threads for each in found)
    return Inside(str(path), tuple(_numbered(found)), smt, _memory(root))


class _Found(NamedTuple):
    """A core: numbers of the socket, cache and memory around it, and its hardware threads."""

    socket: int
    cache: int
    domain: int
    threads: int


def _cores(root: ElementTree.Element) -> Iterator[_Found]:
    """Yield the cores in the order of the file; -1: none of the objects around it is one."""
    stack = [(root, -1, -1, 0, -1)]
    number = 0
    while stack:
        here, socket, cache, level, domain = stack.pop()
        number += 1
        kind = here.get("type", "")
        if kind in _SOCKETS:
            socket = number
        if kind in _CACHES and (cache < 0 or _CACHES.index(kind) < level):
            cache, level = number, _CACHES.index(kind)
        if kind == _MEMORY or any(_is_memory(each) for each in here.findall("object")):
            domain = number
        if kind == "Core":
            yield _Found(socket, cache, domain, max(1, len(here.findall("object[@type='PU']"))))
            continue
        stack += [(each, socket, cache, level, domain) for each in reversed(here.findall("object"))]


def _is_memory(here: ElementTree.Element) -> bool:
    """Return whether an object is memory beside cores: it has none inside, or is its cache."""
    kind = here.get("type")
    return (kind == _MEMORY and here.find(".//object[@type='Core']") is None) or kind == "MemCache"


def _memory(root: ElementTree.Element) -> float | None:
    """Return the bytes of all memory of a node, None where the file tells none."""
    nodes = [each for each in root.iter("object") if each.get("type") == _MEMORY]
    total = sum(float(each.get("local_memory", "0")) for each in nodes)
    return total or None


def _numbered(found: list[_Found]) -> Iterator[Core]:
    """Yield cores with sockets, caches and memory counted from 0 in the order of the file."""
    sockets: dict[int, int] = {}
    caches: dict[tuple[int, int], int] = {}
    domains: dict[int, int] = {}
    inside: dict[int, int] = {}
    for each in found:
        at = sockets.setdefault(each.socket, len(sockets))
        shared = caches.setdefault((each.socket, each.cache), len(caches))
        domain = domains.setdefault(each.domain, len(domains))
        yield Core(at, inside.setdefault(at, 0), shared, domain)
        inside[at] += 1
