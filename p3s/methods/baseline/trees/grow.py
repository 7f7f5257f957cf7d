"""Growing a tree of regressions.

In each node: fit the expression, test whether its coefficients hold over each splitting variable,
split on the least stable one at the cut after which two regressions miss least; on, until no
instability is significant or the rows are too few (A. Castellanos Carrazana, UAB 2014, section 4.2
to 4.4; model based recursive partitioning of Zeileis, Hothorn and Hornik).
"""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy.special import chdtrc, eval_jacobi, gammaln, roots_jacobi

from p3s.base.arrays import Floats, Ints
from p3s.base.errors import P3SError, UsageError
from p3s.methods.baseline.trees import splits
from p3s.methods.baseline.trees.prototype import Prototype, parse
from p3s.methods.baseline.trees.splits import Fit, Rows, fit, rows_of
from p3s.methods.baseline.trees.types import Growing, Node, Split, Table, Test, Tree

#: Polynomials; with 30 the p-values of up to 40 dimensions have 1e-10.
_SIZE = 40
#: Below it a p-value is what its tail says: the sum has lost its digits, the tail is close.
_TAIL = 1e-8


@lru_cache(maxsize=64)
def _basis(k: int) -> tuple[Floats, Floats, Floats, Floats]:
    """Return nodes in [0, 1], weights for u^(k/2 - 1) du, orthonormal (1-u) P_i, derivatives."""
    a = k / 2 - 1
    x, w = roots_jacobi(2 * _SIZE + 30, 0, a)
    u, w = (1 + x) / 2, w / 2 ** (a + 1)
    size = range(_SIZE)
    poly = np.array([eval_jacobi(i, 2, a, x) for i in size])
    slope = np.array([(i + a + 3) * eval_jacobi(i - 1, 3, a + 1, x) if i else 0 * x for i in size])
    value, change = (1 - u) * poly, (1 - u) * slope - poly
    norm = np.sqrt((w * value**2).sum(axis=1))[:, None]
    return u, w, value / norm, change / norm


def _inside(x: float, k: int, span: float) -> float:
    """Return the probability that the squared radius stays below ``x`` for a time ``span``."""
    u, w, value, change = _basis(k)
    b = x / 2
    rows = (change + b / 2 * value) * np.sqrt(w * u / b)
    nu, vectors = np.linalg.eigh(rows @ rows.T)
    share = vectors.T @ (value @ (w * np.exp(-b * u / 2)))
    scale = math.exp(k / 2 * math.log(b) - gammaln(k / 2))
    return scale * float(np.sum(share**2 * np.exp(-nu * span)))


def tail(x: float, k: int, pi: float) -> float:
    """Return ln p far out: p = x^(k/2) e^(-x/2) / (2^(k/2) Gamma(k/2)) ((1 - k/x) ln l + 2/x).

    l = ((1 - pi) / pi)^2 (DeLong 1981; Estrella, Econometric Theory 19, 2003). Never above 0.
    """
    span = 2 * math.log((1 - pi) / pi)
    factor = (1 - k / x) * span + 2 / x if x > 0 else 0.0
    if factor <= 0:
        return 0.0
    log_tail = k / 2 * math.log(x / 2) - x / 2 - float(gammaln(k / 2)) + math.log(factor)
    return min(0.0, log_tail)


def log_p(x: float, k: int, pi: float) -> float:
    """Return ln p of a supLM statistic ``x`` of ``k`` parameters, ``pi`` cut off at both ends."""
    if x <= 0:
        return 0.0
    if pi >= 0.5:  # one point: chi-squared
        p = float(chdtrc(k, x))
        return math.log(p) if p > 0 else tail(x, k, 0.4999)
    far = tail(x, k, pi)
    if x > k and far < math.log(_TAIL):
        return far
    p = 1 - _inside(x, k, 2 * math.log((1 - pi) / pi))
    return math.log(min(1.0, p)) if p > _TAIL else far


#: Residuals that are the last digits of the numbers say nothing.
_EXACT = 1e-12
#: p-values are corrected by a product up to it (the other formula loses digits there).
_SMALL = 0.01


