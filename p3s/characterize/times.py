"""Computation time per segment at one process count: how long what the signature counts takes.

Work (instructions) is the same in every run; time is not. Both belong to the same segments: the
time of a run is matched to the signature by rank and by the two places a segment lies between.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy
import numpy as np

#: Columns of the table. from_node, to_node: numbers in the signature's ``nodes`` (-1: the start).
COLUMNS = ("rank", "from_node", "to_node", "count")
#: Shares of the occurrences below which ``quantile_ns`` lie.
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
TIMES_SCHEMA = "p3s.times"
TIMES_VERSION = 1


@dataclass(frozen=True)
class Times:
    """Time of the segments of all ranks at one process count, in nanoseconds.

    rank, from_node, to_node, count: int64, one row per rank and segment, equal to the rows of the
    signature's segments that were matched, in their order. least_ns, median_ns, most_ns: float64,
    over the repeats, of the sum over all occurrences of a row in a run. quantile_ns: float64
    (rows, len(QUANTILES)), of single occurrences in the run that took least in all.
    work: float64, the signature's work of the same row (equal to least_ns where work is time).
    unit: clock of the times (cpu_ns or wall_ns). runs: one entry per repeat: dir, time_ns (all
    ranks), wall_ns, disturbed (sentences, empty when nothing is wrong). unmatched: share of the
    time in segments that the signature does not have equally often.
    resident_bytes: per rank, memory that the program itself has filled after MPI_Init, 0: unknown.
    """

    np: int  # the field hides the module inside the class, hence numpy.ndarray below
    nodes: tuple[tuple[str, str], ...]
    rank: numpy.ndarray
    from_node: numpy.ndarray
    to_node: numpy.ndarray
    count: numpy.ndarray
    work: numpy.ndarray
    least_ns: numpy.ndarray
    median_ns: numpy.ndarray
    most_ns: numpy.ndarray
    quantile_ns: numpy.ndarray
    work_unit: str
    unit: str = "cpu_ns"
    unmatched: float = 0.0
    runs: tuple[Mapping[str, Any], ...] = ()
    resident_bytes: numpy.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
