"""Growing a tree of regressions from run times, and what is written of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import numpy as np

from p3s.base.errors import UsageError
from p3s.methods.baseline.times import Times
from p3s.methods.baseline.treeruns import Reading, TreeRuns, table_of
from p3s.methods.baseline.trees.diagnostics import by_workload
from p3s.methods.baseline.trees.features import COUNTER
from p3s.methods.baseline.trees.grow import grow
from p3s.methods.baseline.trees.improve import prune
from p3s.methods.baseline.trees.report import Report, report
from p3s.methods.baseline.trees.store import AFFINITY, Stored
from p3s.methods.baseline.trees.types import Growing, Ints, Tree

#: Eq. 4.3 of the thesis, and the variables of its table 5.4 but those of caches.
EXPRESSION = "b3*W**2/(K*T) + b2*W/(K*T) + b1*K + b0"
VARIABLES = ("w2", "w1", "workers", "workload", "local_workld", "threads")


@dataclass(frozen=True)
class Plan:
    """What a tree is grown of.

    ``variables``: it may split on these (none: the usual ones, and those of caches and placement
    that the runs have); ``validate``: every so many-th workload is kept out (0: none); ``prune``:
    with these workloads.
    """

    expression: str = EXPRESSION
    variables: tuple[str, ...] = ()
    growing: Growing = field(default_factory=Growing)
    reading: Reading = field(default_factory=Reading)
    validate: int = 0
    prune: bool = False


def grown(times: Times, plan: Plan) -> Stored:
    """Return a tree of run times with what is needed to ask it.

    Errors: as of :func:`p3s.methods.baseline.treeruns.table_of` and
    :func:`p3s.methods.baseline.trees.grow.grow`.
    """
    if plan.validate == 1:
        raise UsageError("--validate 1: leaves no workload to grow a tree from; give at least 2")
    runs = table_of(times, plan.reading, plan.variables)
    variables = plan.variables or _usual(runs)
    train, held = by_workload(runs.table.column("workload"), plan.validate)
    tree = grow(runs.table.only(train), plan.expression, variables, plan.growing)
    tree = replace(tree, target=plan.reading.target)
    if plan.prune:
        tree = _pruned(tree, runs, held)
    return _stored(tree, runs, train, plan)


def _usual(runs: TreeRuns) -> tuple[str, ...]:
    columns = runs.table.columns
    counters = [name for name in columns if COUNTER.fullmatch(name) and np.ptp(columns[name]) > 0]
    return (*VARIABLES, *counters, *runs.table.levels)


def _pruned(tree: Tree, runs: TreeRuns, held: Ints) -> Tree:
    """Return a pruned tree; workloads that it was pruned with are none to validate it with."""
    if not len(held):
        raise UsageError("--prune needs workloads to prune with; give --validate 4")
    seen = sorted({*tree.workloads, *runs.table.columns["workload"].tolist()})
    return replace(prune(tree, runs.table.only(held)), workloads=tuple(seen))


def _stored(tree: Tree, runs: TreeRuns, train: Ints, plan: Plan) -> Stored:
    mine = runs.table.only(train).columns
    placements = runs.table.levels.get(AFFINITY, (runs.labels.get(AFFINITY, ""),))
    return Stored(
        tree,
        plan.reading.others,
        plan.reading.cores,
        plan.reading.per_node,
        tuple(sorted(set(mine["workers"].tolist()))),
        tuple(sorted(set(mine["threads"].tolist()))),
        tuple(filter(None, placements)),
        len(train),
        runs.notes,
        datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        runs.labels,
    )


def checked(stored: Stored, times: Times, reading: Reading) -> Report:
    """Return how good a tree is on run times; ``reading``: its rows and column of the workload."""
    others = f"-{stored.others}" if stored.others else ""
    mine = replace(
        reading,
        workers=f"n{others}",
        target=stored.tree.target,
        cores=stored.cores,
        per_node=stored.per_node,
    )
    return report(stored.tree, table_of(times, mine, tuple(stored.tree.levels)).table)
