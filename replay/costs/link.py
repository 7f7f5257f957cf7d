"""Rate and burst of a node's link, from floods of messages between two nodes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from p3s.base.arrays import Floats
from p3s.base.text import plural

#: A link is a token bucket only where it slows the flood down by this much after its burst.
_KNEE = 1.25
#: So much of what k senders could do alone may be missing before they share something.
SHARED = 0.8
#: Messages that come closer together than this share of the mean distance are a bunch.
_BUNCH = 0.5
#: A burst that is not more than this many of the first messages is none.
_FIRST = 1.5
#: Percentile of what has passed beyond the rate that is the burst.
_BEST = 85
#: Fewest messages that a line is put through.
_FEWEST = 4


@dataclass(frozen=True)
class Flood:
    """One flood: ``senders`` processes of a node send; after ``sent`` bytes, ``ns`` had passed.

    Both ascend; times of several passes are reduced to their median before. ``first``: bytes and
    arrival of the first message, which nothing held up (default: the first of each).
    """

    senders: int
    sent: Floats
    ns: Floats
    first: tuple[float, float] | None = None

    @property
    def start(self) -> tuple[float, float]:
        """Bytes of the first message, and when it had arrived."""
        return (float(self.sent[0]), float(self.ns[0])) if self.first is None else self.first


@dataclass(frozen=True)
class Link:
    """A node's link: bytes per ns (inf: no limit found), bytes that pass at once after a pause.

    ``residual``: median distance of the measured times from the fitted ones, relative to the
    duration of the flood; ``low`` and ``high`` bound the rate; ``why`` tells what it rests on.
    """

    rate: float
    burst: float
    residual: float
    low: float
    high: float
    why: str


NO_LINK = Link(math.inf, 0.0, 0.0, math.inf, math.inf, "no flood was measured: no limit")


def fit_link(floods: Sequence[Flood]) -> Link:
    """Return the link that explains the floods.

    One flood: a token bucket where it becomes slower after a while, else its steady rate. Where
    more senders carry as much more, nothing that they share limits them: rate inf.
    """
    usable = [corners(f) for f in floods if len(f.sent) >= _FEWEST and f.ns[-1] > f.ns[0]]
    if not usable:
        return NO_LINK
    most = max(usable, key=lambda f: f.senders)
    fewest = min(usable, key=lambda f: f.senders)
    best = _bucket(most)
    if most.senders > fewest.senders:
        alone = _bucket(fewest)
        if best.rate >= SHARED * alone.rate * most.senders / fewest.senders:
            return Link(
                math.inf,
                0.0,
                best.residual,
                math.inf,
                math.inf,
                f"no limit found: {most.senders} senders carry "
                f"{best.rate / alone.rate:.1f} times as much as {fewest.senders}",
            )
        if _close(alone, best):  # one after the other is the better ordered flood
            return alone
    return best


def corners(flood: Flood) -> Flood:
    """Return the last message of each bunch that arrives together: so much has passed by then."""
    gap = np.append(np.diff(flood.ns), math.inf)
    last = gap > _BUNCH * (flood.ns[-1] - flood.ns[0]) / (len(flood.ns) - 1)
    return Flood(flood.senders, flood.sent[last], flood.ns[last], flood.start)


def _close(one: Link, other: Link) -> bool:
    return abs(one.rate - other.rate) <= 0.1 * other.rate


def _bucket(flood: Flood) -> Link:
    """Return the token bucket through one flood: t = a + c B up to the knee, then (B - b) / r.

    The knee is where two straight lines leave the smallest squares; the steady part is at least
    half of the flood, as a few late messages are no rate.
    """
    sent, ns = np.asarray(flood.sent, np.float64), np.asarray(flood.ns, np.float64)
    count = len(sent)
    whole = np.polyfit(sent, ns, 1)
    best: tuple[float, int, Floats, Floats] | None = None
    for knee in range(2, min(count // 2, count - _FEWEST) + 1):
        first, second = (np.polyfit(sent[of], ns[of], 1) for of in (slice(knee), slice(knee, None)))
        square = _squares(sent[:knee], ns[:knee], first) + _squares(sent[knee:], ns[knee:], second)
        if best is None or square < best[0]:
            best = (square, knee, first, second)
    if best is None or best[3][0] <= _KNEE * max(best[2][0], 0.0):
        # A constant rate from the first byte on: the last part is the steady one.
        lines, knee, tail, kind = (whole, whole), 0, count // 4, "steady rate of"
    else:
        lines, knee, tail, kind = best[2:], best[1], best[1], "token bucket through"
    rate = 1.0 / max(float(lines[1][0]), 1e-12)
    low, high = _slopes(sent[tail:], ns[tail:])
    return Link(
        rate,
        _burst(flood, rate, knee),
        _residual(sent, ns, lines, knee),
        1.0 / max(high, 1e-12),
        1.0 / max(low, 1e-12),
        f"{kind} a flood of {plural(flood.senders, 'sender')}",
    )


def _burst(flood: Flood, rate: float, knee: int) -> float:
    """Return what has passed beyond the rate, by the arrivals from ``knee`` on; 0: nothing.

    A message counts when all of it is there, and so less than what the link has passed: of the
    arrivals, nearly the best tells.
    """
    beyond = flood.sent[knee:] - rate * (flood.ns[knee:] - flood.start[1])
    burst = float(np.percentile(beyond, _BEST))
    return burst if burst > _FIRST * flood.start[0] else 0.0


def _squares(x: Floats, y: Floats, line: Floats) -> float:
    return float(((y - np.polyval(line, x)) ** 2).sum())


def _slopes(x: Floats, y: Floats) -> tuple[float, float]:
    """Return the quartiles of the slopes between points half the range apart."""
    half = max(len(x) // 2, 1)
    if len(x) <= half:
        return (0.0, math.inf)
    slopes = (y[half:] - y[:-half]) / (x[half:] - x[:-half])
    return float(np.percentile(slopes, 25)), float(np.percentile(slopes, 75))


def _residual(x: Floats, y: Floats, lines: Sequence[Floats], knee: int) -> float:
    fitted = np.concatenate([np.polyval(lines[0], x[:knee]), np.polyval(lines[1], x[knee:])])
    return float(np.median(np.abs(y - fitted)) / max(float(y[-1]), 1e-12))
