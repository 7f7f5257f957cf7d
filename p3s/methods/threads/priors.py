"""What is usual of programs and nodes before a run is looked at: ranges of the laws' numbers.

They decide where no run has told: threads beyond the traced ones, hardware threads, full nodes.
They are wide enough for what is published of programs on nodes of today; runs that show an effect
overrule them. Every number is a function of a uniform one, so that searches move in a unit cube.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from p3s.machine.topology.node import Node
from p3s.machine.topology.units import Floats
from p3s.methods.threads import columns
from p3s.methods.threads.columns import NAMES, Rows, Shapes
from p3s.methods.threads.types import Samples

#: Widths of coefficients (half normal), relative to the least time of a unit of work on one
#: thread; of what does not go with work relative to the least time, of regions in seconds.
_BY_WORK = {columns.PARALLEL: 1.0, columns.BALANCE: 0.2, columns.RANKS: 0.05, columns.SERIAL: 0.3}
_FIXED, _FORK_SHARE, _TEAM_SHARE = 1.0, 0.5, 0.1
_FORK, _TEAM = 1e-5, 2e-6
#: Effects that a program may lack have from this part of their usual width on, in logarithms.
_LEAST = 0.01
#: Size of errors of runs, and how many runs that knowledge is worth.
ERROR, ERROR_RUNS = 0.02, 3.0
#: Chances: of misses of a cache that the law needs, of bandwidth shared by more than a domain, of
#: data placed by one thread, of what was measured of the machine, of rows that are few.
_CACHE, _WIDER, _HOME, _MEASURED, _ROWS = 0.8, 0.15, 0.1, 0.7, 0.4
#: Doublings of work outside the traced one where a cache may begin to hold it.
BELOW, ABOVE = 5.0, 1.0
#: Ranges: what a second thread on a core adds (0: it brings as much as the first, 1: nothing) and
#: by how much clocks are lower when all cores compute; in logarithms: waiting for memory over
#: computing for one thread, more of it in another domain, in another socket; how well both hide
#: each other; how sharply bandwidth saturates and caches fill; exponents of overhead and of
#: unevenness over threads; how much dearer regions are on shared cores and on several sockets.
_SMT, _CLOCK, _MEMORY, _REMOTE, _SOCKETS = (0.1, 1.1), (0.0, 0.4), (0.01, 10.0), (0.01, 1.5), 1.5
_HIDE, _SHARP, _WIDE, _POWER = (1.0, 6.0), (1.5, 8.0), (0.7, 4.0), (0.3, 1.3)
#: Workloads that are further apart than this, in logarithms, tell how rows go with them.
_SEVERAL = 0.1
#: Rows of all processes over the threads in all of the largest traced run, and what power of the
#: whole work they go with: fixed, those of a cube, of a square, of a list.
_FEW, _MANY, _GROWS = 0.5, 4096.0, np.array([0.0, 1 / 3, 0.5, 1.0])
_UNEVEN, _DEARER = (-1.5, 0.5), (0.02, 3.0)
#: How many uniform numbers shapes have, and with the widths of coefficients.
SHAPES = len(fields(Shapes))
SIZE = SHAPES + len(NAMES)


@dataclass(frozen=True, eq=False)
class Prior:
    """What is usual: widths of the coefficients and where the team's is, 0 where not measured;
    fills: threads that fill a bandwidth; sizes: work that a cache holds; rows: of all processes at
    the workload ``whole``; (low, high) each; known: rows at a whole work of one, and the power of
    it that they go with, None where no run tells; measured: whether bandwidth was."""

    width: Floats
    middle: Floats
    fills: tuple[float, float]
    sizes: tuple[float, float]
    rows: tuple[float, float]
    whole: float
    known: tuple[float, float] | None
    measured: bool

    def widths(self, cube: Floats) -> Floats:
        """Return widths of coefficients: (draws, columns); cube: (draws, SIZE)."""
        scale = _LEAST ** cube[:, SHAPES:]
        scale[:, columns.PARALLEL] = 1.0
        scale[:, self.middle > 0] = 1.0
        return np.asarray(self.width * scale)

    def shapes(self, cube: Floats) -> Shapes:
        """Return shapes: (draws,) each; cube: (draws, SIZE), numbers between 0 and 1."""
        u = cube.T
        wider = 1.0 + np.floor(2.0 * np.minimum(u[8] / _WIDER, 0.999))
        scope = np.where(u[8] < _WIDER, wider, columns.DOMAIN)
        some = u[16] < _ROWS
        grows = _GROWS[np.minimum(u[17] * len(_GROWS), len(_GROWS) - 1).astype(int)]
        rows = log_between((u[16] / _ROWS).clip(0.0, 1.0), *self.rows) / self.whole**grows
        if self.known is not None:
            some, rows, grows = some | True, *(np.full(len(cube), x) for x in self.known)
        size = log_between((u[10] / _CACHE).clip(0.0, 1.0), *self.sizes)
        return Shapes(
            between(u[0], *_SMT),
            between(u[1], *_CLOCK),
            log_between(u[2], *_MEMORY),
            log_between(u[3], *_REMOTE),
            log_between(u[4], _REMOTE[0], _SOCKETS),
            log_between(u[5], *_HIDE),
            log_between(u[6], *self.fills),
            log_between(u[7], *_SHARP),
            np.where(u[8] > 1.0 - _HOME, columns.HOME, scope),
            (u[9] < (_MEASURED if self.measured else 0.0)).astype(float),
            np.where(u[10] < _CACHE, size, 0.0),
            log_between(u[11], *_WIDE),
            between(u[12], *_POWER),
            between(u[13], *_UNEVEN),
            log_between(u[14], *_DEARER),
            log_between(u[15], *_DEARER),
            np.where(some, rows, 0.0),
            grows,
        )


def prior_of(
    samples: Samples, y: Floats, rows: Rows, node: Node, regions: bool, measured: tuple[bool, bool]
) -> Prior:
    """Return what is usual.

    y: seconds of the samples; rows: their places; regions: whether their number is known; measured:
    whether the bandwidth is, and the time of an empty region.
    """
    unit, least = unit_of(samples, y), float(y.min())
    held = samples.work / samples.threads * rows.places.cache
    width, middle = np.empty(len(NAMES)), np.zeros(len(NAMES))
    for column, share in _BY_WORK.items():
        width[column] = share * unit
    width[columns.FIXED] = _FIXED * least
    width[columns.FORK] = _FORK if regions else _FORK_SHARE * least
    width[columns.TEAM] = _TEAM if regions else _TEAM_SHARE * least
    if regions and measured[1]:
        width[columns.TEAM] = middle[columns.TEAM] = columns.FORK_UNIT
    fills = (0.7, 1.5 * max(node.domains) + 1.0)
    sizes = (float(held.min()) * 2.0**-BELOW, float(held.max()) * 2.0**ABOVE)
    threads = float((samples.n * samples.threads).max())
    most = (threads * _FEW, threads * _MANY)
    whole = float(np.median(samples.n * samples.work))
    known = known_rows(samples)
    return Prior(width, middle, fills, sizes, most, whole, known, measured[0])


def known_rows(samples: Samples) -> tuple[float, float] | None:
    """Return the rows of all processes at a whole work of one, and the power of it that they go
    with; None where runs do not tell. One workload tells no power: then they are fixed."""
    if not np.all(samples.rows > 0):
        return None
    rows, whole = np.log(samples.n * samples.rows), np.log(samples.n * samples.work)
    away = whole - whole.mean()
    several = float(away @ away) > len(away) * _SEVERAL**2
    power = float(np.clip(away @ rows / (away @ away), 0.0, 1.0)) if several else 0.0
    return float(np.exp(np.median(rows - power * whole))), power


def unit_of(samples: Samples, y: Floats) -> float:
    """Return the least seconds of one thread for a unit of work."""
    return float((y * samples.threads / samples.work).min())


def between(share: Floats, low: float, high: float) -> Floats:
    """Return values evenly between two ends."""
    return np.asarray(low + share * (high - low))


def log_between(share: Floats, low: float, high: float) -> Floats:
    """Return values between two ends, evenly in their logarithms."""
    return np.asarray(low * (high / low) ** share)
