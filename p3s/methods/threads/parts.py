"""What a law is made of, in numbers with intervals and in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

import numpy as np

from p3s.base.text import figures, percent
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
_WORDS = {
    "parallel": "in parallel",
    "balance": "waiting for the slowest thread",
    "ranks": "waiting for the slowest rank",
    "serial": "serial, as the work",
    "fixed": "serial, whatever the work",
    "fork": "forking regions",
    "team": "regions, more with threads",
    "memory": "waiting for memory over computing, one thread",
    "fill": "threads that fill a memory domain's bandwidth",
    "smt": "what a second thread on a core adds to its time",
    "clock": "what clocks lose when all cores compute",
    "remote": "more waiting for another memory domain",
    "sockets": "more waiting for another socket",
}


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


def lines(parts: tuple[Part, ...]) -> list[str]:
    """Return a line for each part that matters."""
    return [_line(each) for each in parts if each.unit != SHARE or each.high >= _SMALL]


def _line(part: Part) -> str:
    say = percent if part.unit == SHARE else figures
    told = f"{_WORDS[part.name]}: {say(part.value)} ({say(part.low)} to {say(part.high)})"
    return told if part.seen else f"{told}, not told by the runs"
