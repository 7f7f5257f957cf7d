"""Switches of a network as files name them: Slurm's topology.conf, netloc's node files.

The XML files of hwloc itself describe one machine each and no network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from p3s.base.arrays import Ints
from p3s.base.errors import P3SError
from p3s.base.foreign_formats import ReadBy, refuse_foreign
from p3s.base.host.hosts import MOST_HOSTS, expand_hosts
from p3s.machine.topology.fabric import About, Fabric, speed_of
from p3s.machine.topology.trees import Graph, Tree

#: Distance between two nodes where nobody has said what is between them.
FLAT_HOPS = 1


def apart(topology: Fabric | None, names: Sequence[str]) -> Ints:
    """Return the switches between the nodes of a run, shape (nodes, nodes); 0 on the diagonal.

    ``names``: as of Fabric.numbers; without a topology all are one switch apart.
    """
    if topology is None:
        return np.where(np.eye(len(names), dtype=bool), 0, FLAT_HOPS).astype(np.int64)
    return topology.apart(topology.numbers(names))


def read_topology(path: Path | None) -> Fabric | None:
    """Read a topology file, told apart by what is in it; none where there is none.

    Errors: P3SError, in one line, for a file of another kind, or a damaged one.
    """
    return None if path is None else of_text(str(path), read_text(path))


def read_text(path: Path) -> str:
    """Return the text of a topology; P3SError, in one line, where it is none, or cannot be read."""
    try:
        refuse_foreign(path, ReadBy.NETWORK)
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as err:
        why = err.strerror if isinstance(err, OSError) else "it is not text"
        raise P3SError(f"{path}: cannot be read ({why})") from err


def hosts_named(source: str, text: str) -> list[str]:
    """Return the names in a list of hosts; P3SError names the file that it is in."""
    try:
        return expand_hosts(text)
    except P3SError as err:
        raise P3SError(f"{source}: {err}") from err


def of_text(source: str, text: str) -> Tree | Graph:
    """Return the switches that the text of a file of Slurm's or netloc's names."""
    if text.lstrip()[:1].isdigit():
        return netloc(source, text)
    return slurm(source, text)


def slurm(source: str, text: str) -> Tree:
    """Read ``SwitchName=s0 Nodes=n[0-3]`` and ``SwitchName=top Switches=s[0-1]`` lines.

    ``LinkSpeed=100Gbit/s`` on a line is what the link between each of its switches and the one
    above carries in each direction (several cables: all together).
    """
    entries, unknown = [], []
    for number, line in _logical_lines(text):
        fields = {}
        for word in line.split():
            key, equals, value = word.partition("=")
            if not equals or not value:
                raise P3SError(
                    f"{source}, line {number}: {word[:40]!r} is not KEY=VALUE; a line "
                    "of topology.conf is SwitchName=S Nodes=N or Switches=S"
                )
            fields[key.lower()] = value
        name = fields.get("switchname")
        if name is None or not ("nodes" in fields or "switches" in fields):
            raise P3SError(f"{source}, line {number}: no SwitchName with Nodes or Switches")
        speed = _parse_speed(fields.get("linkspeed", ""), source, number)
        if "linkspeed" in fields and np.isnan(speed):
            unknown.append(f"{fields['linkspeed']} of {name}")
        entries.append(
            Entry(
                f"line {number}", name, fields.get("nodes", ""), fields.get("switches", ""), speed
            )
        )
    notes = (
        (
            f"{source}: LinkSpeed without a unit says nothing of the link "
            f"({unknown[0]}); write it like 100Gbit/s",
        )
        if unknown
        else ()
    )
    return built(source, entries, notes)


@dataclass(frozen=True)
class Entry:
    """Switches of a tree as a file has them: ``where`` it stands, lists of names, speed upwards."""

    where: str
    name: str
    nodes: str
    switches: str
    speed: float


def built(source: str, entries: Sequence[Entry], notes: tuple[str, ...] = ()) -> Tree:
    """Return the tree of some entries. Errors: P3SError, in one line, where they are none."""
    names: dict[str, None] = {}
    nodes: list[list[str]] = []
    children: list[list[str]] = []
    speeds: list[float] = []
    number = 0
    for entry in entries:
        for switch in hosts_named(source, entry.name):
            speeds.append(entry.speed)
            if switch in names:
                raise P3SError(f"{source}, {entry.where}: switch {switch} is there twice")
            names[switch] = None
            nodes.append(hosts_named(source, entry.nodes) if entry.nodes else [])
            children.append(hosts_named(source, entry.switches) if entry.switches else [])
            number += 1 + len(nodes[-1]) + len(children[-1])
            if number > MOST_HOSTS:
                raise P3SError(f"{source}: names more than {MOST_HOSTS:,} nodes and switches")
    if not any(nodes):
        raise P3SError(
            f"{source}: no switch has nodes; a line of topology.conf is SwitchName=S "
            "Nodes=N or Switches=S"
        )
    up = _above(source, tuple(names), children)
    hosts, switch_of = _hanging(nodes)
    rate = np.append(np.full(len(hosts), np.nan), np.array(speeds, dtype=np.float64))
    tree = Tree(About(source, hosts, notes=notes), switch_of, up, rate, tuple(names))
    roots = switch_of
    while (up[roots] >= 0).any():
        roots = np.where(up[roots] >= 0, up[roots], roots)
    more = _root_notes(source, [tree.names[root] for root in np.unique(roots).tolist()])
    return replace(tree, about=replace(tree.about, notes=(*notes, *more)))


def _root_notes(source: str, roots: Sequence[str]) -> list[str]:
    """Return a note where nodes hang on several trees."""
    if len(roots) < 2:
        return []
    names, more = roots[:3], len(roots) > 3
    return [
        f"{source}: {len(roots)} trees of switches ({', '.join(names)}"
        f"{', ...' if more else ''}) have no common root; one more switch is assumed "
        f"above them: add SwitchName=root Switches={','.join(names)}{',...' if more else ''}"
    ]


def _above(source: str, names: Sequence[str], children: Sequence[Sequence[str]]) -> Ints:
    """Return the switch above each."""
    index = {name: i for i, name in enumerate(names)}
    up = np.full(len(names), -1, dtype=np.int64)
    for parent, children_of in enumerate(children):
        for child in children_of:
            if child not in index:
                raise P3SError(
                    f"{source}: switch {names[parent]} has a switch {child} below it "
                    "that is not there"
                )
            if up[index[child]] >= 0 or index[child] == parent:
                raise P3SError(
                    f"{source}: switch {child} is below two switches, or itself; "
                    "topology/tree has one way only"
                )
            up[index[child]] = parent
    return up


def _hanging(nodes: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], Ints]:
    """Return the hosts and the switch of each; of a node with two networks the first counts."""
    switch_of: dict[str, int] = {}
    for number, hosts in enumerate(nodes):
        for host in hosts:
            switch_of.setdefault(host, number)
    return tuple(switch_of), np.array(list(switch_of.values()), dtype=np.int64)


def _parse_speed(text: str, source: str, number: int) -> float:
    """Return bytes per ns of a text like 200Gbit/s; NaN for none and for a bare number.

    The unit of the bare number of Slurm's own LinkSpeed is arbitrary (topology.conf(5)).
    """
    if not text or text.isdigit():
        return float("nan")
    rate = speed_of(text)
    if rate is None:
        raise P3SError(
            f"{source}, line {number}: LinkSpeed={text[:40]} is no speed; write it like "
            "100Gbit/s or 12.5GB/s"
        )
    return rate


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Return the lines that say something, with their numbers; a backslash continues a line."""
    logical_lines = []
    begun, first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        part = line.split("#", 1)[0].rstrip()
        first = first or number
        if part.endswith("\\"):
            begun += part[:-1] + " "
            continue
        if (begun + part).strip():
            logical_lines.append((first, (begun + part).strip()))
        begun, first = "", 0
    if begun.strip():
        logical_lines.append((first, begun.strip()))
    return logical_lines


