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

from p3s.errors import P3SError, UsageError
from p3s.trees import splits
from p3s.trees.fluctuation import corrected, increments, test_variable
from p3s.trees.prototype import Prototype, parse
from p3s.trees.regress import Fit, Rows, fit, rows_of
from p3s.trees.types import Array, Growing, Ints, Node, Split, Table, Test, Tree

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
        tests = self.tests(made, rows, z)
        node = replace(node, tests=tests)
        cut = self.cut(made, rows, z, tests)
        if cut is None:
            return node, None
        found, column = cut
        left = np.isin(column, found.levels) if found.levels else column <= found.cut
        split = Split(tests[0].variable, 0, 0, found.cut, found.levels)
        return replace(node, split=split), left

    def size(self, rows: Rows) -> float:
        """Return what minsplit is compared with."""
        return float(rows.w.sum()) if self.growing.in_weights else float(len(rows.w))

    def tests(self, made: Fit, rows: Rows, z: Array) -> tuple[Test, ...]:
        """Return the tests of all variables, the least p first; none where rows are too few."""
        size = self.size(rows)
        if size < 2 * self.growing.minsplit:
            return ()
        d = increments(made, rows.t, rows.w)
        if d is None:
            return ()
        trim = min(0.5, self.growing.minsplit / size)
        found = [
            test_variable(d, name, column, rows.w, trim, name in self.table.levels)
            for name, column in zip(self.variables, z.T, strict=True)
        ]
        # Where p is the same to the last digit (0.0 of all that is), the larger statistic counts.
        return tuple(sorted((t for t in found if t), key=lambda t: (t.log_p, -t.statistic)))

    def cut(
        self, made: Fit, rows: Rows, z: Array, tests: tuple[Test, ...]
    ) -> tuple[splits.Cut, Array] | None:
        """Return the cut of the least stable variable with its values; None: it is a leaf."""
        if not tests:
            return None
        log = tests[0].log_p
        log = corrected(log, len(tests)) if self.growing.bonferroni else log
        if log > math.log(self.growing.alpha):
            return None
        name = tests[0].variable
        column = z[:, self.variables.index(name)]
        least = least_rows(self.growing, len(self.prototype.terms))
        words = name in self.table.levels
        found = splits.best(made, rows, column, self.growing, least, words)
        return None if found is None else (found, column)