def increments(fit: Fit, t: Floats, w: Floats) -> Floats | None:
    """Return the decorrelated scores of the rows, (rows, kept); None where the fit is exact.

    psi = residual x, J = sum of w psi psi' / n, d = w J^(-1/2) psi / sqrt(n), n the sum of w. They
    sum to zero; their squares to k. Linear maps of the columns change no norm of their sums.
    """
    if not len(fit.kept):
        return None
    n, r = w.sum(), fit.residuals
    if float(np.sum(w * r**2)) <= _EXACT**2 * float(np.sum(w * t**2)):
        return None
    scores = r[:, None] * fit.q
    spread = (scores * w[:, None]).T @ scores / n
    values, vectors = np.linalg.eigh(spread)
    good = values > 1e-12 * values[-1]
    half = vectors[:, good] / np.sqrt(values[good])
    return np.asarray(w[:, None] * (scores @ half) / math.sqrt(n))


def supremum(d: Floats, z: Floats, w: Floats, trim: float) -> tuple[float, int] | None:
    """Return supLM of a numeric variable: largest ||C(t)||^2 / (t (1 - t)), t in [trim, 1 - trim].

    C cumulates the scores by the values of ``z``, t the weights; both are seen between two values
    that differ: at how many points is returned, too. None where there is none.
    """
    order = np.argsort(z, kind="stable")
    ends = np.flatnonzero(np.diff(z[order]) > 0)
    t = (np.cumsum(w[order]) / w.sum())[ends]
    inside = (t >= trim - 1e-12) & (t <= 1 - trim + 1e-12)
    if not inside.any():
        return None
    t = t[inside]
    walk = np.cumsum(d[order], axis=0)[ends[inside]]
    return float(np.max(np.einsum("ij,ij->i", walk, walk) / (t * (1 - t)))), len(t)


def between_levels(d: Floats, z: Floats, w: Floats) -> tuple[float, int] | None:
    """Return sum over levels of n / n_c ||sum of d||^2 and its degrees of freedom k (C - 1)."""
    _, index = np.unique(z, return_inverse=True)
    count = np.bincount(index, w)
    if len(count) < 2:
        return None
    sums = np.stack([np.bincount(index, d[:, j]) for j in range(d.shape[1])], axis=1)
    statistic = float(np.sum(np.einsum("ij,ij->i", sums, sums) / count) * w.sum())
    return statistic, d.shape[1] * (len(count) - 1)


def log_chi2(x: float, dof: int) -> float:
    """Return ln of the probability that chi-squared with ``dof`` is above ``x``."""
    p = float(chdtrc(dof, x))
    if p > 1e-290:
        return math.log(p)
    return (dof / 2 - 1) * math.log(x / 2) - x / 2 - float(gammaln(dof / 2))


def least_stable(
    d: Floats, z: Floats, names: Sequence[str], words: Container[str], w: Floats, growing: Growing
) -> tuple[Test, int] | None:
    """Return the test with the least p-value of the variables ``z``, and how many were tested.

    p of a supremum is that over all of [trim, 1 - trim], or with ``growing.few_values`` that of the
    points at which it was seen, if that is less: chi-squared of each, added up. Both are bounds.
    None where the rows have one value of every variable.
    """
    tests, k = [], d.shape[1]
    suprema: list[tuple[Test, int]] = []
    trim = growing.trim(len(w), float(w.sum()))
    for name, column in zip(names, z.T, strict=True):
        if name in words:
            levels = between_levels(d, column, w)
            tests += [Test(name, levels[0], log_chi2(*levels))] if levels else []
        elif statistic := supremum(d, column, w, trim):
            suprema.append((Test(name, statistic[0], 0.0), statistic[1]))
    tested = len(tests) + len(suprema)
    if suprema:  # of one distribution: only the largest needs its p
        largest = max((test for test, _ in suprema), key=lambda test: test.statistic)
        tests.append(replace(largest, log_p=log_p(largest.statistic, k, trim)))
    for test, points in suprema if growing.few_values else ():
        p = min(0.0, math.log(points) + log_chi2(test.statistic, k))
        tests.append(replace(test, log_p=p))
    return (min(tests, key=lambda test: test.log_p), tested) if tested else None