def netloc(source: str, text: str) -> Tree | Graph:
    """Read a node file of netloc (``IB-<subnet>-nodes.txt``, file version 1).

    Lines: version, subnet, hwloc directory, number of nodes; per node ``id,lid,type,partitions,
    description,hostname`` (type 0: host, 1: switch); per node its edges ``id,[to,gbits,partitions,
    links,[9 fields per link]]``. Source: netloc_topology_construct of hwloc 2.
    """
    lines = text.splitlines()
    head = 4
    try:
        if int(lines[0]) != 1:
            raise P3SError(f"{source}: netloc file version {lines[0].strip()}, known is 1")
        number = int(lines[3])
        nodes = [line.split(",") for line in lines[head : head + number]]
        if len(nodes) != number or number < 1:
            raise ValueError(f"{number} nodes are announced, {len(nodes)} are there")
        index = {fields[0]: i for i, fields in enumerate(nodes)}
        # A description may have commas of its own; the host name is the last field.
        is_host = np.array([int(fields[2]) == 0 for fields in nodes])
        names = [fields[-1].strip() or fields[0] for fields in nodes]
        links_of = [
            (index[a], index[b], gbits)
            for line in lines[head + number : head + 2 * number]
            for a, b, gbits in _netloc_edges(line, index)
        ]
    except (ValueError, IndexError, KeyError) as err:
        why = " ".join(str(err).split())[:80]
        raise P3SError(
            f"{source}: is no node file of netloc ({why}); give IB-...-nodes.txt or a "
            "topology.conf of Slurm"
        ) from err
    switches = np.flatnonzero(~is_host)
    place = np.full(number, -1, dtype=np.int64)
    place[switches] = np.arange(len(switches))
    gbits_of = {
        (int(place[i]), int(place[j])): gbits
        for i, j, gbits in links_of
        if place[i] >= 0 and place[j] >= 0
    }
    links = np.array(list(gbits_of), dtype=np.int64).reshape(-1, 2)
    hangs: dict[str, int] = {}
    for i, j, _ in links_of:
        if is_host[i] and not is_host[j]:
            hangs.setdefault(names[i], int(place[j]))
    if not hangs:
        raise P3SError(f"{source}: no host hangs on a switch")
    graph = Graph(
        About(source, tuple(hangs)),
        np.array(list(hangs.values()), dtype=np.int64),
        links,
        tuple(names[i] for i in switches.tolist()),
    )
    if (graph.hops(np.zeros(1, dtype=np.int64)) < 0).any():
        raise P3SError(f"{source}: not every switch can be reached from every other")
    return _root_tree(graph, gbits_of)


