"""The columns of a law of computing time over threads, for many shapes at once.

The time of one iteration of a process that has work w and T threads is a sum of

    parallel    w/T i (c^h + m^h)^(1/h): computing and waiting for memory, which hide each other
                    c = (1 + smt (s - 1)) (1 + clock a): s threads share a core; a part a of the
                        socket's cores computes (clocks fall the more do)
                    m = memory q(k) miss(w) (1 + remote r + sockets r'): q(k) = (1 + (k/f)^p)^(1/p)
                        for k threads that share a bandwidth which f of them fill, the part that
                        misses a cache, the parts of the threads in other memory domains and sockets
                i = whole(whole(r)/T) T/r for a process with r rows that threads get whole ones of;
                rows of all processes go with a power of the whole work
    balance     the same times (T^u - 1)/u: threads that have more to do; ranks: times log2 n
    serial      w outside of regions; fixed: the same whatever the work
    fork        regions that fork at all; team: regions times T^e; both more where threads share
                cores, and where they are on several sockets: times (1 + x (s - 1) + y r')

with coefficients that are not negative. This is thesis, eq. 3.2 and 3.3: ideal time, waiting for
memory as far as it is not hidden, overhead of regions; instead of counters of misses it has the
bandwidth that the threads of a memory domain share, and in place of overlap factors, h.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from p3s.base.arrays import Floats
from p3s.methods.threads.places import Places

NAMES = ("parallel", "balance", "ranks", "serial", "fixed", "fork", "team")
PARALLEL, BALANCE, RANKS, SERIAL, FIXED, FORK, TEAM = range(7)
#: Columns of what is done once, and what each thread of the team does (busy time).
ONCE, BY_TEAM = (SERIAL, FIXED), (PARALLEL, RANKS)
#: Rows that are so little more than a whole number are that; exponents are cut off.
_ROUND, _BIG = 0.02, 80.0
#: Seconds that measured times of a region which does nothing are multiples of.
FORK_UNIT = 1e-6
#: Which threads share a bandwidth: those of a memory domain, of a socket, of the node, of the
#: processes whose data one thread has placed in a domain.
DOMAIN, SOCKET, NODE, HOME = 0, 1, 2, 3


@dataclass(frozen=True, eq=False)
class Shapes:
    """What is not linear in the law, one entry per shape.

    smt, clock, memory, remote, sockets: as above; hide: h; fill: f; sharp: p; scope: DOMAIN,
    SOCKET, NODE or HOME; curve: 1 where q is the measured one; size: work of a cache's threads that
    it holds (0: all misses); wide: how gradually it does; power: e; uneven: u; shared, apart: x and
    y; rows, grows: rows of all processes at a whole work of one (0: any number), and the power of
    the whole work that they go with.
    """

    smt: Floats
    clock: Floats
    memory: Floats
    remote: Floats
    sockets: Floats
    hide: Floats
    fill: Floats
    sharp: Floats
    scope: Floats
    curve: Floats
    size: Floats
    wide: Floats
    power: Floats
    uneven: Floats
    shared: Floats
    apart: Floats
    rows: Floats
    grows: Floats

    def __len__(self) -> int:
        return len(self.fill)

    def take(self, rows: np.ndarray) -> Shapes:
        """Return some shapes."""
        return Shapes(*(getattr(self, each.name)[rows] for each in fields(self)))


@dataclass(frozen=True, eq=False)
class Curve:
    """A measured function of the threads of a node: piecewise linear; empty where not measured."""

    threads: Floats
    value: Floats

    def valid(self) -> None:
        """Raise ValueError where numbers of threads do not ascend, or have no value each."""
        if len(self.threads) != len(self.value) or (np.diff(self.threads) <= 0).any():
            raise ValueError("a curve over the threads has no ascending points")

    def __bool__(self) -> bool:
        return len(self.threads) > 0

    def at(self, k: Floats) -> Floats:
        """Return the value at ``k`` threads; beyond the last one in proportion."""
        last = self.threads[-1]
        inside = np.interp(np.minimum(k, last), self.threads, self.value)
        return np.asarray(inside * np.maximum(k / last, 1.0))


@dataclass(frozen=True, eq=False)
class Rows:
    """Where columns are asked for: places, processes, threads; smt: hardware threads of a core;
    fork: seconds of a region that does nothing, 0 where not measured; slower: q of a measured
    bandwidth, 1 where not measured."""

    places: Places
    n: Floats
    threads: Floats
    smt: int
    fork: Floats
    slower: Floats


def computing(shapes: Shapes, rows: Rows) -> Floats:
    """Return c of all shapes at all rows: (shapes, rows)."""
    p = rows.places
    shared = np.minimum(p.share, rows.smt) - 1.0
    over = np.maximum(p.share / rows.smt, 1.0)
    clock = 1.0 + shapes.clock[:, None] * p.active
    return np.asarray((1.0 + shapes.smt[:, None] * shared) * over * clock)


def waiting(shapes: Shapes, rows: Rows) -> Floats:
    """Return m of all shapes at all rows where all misses: (shapes, rows)."""
    p = rows.places
    crowd = np.stack([p.crowd, p.socket_crowd, p.node_crowd, p.home])[shapes.scope.astype(int)]
    ratio = np.log(crowd / shapes.fill[:, None]) * shapes.sharp[:, None]
    free = np.exp(np.logaddexp(0.0, ratio) / shapes.sharp[:, None])
    queue = np.where(shapes.curve[:, None] > 0, rows.slower, free)
    far = 1.0 + shapes.remote[:, None] * p.remote + shapes.sockets[:, None] * p.remote_socket
    return np.asarray(shapes.memory[:, None] * queue * far)


def missing(shapes: Shapes, rows: Rows, work: Floats) -> Floats:
    """Return the part that misses a cache, of all shapes at all rows: (shapes, rows)."""
    log_held = np.log(work / rows.threads * rows.places.cache)
    away = np.log(np.maximum(shapes.size, 1e-290))[:, None] - log_held
    return np.asarray(1.0 / (1.0 + np.exp(np.minimum(shapes.wide[:, None] * away, 500.0))))


def hidden(shapes: Shapes, one: Floats, other: Floats) -> Floats:
    """Return (one^h + other^h)^(1/h), both positive."""
    h = shapes.hide[:, None]
    more, less = np.maximum(one, other), np.minimum(one, other)
    return np.asarray(more * np.exp(np.log1p(np.exp(h * np.log(less / more))) / h))


def idle(shapes: Shapes, rows: Rows, work: Floats) -> Floats:
    """Return i of all shapes at all rows: (shapes, rows); 1 where rows are any number."""
    whole = (
        shapes.grows[:, None] * np.log(rows.n * work)
        + np.log(np.maximum(shapes.rows, 1e-290))[:, None]
    )
    each = np.exp(np.minimum(whole, _BIG)) / rows.n
    whole_rows = np.maximum(np.ceil(each - _ROUND), 1.0)
    longest = np.ceil(whole_rows / rows.threads) * rows.threads / each
    return np.where(shapes.rows[:, None] > 0, longest, 1.0)


def parallel(shapes: Shapes, rows: Rows, work: Floats) -> Floats:
    """Return the time of a unit of work, all threads of a process together: (shapes, rows)."""
    wait = waiting(shapes, rows) * missing(shapes, rows, work)
    return idle(shapes, rows, work) * hidden(shapes, computing(shapes, rows), wait) / rows.threads


def unevenness(shapes: Shapes, rows: Rows) -> Floats:
    """Return how much more the longest of T threads has, in its unit: (shapes, rows)."""
    u = np.where(np.abs(shapes.uneven) < 1e-6, 1e-6, shapes.uneven)[:, None]
    return np.asarray(np.expm1(u * np.log(rows.threads)) / u)


def regions_of(shapes: Shapes, rows: Rows, regions: float) -> tuple[Floats, Floats]:
    """Return the columns fork and team: (shapes, rows)."""
    p = rows.places
    more = shapes.shared[:, None] * (p.share - 1.0) + shapes.apart[:, None] * p.remote_socket
    fork = np.where(rows.threads > 1, regions, 0.0) * (1.0 + more)
    power = rows.threads[None, :] ** shapes.power[:, None]
    return fork, np.where(rows.fork > 0, rows.fork / FORK_UNIT, power) * fork


def table(shapes: Shapes, rows: Rows, work: Floats, regions: float) -> Floats:
    """Return all columns of all shapes: (shapes, rows, NAMES)."""
    out = np.empty((len(shapes), len(work), len(NAMES)))
    out[..., PARALLEL] = parallel(shapes, rows, work) * work
    out[..., BALANCE] = out[..., PARALLEL] * unevenness(shapes, rows)
    out[..., RANKS] = out[..., PARALLEL] * np.log2(rows.n)
    out[..., SERIAL] = work
    out[..., FIXED] = 1.0
    out[..., FORK], out[..., TEAM] = regions_of(shapes, rows, regions)
    return out
