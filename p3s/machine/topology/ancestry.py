"""Switches of a tree above each other: chains from the root, links between two, what is below."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from p3s.base.arrays import Bools, Ints
from p3s.base.errors import P3SError

#: Switches above one another, at most: fat trees that are built have up to five levels. Tables of
#: a tree have this many columns at most, so that they grow with its switches, not their square.
MAX_LEVELS = 64


def chains(source: str, up: Ints, names: Sequence[str], most: int = MAX_LEVELS) -> Ints:
    """Return for each switch the switches from its root to itself, -1 behind it.

    ``up``: the switch above each, -1 above a root. Shape (switches, levels). Errors: P3SError for
    switches in a circle, and for more than ``most`` levels.
    """
    if not len(up):
        return np.zeros((0, 1), dtype=np.int64)
    _check_circle(source, up, names)
    steps = [np.arange(len(up), dtype=np.int64)]
    while (steps[-1] >= 0).any():
        if len(steps) > most:
            raise P3SError(
                f"{source}: more than {most} switches are above one another; leave out those "
                "that join only one switch"
            )
        last = steps[-1]
        steps.append(np.where(last >= 0, up[np.maximum(last, 0)], -1))
    table = np.stack(steps[:-1], axis=1)[:, ::-1]
    order = np.argsort(table < 0, axis=1, kind="stable")
    return np.asarray(np.take_along_axis(table, order, axis=1), dtype=np.int64)


def _check_circle(source: str, up: Ints, names: Sequence[str]) -> None:
    """Raise P3SError where a switch is above itself."""
    above = up
    for _ in range(len(up).bit_length()):  # doubles how far above each time
        above = np.where(above >= 0, above[np.maximum(above, 0)], -1)
    if (above >= 0).any():
        name = names[int(np.argmax(above >= 0))]
        raise P3SError(f"{source}: the switches above {name} go round in a circle")


def common(first: Ints, second: Ints) -> Bools:
    """Return which switches of two chains, or of chains row by row, are above both."""
    return np.logical_and.accumulate((first == second) & (first >= 0), axis=-1)


def links_between(chain: Ints, first: int, second: int) -> list[int]:
    """Return the switches of which the links upwards are between two switches, ascending."""
    both = common(chain[first], chain[second])
    return sorted(int(s) for side in (first, second) for s in chain[side][~both] if s >= 0)


def hops(chain: Ints, first: Ints, second: Ints) -> Ints:
    """Return the switches on the way from each of some to each of others, both included.

    Shape (first, second); 1 for the same one. Trees that are not joined: as if one more switch
    stood above them all.
    """
    levels = (chain >= 0).sum(axis=1)
    found = (levels[first][:, None] + levels[second][None, :] + 1).astype(np.int64)
    alike = np.ones(found.shape, dtype=bool)
    for level in range(chain.shape[1]):
        a, b = chain[first, level][:, None], chain[second, level][None, :]
        alike &= (a == b) & (a >= 0)
        found -= 2 * alike
    return np.asarray(found, dtype=np.int64)


def heights(chain: Ints) -> Ints:
    """Return how many switches are below each at most, one under the other."""
    levels = (chain >= 0).sum(axis=1)
    found = np.zeros(len(chain), dtype=np.int64)
    for level in range(chain.shape[1]):
        here = chain[:, level] >= 0
        np.maximum.at(found, chain[here, level], levels[here] - 1 - level)
    return found
