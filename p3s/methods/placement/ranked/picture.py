"""What the cables of a network carry under two placements, as a picture shows it."""

from __future__ import annotations

import numpy as np

from p3s.machine.topology.direct import Dragonfly, Torus
from p3s.machine.topology.fabric import Fabric
from p3s.machine.topology.units import Floats, Ints
from p3s.methods.placement.phases import all_traffic
from p3s.methods.placement.ranked.job import Job
from p3s.methods.placement.ranked.types import Cable, LinkPicture
from p3s.program.mapping import RankMap

#: Switches of a group of a dragonfly are on a circle of this radius.
_GROUP = 0.12


def positions(fabric: Fabric) -> Floats:
    """Return where each node, then each switch is: x to the right, y downwards, both 0 to 1.

    A torus or mesh is a plane, or planes side by side, a dragonfly a circle of circles; others have
    their switches in rows, those farther from the nodes above.
    """
    if isinstance(fabric, Torus):
        place = _torus(fabric)
        return np.concatenate([place, place])
    if isinstance(fabric, Dragonfly):
        return _dragonfly(fabric)
    return _rows(fabric)


def _torus(fabric: Torus) -> Floats:
    sides = np.stack(np.unravel_index(np.arange(fabric.nodes), fabric.dims[::-1]))[::-1]
    place = np.zeros((fabric.nodes, 2))
    width = [1, 1]
    for d, side in enumerate(sides):
        place[:, d % 2] += side * width[d % 2]
        width[d % 2] = width[d % 2] * fabric.dims[d] + 1
    return _unit(place)


def _dragonfly(fabric: Dragonfly) -> Floats:
    groups, each, _, _ = fabric.shape
    group, place = np.divmod(np.arange(fabric.switches), each)
    outer, inner = 2 * np.pi * group / groups, 2 * np.pi * place / each
    switches = 0.5 + (0.5 - _GROUP) * np.stack([np.cos(outer), np.sin(outer)], axis=1)
    switches += _GROUP * np.stack([np.cos(inner), np.sin(inner)], axis=1) * (each > 1)
    node = fabric.cables()[: fabric.nodes, 1] - fabric.nodes
    return np.concatenate([switches[node], switches])


def _rows(fabric: Fabric) -> Floats:
    """Return rows by how far vertices are from the nodes, evenly spaced in their order."""
    ends = fabric.cables()
    row = _depth(ends, fabric.nodes, fabric.nodes + fabric.switches)
    place = np.zeros((len(row), 2))
    most = max(int(row.max()), 1)
    for level in range(most + 1):
        there = np.flatnonzero(row == level)
        place[there, 0] = (np.arange(len(there)) + 0.5) / max(len(there), 1)
        place[there, 1] = 1 - level / most
    return place


def _depth(ends: Ints, nodes: int, vertices: int) -> Ints:
    """Return how many cables each vertex is from the nearest node; -1: it hangs on nothing."""
    depth = np.full(vertices, -1, dtype=np.int64)
    depth[:nodes] = 0
    level = 0
    while (depth == level).any():
        for a, b in ((0, 1), (1, 0)):
            beyond = ends[depth[ends[:, a]] == level, b]
            depth[beyond[depth[beyond] < 0]] = level + 1
        level += 1
    return depth


def _unit(place: Floats) -> Floats:
    size = np.maximum(place.max(axis=0), 1.0)
    return np.asarray(place / size.max(), dtype=np.float64)


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
