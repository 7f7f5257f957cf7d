"""Time of the computation before each place, of every rank: from the times of a study's runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from p3s.costs.gather import by_place_and_rank, numbers_of
from p3s.costs.points import Place
from p3s.costs.small_runs.places import Same
from p3s.signature.tables import INSTRUCTIONS, PointTable

if TYPE_CHECKING:
    from p3s.base.study import Study


@dataclass(frozen=True)
class Spent:
    """Time before the calls of each place, (places, ranks), ns: least, median and most of repeats.

    work: what the signature counted in the segments whose time is known.
    """

    least: np.ndarray
    typical: np.ndarray
    most: np.ndarray
    work: np.ndarray
    repeats: int

    def of_place(self, places: Sequence[Place]) -> dict[Place, float]:
        """Return the least time before each place, summed over the ranks."""
        return dict(zip(places, self.least.sum(axis=1).tolist(), strict=True))


def spent(
    study: Study, t: PointTable, places: Sequence[Place], same: Same | None = None
) -> Spent | None:
    """Return the time that the runs of one count took, None where none was measured.

    same: how the sites of these runs are called in ``t`` and ``places``.
    """
    from p3s.signature.times import load_times

    times = load_times(study.root, t.np)
    if times is not None:
        same, own = same or Same(), {site for site, _ in places}
        nodes = [(same.site(site, own), op) for site, op in times.nodes]
        columns = (times.least_ns, times.median_ns, times.most_ns, times.work)
        rank, to, repeats = times.rank, times.to_node, max(len(times.runs), 1)
    elif t.work_unit != INSTRUCTIONS:  # work is the time itself, the least of the repeats
        nodes = [(g.site, g.op) for g in t.groups]
        rank, to, repeats = t.rank, t.group, t.repeats
        columns = (t.work, t.work, t.work, t.work)
    else:
        return None
    place = numbers_of(places, nodes)[to]
    shape = (len(places), t.np)
    least, typical, most, work = (by_place_and_rank(place, rank, c, shape) for c in columns)
    return Spent(least, typical, most, work, repeats)
