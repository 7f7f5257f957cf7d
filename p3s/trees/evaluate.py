"""What a tree says of configurations: values, and where it should not be believed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from p3s.errors import UsageError
from p3s.trees.prototype import Prototype, parse
from p3s.trees.types import Array, Ints, Tree

Bools = NDArray[np.bool_]
#: A prediction lies between these times the least and the largest value of its leaf.
CLIP = (0.8, 1.25)


@dataclass(frozen=True)
class Said:
    """What a tree says of rows.

    ``value``: above zero; ``leaf``: number of the node; ``extrapolated``: a variable lies outside
    the runs that the tree was grown from; ``outside``: a splitting variable lies outside those of
    the leaf; ``clipped``: the regression said something else (``raw``).
    """

    value: Array
    leaf: Ints
    extrapolated: Bools
    outside: Bools
    clipped: Bools
    raw: Array


@dataclass(frozen=True)
class Evaluator:
    """A tree with its nodes as columns, made once to be asked often.

    ``child``: (nodes, 2) left and right, a leaf's itself; ``variable``, ``cut`` of the splits;
    ``levels``: nodes that split on words, with the numbers of those that go to the left.
    """

    tree: Tree
    prototype: Prototype
    child: Ints
    variable: Ints
    cut: Array
    levels: Mapping[int, tuple[int, ...]]
    coefficients: Array
    bounds: Array
    ranges: Array

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
            np.array([s.cut if s else 0.0 for s in splits]),
            {i: s.levels for i, s in enumerate(splits) if s and s.levels},
            np.array([node.coefficients for node in nodes]),
            np.array([(CLIP[0] * node.low, CLIP[1] * node.high) for node in nodes]),
            np.array([node.ranges for node in nodes]),
        )

    def leaf(self, z: Array) -> Ints:
        """Return the leaf of each row of splitting variables, (rows, variables)."""
        at, rows = np.zeros(len(z), dtype=np.int64), np.arange(len(z))
        while True:
            value = z[rows, self.variable[at]]
            right = value > self.cut[at]
            for node, levels in self.levels.items():
                here = at == node
                right[here] = ~np.isin(value[here], levels)
            after = self.child[at, right.astype(np.int64)]
            if (after == at).all():
                return at
            at = after

    def predict(self, columns: Mapping[str, Array]) -> Said:
        """Return what the tree says of rows; ``columns``: a value of each variable per row.

        Errors: UsageError for a variable that is missing.
        """
        for name in self.tree.variables:
            if name not in columns:
                raise UsageError(f"{name}: the tree splits on it; give its value")
        z = np.stack([np.asarray(columns[name], float) for name in self.tree.variables], axis=1)
        leaf = self.leaf(z)
        raw = np.einsum("ij,ij->i", self.prototype.design(columns), self.coefficients[leaf])
        low, high = self.bounds[leaf].T
        clip = self.tree.growing.clip
        value = np.clip(raw, low, high) if clip else np.where(raw > 0, raw, low)
        least, most = np.moveaxis(self.ranges[leaf], 2, 0)
        outside = ((z < least) | (z > most)).any(axis=1)
        return Said(value, leaf, _beyond(self.tree, columns), outside, value != raw, raw)


def predict(tree: Tree, columns: Mapping[str, Array]) -> Said:
    """Return what a tree says of rows, once; see :meth:`Evaluator.predict`."""
    return Evaluator.of(tree).predict(columns)


def _beyond(tree: Tree, columns: Mapping[str, Array]) -> Bools:
    """Return which rows have a variable outside the runs that the tree was grown from."""
    found = np.zeros(len(next(iter(columns.values()))), dtype=bool)
    for name, (low, high) in tree.box.items():
        if name in columns:
            slack = 1e-9 * max(abs(low), abs(high))
            found |= (columns[name] < low - slack) | (columns[name] > high + slack)
    return found
