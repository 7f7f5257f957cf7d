"""Trees in files: plain JSON (p3s.tree), numbers to the last bit, nothing that is executed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from p3s.base.arrays import Floats
from p3s.base.artefacts import write_json
from p3s.base.errors import P3SError, UsageError
from p3s.base.serialise import FileFormat
from p3s.methods.baseline.trees.evaluate import Evaluator
from p3s.methods.baseline.trees.features import Caches, counter_columns, derive_features
from p3s.methods.baseline.trees.types import Tree

#: The variable that says how threads and processes are placed, and its words.
AFFINITY, AFFINITIES = "affinity", ("close", "far")


@dataclass(frozen=True)
class StoredTree:
    """A tree with what is needed to ask it.

    ``others``: processes that are no workers, as a master; ``cores``: socket, L3 and L2 of every
    core of a node, where the tree knows them; ``per_node``: processes of a node, 0: all of them on
    one; ``workers``, ``threads``, ``affinities``: values that its runs had; ``runs``: how many;
    ``notes``: sentences about them.
    """

    tree: Tree
    others: int = 0
    cores: tuple[tuple[int, int, int], ...] = ()
    per_node: int = 0
    workers: tuple[float, ...] = ()
    threads: tuple[float, ...] = ()
    affinities: tuple[str, ...] = ()
    runs: int = 0
    notes: tuple[str, ...] = ()
    created: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)

    def valid(self) -> None:
        """Raise P3SError, ValueError or KeyError for what is no tree."""
        tree = self.tree
        tree.growing.checked()
        evaluator = Evaluator.of(tree)
        size, terms = len(tree.nodes), len(evaluator.prototype.terms)
        splits = [(i, node.split) for i, node in enumerate(tree.nodes) if node.split]
        children = sorted(c for _, split in splits for c in (split.left, split.right))
        for noun, good in (
            ("nodes", size > 0 and children == list(range(1, size))),
            ("order of nodes", all(i < min(split.left, split.right) for i, split in splits)),
            ("coefficients", evaluator.coefficients.shape == (size, terms)),
            ("ranges", evaluator.ranges.shape == (size, len(tree.variables), 2)),
            ("values of nodes", all(0 < node.low <= node.high for node in tree.nodes)),
            ("variables", all(name in tree.box for name in tree.variables)),
            ("processes", self.others >= 0 and self.per_node >= 0),
            ("cores", all(min(core) >= 0 for core in self.cores)),
        ):
            if not good:
                raise ValueError(f"its {noun} cannot be these")

    def columns(
        self, workload: float, pairs: Floats, inputs: Mapping[str, float], affinity: str = ""
    ) -> dict[str, Floats]:
        """Return the tree's variables for pairs of workers and threads, a row each.

        ``inputs``: values of its other variables; ``affinity``: "close" or "far", where the runs
        had both. Errors: UsageError for a placement that the runs or the node do not have.
        """
        k, t = np.asarray(pairs, dtype=float).T
        variables = derive_features(np.full(len(k), float(workload)), k, t)
        variables |= {name: np.full(len(k), value) for name, value in inputs.items()}
        variables["processes"] = k + self.others
        far = self._far(affinity)
        if AFFINITY in self.tree.levels:
            variables[AFFINITY] = np.full(len(k), float(self.tree.levels[AFFINITY].index(affinity)))
        if self.cores:
            variables |= count_sharers(
                self.cores, variables["processes"], t, self.per_node, np.full(len(k), far)
            )
        return variables

    def fitting(self, pairs: Floats) -> Floats:
        """Return the pairs of workers and threads whose threads find cores on the known node."""
        if not self.cores:
            return pairs
        processes, threads = pairs[:, 0] + self.others, pairs[:, 1]
        of_node = np.minimum(processes, self.per_node) if self.per_node else processes
        fitting_pairs = pairs[of_node * threads <= len(self.cores)]
        if not len(fitting_pairs):
            raise P3SError(f"no configuration fits on nodes of {len(self.cores)} cores")
        return np.asarray(fitting_pairs)

    def _far(self, affinity: str) -> bool:
        names = ", ".join(self.affinities)
        if affinity and affinity not in self.affinities:
            had = names or "no placement, so the tree does not know any"
            raise UsageError(f"affinity {affinity}: its runs had {had}")
        if AFFINITY in self.tree.levels and not affinity:
            raise UsageError(f"the tree depends on how threads are placed; say it: one of {names}")
        return (affinity or names) == "far"


def count_sharers(
    cores: Sequence[tuple[int, int, int]],
    processes: Floats,
    threads: Floats,
    per_node: int,
    far: Floats,
) -> dict[str, Floats]:
    """Return the counters of caches and sockets of runs, as columns.

    ``per_node``: processes of a node, 0: all. Of several nodes it is the first, which is full.
    """
    count = np.minimum(processes, per_node) if per_node else processes
    caches = Caches(*np.array(cores, dtype=np.int64).T)
    return counter_columns(caches, count, threads, far)


def rows_of_cores(caches: Caches) -> tuple[tuple[int, int, int], ...]:
    """Return a node as what a file holds: socket, L3 and L2 of every core."""
    rows = zip(caches.socket.tolist(), caches.l3.tolist(), caches.l2.tolist(), strict=True)
    return tuple(rows)


TREE = FileFormat("p3s.tree", 2, StoredTree, again="fit it again: p3s baseline fit")


def save(path: Path, stored: StoredTree) -> None:
    """Write a tree, whole or not at all; what was there before is kept as FILE.1, FILE.2, ..."""
    keep(path)
    write_json(path, TREE.data(stored))


def keep(path: Path) -> Path | None:
    """Give a file that is there its next number, so that all versions of a tree stay."""
    if not path.exists():
        return None
    number = 1
    while path.with_name(f"{path.name}.{number}").exists():
        number += 1
    return path.rename(path.with_name(f"{path.name}.{number}"))
