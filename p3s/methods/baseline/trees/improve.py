"""Making a tree better: what to measure next, and splits that new workloads do not want."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from p3s.methods.baseline.trees.diagnostics import Box, box
from p3s.methods.baseline.trees.evaluate import CLIP, Evaluator
from p3s.methods.baseline.trees.types import Array, Ints, Node, Table, Tree

#: Neighbouring workloads whose errors are looked at together.
_AROUND = 3


@dataclass(frozen=True)
class Region:
    """Workloads from ``low`` to ``high`` with the box of their errors, and workloads to measure.

    ``workloads``: half-way, on a scale of ratios, between those that the tree was grown from.
    """

    low: float
    high: float
    box: Box
    workloads: tuple[float, ...]


def worst_regions(tree: Tree, table: Table, errors: Array, limit: int = 1) -> list[Region]:
    """Return the regions whose errors are largest by their third quartile, the worst first.

    A region is three neighbouring workloads of ``table``; regions do not overlap. Each new workload
    is to be run with all configurations of the others (section 4.5, steps 3 and 5).
    """
    workload = table.column("workload")
    distinct = np.unique(workload)
    found = []
    for start in range(max(1, len(distinct) - _AROUND + 1)):
        some = distinct[start : start + _AROUND]
        rows = np.isin(workload, some)
        found.append((box(errors[rows]), float(some[0]), float(some[-1])))
    found.sort(key=lambda each: (-each[0].third, each[1]))
    made: list[Region] = []
    for each, low, high in found:
        if len(made) < limit and all(high < r.low or low > r.high for r in made):
            made.append(Region(low, high, each, _between(tree.workloads, low, high)))
    return made


def _between(trained: Sequence[float], low: float, high: float) -> tuple[float, ...]:
    """Return workloads between the trained ones around a region, rounded to three figures."""
    known = np.array(trained)
    first = max(int(np.searchsorted(known, low)) - 1, 0)
    last = min(int(np.searchsorted(known, high, side="right")), len(known) - 1)
    pairs = zip(known[first:last], known[first + 1 : last + 1], strict=True)
    middle = [float(f"{np.sqrt(a * b):.3g}") if a > 0 else (a + b) / 2 for a, b in pairs]
    return tuple(m for m in dict.fromkeys(middle) if m not in trained)


# ---- pruning ---------------------------------------------------------------------------------


def prune(tree: Tree, table: Table) -> Tree:
    """Return a tree without the splits that do not make errors of other runs smaller.

    From the leaves up a split goes where its node's own regression has no larger sum of relative
    errors over the rows of ``table``; one that none of them reaches stays. (Future work of the
    thesis, section 6.2; reduced error pruning, Quinlan 1987.)
    """
    evaluator = Evaluator.of(tree)
    z = np.stack([table.column(name) for name in tree.variables], axis=1)
    design = evaluator.prototype.design(table.columns)
    leaf = evaluator.leaf(z)
    parent = {int(c): i for i, pair in enumerate(evaluator.child) for c in pair if c != i}
    reach: list[list[Ints]] = [[] for _ in tree.nodes]
    for node in np.unique(leaf):
        rows, at = np.flatnonzero(leaf == node), int(node)
        while True:
            reach[at].append(rows)
            if at not in parent:
                break
            at = parent[at]
    kept = list(tree.nodes)
    missed = np.zeros(len(kept))
    for i in reversed(range(len(kept))):
        rows = np.concatenate(reach[i]) if reach[i] else np.empty(0, dtype=np.int64)
        own = _missed(tree, kept[i], design[rows], table.y[rows])
        split = kept[i].split
        below = missed[split.left] + missed[split.right] if split else np.inf
        if len(rows) and own <= below:
            kept[i] = replace(kept[i], split=None)
        missed[i] = min(own, below)
    return replace(tree, nodes=_reached(kept))


def _missed(tree: Tree, node: Node, design: Array, y: Array) -> float:
    """Return the sum of relative errors of a node's own regression."""
    value = design @ np.array(node.coefficients)
    low, high = CLIP[0] * node.low, CLIP[1] * node.high
    value = np.clip(value, low, high) if tree.growing.clip else np.where(value > 0, value, low)
    return float(np.sum(np.abs(value - y) / y))


def _reached(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Return the nodes that are still reached from the root, numbered anew."""
    found: list[Node] = []

    def take(at: int) -> int:
        number = len(found)
        found.append(nodes[at])
        split = nodes[at].split
        if split is not None:
            sides = take(split.left), take(split.right)
            found[number] = replace(nodes[at], split=replace(split, left=sides[0], right=sides[1]))
        return number

    take(0)
    return tuple(found)
