"""What a tree says of configurations: values, and where it should not be believed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from p3s.base.arrays import Bools, Floats, Ints
from p3s.base.errors import UsageError
from p3s.methods.baseline.trees.prototype import Prototype, parse
from p3s.methods.baseline.trees.types import Tree

#: A prediction lies between these times the least and the largest value of its leaf.
CLIP = (0.8, 1.25)
#: The gap of a leaf: nothing lies to the right of it.
_NONE = (np.inf, np.inf)


@dataclass(frozen=True)
class TreeEstimate:
    """What a tree says of rows.

    ``value``: above zero; ``leaf``: number of the node that counts most; ``extrapolated``: a
    variable lies outside the runs that the tree was grown from; ``outside``: a splitting variable
    lies outside those of the row's leaves; ``clipped``: a regression said something else.
    """

    value: Floats
    leaf: Ints
    extrapolated: Bools
    outside: Bools
    clipped: Bools


@dataclass(frozen=True)
class _Parts:
    """Which leaves tell which rows, with what weight; the weights of a row sum to one."""

    row: Ints
    leaf: Ints
    weight: Floats


@dataclass(frozen=True)
class Evaluator:
    """A tree with its nodes as columns, made once to be asked often.

    ``child``: (nodes, 2) left and right, a leaf's itself; ``variable`` of the splits, ``gap``:
    (nodes, 2) largest value on the left and least on the right; ``levels``: nodes that split on
    words, with the numbers of those that go to the left.
    """

    tree: Tree
    prototype: Prototype
    child: Ints
    variable: Ints
    gap: Floats
    levels: Mapping[int, tuple[int, ...]]
    coefficients: Floats
    bounds: Floats
    ranges: Floats

    @staticmethod
    def of(tree: Tree) -> Evaluator:
        """Return the evaluator of a tree."""
        nodes, names = tree.nodes, tree.variables
        splits = [node.split for node in nodes]
        return Evaluator(
            tree,
            parse(tree.expression),
            np.array([(s.left, s.right) if s else (i, i) for i, s in enumerate(splits)]),
            np.array([names.index(s.variable) if s else 0 for s in splits]),
            np.array(
                [(s.low, s.high if tree.growing.blend else s.low) if s else _NONE for s in splits]
            ),
            {i: s.levels for i, s in enumerate(splits) if s and s.levels},
            np.array([node.coefficients for node in nodes]),
            np.array([(CLIP[0] * node.low, CLIP[1] * node.high) for node in nodes]),
            np.array([node.ranges for node in nodes]),
        )

    def leaf(self, z: Floats) -> Ints:
        """Return the leaf of each row of splitting variables, (rows, variables).

        Of rows between two leaves it is the one that counts most.
        """
        return self._main(self._parts(z), len(z))

    def predict(self, columns: Mapping[str, Floats]) -> TreeEstimate:
        """Return what the tree says of rows; ``columns``: a value of each variable per row.

        Errors: UsageError for a variable that is missing.
        """
        for name in self.tree.variables:
            if name not in columns:
                raise UsageError(f"{name}: the tree splits on it; give its value")
        z = np.stack([np.asarray(columns[name], float) for name in self.tree.variables], axis=1)
        parts, rows = self._parts(z), len(z)
        design = self.prototype.design(columns)[parts.row]
        raw = np.einsum("ij,ij->i", design, self.coefficients[parts.leaf])
        low, high = self.bounds[parts.leaf].T
        clip = self.tree.growing.clip
        bounded = np.clip(raw, low, high) if clip else np.where(raw > 0, raw, low)
        value = np.asarray(np.bincount(parts.row, parts.weight * bounded, rows), dtype=float)
        clipped = np.bincount(parts.row, bounded != raw, rows) > 0
        leaf = self._main(parts, rows)
        return TreeEstimate(
            value, leaf, _beyond(self.tree, columns), self._outside(parts, z), clipped
        )

    def _parts(self, z: Floats) -> _Parts:
        """Return the leaves of rows: two for each split that a row lies in the gap of."""
        row, at, weight = np.arange(len(z)), np.zeros(len(z), dtype=np.int64), np.ones(len(z))
        while True:
            value = z[row, self.variable[at]]
            low, high = self.gap[at].T
            right = value > low
            for node, levels in self.levels.items():
                at_node = at == node
                right[at_node] = ~np.isin(value[at_node], levels)
            after = self.child[at, right.astype(np.int64)]
            both = np.flatnonzero(right & (value < high))
            if not len(both) and (after == at).all():
                return _Parts(row, at, weight)
            if len(both):
                share = _share(value[both], low[both], high[both])
                other = self.child[at[both], 0]
                left_weight = weight[both] * (1 - share)
                weight[both] *= share
                row, after = np.append(row, row[both]), np.append(after, other)
                weight = np.append(weight, left_weight)
            at = after

    def _main(self, parts: _Parts, rows: int) -> Ints:
        order = np.lexsort((-parts.leaf, parts.weight))
        main_leaf = np.zeros(rows, dtype=np.int64)
        main_leaf[parts.row[order]] = parts.leaf[order]
        return main_leaf

    def _outside(self, parts: _Parts, z: Floats) -> Bools:
        """Return which rows lie outside what their leaves' runs had, taken together."""
        least, most = np.full_like(z, np.inf), np.full_like(z, -np.inf)
        np.minimum.at(least, parts.row, self.ranges[parts.leaf, :, 0])
        np.maximum.at(most, parts.row, self.ranges[parts.leaf, :, 1])
        return np.asarray(((z < least) | (z > most)).any(axis=1))


def _share(value: Floats, low: Floats, high: Floats) -> Floats:
    """Return where values lie between two others, 0 to 1; of ratios where all are above zero."""
    ratio = low > 0
    one = np.where(ratio, np.log(np.where(ratio, value / np.where(ratio, low, 1), 1)), value - low)
    whole = np.where(ratio, np.log(np.where(ratio, high / np.where(ratio, low, 1), 1)), high - low)
    return np.asarray(one / whole)


def _beyond(tree: Tree, columns: Mapping[str, Floats]) -> Bools:
    """Return which rows have a variable outside the runs that the tree was grown from."""
    is_beyond = np.zeros(len(next(iter(columns.values()))), dtype=bool)
    for name, (low, high) in tree.box.items():
        if name in columns:
            slack = 1e-9 * max(abs(low), abs(high))
            is_beyond |= (columns[name] < low - slack) | (columns[name] > high + slack)
    return is_beyond
