"""Which inputs matter: rank correlations, groups of inputs that say the same, the best of each.

Source: Lee et al., as Kazmina and Antonov give it (section 2): hierarchical clustering of
parameters with correlation as metric, Spearman's correlation with the run time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
#: Inputs whose absolute correlation is at least this say the same.
ALIKE = 0.9


@dataclass(frozen=True)
class Screened:
    """One input: Spearman's correlation with the time, and the group of inputs it is in."""

    name: str
    correlation: float
    group: int


def screen(
    inputs: Array, seconds: Array, names: Sequence[str], *, alike: float = ALIKE
) -> list[Screened]:
    """Return all inputs, the most correlated with ``seconds`` first.

    ``inputs``: one row per run, one column per name. Inputs with one value have correlation 0 and
    a group of their own.
    """
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform

    table = np.array([_ranks(inputs[:, i]) for i in range(len(names))])
    with_time = _correlations(table, _ranks(seconds))
    groups = np.ones(len(names), dtype=np.int64)
    if len(names) > 1:
        apart = 1.0 - np.abs(np.array([_correlations(table, row) for row in table]))
        apart = np.clip((apart + apart.T) / 2, 0.0, 1.0)
        np.fill_diagonal(apart, 0.0)
        groups = fcluster(
            linkage(squareform(apart, checks=False), "average"), 1.0 - alike, "distance"
        )
    found = [
        Screened(name, float(c), int(g))
        for name, c, g in zip(names, with_time, groups, strict=True)
    ]
    return sorted(found, key=lambda each: (-abs(each.correlation), each.name))


def best(screened: Sequence[Screened], most: int) -> list[str]:
    """Return up to ``most`` inputs, the most correlated of every group, best first."""
    seen: dict[int, str] = {}
    for each in screened:
        seen.setdefault(each.group, each.name)
    return list(seen.values())[:most]


def _ranks(values: Array) -> Array:
    """Return ranks, equal values sharing the mean of theirs, centred and of length 1 (or 0)."""
    from scipy.stats import rankdata

    ranks = rankdata(values) - (len(values) + 1) / 2
    size = float(np.linalg.norm(ranks))
    return np.asarray(ranks / size if size > 0 else ranks)


def _correlations(table: Array, row: Array) -> Array:
    return np.asarray(table @ row)
