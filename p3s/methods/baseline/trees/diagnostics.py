"""Is a tree good enough: boxes of its errors, groups that stand out, the gate before advice.

A. Castellanos Carrazana, UAB 2014, sections 4.5 and 5.4.3. A box is the quartiles, whiskers end at
the last value within 1.5 interquartile ranges of it, what lies beyond are outliers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from p3s.methods.baseline.trees.evaluate import Evaluator
from p3s.methods.baseline.trees.types import Array, Ints, Table, Tree

Bools = NDArray[np.bool_]

#: Groups of a variable with many values: as many rows each.
_GROUPS = 12
#: A group stands out where its errors are larger beyond chance, and so many times as large.
_LEVEL, _TIMES = 0.05, 1.5
#: What the thesis asks of a tree before its advice is looked at (section 4.5).
MEDIAN, DISPERSION, OUTLIERS = 0.05, 0.20, 0.05


@dataclass(frozen=True)
class Box:
    """Statistics of some errors, as shares: quartiles, whiskers, number of values and outliers."""

    count: int
    low: float
    first: float
    median: float
    third: float
    high: float
    outliers: int


def box(errors: Array) -> Box:
    """Return the box of errors without signs."""
    first, median, third = (float(q) for q in np.percentile(errors, [25, 50, 75]))
    reach = 1.5 * (third - first)
    inside = errors[(errors >= first - reach) & (errors <= third + reach)]
    low, high = float(inside.min()), float(inside.max())
    return Box(len(errors), low, first, median, third, high, len(errors) - len(inside))


@dataclass(frozen=True)
class Group:
    """The rows with values of a variable from ``low`` to ``high``; ``level``: of words, which one.

    ``times``: how many times the median and the third quartile of the other rows' errors its own
    are, the larger; ``alike``: whether it looks like the others.
    """

    variable: str
    low: float
    high: float
    box: Box
    times: float
    alike: bool
    level: str = ""


def errors_of(tree: Tree, table: Table) -> Array:
    """Return |predicted - real| / real of every row (eq. 5.1)."""
    said = Evaluator.of(tree).predict(table.columns)
    return np.abs(said.value - table.y) / table.y


def used(tree: Tree) -> list[str]:
    """Return the variables that a tree splits on, in their order."""
    there = {node.split.variable for node in tree.nodes if node.split}
    return [name for name in tree.variables if name in there]


def shares(tree: Tree) -> dict[str, float]:
    """Return the share of the internal nodes that split on each variable (section 5.4.3)."""
    found = [node.split.variable for node in tree.nodes if node.split]
    return {name: found.count(name) / len(found) for name in tree.variables} if found else {}


def groups(
    table: Table, errors: Array, variables: Sequence[str], level: float = _LEVEL
) -> list[Group]:
    """Return the boxes of each variable's groups, by variable, then value.

    A group is alike unless a rank test says that its errors are larger than those of the other rows
    (``level``, corrected for all groups) and its median or third quartile is 1.5 times theirs: with
    many rows any difference is beyond chance, with few any ratio happens.
    """
    parts = [(name, rows) for name in variables for rows in _parts(table.column(name))]
    return [_group(table, errors, name, rows, level / len(parts)) for name, rows in parts]


def _parts(values: Array) -> list[Bools]:
    """Return which rows have each value; where there are many values, as many rows each."""
    distinct = np.unique(values)
    if len(distinct) > _GROUPS:
        edges = np.quantile(values, np.arange(1, _GROUPS) / _GROUPS, method="lower")
        which = np.searchsorted(np.unique(edges), values, side="left")
    else:
        which = np.searchsorted(distinct, values)
    return [which == i for i in range(int(which.max()) + 1) if (which == i).any()]


def _larger(errors: Array, rows: Bools) -> float:
    """Return p of errors as large as some rows' if they are as the others' (Mann and Whitney)."""
    ranks = np.empty(len(errors))
    ranks[np.argsort(errors, kind="stable")] = np.arange(1, len(errors) + 1)
    mine, others = int(rows.sum()), int((~rows).sum())
    more = float(ranks[rows].sum()) - mine * (mine + 1) / 2 - mine * others / 2
    return float(ndtr(-more / np.sqrt(mine * others * (len(errors) + 1) / 12)))


def _group(table: Table, errors: Array, name: str, rows: Bools, level: float) -> Group:
    values, levels = table.columns[name][rows], table.levels.get(name, ())
    word = levels[int(values[0])] if levels else ""
    times, p = 1.0, 1.0
    if not rows.all():
        ours, theirs = (np.percentile(errors[part], [50, 75]) for part in (rows, ~rows))
        times = float(np.max(ours / np.maximum(theirs, 1e-12)))
        p = _larger(errors, rows)
    alike = p >= level or times < _TIMES
    low, high = float(values.min()), float(values.max())
    return Group(name, low, high, box(errors[rows]), times, alike, word)


# ---- the gate --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """What the gate says of a validation: the figures and which of the conditions they break.

    ``median``: of all errors; ``dispersion``: upper whisker of all errors; ``outliers``: share of
    errors outside the whiskers of their workload's box; ``wide``: workloads whose own whisker is
    above the limit of the dispersion; ``broken``: "median", "dispersion", "outliers".
    """

    median: float
    dispersion: float
    outliers: float
    wide: tuple[float, ...]
    broken: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether all conditions hold."""
        return not self.broken


