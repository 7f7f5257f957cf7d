"""Choosing a configuration: all admissible ones, by what a tree says of them.

Trees are piecewise, so no derivative is used: A. Castellanos Carrazana, UAB 2014, section 4.4.5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from p3s.base.arrays import Floats
from p3s.base.errors import P3SError, UsageError
from p3s.methods.baseline.trees.evaluate import Evaluator

#: What a configuration is chosen by: seconds, an index that the tree tells, or seconds times cores.
OBJECTIVES = ("time", "index", "core-hours")
#: Configurations that are looked at, at most.
_MOST = 5_000_000


@dataclass(frozen=True)
class Limits:
    """What a configuration may use: cores of all workers, processes, threads of a worker.

    ``others``: processes beside the workers, as a master; ``node_cores`` with ``per_node`` workers
    of a node: threads must find cores.
    """

    cores: int | None = None
    processes: int | None = None
    threads: int | None = None
    others: int = 0
    per_node: int = 1
    node_cores: int | None = None


def admissible(workers: Sequence[float], threads: Sequence[float], limits: Limits) -> Floats:
    """Return all pairs of workers and threads within the limits, (pairs, 2).

    Errors: P3SError where there is none; UsageError for too many to look at.
    """
    if len(workers) * len(threads) > _MOST:
        raise UsageError(f"more than {_MOST:,} configurations; give fewer workers or threads")
    k, t = (a.ravel() for a in np.meshgrid(workers, threads, indexing="ij"))
    keep = np.ones(len(k), dtype=bool)
    for limit, used in (
        (limits.cores, k * t),
        (limits.processes, k + limits.others),
        (limits.threads, t),
        (limits.node_cores, limits.per_node * t),
    ):
        if limit is not None:
            keep &= used <= limit
    if not keep.any():
        raise P3SError("no configuration of workers and threads is within the limits; widen them")
    return np.stack([k[keep], t[keep]], axis=1)


@dataclass(frozen=True)
class Choice:
    """One configuration: what it is, what the tree says of it, and by what it was chosen.

    ``row``: its number among those asked; ``leaf``, ``extrapolated``, ``outside``, ``clipped``: as
    in :class:`p3s.methods.baseline.trees.evaluate.TreeEstimate`; ``error``: root mean square of the
    relative errors of the leaf's own runs.
    """

    row: int
    workers: int
    threads: int
    value: float
    objective: float
    leaf: int
    error: float
    extrapolated: bool
    outside: bool
    clipped: bool

    @property
    def doubts(self) -> dict[str, bool]:
        """What speaks against it, by name, and whether it does."""
        return {
            "extrapolated": self.extrapolated,
            "outside_leaf": self.outside,
            "clipped": self.clipped,
        }


def choose(
    evaluator: Evaluator,
    columns: Mapping[str, Floats],
    objective: str = "time",
    top: int | None = 3,
) -> list[Choice]:
    """Return the best of some configurations, the best first; equal ones by fewer cores.

    ``columns``: the tree's variables, a row per configuration, workers and threads among them.
    ``top``: how many, None: all, in the order in which they are given. Objective "core-hours" is
    the tree's time times the workers' cores, in hours. Errors: UsageError for an objective that
    the tree does not tell.
    """
    tree = evaluator.tree
    if objective not in OBJECTIVES:
        raise UsageError(f"objective {objective}: is none; one of {', '.join(OBJECTIVES)}")
    if top is not None and (objective == "index") != (tree.target != "time"):
        raise UsageError(
            f"objective {objective}: this tree tells the {tree.target}; fit one with "
            f"--target {'index' if objective == 'index' else 'time'}"
        )
    cores = columns["workers"] * columns["threads"]
    estimate = evaluator.predict(columns)
    value = estimate.value * cores / 3600 if objective == "core-hours" else estimate.value
    order = range(len(value)) if top is None else np.lexsort((cores, value))[:top].tolist()
    return [
        Choice(
            i,
            round(float(columns["workers"][i])),
            round(float(columns["threads"][i])),
            float(estimate.value[i]),
            float(value[i]),
            int(estimate.leaf[i]),
            tree.nodes[estimate.leaf[i]].error,
            bool(estimate.extrapolated[i]),
            bool(estimate.outside[i]),
            bool(estimate.clipped[i]),
        )
        for i in order
    ]
