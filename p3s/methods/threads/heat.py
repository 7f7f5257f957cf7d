"""Times over processes and threads as a picture: rows processes, columns threads, dark is slow."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from p3s.base.text import plural
from p3s.report.charts.draw import Svg

LEFT, TOP, WIDE, HIGH = 84.0, 34.0, 84.0, 26.0
LEVELS = 6
#: Key of a field: processes and threads.
Field = tuple[int, int]


def heat_chart(
    values: Mapping[Field, float],
    texts: Mapping[Field, str],
    label: str,
    best: Sequence[Field] = (),
) -> str:
    """Return the fields that have a value, shaded by its logarithm; best: fields with a frame.

    Empty where there are none.
    """
    if not values:
        return ""
    rows, columns = ({key[k] for key in values} for k in (0, 1))
    down, across = sorted(rows), sorted(columns)
    svg = Svg(LEFT + WIDE * len(across) + 8, TOP + HIGH * len(down) + 26, label)
    low, high = min(values.values()), max(values.values())
    for j, threads in enumerate(across):
        svg.text(LEFT + WIDE * (j + 0.5), TOP - 10, plural(threads, "thread"), anchor="middle")
    for i, n in enumerate(down):
        svg.text(LEFT - 8, TOP + HIGH * (i + 0.5) + 4, f"{n:,}", anchor="end")
        for j, threads in enumerate(across):
            if (n, threads) in values:
                _field(svg, i, j, level_of(values[n, threads], low, high), texts[n, threads])
    for n, threads in best:
        x, y = LEFT + WIDE * across.index(threads), TOP + HIGH * down.index(n)
        svg.path([f"M{x + 1} {y + 1}h{WIDE - 2}v{HIGH - 2}h-{WIDE - 2}z"], "frame")
    svg.text(LEFT - 8, TOP - 10, "processes", "note", "end")
    return svg.markup()


def _field(svg: Svg, i: int, j: int, level: int, text: str) -> None:
    x, y = LEFT + WIDE * j, TOP + HIGH * i
    svg.rect(x, y, WIDE, HIGH, f"cell m-{level}")
    svg.text(x + WIDE / 2, y + HIGH / 2 + 4, text, "deep" if level > 3 else "plain", "middle")


def level_of(value: float, low: float, high: float) -> int:
    """Return the shade of a value: 1 for the least to LEVELS for the most, by its logarithm."""
    if not 0 < low < high:
        return 1
    share = math.log(max(value, low) / low) / math.log(high / low)
    return 1 + min(int(LEVELS * share), LEVELS - 1)
