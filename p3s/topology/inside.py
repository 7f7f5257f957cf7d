"""The cores of a node, the cache that each shares, and its socket, as hwloc has them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from p3s.errors import P3SError
from p3s.topology.fabric import About
from p3s.topology.trees import Tree
from p3s.topology.units import Ints

_LARGEST = 64 << 20
#: Kinds of objects that a socket is; caches that cores may share, the largest first.
_SOCKETS = ("Package", "Socket")
_CACHES = ("L3Cache", "L2Cache")


@dataclass(frozen=True)
class Core:
    """A core: its socket, its number there, and the last cache that it shares, from 0 on."""

    socket: int
    number: int
    cache: int


@dataclass(frozen=True)
class Inside:
    """The cores of a node, those of a cache and of a socket together."""

    source: str
    cores: tuple[Core, ...]

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
    return Inside(str(path), tuple(_numbered(found)))


def _cores(root: ElementTree.Element) -> Iterator[tuple[int, int]]:
    """Yield the socket and the shared cache of each core: numbers of the objects around it."""
    stack = [(root, -1, -1, 0)]
    number = 0
    while stack:
        here, socket, cache, level = stack.pop()
        number += 1
        kind = here.get("type", "")
        if kind in _SOCKETS:
            socket = number
        if kind in _CACHES and (cache < 0 or _CACHES.index(kind) < level):
            cache, level = number, _CACHES.index(kind)
        if kind == "Core":
            yield socket, cache
            continue
        stack += [(each, socket, cache, level) for each in reversed(here.findall("object"))]


def _numbered(found: list[tuple[int, int]]) -> Iterator[Core]:
    """Yield cores with sockets and caches counted from 0 in the order of the file."""
    sockets: dict[int, int] = {}
    caches: dict[tuple[int, int], int] = {}
    inside: dict[int, int] = {}
    for socket, cache in found:
        at = sockets.setdefault(socket, len(sockets))
        shared = caches.setdefault((socket, cache), len(caches))
        yield Core(at, inside.setdefault(at, 0), shared)
        inside[at] += 1
