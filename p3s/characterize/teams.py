"""What the threads of the ranks did before each place of the program, summed over a run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy
import numpy as np

from p3s.errors import Damaged

if TYPE_CHECKING:
    from p3s.characterize.part import Part
    from p3s.study import Study
    from p3s.trace import RankTrace
    from p3s.trace.threads import Threads

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
_META, _VERSION = b"p3s.teams", 1


@dataclass(frozen=True)
class Teams:
    """What threads did at one process count: a row per rank and place that computes with threads.

    places: (site, operation) of the call that ends the computation; place: of each row, a number
    of it; values: int64 (rows, len(COLUMNS) - 2). rank: of each row.
    """

    places: tuple[tuple[str, str], ...]
    rank: numpy.ndarray
    place: numpy.ndarray
    values: numpy.ndarray

    def column(self, name: str) -> numpy.ndarray:
        """Return a column by its name, or that of a part of the laws; seconds where it is time."""
        column = _OF_PART.get(name, name)
        found = self.values[:, COLUMNS.index(column) - 2]
        return found * 1e-9 if column.endswith("_ns") else found.astype(np.float64)

    def total(self, name: str) -> float:
        """Return the sum of a column over all ranks and places; of MOST the largest."""
        values = self.column(name)
        if not len(values):
            return 0.0
        return float(values.max() if name in MOST else values.sum())


def none() -> numpy.ndarray:
    """Return a table without rows."""
    return np.zeros((0, len(COLUMNS)), dtype=np.int64)


def numbered(rt: RankTrace) -> RankTrace:
    """Return a rank whose events have their numbers, by which rows of threads name them."""
    if getattr(rt, "threads", None) is None:
        return rt
    return replace(rt, ordinal=np.arange(len(rt.call)))


def teams_of(rt: RankTrace, kept: numpy.ndarray, nodes: numpy.ndarray) -> numpy.ndarray:
    """Return the rows of a rank, columns COLUMNS.

    kept: events that are taken, ascending; nodes: of all events. What threads did before an event
    that is not taken counts with the next one.
    """
    threads = getattr(rt, "threads", None)
    if threads is None or not len(threads.event) or not len(kept):
        return none()
    ordinal = kept if rt.ordinal is None else rt.ordinal[kept]
    at = kept[np.minimum(np.searchsorted(ordinal, threads.event), len(kept) - 1)]
    found, where = np.unique(nodes[at], return_inverse=True)
    out = np.zeros((len(found), len(COLUMNS)), dtype=np.int64)
    out[:, 0], out[:, 1] = rt.rank, found
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


def renumbered(table: numpy.ndarray, node_to: numpy.ndarray) -> numpy.ndarray:
    """Return rows with nodes renumbered."""
    out = table.copy()
    out[:, 1] = node_to[table[:, 1]]
    return out


# ---- the file ----------------------------------------------------------------------------------
def teams_path(study: Study, n: int) -> Path:
    """Return where the file is: signature/np0008.teams.parquet."""
    return study.signature_path(n).with_suffix(".teams.parquet")


def write_teams(study: Study, n: int, parts: Sequence[Part]) -> None:
    """Write what threads did in the run of least work; none there where no run had any."""
    import pyarrow as pa

    from p3s.characterize.store import parquet_bytes
    from p3s.study import write_bytes

    path = teams_path(study, n)
    able = [part for part in parts if len(part.teams)]
    if not able:
        path.unlink(missing_ok=True)
        return
    part = min(able, key=lambda part: int(part.segments[:, 4].sum()))
    table = pa.table({name: part.teams[:, k] for k, name in enumerate(COLUMNS)})
    head = {"version": _VERSION, "np": n, "nodes": [list(node) for node in part.nodes]}
    write_bytes(path, parquet_bytes(table.replace_schema_metadata({_META: json.dumps(head)})))


def load_teams(root: Path, n: int) -> Teams | None:
    """Return what threads did at a count, None where no run had any; P3SError where damaged."""
    import io

    import pyarrow as pa
    import pyarrow.parquet as pq

    from p3s.study import Study

    path = teams_path(Study(Path(root)), n)
    if not path.exists():
        return None
    try:
        table = pq.read_table(io.BytesIO(path.read_bytes()), page_checksum_verification=True)
        head = json.loads((table.schema.metadata or {})[_META])
        if head["version"] != _VERSION or head["np"] != n:
            raise ValueError("of another version or count")
        nodes = tuple((str(site), str(op)) for site, op in head["nodes"])
        values = np.stack([table.column(name).to_numpy() for name in COLUMNS], axis=1)
        if len(values) and not 0 <= values[:, 1].min() <= values[:, 1].max() < len(nodes):
            raise ValueError("a row is of no place")
    except (OSError, KeyError, TypeError, ValueError, pa.ArrowException) as err:
        why = (str(err).splitlines() or [type(err).__name__])[0][:100]
        raise Damaged(f"{path}: damaged ({why}); run p3s characterize again") from err
    return Teams(nodes, values[:, 0], values[:, 1], values[:, 2:])
