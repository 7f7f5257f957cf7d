"""The plan of a replay: what is loaded where, who plays whom, what is measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from p3s.base.arrays import Bools, Floats, Ints
from p3s.machine.topology.switches import Topology
from p3s.program.collectives.expand import Used
from p3s.program.mapping import RankMap
from p3s.replay.plan.classes import CallClass, MessageClass, Whole
from p3s.replay.plan.estimate import Estimate
from p3s.replay.plan.program import Program
from p3s.replay.plan.world import NODES, World
from p3s.replay.settings import NOISES, ReplaySettings
from p3s.simulate.steps import LeftOut, Op, Section, Steps

Pair = tuple[int, int]


@dataclass(frozen=True)
class Needs:
    """Which nodes the calls of one section need beside their own to be completely loaded.

    ``step``, ``node``: one entry per step and other node that holds a partner of it (none: all
    partners are on its own node). ``own``: node of each step; ``cls``: its call class, -1 none.
    """

    own: Ints
    cls: Ints
    step: Ints
    node: Ints

    def others(self) -> Ints:
        """Return how many other nodes each step needs."""
        return np.bincount(self.step, minlength=len(self.own))


@dataclass(frozen=True)
class Choice:
    """Pairs in the order of what they add.

    ``adds[i]``: section -> call classes that pair i is the first to measure there. ``partial``:
    classes all of whose calls have partners on three nodes or more, so that no pair measures them.
    ``uncovered``: the other classes that no chosen pair measures.
    """

    pairs: tuple[Pair, ...]
    adds: tuple[dict[int, Ints], ...]
    partial: Bools
    uncovered: Ints


def needs_of(full: Steps, call_of: Ints, mapping: RankMap) -> Needs:
    """Return what the calls of a section need; ``full``: with collectives expanded."""
    own = mapping.node_of[full.rank]
    rows, partners = [], []
    for column in (full.to, full.source):
        has = np.flatnonzero(column >= 0)
        rows.append(has)
        partners.append(own[column[has]])
    row, node = np.concatenate(rows), np.concatenate(partners)
    # A completion needs the partners of all requests that it lists, whichever it completes.
    waits = np.repeat(np.arange(len(full)), np.diff(full.done_start))
    for column in (full.to, full.source):
        partner = column[full.done]
        row = np.concatenate((row, waits[partner >= 0]))
        node = np.concatenate((node, own[partner[partner >= 0]]))
    away = node != own[row]
    key = np.unique(row[away] * np.int64(mapping.nodes) + node[away])
    return Needs(own, call_of, key // mapping.nodes, key % mapping.nodes)


def direct_needs(given: Steps, direct_of: Ints, mapping: RankMap) -> Needs:
    """Return what the collectives need that are executed as such."""
    own = mapping.node_of[given.rank]
    row, node = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    where = np.flatnonzero((direct_of >= 0) & given.is_op(Op.COLLECTIVE, Op.ICOLLECTIVE))
    for comm in np.unique(given.comm[where]).tolist():
        mine = where[given.comm[where] == comm]
        for other in np.unique(mapping.node_of[given.members[comm]]).tolist():
            away = mine[own[mine] != other]
            row.append(away)
            node.append(np.full(len(away), other, dtype=np.int64))
    return Needs(own, direct_of, np.concatenate(row), np.concatenate(node))


class _Table:
    """Classes that a node measures alone, and those that a pair of nodes measures, per section."""

    def __init__(self, needs: Sequence[tuple[int, Needs]], worth: Floats, nodes: int) -> None:
        self.nodes, self.worth = nodes, worth
        classes = len(worth)
        alone, single = [], []
        whole = np.zeros(classes, dtype=bool)
        wanted = np.zeros(classes, dtype=bool)
        for section, need in needs:
            others = need.others()
            mine = need.cls >= 0
            wanted[need.cls[mine]] = True
            whole[need.cls[mine & (others <= 1)]] = True
            rows = np.flatnonzero(mine & (others == 0))
            alone.append(_unique(section, need.cls[rows], need.own[rows], need.own[rows]))
            use = need.cls[need.step] >= 0
            use &= others[need.step] == 1
            step = need.step[use]
            single.append(_unique(section, need.cls[step], need.own[step], need.node[use]))
        self.wanted, self.partial = whole, wanted & ~whole
        rows = np.concatenate((np.zeros((0, 4), dtype=np.int64), *alone, *single))
        rows[:, 2:] = np.sort(rows[:, 2:], axis=1)
        self.rows = np.unique(rows, axis=0)  # section, class, node, node
        self.is_alone = self.rows[:, 2] == self.rows[:, 3]

    def measured(self, pair: Pair) -> Bools:
        """Return which rows a pair measures."""
        first, second = min(pair), max(pair)
        both = (self.rows[:, 2] == first) & (self.rows[:, 3] == second)
        result: Bools = both | (self.is_alone & np.isin(self.rows[:, 2], pair))
        return result

    def best(self, covered: Bools) -> Pair | None:
        """Return the pair whose new classes are worth the most, None when none adds any.

        A class counts once per pair, in whatever section.
        """
        rows = self.rows[~covered[self.rows[:, 1]]]
        if len(rows) == 0:
            return None
        rows = np.unique(rows[:, 1:], axis=0)
        alone = rows[:, 1] == rows[:, 2]
        worth = self.worth[rows[:, 0]]
        gain_alone = np.bincount(rows[alone, 1], weights=worth[alone], minlength=self.nodes)
        if (~alone).any():
            key = rows[~alone, 1] * np.int64(self.nodes) + rows[~alone, 2]
            unique, place = np.unique(key, return_inverse=True)
            gain = np.bincount(place.reshape(-1), weights=worth[~alone])
            a, b = unique // self.nodes, unique % self.nodes
            best = int(np.argmax(gain + gain_alone[a] + gain_alone[b]))
            return int(a[best]), int(b[best])
        first = int(np.argmax(gain_alone))
        rest = covered.copy()
        rest[rows[alone & (rows[:, 1] == first), 0]] = True
        left = rows[alone & ~rest[rows[:, 0]]]
        if self.nodes == 1:
            return first, first
        gain = np.bincount(left[:, 1], weights=self.worth[left[:, 0]], minlength=self.nodes)
        gain[first] = -1
        second = int(np.argmax(gain))
        return min(first, second), max(first, second)


def _unique(section: int, cls: Ints, first: Ints, second: Ints) -> Ints:
    """Return the different (section, class, node, node), rows x 4."""
    if len(cls) == 0:
        return np.zeros((0, 4), dtype=np.int64)
    nodes = np.int64(max(int(first.max()), int(second.max())) + 1)
    key = np.unique((cls * nodes + first) * nodes + second)
    return np.stack(
        (np.full(len(key), section), key // (nodes * nodes), key // nodes % nodes, key % nodes),
        axis=1,
    ).astype(np.int64)


def choose(
    needs: Sequence[tuple[int, Needs]],
    events: Floats,
    nodes: int,
    most: int,
    pairs: Sequence[Pair] | None = None,
) -> Choice:
    """Choose at most ``most`` pairs, each time the one whose new classes are worth the most.

    ``needs``: section number and what its calls need; ``events``: calls of each class in the run.
    ``pairs``: take these instead, each with all that it can measure (exhaustive).
    """
    # A class is worth one, plus its calls in units of the mean class.
    worth = 1.0 + len(events) * events / max(float(events.sum()), 1e-300)
    table = _Table(needs, worth, nodes)
    covered = ~table.wanted
    chosen: list[Pair] = []
    adds: list[dict[int, Ints]] = []
    for pair in pairs or ():
        rows = table.rows[table.measured(pair)]
        chosen.append(pair)
        adds.append(_by_section(rows))
        covered[rows[:, 1]] = True
    while pairs is None and not covered.all() and len(chosen) < most:
        best = table.best(covered)
        if best is None:
            break
        rows = table.rows[table.measured(best)]
        rows = rows[~covered[rows[:, 1]]]
        # A class that several sections have is measured in the first of them.
        _, first = np.unique(rows[:, 1], return_index=True)
        chosen.append(best)
        adds.append(_by_section(rows[first]))
        covered[rows[:, 1]] = True
    return Choice(
        tuple(chosen), tuple(adds), table.partial, np.flatnonzero(table.wanted & ~covered)
    )


def _by_section(rows: Ints) -> dict[int, Ints]:
    return {
        int(section): np.unique(rows[rows[:, 0] == section, 1])
        for section in np.unique(rows[:, 0]).tolist()
    }


def traffic(fulls: Sequence[Steps], mapping: RankMap) -> tuple[Ints, Ints, Ints]:
    """Return the pairs of nodes that exchange messages, and how many bytes in the run."""
    keys, amounts = [np.zeros(0, dtype=np.int64)], [np.zeros(0)]
    for full in fulls:
        sent = np.flatnonzero(full.to >= 0)
        node = mapping.node_of[full.rank]
        a, b = node[sent], node[full.to[sent]]
        away = a != b
        keys.append((np.minimum(a, b) * np.int64(mapping.nodes) + np.maximum(a, b))[away])
        amounts.append(((full.bytes[sent] + 1) * full.weight[sent])[away])
    unique, code = np.unique(np.concatenate(keys), return_inverse=True)
    total = np.bincount(code.reshape(-1), weights=np.concatenate(amounts), minlength=len(unique))
    return unique // mapping.nodes, unique % mapping.nodes, total.astype(np.int64)


def cover_all(
    first: Ints, second: Ints, amount: Ints, alike: Ints, most: int
) -> tuple[tuple[Pair, ...], Ints]:
    """Return pairs so that every node is in one, those with the most traffic first.

    ``alike``: group of each node whose calls are the same. When ``most`` pairs are not enough for
    all nodes, one node of each group is enough; the second result are the nodes in no pair.
    """
    nodes = len(alike)
    if nodes == 1:
        return ((0, 0),), np.zeros(0, dtype=np.int64)
    order = np.argsort(-amount, kind="stable")
    edges = list(zip(first[order].tolist(), second[order].tolist(), strict=True))
    partner: dict[int, int] = {}
    for a, b in edges:
        partner.setdefault(a, b)
        partner.setdefault(b, a)
    wanted = np.ones(nodes, dtype=bool)
    if (nodes + 1) // 2 > most:
        wanted[:] = False
        wanted[np.unique(alike, return_index=True)[1]] = True
    open_ = wanted.copy()
    pairs: list[Pair] = []
    for a, b in edges:
        if open_[a] and open_[b] and len(pairs) < most:
            pairs.append((a, b))
            open_[[a, b]] = False
    left = np.flatnonzero(open_).tolist()
    while left and len(pairs) < most:
        a = left.pop(0)
        b = partner.get(a)
        if b is None:  # talks to nobody: beside another one, if there is
            b = left.pop(0) if left else (a + 1) % nodes
        open_[[a, b]] = False
        pairs.append((min(a, b), max(a, b)))
        left = [node for node in left if open_[node]]
    done = {node for pair in pairs for node in pair}
    return tuple(pairs), np.array(sorted(set(range(nodes)) - done), dtype=np.int64)


def alike_nodes(needs: Sequence[tuple[int, Needs]], classes: int, nodes: int) -> Ints:
    """Return a group number per node; nodes of a group make equally many calls of each class."""
    table = np.zeros((nodes, len(needs) * max(classes, 1)), dtype=np.int64)
    for place, (_, need) in enumerate(needs):
        mine = need.cls >= 0
        key = need.own[mine] * np.int64(max(classes, 1)) + need.cls[mine]
        count = np.bincount(key, minlength=nodes * max(classes, 1))
        table[:, place * classes : (place + 1) * classes] = count.reshape(nodes, -1)
    return np.unique(table, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)


#: What a lack of neighbours counts where hosts are equally good otherwise.
_LONELY = 0.25


@dataclass(frozen=True)
class Placement:
    """Hosts of nodes 0 to 3, empty: all are this machine; ``hops`` between nodes 0 and 1.

    ``wanted``: distances of loaded ranges that are measured with it. ``flows``: (from, to) of
    nodes whose messages all pass the same links between switches; none where no such are known.
    """

    hosts: tuple[str, ...]
    hops: int
    wanted: tuple[int, ...]
    flows: tuple[tuple[int, int], ...] = ()


def place(
    hosts: Sequence[str], topology: Topology, wanted: Iterable[int]
) -> tuple[tuple[Placement, ...], tuple[str, ...]]:
    """Return one placement for each distance that the hosts can show, and what they cannot.

    ``wanted``: distances of the pairs to load (0 is any). Errors: P3SError for a host that the
    topology does not name.
    """
    distances = sorted({max(int(hops), 1) for hops in wanted} or {1})
    if not hosts:
        return (Placement((), 1, tuple(distances)),), _alone(topology, distances)
    names = list(dict.fromkeys(hosts))
    hops = topology.between(names, names)
    if len(names) == 1:
        four = tuple(names * NODES)
        return (Placement(four, 0, tuple(distances)),), ()
    found: dict[tuple[str, ...], Placement] = {}
    notes = []
    for distance in distances:
        quad = _best(names, hops, distance)
        real = int(hops[quad[0], quad[1]])
        key = tuple(names[i] for i in quad)
        before = found.get(key)
        found[key] = Placement(
            key, real, (*(before.wanted if before else ()), distance), flows_of(key, topology)
        )
        if not topology.flat and real != distance:
            notes.append(
                f"ranges {distance} switches apart are measured on {key[0]} and {key[1]}, "
                f"{real} apart: no two of the hosts are {distance} apart"
            )
    return tuple(found.values()), tuple(notes)


def _alone(topology: Topology, distances: list[int]) -> tuple[str, ...]:
    if topology.flat:
        return ()
    return (
        f"distances of {', '.join(map(str, distances))} switches cannot be shown: no hosts "
        "are given",
    )


def _best(names: Sequence[str], hops: Ints, distance: int) -> tuple[int, int, int, int]:
    """Return which hosts are nodes 0 to 3.

    Nodes 2 and 3 (black holes, noise) are as far apart as the measured ones if they can be, and
    node 2, with the black holes of node 1, is away from it: what shares a link in the full run
    does so here. If possible they hang on the switches of the measured ones.
    """
    number = len(names)
    near = hops <= 1
    off = np.abs(hops - distance).astype(np.float64)
    off += _LONELY * (np.minimum.outer(near.sum(axis=1), near.sum(axis=1)) < 2)
    np.fill_diagonal(off, np.inf)
    first, second = np.unravel_index(int(np.argmin(off)), off.shape)
    a, b = int(min(first, second)), int(max(first, second))
    rest = [i for i in range(number) if i not in (a, b)]
    if len(rest) < 2:  # two or three hosts: they play more than one node
        return (a, b, rest[0], rest[0]) if rest else (a, b, a, b)
    best, least = (rest[0], rest[1]), np.inf
    for third in rest[:64]:
        for fourth in rest[:64]:
            if third == fourth:
                continue
            score = 2.0 * abs(int(hops[third, fourth]) - int(hops[a, b]))
            score += int(hops[a, third] > hops[a, b]) + int(hops[b, fourth] > hops[a, b])
            beside = (near[a, third] and near[b, fourth]) or (near[a, fourth] and near[b, third])
            score += 0.0 if beside else _LONELY
            if score < least:
                best, least = (third, fourth), score
    return a, b, best[0], best[1]


def flows_of(hosts: Sequence[str], topology: Topology) -> tuple[tuple[int, int], ...]:
    """Return which nodes can flood the links between the switches of nodes 0 and 1 together.

    Nothing where the two hang on one switch, or nobody knows which links are between them.
    """
    if topology.flat or not len(topology.up):
        return ()
    switch = topology.switches_of(hosts).tolist()
    if switch[0] == switch[1]:
        return ()
    flows = [(0, 1)]
    if len(set(hosts)) == NODES:
        flows += [
            pair for pair in ((2, 3), (3, 2)) if [switch[node] for node in pair] == switch[:2]
        ]
    return tuple(flows)


def placement_of(placements: Sequence[Placement], distance: int) -> int:
    """Return the number of the placement with which ranges this far apart are measured."""
    for number, entry in enumerate(placements):
        if max(distance, 1) in entry.wanted:
            return number
    return 0


#: A bound on the work of one replay, reached by traces with many irregular sizes only.
MOST_PAIRS = 24
#: Whole iterations that are measured, in all sections together.
MOST_TIMED = 48
#: Classes of messages that are measured by programs of their own.
MOST_CLASSES = 32
AUTO, ON, OFF = NOISES


@dataclass(frozen=True)
class Iteration:
    """Two loaded ranges (the same one twice if there is only one) in one section.

    ``pair``: nodes of the full mapping; ``programs``: numbers among the plan's programs;
    ``adds``: call classes that are measured here first; ``placement``: which hosts;
    ``noise_wanted``: messages on the way in the full run beside those of the pair.
    """

    pair: Pair
    section: int
    programs: tuple[int, ...]
    adds: tuple[int, ...] = ()
    placement: int = 0
    noise_wanted: float = 0.0


@dataclass(frozen=True)
class ReplayPlan:
    """Everything a replay does, decided before it is launched.

    ``wholes``: each section with collectives expanded and the classes of its steps.
    ``programs``: trace programs in the order of ``iterations``, then those of classes of messages
    and links; ``placement_of`` says on which hosts each runs. ``timed``: pairs and sections of
    whole iterations, without programs (timed_programs). ``composed``: call classes with partners
    on three nodes or more, put together from message classes; ``uncovered``: not measured.
    ``collectives``: which algorithms their messages are those of.
    """

    sections: tuple[Section, ...]
    mapping: RankMap
    topology: Topology
    distance: Ints
    wholes: tuple[Whole, ...]
    messages: tuple[MessageClass, ...]
    calls: tuple[CallClass, ...]
    iterations: tuple[Iteration, ...]
    programs: tuple[Program, ...]
    placement_of: tuple[int, ...]
    placements: tuple[Placement, ...]
    timed: tuple[Iteration, ...]
    world: World
    estimate: Estimate
    composed: tuple[int, ...]
    uncovered: tuple[int, ...]
    left_out: tuple[LeftOut, ...]
    collectives: tuple[Used, ...]
    notes: tuple[str, ...]
    settings: ReplaySettings

    @property
    def n(self) -> int:
        """Ranks of the full run."""
        return self.mapping.n

    @property
    def full(self) -> tuple[Steps, ...]:
        """Steps of each section with collectives expanded."""
        return tuple(whole.full for whole in self.wholes)

    def saved(self) -> str:
        """Say how many iterations the classes save."""
        made = len({iteration.pair for iteration in self.iterations})
        every = self.estimate.all_pairs
        return (
            f"{made} pair{'s' if made != 1 else ''} of ranges loaded instead of {every} "
            f"(all pairs of {self.mapping.nodes} nodes)"
        )
