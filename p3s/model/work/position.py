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
    from scipy.interpolate import PchipInterpolator  # a quarter of a second, only where it is used

    known = np.concatenate([[0.0], np.cumsum(values) / values.sum()])
    share = PchipInterpolator(np.linspace(0.0, 1.0, len(known)), known)
    return np.asarray(np.diff(share(np.linspace(0.0, 1.0, blocks + 1))) * blocks)
