"""Text of 100 columns: paragraphs that hang, and tables whose cells are wrapped."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from itertools import zip_longest

from p3s.base.text import aligned, paragraph, text_width

WIDTH = 100
#: No column of a table is made narrower.
_NARROWEST = 12


def hanging(by: int, *texts: str) -> list[str]:
    """Return texts as lines, each indented by columns, what follows its first line by two more."""
    return [line for text in texts for line in paragraph(text, by, by + 2)]


def named(name: str, text: str) -> list[str]:
    """Return a line that begins with its name, what follows below it."""
    return paragraph(f"{name:<13}{text}", 2, 17)


def squeezed(head: Sequence[str], rows: Sequence[Sequence[str]], by: int) -> list[int]:
    """Return the widths of columns, taken from the widest until a row fits behind ``by``."""
    wide = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    room = WIDTH - by - 2 * (len(wide) - 1)
    while sum(wide) > room and max(wide) > _NARROWEST:
        wide[wide.index(max(wide))] -= 1
    return wide


def wrapped_row(
    row: Sequence[str], wide: Sequence[int], by: int, left: Collection[int]
) -> list[str]:
    """Return a row of a table, on more lines where a cell is wider than its column."""
    parts = [wrapped(cell, size) for cell, size in zip(row, wide, strict=True)]
    lines = list(zip_longest(*parts, fillvalue=""))
    return aligned(lines, left, indent=" " * by, widths=wide)


def wrapped_table(head: Sequence[str], rows: Sequence[Sequence[str]], by: int) -> list[str]:
    """Lay out a table: numbers to the right, columns with words to the left."""
    if not rows:
        return []
    words = [i for i in range(len(head)) if any(any(c.isalpha() for c in row[i]) for row in rows)]
    wide = squeezed(head, rows, by)
    return [line for row in [head, *rows] for line in wrapped_row(row, wide, by, words)]


def long_equation(line: str, by: int) -> list[str]:
    """Return an equation of its own, indented; broken as in a cell."""
    first, *rest = wrapped(line, text_width() - by - 4)
    return [" " * by + first, *(" " * (by + 4) + each for each in rest)]


def wrapped(cell: str, size: int) -> list[str]:
    """Return a cell in lines of ``size``, broken at spaces and after signs of multiplication.

    A name that is longer than a line is broken before its last part that does not fit.
    """
    lines = [""]
    for word in re.findall(r"\s+|(?:[^\s*]|\*\*)+\*?|\*", cell):
        while len(lines[-1]) + len(word) > size:
            if lines[-1]:
                lines[-1] = lines[-1].rstrip()
                lines.append("")
                word = word.lstrip()
            else:
                part = word.rfind("_", 1, size + 1) if word.isidentifier() else -1
                cut = part if part > 0 else size
                lines[-1], word = word[:cut], word[cut:]
                lines.append("")
        lines[-1] += word
    return lines
