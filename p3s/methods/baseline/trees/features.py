"""Variables of a run that its time may depend on: of its workload, and of caches that it shares.

A. Castellanos Carrazana, UAB 2014, section 4.3, tables 5.4 and 5.15.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from p3s.base.arrays import Floats, Ints
from p3s.base.errors import UsageError
from p3s.base.text import plural, processes
from p3s.machine.topology.inside import read_inside


@dataclass(frozen=True)
class Caches:
    """The cores of a node in their order: numbers from 0 of the socket, L3 and L2 of each.

    A core without such a cache around it has one of its own.
    """

    socket: Ints
    l3: Ints
    l2: Ints

    def __len__(self) -> int:
        return len(self.socket)


def read_caches(path: Path) -> Caches:
    """Read what ``lstopo --of xml`` has written of a node; errors as of :func:`read_inside`."""
    inside = read_inside(path)
    return Caches(inside.socket, inside.l3, inside.l2)


#: Names of the variables that :func:`counters` gives.
COUNTER = re.compile(r"(s|pl3_|tl3_|l2_)\d+", re.ASCII)


def derive_features(workload: Floats, workers: Floats, threads: Floats) -> dict[str, Floats]:
    """Return the variables w2, w1, workers, workload, local_workld, threads of runs.

    w2 = W^2 / (K T), w1 = W / (K T) (eq. 4.2), local_workld = W / K.
    """
    share = workers * threads
    return {
        "w2": workload**2 / share,
        "w1": workload / share,
        "workers": np.asarray(workers, dtype=float),
        "workload": np.asarray(workload, dtype=float),
        "local_workld": workload / workers,
        "threads": np.asarray(threads, dtype=float),
    }


# ---- where threads are -----------------------------------------------------------------------


def cores_of(caches: Caches, count: int, threads: int, far: bool = False) -> Ints:
    """Return the cores of the threads of ``count`` processes on a node, (processes, threads).

    The node is cut into equal parts of neighbouring cores, as large as the processes leave room
    for, and each process has one. Close: processes take the first parts, threads the first cores of
    theirs, so that they share as many caches as they can. Far: both are spread over sockets, then
    L3, then L2. Errors: UsageError where threads would have to share cores.
    """
    size = _part(len(caches), count, threads)
    if size == 0:
        raise UsageError(
            f"{processes(count)} of {plural(threads, 'thread')} need {count * threads} cores, "
            f"the node has {len(caches)}"
        )
    parts = np.arange(len(caches) // size * size).reshape(-1, size)
    levels = (caches.socket, caches.l3, caches.l2)
    if not far:
        return parts[:count, :threads]
    order = _spread(parts[:, 0], levels)
    mine = parts[np.searchsorted(parts[:, 0], order[:count])]
    return np.stack([_spread(row, levels)[:threads] for row in mine])


def _part(cores: int, count: int, threads: int) -> int:
    """Return the cores of a part: a divisor of all where one has room, 0 where nothing has."""
    most = cores // count
    if most < threads:
        return 0
    return max((d for d in range(threads, most + 1) if cores % d == 0), default=threads)


def _spread(cores: Ints, levels: Sequence[Ints]) -> Ints:
    """Return cores in an order that goes around sockets, inside them around L3, then L2."""
    if not levels or len(cores) < 2:
        return cores
    groups = [cores[levels[0][cores] == g] for g in np.unique(levels[0][cores])]
    return np.array(list(_in_turn([_spread(group, levels[1:]) for group in groups])))


def _in_turn(groups: Sequence[Ints]) -> Iterator[int]:
    for i in range(max(map(len, groups))):
        yield from (int(group[i]) for group in groups if i < len(group))


def counters(caches: Caches, count: int, threads: int, far: bool = False) -> dict[str, int]:
    """Return how much of a node processes and threads share, by variable.

    s_i: processes with threads on socket i; pl3_j: processes with threads at L3 j; tl3_j and l2_i:
    threads that share L3 j and L2 i. Errors as of :func:`cores_of`.
    """
    cores = cores_of(caches, count, threads, far)
    counts_of: dict[str, int] = {}
    for name, level in (("s", caches.socket), ("pl3_", caches.l3)):
        size = int(level.max()) + 1
        is_present = np.zeros((count, size), dtype=bool)
        is_present[np.repeat(np.arange(count), threads), level[cores].ravel()] = True
        counts_of |= {f"{name}{i}": int(n) for i, n in enumerate(is_present.sum(axis=0))}
    for name, level in (("tl3_", caches.l3), ("l2_", caches.l2)):
        used = np.bincount(level[cores].ravel(), minlength=int(level.max()) + 1)
        counts_of |= {f"{name}{i}": int(n) for i, n in enumerate(used)}
    return counts_of


def counter_columns(
    caches: Caches, count: Floats, threads: Floats, far: Floats | None = None
) -> dict[str, Floats]:
    """Return the counters of runs as columns; ``count``: processes of a node, per run."""
    spread = np.zeros(len(count), dtype=bool) if far is None else np.asarray(far, dtype=bool)
    keys = np.stack([count, threads, spread], axis=1).astype(np.int64)
    distinct, index = np.unique(keys, axis=0, return_inverse=True)
    rows = [counters(caches, int(p), int(t), bool(f)) for p, t, f in distinct]
    return {name: np.array([float(row[name]) for row in rows])[index] for name in rows[0]}
