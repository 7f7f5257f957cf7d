"""How far the nodes are apart: switches on the way between them, read from a file, or flat.

Slurm's topology.conf (topology/tree) and the node files of netloc (hwloc 2) tell it. The XML files
of hwloc itself describe one machine each and no network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from p3s.base.errors import P3SError
from p3s.base.foreign_formats import Reader, refuse_foreign
from p3s.base.host.hosts import expand_hosts
from p3s.machine.topology.units import Bools, Floats, Ints, speed_of

#: Distance between two nodes where nobody has said what is between them.
FLAT_HOPS = 1


@dataclass(frozen=True)
class Topology:
    """Hosts, and the switches that connect them.

    ``hosts``: names in the order of the file. ``switch_of``: switch that each host hangs on.
    ``hops``: switches x switches, how many switches a message passes from one to the other, both
    included (1: the same one). ``up``: of a tree, the number of the switch above each, -1 above
    the root; empty where the network is no tree. ``source``: what it was read from. Flat: no
    hosts, all are one switch apart.
    """

    source: str
    hosts: tuple[str, ...]
    switch_of: Ints
    hops: Ints
    up: Ints
    switches: tuple[str, ...]
    speed: Floats = field(default_factory=lambda: np.zeros(0))
    notes: tuple[str, ...] = ()

    @property
    def flat(self) -> bool:
        """Whether nothing is known."""
        return not self.hosts

    def between(self, first: Sequence[str], second: Sequence[str]) -> Ints:
        """Return the hops from each of the first hosts to each of the second (same host: 0).

        Errors: P3SError for a host that the file does not name.
        """
        same = np.array([[a == b for b in second] for a in first], dtype=bool).reshape(
            len(first), len(second)
        )
        if self.flat:
            return np.where(same, 0, FLAT_HOPS).astype(np.int64)
        a, b = self.switches_of(first), self.switches_of(second)
        return np.where(same, 0, self.hops[np.ix_(a, b)]).astype(np.int64)

    def switches_of(self, hosts: Sequence[str]) -> Ints:
        """Return the switch that each host hangs on."""
        number = {name: i for i, name in enumerate(self.hosts)}
        short = {name.split(".", 1)[0]: i for i, name in enumerate(self.hosts)}
        found = [number.get(host, short.get(host.split(".", 1)[0], -1)) for host in hosts]
        if -1 in found:
            missing = hosts[found.index(-1)]
            raise P3SError(
                f"{self.source}: does not name node {missing}; add it, or leave the topology out"
            )
        return self.switch_of[np.asarray(found, dtype=np.int64)]

    def trunk(self, first: int, second: int) -> Bools:
        """Return which pairs of switches share a link between switches with the way of these two.

        Shape (switches, switches). In a tree the ways are known; elsewhere every pair is counted
        whose way leaves its switch. None shares one if the two are the same switch.
        """
        number = len(self.hops)
        if first == second:
            return np.zeros((number, number), dtype=bool)
        if not len(self.up):
            return ~np.eye(number, dtype=bool)
        under = below(self.up)
        shared = np.zeros((number, number), dtype=bool)
        for link in np.flatnonzero(under[:, first] != under[:, second]).tolist():
            side = under[link]
            shared |= side[:, None] != side[None, :]
        return shared


def flat() -> Topology:
    """Return the topology that says nothing."""
    none = np.zeros(0, dtype=np.int64)
    return Topology("flat", (), none, np.zeros((0, 0), dtype=np.int64), none, ())


def read_topology(path: Path | None) -> Topology:
    """Read a topology file, told apart by what is in it; none: flat.

    Errors: P3SError, in one line, for a file of another kind, or a damaged one.
    """
    if path is None:
        return flat()
    return of_text(str(path), read_text(path))


def read_text(path: Path) -> str:
    """Return the text of a topology; P3SError, in one line, where it is none, or cannot be read."""
    try:
        refuse_foreign(path, Reader.NETWORK)
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


def of_text(source: str, text: str) -> Topology:
    """Return the switches that the text of a file of Slurm's or netloc's names."""
    if text.lstrip()[:1].isdigit():
        return netloc(source, text)
    return slurm(source, text)


def slurm(source: str, text: str) -> Topology:
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
        speed = _speed(fields.get("linkspeed", ""), source, number)
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


def built(source: str, entries: Sequence[Entry], notes: tuple[str, ...] = ()) -> Topology:
    """Return the tree of some entries. Errors: P3SError, in one line, where they are none."""
    names: list[str] = []
    nodes: list[list[str]] = []
    children: list[list[str]] = []
    speeds: list[float] = []
    for entry in entries:
        for switch in hosts_named(source, entry.name):
            speeds.append(entry.speed)
            if switch in names:
                raise P3SError(f"{source}, {entry.where}: switch {switch} is there twice")
            names.append(switch)
            nodes.append(hosts_named(source, entry.nodes) if entry.nodes else [])
            children.append(hosts_named(source, entry.switches) if entry.switches else [])
    if not any(nodes):
        raise P3SError(
            f"{source}: no switch has nodes; a line of topology.conf is SwitchName=S "
            "Nodes=N or Switches=S"
        )
    up = _above(source, names, children)
    hosts, switch_of = _hanging(nodes)
    return Topology(
        source,
        hosts,
        switch_of,
        _tree_hops(source, up, names),
        up,
        tuple(names),
        np.array(speeds, dtype=np.float64),
        notes,
    )


def _above(source: str, names: Sequence[str], children: Sequence[Sequence[str]]) -> Ints:
    """Return the switch above each."""
    index = {name: i for i, name in enumerate(names)}
    up = np.full(len(names), -1, dtype=np.int64)
    for parent, those in enumerate(children):
        for child in those:
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
    for number, here in enumerate(nodes):
        for host in here:
            switch_of.setdefault(host, number)
    return tuple(switch_of), np.array(list(switch_of.values()), dtype=np.int64)


def _speed(text: str, source: str, number: int) -> float:
    """Return bytes per ns of a text like 200Gbit/s; NaN for none and for a bare number.

    The unit of the bare number of Slurm's own LinkSpeed is arbitrary (topology.conf(5)).
    """
    if not text or text.isdigit():
        return float("nan")
    found = speed_of(text)
    if found is None:
        raise P3SError(
            f"{source}, line {number}: LinkSpeed={text[:40]} is no speed; write it like "
            "100Gbit/s or 12.5GB/s"
        )
    return found


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Return the lines that say something, with their numbers; a backslash continues a line."""
    found = []
    begun, first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        part = line.split("#", 1)[0].rstrip()
        first = first or number
        if part.endswith("\\"):
            begun += part[:-1] + " "
            continue
        if (begun + part).strip():
            found.append((first, (begun + part).strip()))
        begun, first = "", 0
    if begun.strip():
        found.append((first, begun.strip()))
    return found