def _root_tree(graph: Graph, gbits_of: dict[tuple[int, int], float]) -> Tree | Graph:
    """Return a network as a tree with the speed of each link upwards, where it is one.

    The root is the switch in the middle.
    """
    number = graph.switches
    pairs = {(min(pair), max(pair)) for pair in gbits_of}
    if len(pairs) != number - 1:
        return graph

    def far_from(switch: int) -> Ints:
        return np.asarray(graph.hops(np.array([switch]))[0])

    # In a tree the farthest of any switch is an end of a longest way, its middle the root.
    one = far_from(int(np.argmax(far_from(0))))
    other = far_from(int(np.argmax(one)))
    far = far_from(int(np.argmin(np.maximum(one, other))))
    up, speed = np.full(number, -1, dtype=np.int64), np.full(number, np.nan)
    for first, second in pairs:
        low, high = (first, second) if far[first] > far[second] else (second, first)
        gbits = max(gbits_of.get((low, high), 0.0), gbits_of.get((high, low), 0.0))
        up[low] = high
        speed[low] = gbits / 8 if gbits > 0 else np.nan
    rate = np.append(np.full(graph.nodes, np.nan), speed)
    return Tree(graph.about, graph.switch_of, up, rate, graph.names)


def _netloc_edges(line: str, index: dict[str, int]) -> list[tuple[str, str, float]]:
    """Return the edges of one node, with their Gbit/s: fields whose own fields are counted over."""
    fields = line.split(",")
    node, edges, at = fields[0], [], 1
    per_link = 9
    while at + 3 < len(fields):
        if fields[at] not in index:
            raise ValueError(f"unknown node {fields[at][:24]!r}")
        edges.append((node, fields[at], float(fields[at + 1])))
        at += 4 + per_link * int(fields[at + 3])
    return edges
