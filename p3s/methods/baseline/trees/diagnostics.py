"""Is a tree good enough, its advice too, and what to measure next: errors by variable, the gate.

A. Castellanos Carrazana, UAB 2014, sections 4.5 and 5.4.3. A box is the quartiles, whiskers end at
the last value within 1.5 interquartile ranges of it, what lies beyond are outliers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtr

from p3s.base.arrays import Bools, Floats, Ints
from p3s.base.errors import P3SError
from p3s.methods.baseline.trees.evaluate import CLIP, Evaluator
from p3s.methods.baseline.trees.types import Node, Table, Tree

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


def box(errors: Floats) -> Box:
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


def errors_of(tree: Tree, table: Table) -> Floats:
    """Return |predicted - real| / real of every row (eq. 5.1)."""
    estimate = Evaluator.of(tree).predict(table.columns)
    return np.abs(estimate.value - table.y) / table.y


def list_variables(tree: Tree) -> list[str]:
    """Return the variables that a tree splits on, in their order."""
    used = {node.split.variable for node in tree.nodes if node.split}
    return [name for name in tree.variables if name in used]


def shares(tree: Tree) -> dict[str, float]:
    """Return the share of the internal nodes that split on each variable (section 5.4.3)."""
    names = [node.split.variable for node in tree.nodes if node.split]
    return {name: names.count(name) / len(names) for name in tree.variables} if names else {}


def groups(
    table: Table, errors: Floats, variables: Sequence[str], level: float = _LEVEL
) -> list[Group]:
    """Return the boxes of each variable's groups, by variable, then value.

    A group is alike unless a rank test says that its errors are larger than those of the other rows
    (``level``, corrected for all groups) and its median or third quartile is 1.5 times theirs: with
    many rows any difference is beyond chance, with few any ratio happens.
    """
    parts = [(name, rows) for name in variables for rows in _parts(table.column(name))]
    return [_group(table, errors, name, rows, level / len(parts)) for name, rows in parts]


def _parts(values: Floats) -> list[Bools]:
    """Return which rows have each value; where there are many values, as many rows each."""
    distinct = np.unique(values)
    if len(distinct) > _GROUPS:
        edges = np.quantile(values, np.arange(1, _GROUPS) / _GROUPS, method="lower")
        part_of = np.searchsorted(np.unique(edges), values, side="left")
    else:
        part_of = np.searchsorted(distinct, values)
    return [part_of == i for i in range(int(part_of.max()) + 1) if (part_of == i).any()]


def _larger(errors: Floats, rows: Bools) -> float:
    """Return p of errors as large as some rows' if they are as the others' (Mann and Whitney)."""
    ranks = np.empty(len(errors))
    ranks[np.argsort(errors, kind="stable")] = np.arange(1, len(errors) + 1)
    mine, others = int(rows.sum()), int((~rows).sum())
    more = float(ranks[rows].sum()) - mine * (mine + 1) / 2 - mine * others / 2
    return float(ndtr(-more / np.sqrt(mine * others * (len(errors) + 1) / 12)))


def _group(table: Table, errors: Floats, name: str, rows: Bools, level: float) -> Group:
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


def gate(errors: Floats, workload: Floats) -> Verdict:
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


def best_table(table: Table, predicted: Floats, names: Sequence[str]) -> list[Best]:
    """Return a row per workload: best by what was measured and by what was predicted.

    ``names``: variables that make a configuration, as workers and threads.
    """
    workload, bests = table.column("workload"), []
    settings = np.stack([table.column(name) for name in names], axis=1)
    for w in np.unique(workload):
        at = np.flatnonzero(workload == w)
        real, advised = at[np.argmin(table.y[at])], at[np.argmin(predicted[at])]
        bests.append(
            Best(
                float(w),
                tuple(settings[real].tolist()),
                float(table.y[real]),
                tuple(settings[advised].tolist()),
                float(table.y[advised]),
            )
        )
    return bests


def kinds(rows: Sequence[Best]) -> dict[str, float]:
    """Return the shares of exact, close and far advice."""
    names = [row.kind for row in rows]
    return {kind: names.count(kind) / max(1, len(names)) for kind in ("exact", "close", "far")}


def by_workload(workload: Floats, every: int) -> tuple[Ints, Ints]:
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


def worst_regions(tree: Tree, table: Table, errors: Floats, limit: int = 1) -> list[Region]:
    """Return the regions whose errors are largest by their third quartile, the worst first.

    A region is three neighbouring workloads of ``table``; regions do not overlap. Each new workload
    is to be run with all configurations of the others (section 4.5, steps 3 and 5).
    """
    workload = table.column("workload")
    distinct = np.unique(workload)
    windows = []
    for start in range(max(1, len(distinct) - _AROUND + 1)):
        workloads = distinct[start : start + _AROUND]
        rows = np.isin(workload, workloads)
        windows.append((box(errors[rows]), float(workloads[0]), float(workloads[-1])))
    windows.sort(key=lambda each: (-each[0].third, each[1]))
    regions: list[Region] = []
    for each, low, high in windows:
        if len(regions) < limit and all(high < r.low or low > r.high for r in regions):
            regions.append(Region(low, high, each, _workloads_between(tree.workloads, low, high)))
    return regions


def _workloads_between(trained: Sequence[float], low: float, high: float) -> tuple[float, ...]:
    """Return workloads between the trained ones around a region, rounded to three figures."""
    workloads = np.array(trained)
    first = max(int(np.searchsorted(workloads, low)) - 1, 0)
    last = min(int(np.searchsorted(workloads, high, side="right")), len(workloads) - 1)
    pairs = zip(workloads[first:last], workloads[first + 1 : last + 1], strict=True)
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
    pruned: list[Node] = []

    def take(at: int) -> tuple[int, Ints, float]:
        """Add what stays of a node; return its number, its rows, and what it misses of them."""
        number, node, split = len(pruned), tree.nodes[at], tree.nodes[at].split
        pruned.append(replace(node, split=None))
        rows, below = np.flatnonzero(leaf == at), np.inf
        if split is not None:
            (left_child, one, less), (right, other, more) = take(split.left), take(split.right)
            rows, below = np.concatenate([one, other]), less + more
        own_error = _sum_errors(tree, node, design[rows], table.y[rows])
        if split is None or (len(rows) and own_error <= below):
            del pruned[number + 1 :]
            return number, rows, min(own_error, below)
        pruned[number] = replace(node, split=replace(split, left=left_child, right=right))
        return number, rows, below

    take(0)
    return replace(tree, nodes=tuple(pruned))


def _sum_errors(tree: Tree, node: Node, design: Floats, y: Floats) -> float:
    """Return the sum of relative errors of a node's own regression."""
    value = design @ np.array(node.coefficients)
    low, high = CLIP[0] * node.low, CLIP[1] * node.high
    value = np.clip(value, low, high) if tree.growing.clip else np.where(value > 0, value, low)
    return float(np.sum(np.abs(value - y) / y))


