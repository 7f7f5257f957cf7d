"""Where threads lie in a node, and what follows of it: who shares memory, cores and caches.

Close: threads of a process, and processes, on cores one after another. Far: each process has its
part of the node's cores, and its threads lie evenly in it (OMP_PROC_BIND=spread inside of what the
launcher binds a process to). On full nodes both are the same. Affinity: thesis, section 1.2.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np

from p3s.base.arrays import Floats, Ints
from p3s.machine.topology.inside import Node
from p3s.methods.threads.types import Uses, round_digits


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


#: Variance of the misfit in units of that of one run, and the part that is so at all counts.
SIZE, LASTING = 2.0, 0.5
#: Variance of slopes: misfits that go on in one direction, over a length, from the samples' middle.
SLOPE = 0.5
_SLOPES = np.array([1.0, 1.0, 0.0, 0.0, 1.0])
#: Lengths over which it changes: doublings of threads, of threads on the node, of processes.
_THREADS, _ON_NODE, _COUNT = 1.5, 1.5, 3.0
#: Difference of far and close, and of threads on a core, in the same units.
_FAR, _SHARED = 0.7, 0.8
_FEATURES = 64


def features(uses: Uses, places: Places) -> Floats:
    """Return how nodes are used as numbers whose distances matter: (uses, 5), processes last."""
    return np.stack(
        [
            np.log2(uses.threads) / _THREADS,
            np.log2(places.node_crowd) / _ON_NODE,
            _FAR * uses.far,
            _SHARED * (places.share - 1.0),
            np.log2(uses.n) / _COUNT,
        ],
        axis=1,
    )


def alike(one: Floats, other: Floats) -> Floats:
    """Return the covariance of misfits: (uses of one, uses of other)."""
    apart = (one[:, None, :] - other[None, :, :]) ** 2
    placed = np.exp(-0.5 * apart[..., :-1].sum(axis=2))
    counted = np.exp(-0.5 * apart[..., -1])
    return np.asarray(SIZE * placed * (LASTING + (1.0 - LASTING) * counted))


@dataclass(frozen=True, eq=False)
class Misfit:
    """Draws of a misfit: at (samples, 5), and what they pull by: (draws, samples), in units of the
    error of each draw's runs; seed: of the draws."""

    at: tuple[Floats, ...]
    pull: tuple[Floats, ...]
    seed: int

    def valid(self) -> None:
        """Raise ValueError where rows are not of five numbers, or of one for each sample."""
        rows = {len(row) for row in self.at} | {len(row) + 5 - len(self.at) for row in self.pull}
        if rows != {5}:
            raise ValueError("the misfit of its draws does not hold together")

    def draws(self, where: Floats, number: int) -> Floats:
        """Return the misfit in units of the error: (draws, uses)."""
        at = np.array(self.at)
        away, middle = scale_slopes(where, at), scale_slopes(at, at)
        free = _free(where, away, number, self.seed)
        pulled = alike(at, where) + SLOPE * middle @ away.T
        return np.asarray(free + np.array(self.pull) @ pulled)


def scale_slopes(where: Floats, at: Floats) -> Floats:
    """Return how far uses are from the middle of the samples where slopes count: (uses, 5)."""
    return np.asarray((where - at.mean(axis=0)) * _SLOPES)


def covariance(at: Floats) -> Floats:
    """Return the covariance of errors of runs and misfits at samples, in units of the error's."""
    away = scale_slopes(at, at)
    return np.asarray(alike(at, at) + SLOPE * away @ away.T + np.eye(len(at)))


def misfit(at: Floats, residuals: Floats, seed: int) -> Misfit:
    """Return the misfit that explains what is left at the samples.

    at: (samples, 5); left: (draws, samples), relative errors in units of their size.
    """
    random = np.random.default_rng(seed + 1)
    noise = random.standard_normal(residuals.shape)
    unexplained = residuals - _free(at, scale_slopes(at, at), len(residuals), seed) - noise
    pull = np.asarray(np.linalg.solve(covariance(at), unexplained.T).T, dtype=float)
    return Misfit(tuple(map(round_digits, at)), tuple(map(round_digits, pull)), seed)


def _free(where: Floats, away: Floats, number: int, seed: int) -> Floats:
    """Return the same functions always, of no samples: (number, uses)."""
    turns, start, weight, slope = _random(number, seed)
    out = np.sqrt(SLOPE) * slope @ away.T
    for k, share in enumerate((LASTING, 1.0 - LASTING)):
        features_at = where if k else where * np.array([1.0, 1.0, 1.0, 1.0, 0.0])
        waves = np.sqrt(2.0 / _FEATURES) * np.cos(features_at @ turns[k] + start[k])
        out += np.sqrt(SIZE * share) * (weight[k] @ waves.T)
    return np.asarray(out)


@lru_cache(maxsize=64)
def _random(number: int, seed: int) -> tuple[Floats, Floats, Floats, Floats]:
    random = np.random.default_rng(seed)
    return (
        random.standard_normal((2, 5, _FEATURES)),
        random.random((2, _FEATURES)) * 2 * np.pi,
        random.standard_normal((2, number, _FEATURES)),
        random.standard_normal((number, 5)),
    )
