"""What the threads of the ranks did before each place of the program, summed over a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy
import numpy as np

from p3s.signature.segments import AtPlaces, none

if TYPE_CHECKING:
    from p3s.capture import RankTrace
    from p3s.capture.threads import Threads

#: Columns that are sums over the run: nanoseconds but for the counts. serial_ns: CPU time of the
#: thread that makes the calls, outside of parallel regions; region_ns: wall time inside of them;
#: busy_ns: CPU time of all threads in them, without waiting; longest_ns: of the longest thread of
#: each; waiting_ns: at barriers; overhead_ns: forking and joining; other_ns: of threads in no team.
SUMS = (
    "regions",
    "serial_ns",
    "region_ns",
    "busy_ns",
    "longest_ns",
    "waiting_ns",
    "overhead_ns",
    "other_ns",
    "barriers",
    "tasks",
    "loops",
)
#: Columns of which the largest counts: threads of a team, and of these that computed.
MOST = ("team", "worked")
COLUMNS = ("rank", "node", *SUMS, *MOST)
#: What laws of threads rest on, with their names there.
PARTS = ("serial", "busy", "longest", "regions", "waiting", "overhead")
#: Of these what is wall time, which tells nothing where threads share cores.
WALL_PARTS = ("waiting", "overhead")
_OF_PART = {name: name if name == "regions" else f"{name}_ns" for name in PARTS}
_IN_CAPTURE = {"serial_ns": "serial", "other_ns": "others_ns"}


@dataclass(frozen=True)
class Teams(AtPlaces):
    """What threads did before the calls that end computations; values: columns from the third."""

    def column(self, name: str) -> numpy.ndarray:
        """Return a column by its name, or that of a part of the laws; seconds where it is time."""
        column = _OF_PART.get(name, name)
        values = self.values[:, COLUMNS.index(column) - 2]
        return values * 1e-9 if column.endswith("_ns") else values.astype(np.float64)

    def total(self, name: str) -> float:
        """Return the sum of a column over all ranks and places; of MOST the largest."""
        values = self.column(name)
        if not len(values):
            return 0.0
        return float(values.max() if name in MOST else values.sum())

    def imbalance(self) -> float:
        """Return the CPU time of the longest threads over the mean of their teams; NaN without any.

        Each place by its own team: regions of one thread are even whatever the others' size.
        """
        even = float((self.column("busy") / np.maximum(self.column("team"), 1.0)).sum())
        return self.total("longest") / even if even > 0 else float("nan")


def teams_of(rt: RankTrace, kept_events: numpy.ndarray, nodes: numpy.ndarray) -> numpy.ndarray:
    """Return the rows of a rank, columns COLUMNS.

    kept_events: ascending; nodes: of all events. What threads did before another event counts
    with the next one that is kept.
    """
    threads = getattr(rt, "threads", None)
    if threads is None or not len(threads.event) or not len(kept_events):
        return none(COLUMNS)
    at = kept_events[np.minimum(np.searchsorted(kept_events, threads.event), len(kept_events) - 1)]
    distinct_nodes, where = np.unique(nodes[at], return_inverse=True)
    out = np.zeros((len(distinct_nodes), len(COLUMNS)), dtype=np.int64)
    out[:, 0], out[:, 1] = rt.rank, distinct_nodes
    for k, name in enumerate(COLUMNS[2:], start=2):
        values = _column(threads, name)
        if name in MOST:
            np.maximum.at(out[:, k], where, values)
        else:
            np.add.at(out[:, k], where, values)
    return out


def _column(threads: Threads, name: str) -> numpy.ndarray:
    if name == "loops":
        return threads["static_loops"] + threads["dynamic_loops"]
    return threads[_IN_CAPTURE.get(name, name)]
