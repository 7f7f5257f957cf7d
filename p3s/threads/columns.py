"""The columns of a law of computing time over threads, for many shapes at once.

The time of one iteration of a process that has work w and T threads is a sum of

    base        w/T, more where threads share a core
    memory      w/T m q: waiting for memory; q(k) = (1 + (k/s)^p)^(1/p) with k threads that share a
                bandwidth which s of them fill; m is the part that misses a cache
    serial      w outside of regions; fixed: the same whatever the work
    clock       w/T times the part of the cores that compute (all-core clocks are lower)
    smt         w/T on shared hardware threads, more or less than usual
    remote      w/T times the part of the threads in other memory domains; sockets: other sockets
    balance     w/T log2 T: threads that have more to do; ranks: w/T log2 n
    fork        regions that fork at all, and team: regions times T^e

with coefficients that are not negative (smt is a difference from what is usual and may be). This
is the sum of thesis, eq. 3.2 and 3.3, with T: ideal time, memory, overhead of regions; instead of
counters of misses it has the bandwidth that all threads of a memory domain share.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from p3s.threads.places import Places
from p3s.topology.units import Floats

NAMES = (
    "base",
    "memory",
    "serial",
    "fixed",
    "clock",
    "smt",
    "remote",
    "sockets",
    "balance",
    "ranks",
    "fork",
    "team",
)
BASE, MEMORY, SERIAL, FIXED, CLOCK, SMT, REMOTE, SOCKETS, BALANCE, RANKS, FORK, TEAM = range(12)
#: Columns that go with w, with w in the miss of a cache, and not with w.
BY_WORK = (BASE, SERIAL, CLOCK, SMT, REMOTE, SOCKETS, BALANCE, RANKS)
NOT_BY_WORK = (FIXED, FORK, TEAM)
#: Columns of which no program lacks all; a measured overhead of regions is not doubted either.
ALWAYS = (BASE, SMT)
#: Columns of what is done once, and what each thread of the team does (busy time).
ONCE, BY_TEAM = (SERIAL, FIXED), (BASE, MEMORY, CLOCK, SMT, REMOTE, SOCKETS, RANKS)
#: A second thread on a core adds this part of a core's time: it brings a quarter more (the middle
#: of what is published: from less than nothing to a half); of more than one the same again.
SMT_USUAL = 0.6

#: Seconds that measured times of a region which does nothing are multiples of.
FORK_UNIT = 1e-6

#: Which threads share a bandwidth: those of a memory domain, of a socket, of the node.
DOMAIN, SOCKET, NODE = 0, 1, 2


@dataclass(frozen=True, eq=False)
class Shapes:
    """What is not linear in the law, one entry per shape.

    fill: threads that fill a bandwidth (s); sharp: p; scope: DOMAIN, SOCKET or NODE; curve: 1 where
    q is the measured one; size: work of a cache's threads that it holds (0: all misses); wide: how
    gradually it does; power: e.
    """

    fill: Floats
    sharp: Floats
    scope: Floats
    curve: Floats
    size: Floats
    wide: Floats
    power: Floats

    def __len__(self) -> int:
        return len(self.fill)

    def take(self, rows: np.ndarray) -> Shapes:
        """Return some shapes."""
        return Shapes(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


@dataclass(frozen=True, eq=False)
class Curve:
    """How much slower k threads of a node get their data than one: measured; empty where not."""

    threads: Floats
    slower: Floats

    def at(self, k: Floats) -> Floats:
        """Return the factor at ``k`` threads; beyond the last one bandwidth is full."""
        last = self.threads[-1]
        inside = np.interp(np.minimum(k, last), self.threads, self.slower)
        return np.asarray(inside * np.maximum(k / last, 1.0))


@dataclass(frozen=True, eq=False)
class Rows:
    """Where columns are asked for: places, processes, threads; smt: hardware threads of a core;
    fork: seconds of a region that does nothing, 0 where not measured; slower: of a measured
    bandwidth, 1 where not measured."""

    places: Places
    n: Floats
    threads: Floats
    smt: int
    fork: Floats
    slower: Floats


def waiting(shapes: Shapes, rows: Rows) -> Floats:
    """Return q of all shapes at all rows: (shapes, rows)."""
    p = rows.places
    crowd = np.stack([p.crowd, p.socket_crowd, p.node_crowd])[shapes.scope.astype(int)]
    ratio = np.log(crowd / shapes.fill[:, None]) * shapes.sharp[:, None]
    free = np.exp(np.logaddexp(0.0, ratio) / shapes.sharp[:, None])
    return np.where(shapes.curve[:, None] > 0, rows.slower, free)


def missing(shapes: Shapes, rows: Rows, work: Floats) -> Floats:
    """Return m of all shapes at all rows: (shapes, rows)."""
    held = work / rows.threads * rows.places.cache
    with np.errstate(divide="ignore"):
        away = np.log(shapes.size)[:, None] - np.log(held)
    wide = np.minimum(shapes.wide[:, None] * away, 500.0)
    return np.asarray(1.0 / (1.0 + np.exp(wide)))


def by_work(rows: Rows) -> Floats:
    """Return the columns that go with work, per unit of it: (rows, BY_WORK), as NAMES has them."""
    p, each = rows.places, 1.0 / rows.threads
    shared = np.minimum(p.share, rows.smt) - 1.0
    over = np.maximum(p.share / rows.smt, 1.0)
    columns = [
        each * (1.0 + SMT_USUAL * shared) * over,
        np.ones(len(each)),
        each * p.active,
        each * shared,
        each * p.remote,
        each * p.remote_socket,
        each * np.log2(rows.threads),
        each * np.log2(rows.n),
    ]
    return np.stack(columns, axis=1)


def not_by_work(shapes: Shapes, rows: Rows, regions: float) -> Floats:
    """Return the columns that do not go with work: (shapes, rows, NOT_BY_WORK)."""
    team = rows.threads > 1
    each = np.where(team, regions, 0.0)
    power = rows.threads[None, :] ** shapes.power[:, None]
    grown = np.where(rows.fork > 0, rows.fork / FORK_UNIT, power) * each
    flat = np.broadcast_to(np.stack([np.ones(len(each)), each]), (len(shapes), 2, len(each)))
    return np.concatenate([flat, grown[:, None, :]], axis=1).transpose(0, 2, 1)


def table(shapes: Shapes, rows: Rows, work: Floats, regions: float) -> Floats:
    """Return all columns of all shapes: (shapes, rows, NAMES)."""
    out = np.empty((len(shapes), len(work), len(NAMES)))
    out[..., BY_WORK] = by_work(rows) * work[:, None]
    out[..., MEMORY] = waiting(shapes, rows) * missing(shapes, rows, work) * (work / rows.threads)
    out[..., NOT_BY_WORK] = not_by_work(shapes, rows, regions)
    return out
