"""Scales of charts: values to places, and where the ticks are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Linear:
    """Maps low to start and high to stop."""

    low: float
    high: float
    start: float
    stop: float

    def __call__(self, value: float) -> float:
        """Return the place of a value, at most a little beside the ends."""
        span = self.high - self.low
        share = (value - self.low) / span if span > 0 else 0.5
        return self.start + min(max(share, -0.02), 1.02) * (self.stop - self.start)

    def ticks(self, most: int = 6) -> list[float]:
        """Return round values between the ends, at most that many."""
        step = nice_step((self.high - self.low) / max(most - 1, 1))
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [k * step for k in range(first, last + 1)]


@dataclass(frozen=True)
class Log:
    """Maps values above zero by their logarithm; others are at the start."""

    low: float
    high: float
    start: float
    stop: float

    def __call__(self, value: float) -> float:
        """Return the place of a value, inside of the ends."""
        span = math.log2(self.high / self.low)
        share = math.log2(max(value, self.low) / self.low) / span if span > 0 else 0.5
        return self.start + min(max(share, 0.0), 1.0) * (self.stop - self.start)

    def powers(self, base: int = 2, most: int = 9) -> list[float]:
        """Return powers of ``base`` between the ends, at most that many."""
        first = math.ceil(math.log(self.low, base) - 1e-9)
        last = math.floor(math.log(self.high, base) + 1e-9)
        step = max(1, math.ceil((last - first) / max(most - 1, 1)))
        return [float(base) ** k for k in range(first, last + 1, step)]


def times_label(value: float) -> str:
    """Return a power of an axis of speedups: 0.25x, 16x, 1,024x."""
    return f"{value:,.0f}x" if value >= 1 else f"{value:.3g}x"


def nice_step(least: float) -> float:
    """Return the smallest of 1, 2, 2.5, 5 times a power of ten that is not below ``least``."""
    if least <= 0 or not math.isfinite(least):
        return 1.0
    power = 10.0 ** math.floor(math.log10(least))
    for factor in (1.0, 2.0, 2.5, 5.0, 10.0):
        if factor * power >= least * (1 - 1e-9):
            return factor * power
    return 10.0 * power


def nice_top(value: float, most: int = 6) -> float:
    """Return the end of an axis that starts at zero and holds a value."""
    if value <= 0:
        return 1.0
    step = nice_step(value / max(most - 1, 1))
    return step * math.ceil(value / step - 1e-9)


def log_ends(
    values: Sequence[float], base: float = 2.0, decades: float = 16.0
) -> tuple[float, float]:
    """Return powers of ``base`` around all values above zero, at most 2**decades apart."""
    some = [value for value in values if value > 0 and math.isfinite(value)]
    if not some:
        return 1.0, base
    high = max(some)
    low = max(min(some), high / 2.0**decades)  # a value near zero must not flatten the rest
    low = base ** math.floor(math.log(low, base) + 1e-9)
    high = base ** math.ceil(math.log(high, base) - 1e-9)
    return (low, high) if high > low else (low / base, high * base)


def spaced(
    places: Sequence[float], texts: Sequence[str], gap: float = 8.0, letter: float = 6.6
) -> list[bool]:
    """Tell which labels have room beside each other; the last one always stays."""
    keep = [False] * len(places)
    if not places:
        return keep
    keep[-1] = True
    border = places[-1] - len(texts[-1]) * letter / 2 - gap
    left = -math.inf
    for k in range(len(places) - 1):
        half = len(texts[k]) * letter / 2
        if places[k] - half >= left and places[k] + half <= border:
            keep[k] = True
            left = places[k] + half + gap
    return keep
