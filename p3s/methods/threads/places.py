"""Where threads lie in a node, and what follows of it: who shares memory, cores and caches.

Close: threads of a process, and processes, on cores one after another. Far: each process has its
part of the node's cores, and its threads lie evenly in it (OMP_PROC_BIND=spread inside of what the
launcher binds a process to). On full nodes both are the same. Affinity: thesis, section 1.2.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np

from p3s.machine.topology.node import Node
from p3s.machine.topology.units import Floats, Ints
from p3s.methods.threads.types import Uses


@dataclass(frozen=True, eq=False)
class Places:
    """What threads share, one row per use; of several processes of a node the mean.

    share: threads on the busiest core of a process; active: the part of its socket's cores that
    compute (clocks are those of sockets); crowd, socket_crowd, node_crowd: threads on the busiest
    memory domain and socket of a process, and on the node; home: threads of all processes whose
    first thread is in the same domain as a process's (where one thread has placed the data);
    cache: threads that share the last cache; remote, remote_socket: the part of a process's threads
    that are not in the domain, the socket, of any one of them.
    """

    share: Floats
    active: Floats
    crowd: Floats
    socket_crowd: Floats
    node_crowd: Floats
    home: Floats
    cache: Floats
    remote: Floats
    remote_socket: Floats


def places(uses: Uses, node: Node) -> Places:
    """Return what the threads of each use share."""
    on_node = np.minimum(uses.per_node, uses.n)
    rows = [
        _place(node, int(p), int(t), bool(f))
        for p, t, f in zip(on_node, uses.threads, uses.far, strict=True)
    ]
    return Places(*np.array(rows, dtype=float).reshape(-1, len(fields(Places))).T)


def cores_of(node: Node, per_node: int, threads: int, far: bool) -> Ints:
    """Return the core of each thread: (processes of the node, threads).

    Where there are more threads than cores they are dealt out evenly.
    """
    total = per_node * threads
    thread = np.arange(total)
    core = thread * node.cores // total if far or total > node.cores else thread
    return core.reshape(per_node, threads)


def same_places(node: Node, per_node: int, threads: int) -> bool:
    """Return whether close and far put all threads on the same cores."""
    close, far = (cores_of(node, per_node, threads, f) for f in (False, True))
    return bool(np.array_equal(close, far))


@lru_cache(maxsize=8192)
def _place(node: Node, per_node: int, threads: int, far: bool) -> tuple[float, ...]:
    core = cores_of(node, per_node, threads, far)
    domain, socket = node.domain_of[core], node.socket_of[core]
    load = np.bincount(core.ravel(), minlength=node.cores)
    sockets = np.bincount(node.socket_of)
    active = np.bincount(node.socket_of[load > 0], minlength=len(sockets)) / sockets
    crowd = [_crowd(of) for of in (domain, socket, node.cache_of[core])]
    return (
        float(load[core].max(axis=1).mean()),
        float(active[socket].max(axis=1).mean()),
        crowd[0],
        crowd[1],
        float(core.size),
        _crowd(domain[:, :1]) * threads,
        crowd[2],
        _remote(domain),
        _remote(socket),
    )


def _crowd(of: Ints) -> float:
    """Return how many threads the busiest place of a process has, mean of processes."""
    return float(np.bincount(of.ravel())[of].max(axis=1).mean())


def _remote(of: Ints) -> float:
    """Return the chance that two threads of a process are at different places."""
    process = np.arange(len(of))[:, None]
    together = np.zeros((len(of), int(of.max()) + 1))
    np.add.at(together, (np.broadcast_to(process, of.shape), of), 1.0 / of.shape[1])
    return float(1.0 - (together**2).sum(axis=1).mean())
