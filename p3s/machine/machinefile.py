"""The machine file: what `p3s machine measure` has found, as columns and names (p3s.machine)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from p3s.artefacts import read_json, write_json
from p3s.errors import Damaged, P3SError
from p3s.machine.filesystem import FileSystem
from p3s.machine.filesystem import checked as checked_files
from p3s.machine.teams import OpenMP, checked
from p3s.serialise import ShapeError, from_data, to_data

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

    ns: float
    spread: float
    repeats: int


@dataclass(frozen=True)
class Curve:
    """Cost of one access over the working set.

    working_set: bytes, ascending. ns, spread, repeats: as in Cost, one entry per working set.
    """

    working_set: tuple[int, ...]
    ns: tuple[float, ...]
    spread: tuple[float, ...]
    repeats: tuple[int, ...]

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
class Machine:
    """A measured machine.

    name: for people, the host's. facts: what the machine says of itself (p3s.machine.facts).
    settings: how it was measured. core: cost by kernel. curves: by kernel, one core alone. loaded:
    the same with ``loaded_processes`` cores busy at once, empty with one core. network: messages
    between two ranks, None with ``network_missing`` saying why. openmp: teams of threads, files: a
    file system, both None where they were not asked for. disturbed: what speaks against the
    measurement, sentences.
    """

    name: str
    created: str
    p3s_version: str
    facts: Mapping[str, Any]
    settings: Mapping[str, Any]
    core: Mapping[str, Cost]
    curves: Mapping[str, Curve]
    loaded: Mapping[str, Curve] = field(default_factory=dict)
    loaded_processes: int = 1
    network: Mapping[str, Any] | None = None
    network_missing: str = ""
    disturbed: tuple[str, ...] = ()
    openmp: OpenMP | None = None
    files: FileSystem | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the content of a machine file."""
        return {
            "schema": MACHINE_SCHEMA,
            "schema_version": MACHINE_VERSION,
            "name": self.name,
            "created": self.created,
            "p3s_version": self.p3s_version,
            "facts": dict(self.facts),
            "settings": dict(self.settings),
            "core": {name: vars(cost) for name, cost in self.core.items()},
            "curves": {name: vars(curve) for name, curve in self.curves.items()},
            "loaded": {
                "processes": self.loaded_processes,
                "curves": {name: vars(curve) for name, curve in self.loaded.items()},
            },
            "network": None if self.network is None else dict(self.network),
            "network_missing": self.network_missing,
            "openmp": to_data(self.openmp),
            **({} if self.files is None else {"files": to_data(self.files)}),
            "disturbed": list(self.disturbed),
        }

    def save(self, path: Path) -> None:
        """Write the machine file; P3SError when the place cannot be written."""
        write_json(path, self.to_json())

    @classmethod
    def load(cls, path: Path) -> Machine:
        """Read a machine file; P3SError, one line, when it is absent, damaged or another thing."""
        path = Path(path)
        return cls.from_json(read_json(path, MACHINE_SCHEMA, MACHINE_VERSION), str(path))

    @classmethod
    def from_json(cls, data: Mapping[str, Any], where: str) -> Machine:
        """Return the machine of a file's content; Damaged names what is wrong with it."""
        try:
            loaded = _mapping(data, "loaded")
            network, openmp = data["network"], data.get("openmp")
            files = data.get("files")
            machine = cls(
                name=str(data["name"]),
                created=str(data["created"]),
                p3s_version=str(data["p3s_version"]),
                facts=_mapping(data, "facts"),
                settings=_mapping(data, "settings"),
                core={str(name): _cost(cost) for name, cost in _mapping(data, "core").items()},
                curves=_curves(_mapping(data, "curves")),
                loaded=_curves(_mapping(loaded, "curves")),
                loaded_processes=int(loaded["processes"]),
                network=None if network is None else check_network(network),
                network_missing=str(data.get("network_missing", "")),
                disturbed=tuple(str(text) for text in data.get("disturbed", [])),
                openmp=None if openmp is None else checked(from_data(OpenMP, openmp)),
                files=None if files is None else checked_files(from_data(FileSystem, files)),
            )
            absent = [name for name in CORE_KERNELS if name not in machine.core]
            absent += [name for name in CURVE_KERNELS if name not in machine.curves]
            if absent:
                raise ValueError(f"kernel {absent[0]} is missing")
        except (KeyError, TypeError, ValueError, AttributeError, ShapeError) as error:
            why = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
            raise Damaged(
                f"{where}: damaged machine file ({why[:120]}); measure that machine again: "
                "p3s machine measure -o FILE"
            ) from error
        return machine


def files_of(path: Path) -> FileSystem:
    """Return the file system in a file of its own or in a machine file; P3SError where neither."""
    try:
        return FileSystem.load(path)
    except Damaged:
        raise
    except P3SError:
        found = Machine.load(path).files
    if found is None:
        raise P3SError(
            f"{path}: says nothing of files; measure them: p3s machine measure --io DIR -o {path}"
        )
    return found


def _mapping(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = data[key]
    if not isinstance(value, Mapping):
        raise ValueError(f"{key} is no object")
    return value


def number(value: Any, least: float = 0.0) -> float:
    """Return a finite number of at least ``least``; ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{value!r:.40} is no number")
    if not math.isfinite(value) or value < least:
        raise ValueError(f"{value!r:.40} cannot be")
    return float(value)


def _positive(value: Any) -> float:
    if number(value) == 0:
        raise ValueError("a cost of 0 ns")
    return float(value)


def _cost(data: Mapping[str, Any]) -> Cost:
    return Cost(_positive(data["ns"]), number(data["spread"]), int(number(data["repeats"], 1)))


def _curves(data: Mapping[str, Any]) -> dict[str, Curve]:
    return {str(name): _curve(str(name), curve) for name, curve in data.items()}


def _curve(name: str, data: Mapping[str, Any]) -> Curve:
    sizes = tuple(int(number(size, 1)) for size in data["working_set"])
    curve = Curve(
        sizes,
        tuple(_positive(ns) for ns in data["ns"]),
        tuple(number(spread) for spread in data["spread"]),
        tuple(int(number(count, 1)) for count in data["repeats"]),
    )
    lengths = {len(sizes), len(curve.ns), len(curve.spread), len(curve.repeats)}
    if len(lengths) != 1 or not sizes or list(sizes) != sorted(set(sizes)):
        raise ValueError(f"curve {name} has no ascending working sets with one cost each")
    return curve


def check_network(data: Any) -> Mapping[str, Any]:
    """Return the network part of a machine file; ValueError or KeyError when it is damaged."""
    if not isinstance(data, Mapping):
        raise ValueError("network is no object")
    sizes = data["sizes"]
    columns = [
        sizes[key]
        for key in ("bytes", "one_way_ns", "one_way_median_ns", "send_ns", "receive_ns", "gap_ns")
    ]
    if len({len(column) for column in columns}) != 1 or not columns[0]:
        raise ValueError("the columns of network.sizes differ in length")
    for column in columns:
        for value in column:
            if value is not None:
                number(value)
    for part in data["ranges"]:
        for key in (
            "from_bytes",
            "to_bytes",
            "L_ns",
            "o_send_ns",
            "o_receive_ns",
            "g_ns",
            "G_ns_per_byte",
        ):
            number(part[key])
    if len(data["hosts"]) != 2:
        raise ValueError("network.hosts are not two")
    if data.get("inside") is not None:
        check_network(data["inside"])
    return data
