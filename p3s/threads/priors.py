"""What is usual of programs and nodes before a run is looked at: scales of laws' coefficients.

They decide where no run has told: threads beyond the traced ones, hardware threads, full nodes.
Each is the width of a half normal distribution, wide enough for what is published of programs on
nodes of today; runs that show an effect overrule it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from p3s.threads import columns
from p3s.threads.columns import NAMES, Shapes
from p3s.topology.node import Node
from p3s.topology.units import Floats

#: Widths of coefficients, relative to the least time of a unit of work on one thread.
_BY_WORK = {
    columns.BASE: 1.0,
    columns.MEMORY: 0.7,
    columns.SERIAL: 0.15,
    columns.CLOCK: 0.25,
    columns.SMT: 0.25,
    columns.REMOTE: 0.4,
    columns.SOCKETS: 0.3,
    columns.BALANCE: 0.05,
    columns.RANKS: 0.03,
}
#: Of what does not go with work, relative to the least time; of regions in seconds.
_FIXED, _FORK_SHARE, _TEAM_SHARE = 0.3, 0.05, 0.02
_FORK, _TEAM, _TEAM_MEASURED = 5e-6, 1e-6, 1e-6
#: Size of errors of runs, and how many runs that knowledge is worth.
ERROR, ERROR_RUNS = 0.02, 3.0
#: Chances: of misses of a cache that the law needs, of bandwidth shared by more than a domain, of
#: what was measured of the machine.
_CACHE, _WIDER, _MEASURED = 0.5, 0.15, 0.7
#: Doublings of work outside the traced one where a cache may begin to hold it.
BELOW, ABOVE = 5.0, 2.0
#: Ranges of shapes: as (low, high); those of fill, sharp, size and wide in logarithms.
SHARP, WIDE, POWER = (1.5, 8.0), (0.7, 4.0), (0.3, 1.3)


@dataclass(frozen=True, eq=False)
class Prior:
    """Widths of the coefficients, and the place of the team's where it was measured."""

    width: Floats
    middle: Floats


def prior_of(unit: float, least: float, regions: bool, measured: bool) -> Prior:
    """Return what is usual.

    unit: least seconds of one thread for a unit of work; least: the least time seen; regions:
    whether their number is known; measured: whether the time of an empty one is.
    """
    width, middle = np.empty(len(NAMES)), np.zeros(len(NAMES))
    for column, share in _BY_WORK.items():
        width[column] = share * unit
    width[columns.FIXED] = _FIXED * least
    width[columns.FORK] = _FORK if regions else _FORK_SHARE * least
    width[columns.TEAM] = _TEAM if regions else _TEAM_SHARE * least
    if regions and measured:
        width[columns.TEAM], middle[columns.TEAM] = _TEAM_MEASURED, columns.FORK_UNIT
    return Prior(width, middle)


def shapes_of(
    number: int, random: np.random.Generator, node: Node, held: Floats, measured: bool
) -> Shapes:
    """Return shapes that are usual: ``number`` of them.

    held: work that the threads of a cache have together, in the traced runs; measured: whether the
    bandwidth is.
    """
    some = random.random((7, number))
    fill = _log_between(some[0], *fills(node))
    size = _log_between(some[1], *sizes(held))
    return Shapes(
        fill,
        _log_between(some[2], *SHARP),
        np.where(some[3] < _WIDER, 1.0 + np.floor(2.0 * some[3] / _WIDER), columns.DOMAIN),
        (some[4] < (_MEASURED if measured else 0.0)).astype(float),
        np.where(some[5] < _CACHE, size, 0.0),
        _log_between(random.random(number), *WIDE),
        POWER[0] + some[6] * (POWER[1] - POWER[0]),
    )


def fills(node: Node) -> tuple[float, float]:
    """Return how many threads may fill a bandwidth: from less than one to more than there are."""
    return 0.7, 1.5 * max(node.domains) + 1.0


def sizes(held: Floats) -> tuple[float, float]:
    """Return the work that a cache may hold: below the traced one and a little above."""
    return float(held.min()) * 2.0**-BELOW, float(held.max()) * 2.0**ABOVE


def _log_between(share: Floats, low: float, high: float) -> Floats:
    return np.asarray(low * (high / low) ** share)
