"""A tree beside runs: errors by variable, the gate, its advice, what to measure next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from p3s.base.errors import P3SError
from p3s.methods.baseline.trees.diagnostics import (
    Best,
    Group,
    Verdict,
    best_table,
    errors_of,
    gate,
    groups,
    shares,
    unseen,
    used,
)
from p3s.methods.baseline.trees.evaluate import Evaluator
from p3s.methods.baseline.trees.improve import Region, worst_regions
from p3s.methods.baseline.trees.types import Table, Tree


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
    seen, fresh = runs.only(~new), runs.only(new)
    found = groups(seen, errors_of(tree, seen), used(tree)) if len(seen) else []
    if not len(fresh):
        return Report(tuple(found), shares(tree))
    said = Evaluator.of(tree).predict(fresh.columns)
    errors = np.abs(said.value - fresh.y) / fresh.y
    return Report(
        tuple(found),
        shares(tree),
        gate(errors, fresh.columns["workload"]),
        tuple(best_table(fresh, said.value, ("workers", "threads", *tree.levels))),
        tuple(worst_regions(tree, fresh, errors, regions)),
    )


def _same_levels(runs: Table, tree: Tree) -> Table:
    """Return runs whose words have the numbers that they have in the tree."""
    columns = dict(runs.columns)
    for name, known in tree.levels.items():
        mine = runs.levels.get(name, ())
        for word in mine:
            if word not in known:
                raise P3SError(f"{name} {word!r:.30}: the tree has seen only {', '.join(known)}")
        if mine:
            number = np.array([float(known.index(word)) for word in mine])
            columns[name] = number[columns[name].astype(int)]
    return replace(runs, columns=columns, levels=tree.levels)
