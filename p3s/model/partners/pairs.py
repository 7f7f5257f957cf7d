"""Which ranks were seen to send to, or receive from, which."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from p3s.model.grid.at import GridAt


@dataclass(frozen=True)
class Pairs:
    """The distinct (rank, partner) pairs of one node at one count; times: messages of each."""

    grid: GridAt
    rank: np.ndarray
    peer: np.ndarray
    times: np.ndarray | None = None
