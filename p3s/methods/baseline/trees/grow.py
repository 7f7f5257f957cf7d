"""Growing a tree of regressions.

In each node: fit the expression, test whether its coefficients hold over each splitting variable,
split on the least stable one at the cut after which two regressions miss least; on, until no
instability is significant or the rows are too few (A. Castellanos Carrazana, UAB 2014, section 4.2
to 4.4; model based recursive partitioning of Zeileis, Hothorn and Hornik).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from p3s.base.errors import P3SError, UsageError
from p3s.methods.baseline.trees import splits
from p3s.methods.baseline.trees.fluctuation import corrected, increments, least_stable
from p3s.methods.baseline.trees.prototype import Prototype, parse
from p3s.methods.baseline.trees.regress import Fit, Rows, fit, rows_of
from p3s.methods.baseline.trees.types import Array, Growing, Ints, Node, Split, Table, Test, Tree

#: Fewest rows of a leaf beside twice its coefficients.
_LEAST = 10


def grow(
    table: Table, expression: str, variables: Sequence[str], growing: Growing | None = None
) -> Tree:
    """Return the tree of an expression over a table of runs; equal tables give equal trees.

    Errors: UsageError for an expression that is not linear, or variables that are not there;
    P3SError for times that are none, or fewer rows than the expression has coefficients.
    """
    growing = (growing or Growing()).checked()
    prototype = parse(expression)
    if not variables or len(set(variables)) != len(variables):
        raise UsageError("splitting variables: give each once, at least one")
    if not (np.isfinite(table.y) & (table.y > 0)).all():
        raise P3SError("a tree needs measured values above zero; leave other rows out")
    if len(table) <= len(prototype.terms):
        raise P3SError(
            f"{len(table)} runs do not tell {len(prototype.terms)} coefficients; measure more"
        )
    z = np.stack([table.column(name) for name in variables], axis=1)
    rows = rows_of(prototype.design(table.columns), table.y, growing)
    grower = _Grower(prototype, tuple(variables), z, table, rows, growing)
    return Tree(
        prototype.text,
        tuple(variables),
        growing,
        grower.nodes(),
        {name: _range(column) for name, column in sorted(table.columns.items())},
        dict(table.levels),
        tuple(np.unique(table.columns["workload"]).tolist()) if "workload" in table.columns else (),
    )


def _range(values: Array) -> tuple[float, float]:
    return float(values.min()), float(values.max())


def least_rows(growing: Growing, coefficients: int) -> int:
    """Return the least number of rows of a leaf."""
    return max(2 * coefficients, _LEAST) if growing.min_rows is None else growing.min_rows


@dataclass(frozen=True)
class _Grower:
    """What all nodes share: ``z`` (rows, variables) and the rows of the regressions."""

    prototype: Prototype
    variables: tuple[str, ...]
    z: Array
    table: Table
    rows: Rows
    growing: Growing

    def nodes(self) -> tuple[Node, ...]:
        """Return the nodes depth first, left before right."""
        found: list[Node] = []
        waiting: list[tuple[Ints, int, bool]] = [(np.arange(len(self.table)), -1, True)]
        while waiting:
            at, parent, on_left = waiting.pop()
            number = len(found)
            if parent >= 0:
                split = found[parent].split
                assert split is not None
                split = replace(split, left=number) if on_left else replace(split, right=number)
                found[parent] = replace(found[parent], split=split)
            node, left = self.node(at)
            if left is not None:
                waiting += [(at[~left], number, False), (at[left], number, True)]
            found.append(node)
        return tuple(found)

    def node(self, at: Ints) -> tuple[Node, np.ndarray | None]:
        """Return a node without its children, and which of its rows go to the left."""
        rows = self.rows.only(at)
        made = fit(rows)
        y, z = self.table.y[at], self.z[at]
        names = self.prototype.coefficients
        error = float(np.sqrt(np.mean((made.residuals * rows.relative) ** 2)))
        node = Node(
            len(at),
            float(rows.w.sum()),
            tuple(made.coefficients.tolist()),
            *_range(y),
            error,
            tuple(_range(column) for column in z.T),
            tuple(name for i, name in enumerate(names) if i not in made.kept),
        )
        test = self.test(made, rows, z)
        node = replace(node, test=test)
        cut = self.cut(made, rows, z, test)
        if test is None or cut is None:
            return node, None
        column = self.column(z, test)
        left = np.isin(column, cut.levels) if cut.levels else column <= cut.low
        split = Split(test.variable, 0, 0, cut.low, cut.high, cut.levels)
        return replace(node, split=split), left

    def column(self, z: Array, test: Test) -> Array:
        """Return the values of a test's variable."""
        return np.asarray(z[:, self.variables.index(test.variable)])

    def test(self, made: Fit, rows: Rows, z: Array) -> Test | None:
        """Return the test of the least stable variable; None where rows are too few for any."""
        growing = self.growing
        size = float(rows.w.sum()) if growing.in_weights else float(len(rows.w))
        d = increments(made, rows.t, rows.w) if size >= 2 * growing.minsplit else None
        if d is None:
            return None
        found = least_stable(d, z, self.variables, self.table.levels, rows.w, growing)
        if found is None:
            return None
        test, tested = found
        return replace(test, log_p=corrected(test.log_p, tested)) if growing.bonferroni else test

    def cut(self, made: Fit, rows: Rows, z: Array, test: Test | None) -> splits.Cut | None:
        """Return the cut of the least stable variable; None: the node is a leaf."""
        if test is None or test.log_p > math.log(self.growing.alpha):
            return None
        least = least_rows(self.growing, len(self.prototype.terms))
        words = test.variable in self.table.levels
        return splits.best(made, rows, self.column(z, test), self.growing, least, words)
