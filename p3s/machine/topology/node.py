"""What a node is for threads: cores, memory domains, caches and sockets, hardware threads."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from p3s.base.errors import P3SError, UsageError
from p3s.machine.topology.inside import Inside, read_inside
from p3s.machine.topology.units import Ints

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
    order = sorted(inside.cores, key=lambda c: (c.socket, c.domain, c.cache))
    domains: dict[int, list[int]] = {}
    for core in order:
        domains.setdefault(core.domain, []).append(core.socket)
    sockets = np.unique([of[0] for of in domains.values()], return_counts=True)[1]
    placed = [core for domain in domains for core in order if core.domain == domain]
    changes = np.flatnonzero(np.diff([core.cache for core in placed])) + 1
    ends = np.array([0, *changes, len(placed)])
    return Node(
        inside.source,
        tuple(len(of) for of in domains.values()),
        tuple(sockets.tolist()),
        tuple(np.diff(ends).tolist()),
        inside.smt,
        inside.memory,
    )


def read_node(told: str) -> Node:
    """Return the node that a file of hwloc (``lstopo --of xml``) or a short text tells.

    2x32: 2 sockets of 32 cores, each one memory domain; 2x4x8+smt2+256GB: 2 sockets of 4 domains of
    8 cores of 2 hardware threads, with 256 GB. Errors: UsageError where it is neither, P3SError,
    in one line, where the file is damaged.
    """
    found = _SHORT.fullmatch(told.strip())
    if found is not None and not Path(told).is_file():
        return _of_short(told.strip(), found)
    if not Path(told).exists():
        raise UsageError(f"--node {told}: neither a file of lstopo --of xml nor {_FORM}")
    return node_of(read_inside(Path(told)))


def _of_short(told: str, found: re.Match[str]) -> Node:
    first, second, third, smt, memory, unit = found.groups()
    sockets, each, cores = (
        (int(first), int(second), int(third)) if third else (int(first), 1, int(second))
    )
    if min(sockets, each, cores, int(smt or 1)) < 1 or sockets * each * cores > _MOST_CORES:
        raise UsageError(f"--node {told}: no node has so many cores; write {_FORM}")
    domains = (cores,) * (sockets * each)
    size = float(memory) * _BYTES[unit.upper()] if memory else None
    return Node(told, domains, (each,) * sockets, domains, int(smt or 1), size)
