"""Networks from files and from short descriptions such as ``fat-tree:16,4@1Gbit/s``."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from p3s.base.artefacts import parse_json
from p3s.base.errors import P3SError, UsageError
from p3s.base.schemas import first_problem, load_schema
from p3s.machine.topology.direct import Dragonfly, Torus
from p3s.machine.topology.fabric import About, Extra, Fabric, ns_of, speed_of
from p3s.machine.topology.switches import Entry, built, hosts_named, of_text, read_text
from p3s.machine.topology.trees import FatTree, Graph, Tree

_SHORT = re.compile(r"(fat-tree|torus|mesh|dragonfly):([0-9x,]+)(?:@([^,@]+)(?:,([^,@]+))?)?")
_FORMS = "fat-tree:16,4, torus:4x4x4, mesh:8x8 or dragonfly:9,4,2, each also with @SPEED,LATENCY"
#: A short description must not fill the memory: nodes and cables of a network, at most. A cable
#: takes 50 bytes: its ends, its rate and whether its two links lead anywhere.
_MOST_NODES, _MOST_CABLES = 1 << 22, 1 << 24
_DRAGONFLY = ("groups", "switches", "nodes", "global")


def read_fabric(description: str, nodes: int) -> Fabric:
    """Return the network that a file or a short description tells, for ``nodes`` nodes at least.

    Files: JSON (p3s.machine.topology), Slurm's topology.conf, netloc's node files. Errors:
    UsageError where it is neither a file nor a description, P3SError, in one line, where the file
    is damaged, the network has fewer nodes, or is no tree and none of the known forms.
    """
    fabric = _fabric(description, nodes)
    if fabric.nodes < nodes:
        raise P3SError(
            f"{fabric.about.source}: has {fabric.nodes} nodes, the run needs {nodes}; add nodes"
        )
    return fabric


def check(description: str) -> None:
    """Raise what ``read_fabric`` raises for any number of nodes."""
    _fabric(description, 1)


def _fabric(description: str, nodes: int) -> Fabric:
    short = _SHORT.fullmatch(description.strip())
    if short is not None and not Path(description).is_file():
        return _make_fabric(description.strip(), _of_short(description, short), nodes)
    if not Path(description).exists():
        raise UsageError(
            f"--topology {description}: neither a file nor a description like {_FORMS}"
        )
    text = read_text(Path(description))
    if not text.lstrip().startswith("{"):
        return _of_switches(of_text(description, text), {}, description)
    return _make_fabric(description, _of_json(description, text), nodes)


def _of_short(description: str, match: re.Match[str]) -> dict[str, Any]:
    """Return what a JSON file would hold for a short description."""
    kind, text, speed, latency = match.groups()
    try:
        numbers = [int(x) for x in re.split("[x,]", text)]
    except ValueError as err:
        raise UsageError(
            f"--topology {description}: {text} are no numbers; write {_FORMS}"
        ) from err
    data: dict[str, Any] = {"kind": kind}
    if kind == "fat-tree":
        data |= {"down": numbers[0::2], "up": numbers[1::2]}
    elif kind == "dragonfly":
        if len(numbers) not in (3, 4):
            raise UsageError(
                f"--topology {description}: a dragonfly is groups, switches of a group, nodes of"
                " a switch and perhaps cables of a switch to other groups: dragonfly:9,4,2,2"
            )
        data |= dict(zip(_DRAGONFLY, numbers, strict=False))
    else:
        data["dims"] = numbers
    data |= {"speed": speed} if speed else {}
    data |= {"latency": latency} if latency else {}
    problem = first_problem(data, load_schema("topology-1"))
    if problem:
        raise UsageError(f"--topology {description}: {problem}; write {_FORMS}")
    return data


def _of_json(source: str, text: str) -> dict[str, Any]:
    try:
        data = parse_json(text.encode())
    except ValueError as err:
        raise P3SError(f"{source}: no JSON ({' '.join(str(err).split())[:100]})") from err
    problem = first_problem(data, load_schema("topology-1"))
    if problem:
        raise P3SError(f"{source}: {problem}; docs/formats.md describes the file")
    return dict(data)


def _make_fabric(source: str, data: Mapping[str, Any], nodes: int) -> Fabric:
    """Return the network of a kind. Errors: P3SError where it has not the keys of that kind."""
    make, keys, may = _KINDS[str(data["kind"])]
    if missing := [key for key in keys if key not in data]:
        raise P3SError(
            f"{source}: a {data['kind']} needs {missing[0]}; docs/formats.md describes it"
        )
    of_kinds = {key for _, needed, allowed in _KINDS.values() for key in (*needed, *allowed)}
    if other := sorted(of_kinds.intersection(data) - {*keys, *may}):
        raise P3SError(f"{source}: a {data['kind']} has no {other[0]}; leave it out")
    return make(source, data, nodes)


def _about(source: str, data: Mapping[str, Any], nodes: int) -> About:
    hosts = tuple(hosts_named(source, data["hosts"])) if data.get("hosts") else ()
    if hosts and (len(hosts) > nodes or len(set(hosts)) != len(hosts)):
        why = "names a host twice" if len(set(hosts)) != len(hosts) else f"is for {nodes} nodes"
        raise P3SError(f"{source}: {why}, hosts has {len(hosts)}; correct the list of hosts")
    return About(source, hosts, _extra(source, data), data.get("sharing", "fair") == "fair")


def _extra(source: str, data: Mapping[str, Any]) -> Extra:
    latency = data.get("latency")
    if latency is None:
        return Extra()
    if isinstance(latency, Mapping):
        nbytes, ns = tuple(map(float, latency["bytes"])), tuple(map(float, latency["ns"]))
        if len(nbytes) != len(ns) or list(nbytes) != sorted(set(nbytes)):
            raise P3SError(f"{source}: latency: bytes must ascend, with one of ns for each")
        return Extra(nbytes, ns, True)
    latency_ns = ns_of(latency)
    if latency_ns is None:
        raise P3SError(f"{source}: latency {latency[:40]} is no time; write it like 300ns or 2us")
    return Extra((0.0,), (latency_ns,), True)


def _speeds(source: str, data: Mapping[str, Any], levels: int, first: int) -> tuple[float, ...]:
    """Return bytes per ns of the cables of each level, NaN where nobody has said them.

    ``first``: the level that a list of speeds begins with.
    """
    stated = data.get("speed")
    if stated is None:
        return (math.nan,) * levels
    if isinstance(stated, str):
        stated, first = [stated] * levels, 0
    texts = list(stated)
    speeds = [speed_of(text) for text in texts]
    if len(texts) != levels - first or None in speeds:
        expected = (
            "a speed for each of" if len(texts) != levels - first else "speeds like 1Gbit/s for"
        )
        raise P3SError(f"{source}: speed needs {expected} {levels - first} levels of cables")
    return (*(math.nan,) * first, *(speed for speed in speeds if speed is not None))


def _fat_tree(source: str, data: Mapping[str, Any], nodes: int) -> Fabric:
    down, up = [int(x) for x in data["down"]], tuple(int(x) for x in data["up"])
    if len(down) == len(up):
        down.append(max(-(-nodes // math.prod(down)), 1))
    if len(down) != len(up) + 1:
        raise P3SError(
            f"{source}: a fat tree needs as many numbers for down as for up, or one more; "
            f"there are {len(data['down'])} and {len(up)}"
        )
    switches = [math.prod(down[level + 1 :]) * math.prod(up[:level]) for level in range(len(up))]
    _check_size(
        source, math.prod(down), sum(s * each for s, each in zip(switches, up, strict=True))
    )
    about = _about(source, data, math.prod(down))
    return FatTree(about, tuple(down), up, _speeds(source, data, len(down), 0))


def _torus(source: str, data: Mapping[str, Any], nodes: int) -> Fabric:
    dims = tuple(int(x) for x in data["dims"])
    _check_size(source, math.prod(dims), math.prod(dims) * len(dims))
    one, two = _speeds(source, data, 2, 1)
    about = _about(source, data, math.prod(dims))
    return Torus(about, dims, data["kind"] == "torus", (one, two))


def _dragonfly(source: str, data: Mapping[str, Any], nodes: int) -> Fabric:
    groups, each, per = (int(data[name]) for name in _DRAGONFLY[:3])
    least = -(-(groups - 1) // each)
    out = int(data.get("global", max(least, 1)))
    if out < least:
        raise P3SError(
            f"{source}: {groups} groups need {least} cables of each switch to other groups, "
            f"not {out}"
        )
    _check_size(source, groups * each * per, groups * each * (each + out) // 2)
    speeds = _speeds(source, data, 3, 1)
    about = _about(source, data, groups * each * per)
    return Dragonfly(about, (groups, each, per, out), (speeds[0], speeds[1], speeds[2]))


def _tree(source: str, data: Mapping[str, Any], nodes: int) -> Fabric:
    entries = []
    for number, entry in enumerate(data["tree"]):
        where = f"tree[{number}]"
        stated = entry.get("speed", data.get("speed"))
        speed = math.nan if stated is None else speed_of(str(stated))
        if speed is None:
            raise P3SError(
                f"{source}, {where}: {stated!r:.40} is no speed; write it like 100Gbit/s"
            )
        entries.append(
            Entry(where, entry["switch"], entry.get("nodes", ""), entry.get("switches", ""), speed)
        )
    return _of_switches(built(source, entries), data, source)


def _of_switches(network: Tree | Graph, data: Mapping[str, Any], source: str) -> Fabric:
    if isinstance(network, Graph):
        raise P3SError(
            f"{source}: these switches are no tree, so that the ways of messages are not known; "
            f"give a description like {_FORMS}"
        )
    about = _about(source, {**data, "hosts": ""}, network.nodes)
    return replace(network, about=replace(network.about, extra=about.extra, fair=about.fair))


#: How a network of a kind is made, the keys that it needs, and those that it may have.
_Make = Callable[[str, Mapping[str, Any], int], Fabric]
_KINDS: Mapping[str, tuple[_Make, Sequence[str], Sequence[str]]] = {
    "tree": (_tree, ("tree",), ()),
    "fat-tree": (_fat_tree, ("down", "up"), ()),
    "torus": (_torus, ("dims",), ()),
    "mesh": (_torus, ("dims",), ()),
    "dragonfly": (_dragonfly, _DRAGONFLY[:3], _DRAGONFLY[3:]),
}


def _check_size(source: str, nodes: int, cables: int) -> None:
    """Raise P3SError for too many nodes, or cables between switches."""
    for number, most, noun in ((nodes, _MOST_NODES, "nodes"), (cables, _MOST_CABLES, "cables")):
        if number > most:
            raise P3SError(f"{source}: {number:,} {noun} are more than {most:,}")


def name_nodes(fabric: Fabric, hosts: Sequence[str]) -> Fabric:
    """Return a network with host names for its nodes, in order, where it has none.

    Errors: P3SError where there are more hosts than nodes.
    """
    if not hosts or fabric.about.hosts or isinstance(fabric, Tree):
        return fabric
    if len(hosts) > fabric.nodes:
        raise P3SError(
            f"{fabric.about.source}: has {fabric.nodes} nodes, {len(hosts)} hosts are named; "
            "add nodes, or leave hosts out"
        )
    if not isinstance(fabric, FatTree | Torus | Dragonfly):
        return fabric
    return replace(fabric, about=replace(fabric.about, hosts=tuple(hosts)))
