"""Records of a tree of regressions: what it was grown with, its nodes, what they rest on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from p3s.base.arrays import Floats, Ints
from p3s.base.errors import UsageError

#: What the regressions of the nodes make small: relative errors, squares with the thesis's weights,
#: plain squares.
REGRESSIONS = ("relative", "weighted", "plain")


@dataclass(frozen=True)
class Growing:
    """How a tree is grown.

    ``alpha``: corrected p-value up to which an instability splits a node; ``minsplit``: least
    number of rows in a node (20: the default of the library that the thesis used), in sums of
    weights with ``in_weights`` (table 4.1); ``min_rows``: least number of rows in a leaf, whatever
    they weigh (None: twice the coefficients, at least 10). ``few_values``: tests of variables with
    few values count these. ``blend``: what lies between the runs on both sides of a split is told
    by both, by its distances, for the runs do not say where the cut is (else it goes to the right).
    ``clip``: a regression stays within 0.8 of the least and 1.25 of the largest value of its leaf.
    """

    regression: str = "relative"
    alpha: float = 0.05
    bonferroni: bool = True
    minsplit: float = 20.0
    in_weights: bool = False
    min_rows: int | None = None
    few_values: bool = True
    blend: bool = True
    clip: bool = True

    @staticmethod
    def thesis(minsplit: float = 25.0) -> Growing:
        """Return the settings of the thesis: weights of eq. 4.6, counted by minsplit; no guards."""
        return Growing(
            "weighted",
            minsplit=minsplit,
            in_weights=True,
            min_rows=1,
            few_values=False,
            blend=False,
            clip=False,
        )

    def trim(self, rows: int, weight: float) -> float:
        """Return the share of a node that a cut leaves on both sides: minsplit of its size."""
        return min(0.5, self.minsplit / (weight if self.in_weights else rows))

    def checked(self) -> Growing:
        """Return them; UsageError for a value that none of them can have."""
        if self.regression not in REGRESSIONS:
            regressions = ", ".join(REGRESSIONS)
            raise UsageError(f"regression {self.regression}: is none; one of {regressions}")
        if not 0 < self.alpha < 1:
            raise UsageError(f"alpha {self.alpha:g}: is no level; give a number between 0 and 1")
        if not self.minsplit >= 1 or (self.min_rows is not None and self.min_rows < 1):
            raise UsageError("minsplit and the least number of rows of a leaf are at least 1")
        return self


@dataclass(frozen=True)
class Table:
    """Runs as columns: the values of variables, and what was measured (seconds, or an index).

    ``levels``: the names of the values of variables that are words; their columns have numbers.
    """

    columns: Mapping[str, Floats]
    y: Floats
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def only(self, keep: NDArray[np.bool_] | Ints) -> Table:
        """Return some of the rows."""
        columns = {name: column[keep] for name, column in self.columns.items()}
        return replace(self, columns=columns, y=self.y[keep])

    def column(self, name: str) -> Floats:
        """Return the values of a variable; UsageError for one that is not there."""
        if name not in self.columns:
            raise UsageError(f"{name}: is no variable of these runs; there are {self.names}")
        return self.columns[name]

    @property
    def names(self) -> str:
        """Names of the variables, as a list for people."""
        return ", ".join(sorted(self.columns))

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True)
class Test:
    """How unstable a node's regression is over a variable.

    ``log_p``: ln of the p-value, corrected for the number of variables where trees are grown so.
    """

    variable: str
    statistic: float
    log_p: float


@dataclass(frozen=True)
class Split:
    """Rows with a value up to ``low`` go to node ``left``; of words, those in ``levels``.

    ``high``: least value of the runs on the right.
    """

    variable: str
    left: int
    right: int
    low: float = 0.0
    high: float = 0.0
    levels: tuple[int, ...] = ()


@dataclass(frozen=True)
class Node:
    """A node: its rows, their weights, its regression, the range of what was measured.

    ``coefficients``: one per term, 0 where the rows do not tell it (``dropped``); ``error``: root
    mean square of its relative errors; ``ranges``: least and largest value of each splitting
    variable; ``test``: of the least stable one; no split: it is a leaf.
    """

    rows: int
    weight: float
    coefficients: tuple[float, ...]
    low: float
    high: float
    error: float
    ranges: tuple[tuple[float, float], ...]
    dropped: tuple[str, ...] = ()
    test: Test | None = None
    split: Split | None = None


@dataclass(frozen=True)
class Tree:
    """A tree of regressions of one expression: nodes in depth-first order, the root the first.

    ``variables``: what it may split on; ``box``: least and largest value of every variable that
    the runs had; ``levels``: names of the values of those that are words; ``workloads``: the
    workloads of its runs, which are none to validate it with.
    """

    expression: str
    variables: tuple[str, ...]
    growing: Growing
    nodes: tuple[Node, ...]
    box: Mapping[str, tuple[float, float]]
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    workloads: tuple[float, ...] = ()
    target: str = "time"

    @property
    def leaves(self) -> list[int]:
        """Numbers of the leaves."""
        return [i for i, node in enumerate(self.nodes) if node.split is None]
