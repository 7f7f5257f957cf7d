"""Ensembles of regression trees as plain numbers: fitted by scikit-learn, evaluated here.

Nothing of a saved ensemble is ever run as code, and it predicts the same without scikit-learn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from p3s.base.errors import Damaged, P3SError
from p3s.machine.topology.units import Floats, Ints

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
    base: float = 0.0
    scale: float = 1.0

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

    def columns(self) -> dict[str, Any]:
        """Return it as plain columns of numbers."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


def trees_from(data: Mapping[str, Any], columns: int) -> Trees:
    """Return trees of plain columns. Errors: Damaged where they are none for ``columns``."""
    try:
        reals = {name: _numbers(data[name], "if") for name in ("threshold", "value")}
        whole = {name: _numbers(data[name], "i") for name in ("feature", "left", "right", "root")}
        base, scale = float(data["base"]), float(data["scale"])
    except (KeyError, TypeError, ValueError, OverflowError) as err:
        raise Damaged("its trees are not all numbers") from err
    made = Trees(
        whole["feature"], reals["threshold"].astype(np.float64), whole["left"], whole["right"],
        reals["value"].astype(np.float64), whole["root"], base, scale,
    )  # fmt: skip
    _check(made, columns)
    return made


def _numbers(values: Any, kinds: str) -> Any:
    """Return a list of numbers as an array; ValueError where it is none."""
    found = np.array(values) if len(values) else np.zeros(0, dtype=np.int64)
    if found.ndim != 1 or found.dtype.kind not in kinds:
        raise ValueError("no column of numbers")
    return found


def _check(trees: Trees, columns: int) -> None:
    """Raise Damaged where nodes are not there, or one is before the one above it (no end)."""
    number = len(trees.feature)
    node = np.arange(number)
    inner = trees.feature >= 0
    sizes = {len(x) for x in (trees.threshold, trees.left, trees.right, trees.value)}
    sound = sizes == {number} and bool((trees.feature < columns).all())
    sound = sound and bool(((trees.root >= 0) & (trees.root < number)).all())
    for below in (trees.left, trees.right) if sound else ():
        sound = sound and bool(((below > node) & (below < number))[inner].all())
    numbers = (trees.threshold[inner], trees.value, [trees.base, trees.scale]) if sound else ()
    if not sound or not all(np.isfinite(x).all() for x in numbers):
        raise Damaged("the nodes of its trees do not fit together")


def of_boosting(fitted: Any) -> Trees:
    """Return a fitted GradientBoostingRegressor."""
    base = float(np.ravel(fitted.init_.constant_)[0])
    return _joined([x.tree_ for x in fitted.estimators_[:, 0]], base, float(fitted.learning_rate))


def of_forest(fitted: Any) -> Trees:
    """Return a fitted forest, the mean of its trees."""
    trees = [each.tree_ for each in fitted.estimators_]
    return _joined(trees, 0.0, 1.0 / len(trees))


def _joined(trees: Sequence[Any], base: float, scale: float) -> Trees:
    counts = np.array([tree.node_count for tree in trees], dtype=np.int64)
    root = np.cumsum(counts) - counts
    shift = np.repeat(root, counts)
    left = np.concatenate([tree.children_left for tree in trees]).astype(np.int64)
    right = np.concatenate([tree.children_right for tree in trees]).astype(np.int64)
    leaf = left < 0
    feature = np.concatenate([tree.feature for tree in trees]).astype(np.int64)
    return Trees(
        np.where(leaf, -1, feature),
        np.concatenate([tree.threshold for tree in trees]).astype(np.float64),
        np.where(leaf, 0, left + shift),
        np.where(leaf, 0, right + shift),
        np.concatenate([tree.value[:, 0, 0] for tree in trees]).astype(np.float64),
        root,
        base,
        scale,
    )


def needed(what: str) -> None:
    """Raise P3SError where scikit-learn is not installed."""
    try:
        import sklearn  # noqa: F401
    except ImportError as error:
        raise P3SError(
            f"{what}: needs scikit-learn, which is not installed; pip install 'p3s[placement]'"
        ) from error
