"""Ensembles of regression trees as plain numbers: fitted by scikit-learn, evaluated here.

Nothing of a saved ensemble is ever run as code, and it predicts the same without scikit-learn.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from p3s.base.arrays import Floats, Ints
from p3s.base.errors import P3SError

#: Rows times trees that are evaluated at a time: bounds the memory.
_CHUNK = 1 << 21


@dataclass(frozen=True, eq=False)
class Trees:
    """Trees whose values are added up: ``base`` + ``scale`` x sum.

    Node by node, of all trees: ``feature`` (-1: a leaf), ``threshold`` (up to it goes left),
    ``left``, ``right`` (nodes behind this one), ``value``. ``root``: first node of each tree.
    """

    feature: Ints
    threshold: Floats
    left: Ints
    right: Ints
    value: Floats
    root: Ints
    base: float = field(default=0.0, metadata={"always": True})
    scale: float = field(default=1.0, metadata={"always": True})

    def predict(self, rows: Floats) -> Floats:
        """Return the value of each row of features."""
        # scikit-learn compares single precision.
        table = np.asarray(rows, dtype=np.float32).astype(np.float64)
        size = max(_CHUNK // max(len(self.root), 1), 1)
        parts = [self._part(table[k : k + size]) for k in range(0, len(table), size)]
        return np.concatenate(parts) if parts else np.zeros(0)

    def _part(self, table: Floats) -> Floats:
        row = np.arange(len(table))[:, None]
        at = np.broadcast_to(self.root, (len(table), len(self.root)))
        while (inner := self.feature[at] >= 0).any():
            low = table[row, np.maximum(self.feature[at], 0)] <= self.threshold[at]
            at = np.where(inner, np.where(low, self.left[at], self.right[at]), at)
        return np.asarray(self.base + self.scale * self.value[at].sum(axis=1), dtype=np.float64)

    def check(self, columns: int) -> None:
        """Raise ValueError where nodes are not there, or one is before the one above it (no end).

        ``columns``: features that there are.
        """
        number = len(self.feature)
        node = np.arange(number)
        inner = self.feature >= 0
        sizes = {len(x) for x in (self.threshold, self.left, self.right, self.value)}
        sound = sizes == {number} and bool((self.feature < columns).all())
        sound = sound and bool(((self.root >= 0) & (self.root < number)).all())
        for below in (self.left, self.right) if sound else ():
            sound = sound and bool(((below > node) & (below < number))[inner].all())
        if not sound:
            raise ValueError("the nodes of its trees do not fit together")


def of_boosting(fitted: Any) -> Trees:
    """Return a fitted GradientBoostingRegressor."""
    trees = [each.tree_ for each in fitted.estimators_[:, 0]]
    counts = np.array([tree.node_count for tree in trees], dtype=np.int64)
    root = np.cumsum(counts) - counts
    shift = np.repeat(root, counts)
    left_child = np.concatenate([tree.children_left for tree in trees]).astype(np.int64)
    right = np.concatenate([tree.children_right for tree in trees]).astype(np.int64)
    leaf = left_child < 0
    feature = np.concatenate([tree.feature for tree in trees]).astype(np.int64)
    return Trees(
        np.where(leaf, -1, feature),
        np.concatenate([tree.threshold for tree in trees]).astype(np.float64),
        np.where(leaf, 0, left_child + shift),
        np.where(leaf, 0, right + shift),
        np.concatenate([tree.value[:, 0, 0] for tree in trees]).astype(np.float64),
        root,
        float(np.ravel(fitted.init_.constant_)[0]),
        float(fitted.learning_rate),
    )


def require_sklearn(purpose: str) -> None:
    """Raise P3SError where scikit-learn is not installed."""
    try:
        import sklearn  # noqa: F401
    except ImportError as error:
        raise P3SError(
            f"{purpose}: needs scikit-learn, which is not installed; pip install 'p3s[placement]'"
        ) from error
