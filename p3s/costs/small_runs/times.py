"""Time of the computation before each place, of every rank: from the times of a study's runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from p3s.costs.small_runs.places import Same
from p3s.signature.tables import INSTRUCTIONS, PointTable

if TYPE_CHECKING:
    from p3s.base.study import Study

Place = tuple[str, str]


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

    number = {place: k for k, place in enumerate(places)}
    times = load_times(study.root, t.np)
    if times is not None:
        same = same or Same()
        own = {site for site, _ in places}
        node = np.array(
            [*(number.get((same.site(v[0], own), v[1]), -1) for v in times.nodes), -1],
            dtype=np.int64,
        )
        columns = (times.least_ns, times.median_ns, times.most_ns, times.work)
        rank, to, repeats = times.rank, node[times.to_node], max(len(times.runs), 1)
    elif t.work_unit != INSTRUCTIONS:  # work is the time itself, the least of the repeats
        node = np.array([number.get((g.site, g.op), -1) for g in t.groups] or [-1])
        rank, to, repeats = t.rank, node[t.group], t.repeats
        columns = (t.work, t.work, t.work, t.work)
    else:
        return None
    mine = to >= 0
    cell = to[mine] * t.np + rank[mine]
    sums = [
        np.bincount(
            cell, weights=np.asarray(c, dtype=float)[mine], minlength=len(places) * t.np
        ).reshape(len(places), t.np)
        for c in columns
    ]
    return Spent(sums[0], sums[1], sums[2], sums[3], repeats)