def below(up: Ints) -> Bools:
    """Return (switch, other): whether other is below the switch in a tree, or the switch itself."""
    number = len(up)
    under = np.eye(number, dtype=bool)
    place = up.copy()
    for _ in range(number):
        on = place >= 0
        if not on.any():
            break
        under[place[on], np.flatnonzero(on)] = True
        place[on] = up[place[on]]
    return under


def _tree_hops(source: str, up: Ints, names: Sequence[str]) -> Ints:
    """Return how many switches are on the way between any two of a tree."""
    number = len(up)
    depth = np.zeros(number, dtype=np.int64)
    place = up.copy()
    for _ in range(number):
        on = place >= 0
        if not on.any():
            break
        depth[on] += 1
        place[on] = up[place[on]]
    else:
        raise P3SError(
            f"{source}: the switches above {names[int(np.argmax(depth))]} go round in a circle"
        )
    under = below(up).astype(np.float64)  # products of integers are slow
    # How many switches are above both, themselves included.
    common = np.rint(under.T @ under).astype(np.int64)
    hops = (depth[:, None] + 1) + (depth[None, :] + 1) - 2 * common + 1
    # Trees that are not joined: as if one more switch stood above them all.
    return np.where(common > 0, hops, depth[:, None] + depth[None, :] + 3)


def netloc(source: str, text: str) -> Topology:
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
    hops = _graph_hops(source, links, len(switches))
    up, speed = _rooted(gbits_of, hops)
    return Topology(
        source,
        tuple(hangs),
        np.array(list(hangs.values()), dtype=np.int64),
        hops,
        up,
        tuple(names[i] for i in switches.tolist()),
        speed,
    )


def _rooted(gbits_of: dict[tuple[int, int], float], hops: Ints) -> tuple[Ints, Floats]:
    """Return the switch above each and the speed of the link to it; empty if there is no tree.

    The root is the switch in the middle.
    """
    number = len(hops)
    pairs = {(min(pair), max(pair)) for pair in gbits_of}
    if len(pairs) != number - 1:
        return np.zeros(0, dtype=np.int64), np.zeros(0)
    root = int(np.argmin(hops.max(axis=1)))
    up, speed = np.full(number, -1, dtype=np.int64), np.full(number, np.nan)
    for one, other in pairs:
        low, high = (one, other) if hops[root, one] > hops[root, other] else (other, one)
        gbits = max(gbits_of.get((low, high), 0.0), gbits_of.get((high, low), 0.0))
        up[low] = high
        speed[low] = gbits / 8 if gbits > 0 else np.nan
    return up, speed


def _netloc_edges(line: str, index: dict[str, int]) -> list[tuple[str, str, float]]:
    """Return the edges of one node, with their Gbit/s: fields whose own fields are counted over."""
    fields = line.split(",")
    here, found, at = fields[0], [], 1
    per_link = 9
    while at + 3 < len(fields):
        if fields[at] not in index:
            raise ValueError(f"unknown node {fields[at][:24]!r}")
        found.append((here, fields[at], float(fields[at + 1])))
        at += 4 + per_link * int(fields[at + 3])
    return found


def _graph_hops(source: str, links: Ints, number: int) -> Ints:
    """Return the switches on the shortest way between any two."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import shortest_path

    ones = np.ones(len(links))
    graph = coo_matrix((ones, (links[:, 0], links[:, 1])), shape=(number, number))
    far = shortest_path(graph.tocsr(), directed=False, unweighted=True)
    if not np.isfinite(far).all():
        raise P3SError(f"{source}: not every switch can be reached from every other")
    return np.asarray(far, dtype=np.int64) + 1