@dataclass(frozen=True)
class Report:
    """Steps 5 and 6 of the method (section 4.5).

    ``groups``: errors of runs whose workloads the tree has seen, by the variables it splits on;
    the rest is of other workloads: ``verdict`` None where there is none.
    """

    groups: tuple[Group, ...]
    shares: Mapping[str, float]
    verdict: Verdict | None = None
    best: tuple[Best, ...] = ()
    regions: tuple[Region, ...] = ()


def report(tree: Tree, runs: Table, regions: int = 1) -> Report:
    """Return how good a tree is on runs; a configuration is workers, threads and words."""
    runs = _same_levels(runs, tree)
    new = unseen(tree, runs)
    old, fresh = runs.only(~new), runs.only(new)
    parts = groups(old, errors_of(tree, old), list_variables(tree)) if len(old) else []
    if not len(fresh):
        return Report(tuple(parts), shares(tree))
    estimate = Evaluator.of(tree).predict(fresh.columns)
    errors = np.abs(estimate.value - fresh.y) / fresh.y
    return Report(
        tuple(parts),
        shares(tree),
        gate(errors, fresh.columns["workload"]),
        tuple(best_table(fresh, estimate.value, ("workers", "threads", *tree.levels))),
        tuple(worst_regions(tree, fresh, errors, regions)),
    )


def _same_levels(runs: Table, tree: Tree) -> Table:
    """Return runs whose words have the numbers that they have in the tree."""
    columns = dict(runs.columns)
    for name, levels_known in tree.levels.items():
        mine = runs.levels.get(name, ())
        for word in mine:
            if word not in levels_known:
                raise P3SError(
                    f"{name} {word!r:.30}: the tree has seen only {', '.join(levels_known)}"
                )
        if mine:
            number = np.array([float(levels_known.index(word)) for word in mine])
            columns[name] = number[columns[name].astype(int)]
    return replace(runs, columns=columns, levels=tree.levels)
