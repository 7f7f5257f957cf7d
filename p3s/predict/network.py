"""What messages cost, for the dependency simulation: curves over bytes, and links with a queue."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """A cost in ns over bytes: straight lines between points.

    ``nbytes``: ascending; ``ns``: the cost there. Below the first point the first cost, beyond
    the last one along the line through the last two points, never falling.
    """

    nbytes: tuple[float, ...]
    ns: tuple[float, ...]

    def at(self, nbytes: npt.ArrayLike) -> Floats:
        """Return the cost of messages of these sizes."""
        x, y = np.asarray(self.nbytes), np.asarray(self.ns)
        wanted = np.asarray(nbytes, dtype=np.float64)
        found = np.interp(wanted, x, y)
        if len(x) > 1:
            slope = max((y[-1] - y[-2]) / (x[-1] - x[-2]), 0.0)
            found = np.where(wanted > x[-1], y[-1] + slope * (wanted - x[-1]), found)
        return np.asarray(found, dtype=np.float64)


@dataclass(frozen=True)
class Path:
    """Messages over one distance.

    ``transfer``: from the later of the two starts until the receiver has all of it, where nothing
    else is on the way. ``send``: how long the sender's call takes for itself; ``receive``: how
    long the call takes that receives a message that is there already. Messages of more than
    ``eager_bytes`` wait for their receive to be posted, and their sender until they have gone.
    ``linked``: they pass the links of both nodes.
    """

    transfer: Curve
    send: Curve
    receive: Curve
    eager_bytes: float
    linked: bool


@dataclass(frozen=True)
class Network:
    """What messages cost on a cluster of nodes with one link each.

    ``paths``: by distance (0: inside a node). ``rate``: bytes per ns that a node's link carries in
    each direction, inf where it is no limit; ``burst``: bytes that pass at once after a pause.
    ``post``: ns of a call that starts a request or completes one that is complete.
    ``reduce``: ns per byte of the arithmetic of a reduction. ``source``: what it was made from.
    """

    paths: dict[int, Path]
    rate: float = math.inf
    burst: float = 0.0
    post: float = 0.0
    reduce: float = 0.0
    source: str = ""
    detail: dict[str, float] = field(default_factory=dict)

    def path(self, distance: int) -> Path:
        """Return the path of a distance; of the nearest one that is known where it is not."""
        return self.paths[min(self.paths, key=lambda known: (abs(known - distance), known))]
