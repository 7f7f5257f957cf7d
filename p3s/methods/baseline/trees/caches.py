"""Which cores of a node share which caches and sockets, level by level, as hwloc has them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from p3s.machine.topology.inside import read_inside
from p3s.machine.topology.units import Ints

#: What cores may share, the widest first: names of the objects in hwloc's files.
_LEVELS = (("Package", "Socket"), ("L3Cache",), ("L2Cache",))


@dataclass(frozen=True)
class Caches:
    """The cores of a node in their order: numbers from 0 of the socket, L3 and L2 of each.

    A core without such a cache around it has one of its own.
    """

    socket: Ints
    l3: Ints
    l2: Ints

    def __len__(self) -> int:
        return len(self.socket)


def read_caches(path: Path) -> Caches:
    """Read what ``lstopo --of xml`` has written of a node; errors as of :func:`read_inside`."""
    read_inside(path)
    return Caches(*_shared(ElementTree.parse(path).getroot()).T)


def _shared(root: ElementTree.Element) -> Ints:
    """Return, (cores, levels), the number of the object of each level around each core."""
    found: list[tuple[int, ...]] = []
    stack: list[tuple[ElementTree.Element, tuple[int, ...]]] = [(root, (-1,) * len(_LEVELS))]
    number = 0
    while stack:
        here, around = stack.pop()
        number += 1
        kind = here.get("type", "")
        around = tuple(
            number if kind in level else old for level, old in zip(_LEVELS, around, strict=True)
        )
        if kind == "Core":
            found.append(tuple(-number if each < 0 else each for each in around))
            continue
        stack += [(each, around) for each in reversed(here.findall("object"))]
    return np.stack([_from_zero(column) for column in np.array(found).T], axis=1)


def _from_zero(column: Ints) -> Ints:
    """Return numbers from 0 on in the order in which they appear."""
    _, first, which = np.unique(column, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[which]


def regular(sockets: int, l3: int, l2: int, cores: int) -> Caches:
    """Return a node of equal parts: ``l3`` a socket, ``l2`` of each of them, ``cores`` of each."""
    at = np.arange(sockets * l3 * l2 * cores)
    return Caches(at // (l3 * l2 * cores), at // (l2 * cores), at // cores)
