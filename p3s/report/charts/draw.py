"""SVG as text, scales of charts, and hatching of intervals that are not to be trusted."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape

from p3s.base.text import seconds
from p3s.report.counts import Point

Pairs = Sequence[tuple[float, float]]
#: Widths of a letter at the size of labels, for boxes around texts.
LETTER = 6.6
#: Height of a line of a warning.
LINE = 18.0


def coord(value: float) -> str:
    """Return a coordinate as text."""
    text = f"{value:.1f}"
    return text[:-2] if text.endswith(".0") else text


class Svg:
    """An SVG picture that is written from back to front; ``label`` is what it shows.

    ``above``: lines of a warning that stand above the picture, which is as high as without.
    """

    def __init__(
        self,
        width: float,
        height: float,
        label: str,
        kind: str = "chart",
        above: Sequence[str] = (),
    ) -> None:
        self.width, self.height = width, height
        top = LINE * len(above)
        self.parts = [
            f'<svg class="{kind}" viewBox="0 {coord(-top)} {coord(width)} {coord(height + top)}" '
            f'role="img" aria-label="{escape(label)}">'
        ]
        for k, line in enumerate(above):
            self.text(4.0, LINE * (k + 0.75) - top, line, "warning")

    def markup(self) -> str:
        """Return the whole picture."""
        return "".join([*self.parts, "</svg>"])

    def group(self, kind: str, title: str = "") -> None:
        """Open a group; ``title`` is what shows when the pointer rests on it."""
        self.parts.append(f'<g class="{kind}">{_title(title)}')

    def end(self) -> None:
        """Close a group."""
        self.parts.append("</g>")

    def line(self, start: tuple[float, float], stop: tuple[float, float], kind: str) -> None:
        """Draw a straight line."""
        (x1, y1), (x2, y2) = start, stop
        self.parts.append(
            f'<line class="{kind}" x1="{coord(x1)}" y1="{coord(y1)}" '
            f'x2="{coord(x2)}" y2="{coord(y2)}"/>'
        )

    def rect(
        self, x: float, y: float, width: float, height: float, kind: str, title: str = ""
    ) -> None:
        """Draw a rectangle; one without an area is left out."""
        if width <= 0 or height <= 0:
            return
        head = (
            f'<rect class="{kind}" x="{coord(x)}" y="{coord(y)}" width="{coord(max(width, 0.1))}" '
            f'height="{coord(max(height, 0.1))}"'
        )
        self.parts.append(f"{head}>{_title(title)}</rect>" if title else f"{head}/>")

    def circle(self, x: float, y: float, radius: float, kind: str, title: str = "") -> None:
        """Draw a circle."""
        head = f'<circle class="{kind}" cx="{coord(x)}" cy="{coord(y)}" r="{coord(radius)}"'
        self.parts.append(f"{head}>{_title(title)}</circle>" if title else f"{head}/>")

    def polyline(self, pairs: Pairs, kind: str) -> None:
        """Draw lines from point to point."""
        if len(pairs) > 1:
            self.parts.append(f'<polyline class="{kind}" points="{_points(pairs)}"/>')

    def polygon(self, pairs: Pairs, kind: str) -> None:
        """Draw a filled area."""
        if len(pairs) > 2:
            self.parts.append(f'<polygon class="{kind}" points="{_points(pairs)}"/>')

    def path(self, steps: Iterable[str], kind: str) -> None:
        """Draw a path from its commands; nothing where there are none."""
        if line := "".join(steps):
            self.parts.append(f'<path class="{kind}" d="{line}"/>')

    def text(self, x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> None:
        """Write a text; ``anchor``: start, middle or end of it is at x."""
        look = f' class="{kind}"' if kind else ""
        side = f' text-anchor="{anchor}"' if anchor != "start" else ""
        self.parts.append(f'<text{look} x="{coord(x)}" y="{coord(y)}"{side}>{escape(words)}</text>')

    def grid(self, ticks: Iterable[tuple[float, str]], left: float, right: float) -> None:
        """Draw lines across, each with its label to the left."""
        for y, label in ticks:
            self.line((left, y), (right, y), "grid")
            self.text(left - 8, y + 4, label, anchor="end")

    def labels(
        self, places: Sequence[float], texts: Sequence[str], y: float, gap: float = 8.0
    ) -> list[float]:
        """Write texts below places, those that have room; return the places that have one."""
        shown = zip(places, texts, fit_labels(places, texts, gap), strict=True)
        kept = [(x, text) for x, text, keep in shown if keep]
        for x, text in kept:
            self.text(x, y, text, anchor="middle")
        return [x for x, _ in kept]


def _title(text: str) -> str:
    return f"<title>{escape(text)}</title>" if text else ""


def _points(pairs: Pairs) -> str:
    return " ".join(f"{coord(x)},{coord(y)}" for x, y in pairs)


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


def round_time(value: float) -> str:
    """Return a round time without the digits that say that it is exact: there is room for six."""
    number, _, unit = seconds(value).partition(" ")
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number} {unit}"


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


def fit_labels(
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


#: Distance between the lines of a hatching, and the least height of what is hatched.
HATCH_STEP, HATCH_HEIGHT = 7.0, 16.0
#: Ends of the interval around a point of a curve: x, top, bottom, in the units of the picture.
Edge = tuple[float, float, float]


def hatching(edges: Sequence[Edge], step: float = HATCH_STEP) -> list[str]:
    """Return slanted lines between the ends of an interval, as commands of an SVG path.

    Where the ends are close to each other the lines are as long as can be seen. ``edges``: by x,
    ascending; a single one is hatched to both sides.
    """
    if len(edges) == 1:
        x, top, bottom = edges[0]
        edges = [(x - 2 * step, top, bottom), (x + 2 * step, top, bottom)]
    lines = []
    for (x0, top0, low0), (x1, top1, low1) in zip(edges, edges[1:], strict=False):
        for k in range(math.ceil((x1 - x0) / step)):
            share = k * step / (x1 - x0)
            top, low = top0 + share * (top1 - top0), low0 + share * (low1 - low0)
            spare = max(HATCH_HEIGHT - (low - top), 0.0) / 2
            lines.append(
                f"M{x0 + k * step - step / 2:.1f} {low + spare:.1f}"
                f"L{x0 + k * step + step / 2:.1f} {top - spare:.1f}"
            )
    return lines


@dataclass(frozen=True)
class Box:
    """The area of a chart between its axes: left, top, right and bottom end in the picture."""

    left: float
    top: float
    right: float
    bottom: float


class Axes:
    """A chart of values over process counts: its picture, its area, and both scales.

    x: where a count stands; y: the scale of the values.
    """

    def __init__(self, svg: Svg, box: Box, x: Callable[[float], float], y: Linear | Log) -> None:
        """Take a picture, the area of the chart in it, and scales within that."""
        self.svg, self.box, self.x, self.y = svg, box, x, y

    def frame(
        self, ticks: Iterable[tuple[float, str]], counts: Sequence[int], name: bool = True
    ) -> None:
        """Draw grid lines at values with their labels, the counts that have room, and the axis."""
        svg, box = self.svg, self.box
        svg.grid(((self.y(value), label) for value, label in ticks), box.left, box.right)
        places, texts = [self.x(n) for n in counts], [f"{n:,}" for n in counts]
        for place in svg.labels(places, texts, box.bottom + 20):
            svg.line((place, box.bottom), (place, box.bottom + 5), "tick")
        svg.line((box.left, box.bottom), (box.right, box.bottom), "axis")
        if name:
            middle = (box.left + box.right) / 2
            svg.text(middle, svg.height - 6, "processes", "name", "middle")

    def at(self, n: float, value: float) -> tuple[float, float]:
        """Return where a value stands."""
        return self.x(n), self.y(value)

    def line(self, pairs: Iterable[tuple[float, float]], kind: str) -> None:
        """Draw lines from (count, value) to (count, value)."""
        self.svg.polyline([self.at(*pair) for pair in pairs], kind)

    def band(self, ends: Iterable[tuple[float, float, float]], kind: str) -> None:
        """Shade between the ends (count, low, high); those of a single count get a line."""
        found = [(self.at(n, low), self.at(n, high)) for n, low, high in ends]
        if len(found) > 1:
            above, below = [high for _, high in found], [low for low, _ in found[::-1]]
            self.svg.polygon([*above, *below], kind)
        elif found and found[0][0] != found[0][1] and kind.startswith("band"):
            self.svg.line(*found[0], "whisker")

    def hatch(self, points: Sequence[Point]) -> None:
        """Hatch the intervals of points; where one is not known, the point itself."""
        ends = [(p.n, *(p.speedup if v is None else v for v in (p.high, p.low))) for p in points]
        edges = [(self.x(n), self.y(high), self.y(low)) for n, high, low in ends]
        self.svg.path(hatching(edges), "hatch")
