"""Log-log pictures of how time and memory grow, as SVG, with the power of each line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from figures import Point

WIDTH, HEIGHT, LEFT, TOP, BELOW, GAP = 820, 300, 52, 34, 44, 70
COLOURS = ("#2f6fb0", "#c2571a", "#2e8b57", "#8a4fae", "#b03060", "#6b6b00")


def _scale(low: float, high: float, begin: float, end: float, value: float) -> float:
    span = math.log10(high / low) or 1.0
    return begin + (end - begin) * math.log10(value / low) / span


def _decades(low: float, high: float) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    return [10.0**k for k in range(first, max(last, first + 1) + 1)]


def _number(value: float) -> str:
    if value >= 1e6:
        return f"{value / 1e6:,.0f} M"
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def power(points: Sequence[Point], memory: bool) -> float | None:
    """Return the slope of a line's last step: 1 in proportion to the size, 2 with its square.

    What does not grow, such as the start of Python, is least there. None with a single size.
    """
    last = sorted(points, key=lambda p: p.size)[-2:]
    if len(last) < 2 or last[0].size == last[1].size:
        return None
    low, high = ((p.peak_mib if memory else max(p.cpu_s, 1e-3)) for p in last)
    return math.log(high / low) / math.log(last[1].size / last[0].size)


def _named(line: str, points: Sequence[Point], memory: bool) -> str:
    """Return a line's name with its power."""
    found = power(points, memory)
    return line if found is None else f"{line}: {found:.2f}"


def _half(points: Sequence[Point], left: float, title: str, memory: bool) -> list[str]:
    """Return one of the two diagrams: CPU time, or memory, over the size."""
    right, bottom = left + (WIDTH - LEFT - GAP) / 2 - 20, HEIGHT - BELOW
    at = [(p.size, p.peak_mib if memory else max(p.cpu_s, 1e-3)) for p in points]
    across, up = (_decades(min(a), max(a)) for a in zip(*at, strict=True))
    out = [f'<text x="{left}" y="{TOP - 14}" class="t">{escape(title)}</text>']
    for value in across:
        x = _scale(across[0], across[-1], left, right, value)
        out.append(f'<path d="M{x:.1f} {TOP}V{bottom}" class="g"/>')
        out.append(f'<text x="{x:.1f}" y="{bottom + 16}" class="m">{_number(value)}</text>')
    for value in up:
        y = _scale(up[0], up[-1], bottom, TOP, value)
        out.append(f'<path d="M{left} {y:.1f}H{right}" class="g"/>')
        out.append(f'<text x="{left - 6}" y="{y + 4:.1f}" class="e">{_number(value)}</text>')
    for k, line in enumerate(dict.fromkeys(p.line for p in points)):
        colour = COLOURS[k % len(COLOURS)]
        own = [p for p in points if p.line == line]
        places = [
            (
                _scale(across[0], across[-1], left, right, size),
                _scale(up[0], up[-1], bottom, TOP, value),
            )
            for (size, value), p in zip(at, points, strict=True)
            if p.line == line
        ]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        out.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
        x, y = left + 8, HEIGHT + 2 + 14 * k
        named = escape(_named(line, own, memory))
        out.append(f'<text x="{x}" y="{y}" style="fill:{colour}">{named}</text>')
    return out


def picture(points: Sequence[Point], axis: str) -> str:
    """Return how CPU time and peak memory grow along one axis, both logarithmic.

    Below stand the lines with their powers.
    """
    chosen = sorted((p for p in points if p.axis == axis), key=lambda p: (p.line, p.size))
    half = LEFT + (WIDTH - LEFT - GAP) / 2 + GAP
    body = [
        *_half(chosen, LEFT, f"CPU time in s over {axis}", False),
        *_half(chosen, half, f"peak memory in MiB over {axis}", True),
    ]
    height = HEIGHT + 14 * len(dict.fromkeys(p.line for p in chosen))
    style = (
        "text{font:12px sans-serif;fill:#444}.t{font-weight:bold}.m{text-anchor:middle}"
        ".e{text-anchor:end}.g{stroke:#ddd}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img"><title>{escape(f"Growth over {axis}")}'
        f'</title><style>{style}</style><rect width="100%" height="100%" fill="#fff"/>'
        + "".join(body)
        + "</svg>\n"
    )
