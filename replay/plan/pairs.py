"""Which pairs of ranges to load so that every class of calls is measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from p3s.base.arrays import Bools, Floats, Ints
from p3s.program.mapping import RankMap
from p3s.simulate.steps import Op, Steps

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
    node_of_step = mapping.node_of[full.rank]
    each = np.arange(len(full))
    # A completion needs the partners of all requests that it lists, whichever it completes.
    step = np.concatenate((each, np.repeat(each, np.diff(full.done_start))))
    item = np.concatenate((each, full.done))
    partner = np.concatenate((full.to[item], full.source[item]))
    row, node = np.tile(step, 2)[partner >= 0], node_of_step[partner[partner >= 0]]
    away = node != node_of_step[row]
    key = np.unique(row[away] * np.int64(mapping.nodes) + node[away])
    return Needs(node_of_step, call_of, key // mapping.nodes, key % mapping.nodes)


def direct_needs(original: Steps, direct_of: Ints, mapping: RankMap) -> Needs:
    """Return what the collectives need that are executed as such."""
    node_of_step = mapping.node_of[original.rank]
    row, node = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    where = np.flatnonzero((direct_of >= 0) & original.is_op(Op.COLLECTIVE, Op.ICOLLECTIVE))
    for comm in np.unique(original.comm[where]).tolist():
        mine = where[original.comm[where] == comm]
        for other in np.unique(mapping.node_of[original.members[comm]]).tolist():
            away = mine[node_of_step[mine] != other]
            row.append(away)
            node.append(np.full(len(away), other, dtype=np.int64))
    return Needs(node_of_step, direct_of, np.concatenate(row), np.concatenate(node))


class _Table:
    """Classes that a node measures alone, and those that a pair of nodes measures, per section."""

    def __init__(self, needs: Sequence[tuple[int, Needs]], worth: Floats, nodes: int) -> None:
        self.nodes, self.worth = nodes, worth
        classes = len(worth)
        parts = [np.zeros((0, 4), dtype=np.int64)]
        whole = np.zeros(classes, dtype=bool)
        is_needed = np.zeros(classes, dtype=bool)
        for section, need in needs:
            is_needed[need.cls[need.cls >= 0]] = True
            mine = np.flatnonzero((need.cls >= 0) & (need.others() <= 1))
            whole[need.cls[mine]] = True
            other = need.own.copy()  # of steps that need one other node, or none
            other[need.step] = need.node
            parts.append(_unique(section, need.cls[mine], need.own[mine], other[mine]))
        self.wanted, self.partial = whole, is_needed & ~whole
        rows = np.concatenate(parts)
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
        if self.nodes == 1:
            return 0, 0
        first, second = np.sort(np.argsort(-gain_alone, kind="stable")[:2]).tolist()
        return first, second


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


def busiest(fulls: Sequence[Steps], mapping: RankMap) -> Pair:
    """Return the two nodes that exchange the most bytes in the run; without messages the first."""
    keys, amounts = [np.zeros(0, dtype=np.int64)], [np.zeros(0)]
    for full in fulls:
        sent = np.flatnonzero(full.to >= 0)
        node = mapping.node_of[full.rank]
        a, b = node[sent], node[full.to[sent]]
        keys.append((np.minimum(a, b) * np.int64(mapping.nodes) + np.maximum(a, b))[a != b])
        amounts.append(((full.bytes[sent] + 1) * full.weight[sent])[a != b])
    unique, code = np.unique(np.concatenate(keys), return_inverse=True)
    if not len(unique):
        return 0, min(1, mapping.nodes - 1)
    best = int(unique[np.argmax(np.bincount(code.reshape(-1), np.concatenate(amounts)))])
    return best // mapping.nodes, best % mapping.nodes
