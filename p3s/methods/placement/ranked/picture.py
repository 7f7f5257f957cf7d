"""What the cables of a network carry under two placements, as a picture shows it."""

from __future__ import annotations

import numpy as np

from p3s.machine.topology.units import Floats
from p3s.methods.placement.drawn import positions
from p3s.methods.placement.phases import all_traffic
from p3s.methods.placement.ranked.job import Job
from p3s.methods.placement.ranked.types import Cable, LinkPicture
from p3s.program.mapping import RankMap

#: More cables than this are a grey area.
MOST_CABLES = 1500


def picture(job: Job, default: RankMap, best: RankMap) -> LinkPicture | None:
    """Return what cables carry under two placements; None where that cannot be drawn."""
    if not job.known:
        return None
    before, after = (_cable_bytes(job, where) for where in (default, best))
    ends = job.fabric.cables()
    kept = np.flatnonzero((before + after > 0) & (ends[:, 0] != ends[:, 1]))
    if not 0 < len(kept) <= MOST_CABLES:
        return None
    used, place = np.unique(ends[kept], return_inverse=True)
    pairs = place.reshape(-1, 2)
    points = positions(job.fabric)[used]
    cables = zip(pairs.tolist(), before[kept].tolist(), after[kept].tolist(), strict=True)
    return LinkPicture(
        default=default.kind,
        nodes=int((used < job.fabric.nodes).sum()),
        points=tuple((round(x, 4), round(y, 4)) for x, y in points.tolist()),
        cables=tuple(Cable(first, second, a, b) for (first, second), a, b in cables),
    )


def _cable_bytes(job: Job, where: RankMap) -> Floats:
    """Return the bytes of all phases on each cable, in its busier direction."""
    loads = job.loads(all_traffic(job.phases, job.n), where)
    return np.asarray(loads.reshape(-1, 2).max(axis=1), dtype=np.float64)