def gate(errors: Array, workload: Array) -> Verdict:
    """Return whether errors are as section 4.5 asks: median 5 %, dispersion 20 %, outliers 5 %."""
    boxes = {float(w): box(errors[workload == w]) for w in np.unique(workload)}
    whole = box(errors)
    outliers = sum(each.outliers for each in boxes.values()) / len(errors)
    broken = [
        name
        for name, wrong in (
            ("median", whole.median > MEDIAN),
            ("dispersion", whole.high > DISPERSION),
            ("outliers", outliers >= OUTLIERS),
        )
        if wrong
    ]
    wide = tuple(w for w, each in boxes.items() if each.high > DISPERSION)
    return Verdict(whole.median, whole.high, outliers, wide, tuple(broken))


# ---- the best configurations -----------------------------------------------------------------


@dataclass(frozen=True)
class Best:
    """One workload: its best configuration and the one advised, with their real values.

    ``regret``: real value of the advised one over the best, less one; ``kind``: "exact", "close"
    (up to 10 % regret) or "far".
    """

    workload: float
    best: tuple[float, ...]
    value: float
    advised: tuple[float, ...]
    real: float

    @property
    def regret(self) -> float:
        """What following the advice costs, as a share; below zero where the best was none."""
        return self.real / self.value - 1

    @property
    def kind(self) -> str:
        """Return how good the advice is."""
        if self.best == self.advised:
            return "exact"
        return "close" if self.regret <= 0.10 else "far"


def best_table(table: Table, predicted: Array, names: Sequence[str]) -> list[Best]:
    """Return a row per workload: best by what was measured and by what was predicted.

    ``names``: variables that make a configuration, as workers and threads.
    """
    workload, made = table.column("workload"), []
    settings = np.stack([table.column(name) for name in names], axis=1)
    for w in np.unique(workload):
        at = np.flatnonzero(workload == w)
        real, told = at[np.argmin(table.y[at])], at[np.argmin(predicted[at])]
        made.append(
            Best(
                float(w),
                tuple(settings[real].tolist()),
                float(table.y[real]),
                tuple(settings[told].tolist()),
                float(table.y[told]),
            )
        )
    return made


def kinds(rows: Sequence[Best]) -> dict[str, float]:
    """Return the shares of exact, close and far advice."""
    found = [row.kind for row in rows]
    return {kind: found.count(kind) / max(1, len(found)) for kind in ("exact", "close", "far")}


def by_workload(workload: Array, every: int) -> tuple[Ints, Ints]:
    """Return rows to train with and to validate with: every so many-th workload, with all its rows.

    Neither the least nor the largest workload is left out where others are there: a tree is not
    asked beyond its runs.
    """
    distinct = np.unique(workload)
    out = distinct[1:-1][every - 2 :: every] if every > 1 else distinct[:0]
    validating = np.isin(workload, out)
    return np.flatnonzero(~validating), np.flatnonzero(validating)


def unseen(tree: Tree, table: Table) -> Bools:
    """Return which rows have a workload that the tree was not grown from."""
    return ~np.isin(table.column("workload"), tree.workloads)
