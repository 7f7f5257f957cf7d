"""What a law is made of, in numbers with intervals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

import numpy as np

from p3s.machine.topology.units import Floats
from p3s.methods.threads import columns
from p3s.methods.threads.sampler import State
from p3s.methods.threads.types import Part

SHARE, THREADS, RATIO = "share", "threads", "ratio"
#: Shapes that people understand, with their units.
_SHAPES = {
    "memory": RATIO,
    "fill": THREADS,
    "smt": RATIO,
    "clock": RATIO,
    "remote": RATIO,
    "sockets": RATIO,
}
#: The runs tell a number where it is known to this part of what is usual, a share where it is
#: known to this part of itself or is at most so large.
_NARROWER, _KNOWN, _SMALL = 0.5, 0.5, 0.02


def parts_of(state: State, design: Floats) -> tuple[Part, ...]:
    """Return the parts of a law; design: (draws, columns) at the use that shares are of."""
    return tuple(_parts(state, design))


def _parts(state: State, design: Floats) -> Iterator[Part]:
    share = state.coefficient * design
    share /= share.sum(axis=1, keepdims=True)
    for k, name in enumerate(columns.NAMES):
        low, value, high = _ends(share[:, k])
        seen = high - low < _KNOWN * value or high < _SMALL
        yield Part(name, SHARE, value, low, high, seen)
    for k, each in enumerate(fields(columns.Shapes)):
        if each.name in _SHAPES:
            least, _, most = _ends(state.cube[:, k])
            low, value, high = _ends(getattr(state.shapes, each.name))
            seen = most - least < _NARROWER
            yield Part(each.name, _SHAPES[each.name], value, low, high, seen)


def _ends(draws: Floats) -> tuple[float, float, float]:
    low, middle, high = np.quantile(draws, [0.05, 0.5, 0.95])
    return float(low), float(middle), float(high)
