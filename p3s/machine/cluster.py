"""Clusters by published figures (p3s.cluster): the files of this package, and files like them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from p3s.base.artefacts import read_json
from p3s.base.errors import DamagedFile, UsageError
from p3s.base.schemas import first_problem, load_schema
from p3s.base.serialise import from_data
from p3s.machine.published import read_published

CLUSTER_SCHEMA = "p3s.cluster"
CLUSTER_VERSION = 1
#: The network that is taken where none is named: what most clusters of a computing centre have.
DEFAULT = "infiniband-hdr"
#: The usual value, and the faster and the slower end of what was found.
ENDS = ("typical", "low", "high")


@dataclass(frozen=True)
class Messages:
    """What messages cost by bytes, in ns; by end (``ENDS``).

    ``one_way``: a value for each of ``nbytes``; ``call``: for each of its own ``bytes``, what a
    send takes for itself, or a receive of what is there; ``gap``: how long a message keeps a
    node's link at least.
    """

    eager_bytes: float
    nbytes: tuple[float, ...] = field(metadata={"key": "bytes"})
    one_way: Mapping[str, tuple[float, ...]] = field(metadata={"key": "one_way_ns"})
    call: Mapping[str, tuple[float, ...]] = field(metadata={"key": "call_ns"})
    gap: Mapping[str, float] = field(
        default_factory=lambda: dict.fromkeys(ENDS, 0.0), metadata={"key": "message_gap_ns"}
    )


@dataclass(frozen=True)
class Level:
    """Groups of ``nodes`` nodes (None: all) that are at most ``switches`` switches apart.

    ``extra``: ns beside what a message takes below one switch; ``uplink``: share of the rate of its
    nodes' links that leaves a group at most; by end.
    """

    nodes: int | None
    switches: int
    extra: Mapping[str, float] = field(metadata={"key": "extra_ns"})
    uplink: Mapping[str, float] = field(metadata={"key": "uplink_share"})


@dataclass(frozen=True)
class Cluster:
    """A cluster: ``link`` in ns per byte, ``post`` in ns, ``background`` as in Network, by end.

    ``data``: the file's content; ``typical``: it is one of this package.
    """

    name: str
    label: str
    text: str
    cores_per_node: int
    levels: tuple[Level, ...]
    between: Messages
    inside: Messages
    link: Mapping[str, float] = field(metadata={"key": "link_ns_per_byte"})
    post: Mapping[str, float] = field(metadata={"key": "post_ns"})
    background: Mapping[str, bool]
    data: Mapping[str, Any] = field(default_factory=dict)
    typical: bool = False

    @classmethod
    def load(cls, path: Path) -> Cluster:
        """Read a file; P3SError, one line, when it is absent, damaged or another thing."""
        return cls.of(read_json(path, CLUSTER_SCHEMA, CLUSTER_VERSION), str(path))

    @classmethod
    def of(cls, data: Mapping[str, Any], where: str, typical: bool = False) -> Cluster:
        """Return the cluster of a file's content; Damaged names what is wrong with it.

        ``typical``: it is a file of this package, whose form is not looked at again each time.
        """
        wrong = "" if typical else first_problem(data, load_schema("cluster-1"))
        wrong = wrong or _disorder(data)
        if wrong:
            raise DamagedFile(f"{where}: {wrong}; docs/formats.md describes the file")
        return replace(from_data(cls, data, more=True), data=data, typical=typical)

    def about(self) -> dict[str, str]:
        """Return what a prediction says of the network it is for."""
        return {
            "name": self.name,
            "label": self.label,
            "source": "typical" if self.typical else "file",
        }


def names() -> tuple[str, ...]:
    """Return the names of the clusters of this package."""
    return tuple(read_published(CLUSTER_SCHEMA))


@cache
def typical(name: str) -> Cluster:
    """Return a cluster of this package."""
    return Cluster.of(read_published(CLUSTER_SCHEMA)[name], name, typical=True)


def cluster_of(name: str) -> Cluster:
    """Return the cluster that a user names: one of this package ("": the usual one), or a file.

    Raises UsageError where it is neither, P3SError where the file is damaged.
    """
    if (name or DEFAULT) in names():
        return typical(name or DEFAULT)
    if Path(name).is_file():
        return Cluster.load(Path(name))
    raise UsageError(f"--network {name}: neither a file nor one of {', '.join(names())}")


def _disorder(data: Mapping[str, Any]) -> str:
    """Return what in a file contradicts itself, "" when nothing does."""
    for part in ("between", "inside"):
        messages = data[part]
        for table, nbytes in (
            (messages["one_way_ns"], messages["bytes"]),
            (messages["call_ns"], messages["call_ns"]["bytes"]),
        ):
            wrong = _wrong_table(table, nbytes)
            if wrong:
                return f"{part}: {wrong}"
        if any(b < a for end in ENDS for a, b in pairwise(messages["one_way_ns"][end])):
            return f"{part}.one_way_ns: a larger message takes less time"
    if data["link_ns_per_byte"]["low"] <= 0:
        return "link_ns_per_byte is 0"
    return _wrong_levels(data["levels"]) or _wrong_ends(data)


def _wrong_table(table: Mapping[str, Any], nbytes: list[float]) -> str:
    """Return what is wrong with a table by bytes and end."""
    if any(b <= a for a, b in pairwise(nbytes)):
        return "bytes do not ascend"
    if any(len(table[end]) != len(nbytes) for end in ENDS):
        return f"a column has not {len(nbytes)} values, one for each of bytes"
    if any(
        not low <= usual <= high for usual, low, high in zip(*map(table.get, ENDS), strict=True)
    ):
        return "a typical value is not between low and high"
    return ""


def _wrong_levels(levels: list[Mapping[str, Any]]) -> str:
    """Return what is wrong with the groups of nodes."""
    sizes = [level["nodes"] for level in levels]
    if None in sizes[:-1] or sizes[-1] is not None:
        return "levels: the last one, and no other, has all nodes (null)"
    if any(b <= a or b % a for a, b in pairwise(sizes[:-1])):
        return "levels: a group is not made of whole smaller ones"
    if any(b <= a for a, b in pairwise([level["switches"] for level in levels])):
        return "levels: switches do not ascend"
    if any(level["uplink_share"]["high"] <= 0 for level in levels):
        return "levels: nothing leaves a group (uplink_share 0)"
    return ""


def _wrong_ends(data: Mapping[str, Any]) -> str:
    """Return which range has its typical value outside of its ends."""
    ranges = {"link_ns_per_byte": data["link_ns_per_byte"], "post_ns": data["post_ns"]}
    for number, level in enumerate(data["levels"]):
        ranges[f"levels[{number}].extra_ns"] = level["extra_ns"]
        share = level["uplink_share"]  # more is faster
        ranges[f"levels[{number}].uplink_share"] = {end: -share[end] for end in ENDS}
    for name, value in ranges.items():
        if not value["low"] <= value["typical"] <= value["high"]:
            return f"{name}: typical is not between low and high"
    return ""
