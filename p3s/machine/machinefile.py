"""The machine file: what `p3s machine measure` has found, as columns and names (p3s.machine)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from p3s.base.artefacts import write_json
from p3s.base.errors import DamagedFile, P3SError
from p3s.base.serialise import FileFormat, Natural, NotNegative, Positive, check_columns, from_data
from p3s.base.text import quote_word
from p3s.machine.facts import Facts
from p3s.machine.filesystem import FileSystem
from p3s.machine.teams import OpenMP

MACHINE_SCHEMA = "p3s.machine"
MACHINE_VERSION = 1
#: Name of the file that belongs to a study: of the machine its runs were made on.
NAME = "machine.json"

#: Loops that touch no memory: name -> what one operation is.
CORE_KERNELS = {
    "int_add": "integer additions that wait for each other",
    "fp_add": "floating point additions that wait for each other",
    "multiply_add": "independent multiply-adds, two at a time",
    "divide": "floating point divisions that wait for each other",
    "branch": "branches on random bits",
}
#: Loops over a working set: name -> what one access is.
CURVE_KERNELS = {
    "read": "8 bytes read, one after the other",
    "triad": "a = b + s c: 8 bytes of each",
    "strided": "8 bytes read every 1088 bytes",
    "gather": "8 bytes read at random places",
    "chase": "8 bytes read where the last read says",
}
#: Those of them that are also measured on all cores at once.
LOADED_KERNELS = ("read", "triad")


@dataclass(frozen=True)
class Cost:
    """Cost of one operation: ns is the least of the repeats, spread their median over it less 1."""

    ns: NotNegative
    spread: NotNegative
    repeats: Positive

    def valid(self) -> None:
        """Raise ValueError for a cost of 0 ns."""
        if self.ns <= 0:
            raise ValueError("a cost of 0 ns")


@dataclass(frozen=True)
class Curve:
    """Cost of one access over the working set.

    working_set: bytes, ascending. ns, spread, repeats: as in Cost, one entry per working set.
    """

    working_set: tuple[Positive, ...]
    ns: tuple[NotNegative, ...]
    spread: tuple[NotNegative, ...]
    repeats: tuple[Positive, ...]

    def valid(self) -> None:
        """Raise ValueError where working sets do not ascend, or have not one cost each, above 0."""
        check_columns(self, "working_set", "ns")

    def at(self, working_set: float) -> float:
        """Return the cost at a working set, straight between points on logarithmic axes.

        Beyond the ends it stays what it is there.
        """
        return math.exp(_between(self.working_set, [math.log(ns) for ns in self.ns], working_set))

    def spread_at(self, working_set: float) -> float:
        """Return the spread at a working set, as ``at`` does."""
        return _between(self.working_set, self.spread, working_set)


def _between(sizes: Sequence[int], values: Sequence[float], size: float) -> float:
    import numpy as np

    at = math.log(max(size, 1.0))
    return float(np.interp(at, np.log(np.array(sizes, dtype=float)), np.array(values)))


@dataclass(frozen=True)
class Loaded:
    """Costs with so many cores busy at once."""

    processes: Positive = 1
    curves: Mapping[str, Curve] = field(default_factory=dict)


@dataclass(frozen=True)
class Sizes:
    """Columns of messages between two ranks, an entry for each size.

    receive_ns: None where a message cannot have arrived before its receive.
    """

    bytes: tuple[Natural, ...]
    one_way_ns: tuple[NotNegative, ...]
    one_way_median_ns: tuple[NotNegative, ...]
    send_ns: tuple[NotNegative, ...]
    receive_ns: tuple[NotNegative | None, ...]
    gap_ns: tuple[NotNegative, ...]

    def valid(self) -> None:
        """Raise ValueError where columns differ in length, or sizes do not ascend."""
        check_columns(self, "bytes")


@dataclass(frozen=True)
class SizeRange:
    """Costs of a range of message sizes, as LogGP has them."""

    from_bytes: Natural
    to_bytes: Natural
    L_ns: NotNegative
    o_send_ns: NotNegative
    o_receive_ns: NotNegative
    g_ns: NotNegative
    G_ns_per_byte: NotNegative


@dataclass(frozen=True)
class Messages:
    """What is used of messages between two ranks; inside: two of one host, where measured too."""

    hosts: tuple[str, str]
    sizes: Sizes
    ranges: tuple[SizeRange, ...]
    eager_bytes: int
    mpi: str = ""
    post_ns: NotNegative | None = None
    inside: Messages | None = None


@dataclass(frozen=True)
class Machine:
    """A measured machine.

    name: for people, the host's. facts: what the machine says of itself. settings: how it was
    measured. core: cost by kernel. curves: by kernel, one core alone. network: messages between
    two ranks (Messages, and more), None with ``network_missing`` saying why. loaded: as ``curves``,
    with cores busy at once, none with one core. openmp: teams of threads, files: a file system,
    both None where they were not asked for. disturbed: what speaks against the measurement.
    """

    name: str
    created: str
    p3s_version: str
    facts: Facts
    settings: Mapping[str, Any]
    core: Mapping[str, Cost]
    curves: Mapping[str, Curve]
    loaded: Loaded = field(default_factory=Loaded, metadata={"always": True})
    network: Mapping[str, Any] | None = field(default=None, metadata={"always": True})
    network_missing: str = field(default="", metadata={"always": True})
    openmp: OpenMP | None = field(default=None, metadata={"always": True})
    files: FileSystem | None = None
    disturbed: tuple[str, ...] = field(default=(), metadata={"always": True})

    def valid(self) -> None:
        """Raise ValueError where a kernel is missing, or messages are damaged."""
        absent = [name for name in CORE_KERNELS if name not in self.core]
        absent += [name for name in CURVE_KERNELS if name not in self.curves]
        if absent:
            raise ValueError(f"kernel {absent[0]} is missing")
        if self.network is not None:
            from_data(Messages, self.network, more=True)

    def save(self, path: Path) -> None:
        """Write the machine file; P3SError when the place cannot be written."""
        write_json(path, MACHINE.data(self))

    @classmethod
    def load(cls, path: Path) -> Machine:
        """Read a machine file; P3SError, one line, when it is absent, damaged or another thing."""
        return MACHINE.read(Path(path))


MACHINE = FileFormat(
    MACHINE_SCHEMA,
    MACHINE_VERSION,
    Machine,
    more=True,
    again="measure that machine again: p3s machine measure -o FILE",
)


def files_of(path: Path) -> FileSystem:
    """Return the file system in a file of its own or in a machine file; P3SError where neither."""
    try:
        return FileSystem.load(path)
    except DamagedFile:
        raise
    except P3SError:
        found = Machine.load(path).files
    if found is None:
        raise P3SError(
            f"{path}: says nothing of files; measure them: "
            f"p3s machine measure --io DIR -o {quote_word(path)}"
        )
    return found
