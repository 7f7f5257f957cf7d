"""How work is spread over the domain: ratios of ranks that belong to their place in the grid.

Particles that are denser on one side, a sweep whose cells are dearer near a wall: what a block has
to do is how much lies in its part of the domain. Along each dimension that is a cumulative share,
known at the borders of the traced blocks and monotone between them (Fritsch and Carlson, "Monotone
piecewise cubic interpolation", 1980); dimensions multiply.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from p3s.model.grid.guards import GridAt


def marginals(grid: GridAt, ratio: np.ndarray) -> tuple[tuple[float, ...], ...]:
    """Return the mean ratio of the blocks at each place of every dimension; ratio: of all ranks."""
    out = []
    for d, p in enumerate(grid.dims):
        at = grid.coords[d]
        sums = np.bincount(at, weights=ratio, minlength=p)
        out.append(tuple((sums / np.maximum(np.bincount(at, minlength=p), 1)).tolist()))
    return tuple(out)


def at_position(
    along: Sequence[Sequence[float]], grid: GridAt, ranks: np.ndarray
) -> np.ndarray | None:
    """Return the ratios of ranks to their mean; None on a grid of other dimensions, or not of all.

    along: of ``marginals``, at any count.
    """
    if len(along) != len(grid.dims) or not grid.inside.all():
        return None
    every = np.ones(grid.n)
    for d, (values, p) in enumerate(zip(along, grid.dims, strict=True)):
        every *= _shares(np.asarray(values, dtype=float), p)[grid.coords[d]]
    return np.asarray(every[ranks] / every.mean())


def _shares(values: np.ndarray, blocks: int) -> np.ndarray:
    """Return the ratios of so many blocks along a dimension whose traced blocks have ``values``."""
    if len(values) == 1 or not values.sum() > 0:
        return np.ones(blocks)
    known = np.concatenate([[0.0], np.cumsum(values) / values.sum()])
    share = _monotone(known, np.linspace(0.0, len(values), blocks + 1))
    return np.asarray(np.diff(share) * blocks)


def _monotone(known: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Return what cubics between the values at 0, 1, 2, ..., which never fall, are at other places.

    Slopes as those of ``scipy.interpolate.PchipInterpolator``, which takes a quarter of a second to
    import: harmonic means inside, at the ends of a parabola through three values.
    """
    rise = np.diff(known)
    slope = np.empty(len(known))
    both = rise[:-1] + rise[1:]
    slope[1:-1] = 2.0 * rise[:-1] * rise[1:] / np.where(both > 0, both, 1.0)
    for end, inner in ((0, 1), (-1, -2)):
        slope[end] = max(1.5 * rise[end] - 0.5 * rise[inner], 0.0)
    k = np.minimum(at.astype(np.int64), len(rise) - 1)
    t = at - k
    off = slope[k] - rise[k], slope[k + 1] - rise[k]
    return np.asarray(known[k] + t * (rise[k] + (1 - t) * ((1 - t) * off[0] - t * off[1])))
