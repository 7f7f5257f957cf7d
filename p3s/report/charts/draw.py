"""SVG as text: every number with one decimal, every text escaped, looks by class only.

A page with a strict content security policy allows no style attributes: the style sheet of the
page gives all colours, so that a chart follows its theme.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

Pairs = Sequence[tuple[float, float]]
#: Widths of a letter at the size of labels, for boxes around texts.
LETTER = 6.6
#: Height of a line of a warning.
LINE = 18.0


def at(value: float) -> str:
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
            f'<svg class="{kind}" viewBox="0 {at(-top)} {at(width)} {at(height + top)}" '
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
            f'<line class="{kind}" x1="{at(x1)}" y1="{at(y1)}" x2="{at(x2)}" y2="{at(y2)}"/>'
        )

    def rect(
        self, x: float, y: float, width: float, height: float, kind: str, title: str = ""
    ) -> None:
        """Draw a rectangle; one without an area is left out."""
        if width <= 0 or height <= 0:
            return
        head = (
            f'<rect class="{kind}" x="{at(x)}" y="{at(y)}" width="{at(max(width, 0.1))}" '
            f'height="{at(max(height, 0.1))}"'
        )
        self.parts.append(f"{head}>{_title(title)}</rect>" if title else f"{head}/>")

    def circle(self, x: float, y: float, radius: float, kind: str, title: str = "") -> None:
        """Draw a circle."""
        head = f'<circle class="{kind}" cx="{at(x)}" cy="{at(y)}" r="{at(radius)}"'
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
        self.parts.append(f'<text{look} x="{at(x)}" y="{at(y)}"{side}>{escape(words)}</text>')

    def tip(self, x: float, y: float, texts: Sequence[str], left: float, right: float) -> None:
        """Write a box of texts beside a place, inside of two borders; the page hides it at first.

        The first text is its head.
        """
        wide = max(map(len, texts)) * LETTER + 18
        high = 17 * len(texts) + 11
        x0 = x + 12 if x + 12 + wide <= right else x - 12 - wide
        x0 = max(min(x0, right - wide), left)
        y0 = min(max(y - high / 2, 2), self.height - high - 2)
        self.group("tip")
        self.parts.append(
            f'<rect class="tipbox" x="{at(x0)}" y="{at(y0)}" width="{at(wide)}" '
            f'height="{at(high)}" rx="5"/>'
        )
        for k, line in enumerate(texts):
            self.text(x0 + 9, y0 + 18 + 17 * k, line, "tiphead" if k == 0 else "tiptext")
        self.end()


def _title(text: str) -> str:
    return f"<title>{escape(text)}</title>" if text else ""


def _points(pairs: Pairs) -> str:
    return " ".join(f"{at(x)},{at(y)}" for x, y in pairs)
