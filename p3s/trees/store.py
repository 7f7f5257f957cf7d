"""Trees in files: plain JSON (p3s.tree), numbers to the last bit, nothing that is executed."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from p3s.errors import Damaged, P3SError
from p3s.serialise import from_data, to_data
from p3s.artefacts import read_json, write_json
from p3s.trees.evaluate import Evaluator
from p3s.trees.types import Tree

TREE_SCHEMA = "p3s.tree"
TREE_VERSION = 1


@dataclass(frozen=True)
class Stored:
    """A tree with where it comes from.

    ``workers``: what workers are of processes n, as "n" or "n-1"; ``runs``: number of runs that it
    was grown from; ``notes``: sentences about them.
    """

    tree: Tree
    workers: str = "n"
    runs: int = 0
    notes: tuple[str, ...] = ()
    created: str = ""
    labels: dict[str, str] = field(default_factory=dict)


def save(path: Path, stored: Stored) -> None:
    """Write a tree, whole or not at all; what was there before is kept as FILE.1, FILE.2, ..."""
    keep(path)
    write_json(path, to_json(stored))


def to_json(stored: Stored) -> dict[str, Any]:
    """Return a tree as the JSON object of its file."""
    return {"schema": TREE_SCHEMA, "schema_version": TREE_VERSION, **to_data(stored)}


def keep(path: Path) -> Path | None:
    """Give a file that is there its next number, so that all versions of a tree stay."""
    if not path.exists():
        return None
    number = 1
    while path.with_name(f"{path.name}.{number}").exists():
        number += 1
    return path.rename(path.with_name(f"{path.name}.{number}"))


def load(path: Path) -> Stored:
    """Read a tree; P3SError, one line, for another file, Damaged for one that holds none."""
    found = read_json(path, TREE_SCHEMA, TREE_VERSION)
    data = {key: value for key, value in found.items() if key not in ("schema", "schema_version")}
    try:
        stored = from_data(Stored, data)
        _check(stored.tree)
    except (P3SError, ValueError, IndexError) as error:
        why = " ".join(str(error).split())[:100]
        raise Damaged(f"{path}: damaged ({why}); fit it again: p3s baseline fit") from error
    return stored


def _check(tree: Tree) -> None:
    """Raise P3SError or ValueError for what is no tree."""
    tree.growing.checked()
    evaluator = Evaluator.of(tree)
    size, terms = len(tree.nodes), len(evaluator.prototype.terms)
    if not size or evaluator.coefficients.shape != (size, terms):
        raise ValueError("its nodes have no coefficients")
    if evaluator.ranges.shape != (size, len(tree.variables), 2):
        raise ValueError("its nodes have no ranges")
    inner = [(i, s) for i, node in enumerate(tree.nodes) if (s := node.split)]
    children = [c for _, s in inner for c in (s.left, s.right)]
    if sorted(children) != list(range(1, size)) or any(
        not i < min(s.left, s.right) for i, s in inner
    ):
        raise ValueError("its nodes are no tree")
    if not all(0 < node.low <= node.high for node in tree.nodes):
        raise ValueError("a node has no range")
    if not np.isfinite(evaluator.coefficients).all():
        raise ValueError("a coefficient is no number")