def correct_log_p(log: float, tests: int) -> float:
    """Return ln of a p-value corrected for the number of tests (Bonferroni, as in R's party).

    min(1, m p) for p up to 0.01, else 1 - (1 - p)^m.
    """
    if log <= math.log(_SMALL):
        return min(0.0, log + math.log(tests))
    p = -math.expm1(tests * math.log1p(-math.exp(log))) if log < 0 else 1.0
    return math.log(p)


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


def _range(values: Floats) -> tuple[float, float]:
    return float(values.min()), float(values.max())


def least_rows(growing: Growing, coefficients: int) -> int:
    """Return the least number of rows of a leaf."""
    return max(2 * coefficients, _LEAST) if growing.min_rows is None else growing.min_rows


@dataclass(frozen=True)
class _Grower:
    """What all nodes share: ``z`` (rows, variables) and the rows of the regressions."""

    prototype: Prototype
    variables: tuple[str, ...]
    z: Floats
    table: Table
    rows: Rows
    growing: Growing

    def nodes(self) -> tuple[Node, ...]:
        """Return the nodes depth first, left before right."""
        nodes_grown: list[Node] = []

        def take(at: Ints) -> int:
            number = len(nodes_grown)
            node, goes_left = self.node(at)
            nodes_grown.append(node)
            if goes_left is not None and node.split is not None:
                sides = take(at[goes_left]), take(at[~goes_left])
                split = replace(node.split, left=sides[0], right=sides[1])
                nodes_grown[number] = replace(node, split=split)
            return number

        take(np.arange(len(self.table)))
        return tuple(nodes_grown)

    def node(self, at: Ints) -> tuple[Node, np.ndarray | None]:
        """Return a node without its children, and which of its rows go to the left."""
        rows = self.rows.only(at)
        fitted = fit(rows)
        y, z = self.table.y[at], self.z[at]
        names = self.prototype.coefficients
        error = float(np.sqrt(np.mean((fitted.residuals * rows.relative) ** 2)))
        node = Node(
            len(at),
            float(rows.w.sum()),
            tuple(fitted.coefficients.tolist()),
            *_range(y),
            error,
            tuple(_range(column) for column in z.T),
            tuple(name for i, name in enumerate(names) if i not in fitted.kept),
        )
        test = self.test(fitted, rows, z)
        node = replace(node, test=test)
        cut = self.cut(fitted, rows, z, test)
        if test is None or cut is None:
            return node, None
        column = self.column(z, test)
        goes_left = np.isin(column, cut.levels) if cut.levels else column <= cut.low
        split = Split(test.variable, 0, 0, cut.low, cut.high, cut.levels)
        return replace(node, split=split), goes_left

    def column(self, z: Floats, test: Test) -> Floats:
        """Return the values of a test's variable."""
        return np.asarray(z[:, self.variables.index(test.variable)])

    def test(self, fitted: Fit, rows: Rows, z: Floats) -> Test | None:
        """Return the test of the least stable variable; None where rows are too few for any."""
        growing = self.growing
        size = float(rows.w.sum()) if growing.in_weights else float(len(rows.w))
        d = increments(fitted, rows.t, rows.w) if size >= 2 * growing.minsplit else None
        if d is None:
            return None
        least_stable_test = least_stable(d, z, self.variables, self.table.levels, rows.w, growing)
        if least_stable_test is None:
            return None
        test, tested = least_stable_test
        return (
            replace(test, log_p=correct_log_p(test.log_p, tested)) if growing.bonferroni else test
        )

    def cut(self, fitted: Fit, rows: Rows, z: Floats, test: Test | None) -> splits.Cut | None:
        """Return the cut of the least stable variable; None: the node is a leaf."""
        if test is None or test.log_p > math.log(self.growing.alpha):
            return None
        least = least_rows(self.growing, len(self.prototype.terms))
        words = test.variable in self.table.levels
        return splits.best(fitted, rows, self.column(z, test), self.growing, least, words)
