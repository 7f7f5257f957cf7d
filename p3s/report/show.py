"""One way to show: what a report tells is parts with texts, tables and charts.

A terminal shows them as lines (:func:`show`), a page by the macros of its templates.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, TypeVar

from p3s.base.text import align_columns, paragraph
from p3s.predict.types import Reason

R = TypeVar("R")
#: Columns of a terminal that tables take; none of a table is made narrower than the other number.
WIDTH, _NARROWEST = 100, 12
#: Reasons of a kind that a terminal has.
MAX_REASONS = 12
#: Columns of a table by name: the text of a cell from a record.
Columns = Mapping[str, Callable[[R], object]]


class Cell(str):
    """A text of a table; ``kind``: class of the cell on a page, ``tag``: that of a label in it."""

    kind: str
    tag: str

    def __new__(cls, text: str, kind: str = "", tag: str = "") -> Cell:
        """Return the text with its looks."""
        cell = super().__new__(cls, text)
        cell.kind, cell.tag = kind, tag
        return cell


@dataclass(frozen=True)
class Curve:
    """Run times by another method, drawn behind the predicted curve; empty: nothing to draw.

    counts: ascending, with low, mid, high in seconds at each. ``sentences``: below the chart.
    """

    legend: str
    counts: Sequence[int]
    low: Sequence[float]
    mid: Sequence[float]
    high: Sequence[float]
    sentences: Sequence[str]


@dataclass(frozen=True)
class PartTable:
    """A table of texts; ``lead``: a sentence above it, ``left``: columns with words.

    below: texts below each row of a terminal. kind: class of the table on a page; row_kinds: of its
    rows, none where empty.
    """

    label: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    lead: str = ""
    left: Collection[int] = (0,)
    kind: str = ""
    row_kinds: Sequence[str] = ()
    below: Sequence[Sequence[str]] = ()


@dataclass(frozen=True)
class Part:
    """A part of the page, and ``lines`` of the terminal; without a heading it has a curve alone.

    ``charts``: caption, what is drawn, and what returns the SVG of each. ``notes``: what is to be
    kept in mind.
    """

    name: str
    heading: str = ""
    lead: str = ""
    tables: Sequence[PartTable] = ()
    charts: Sequence[tuple[str, str, Callable[[], str]]] = ()
    notes: Sequence[str] = ()
    curve: Curve | None = None
    lines: Sequence[str] = ()


@dataclass(frozen=True)
class Page:
    """A page that is a verdict above parts.

    against: why it is not to be trusted, warning: the same in few words; mind: what is to be minded
    besides.
    """

    title: str
    command: str
    sentences: Sequence[str]
    warning: str
    against: Sequence[Reason]
    mind: Sequence[Reason]
    parts: Sequence[Part]


def table_of(
    label: str, columns: Columns[R], records: Iterable[R], left: Collection[int] = (0,)
) -> PartTable:
    """Return a table with a row for each record."""
    cells = columns.values()
    rows = [
        [each if isinstance(each := cell(r), str) else str(each) for cell in cells] for r in records
    ]
    return PartTable(label, list(columns), rows, left=left)


def csv_of(columns: Columns[R], records: Iterable[R]) -> str:
    """Return a table as CSV, a line for each record below its head."""
    table = table_of("", columns, records)
    return lines_csv([table.head, *table.rows])


def lines_csv(lines: Iterable[Sequence[Any]]) -> str:
    """Return lines of cells, the head first, as CSV."""
    sink = io.StringIO()
    csv.writer(sink, lineterminator="\n").writerows(lines)
    return sink.getvalue()


def show(*shown: str | PartTable | Part | None) -> str:
    """Return texts, tables and parts as text of at most 100 columns; None is left out."""
    return "\n".join(line for each in shown if each is not None for line in lines_of(each))


def show_page(page: Page) -> str:
    """Return a page as text: what it says first, its parts, and what is to be minded."""
    lines = [*paragraph(page.warning), *reason_lines(page.against[:MAX_REASONS])]
    lines += [*[""] * bool(lines), *(line for each in page.sentences for line in paragraph(each))]
    lines += ["", *(line for part in page.parts for line in lines_of(part))]
    return "\n".join([*lines, *reason_lines(page.mind[:MAX_REASONS])]).rstrip()


def reason_lines(reasons: Sequence[Reason], cures: int | None = None) -> list[str]:
    """Return reasons as lines of text: what is wrong, or to be minded, and what to do about it.

    cures: of how many, from the first on; None: of all.
    """
    said = []
    for place, reason in enumerate(reasons):
        head = reason.code if reason.untrustworthy or reason.rough else "caution"
        said += paragraph(f"{head}: {reason.text}", 0, 4)
        if reason.advice and (
            cures is None or place < cures
        ):  # in one line: a command that is broken in two cannot be copied
            said.append(f"    to do: {reason.advice}")
    return said


def lines_of(shown: str | PartTable | Part, by: int = 0) -> list[str]:
    """Return what is shown as lines, indented ``by`` columns; an empty line ends a part."""
    if isinstance(shown, str):
        return paragraph(shown, by, by + 2) or [""]
    if isinstance(shown, Part):
        lines = [*[f"{shown.heading}:"] * bool(shown.heading), *shown.lines]
        lines += hanging(by, shown.lead)
        lines += [line for table in shown.tables for line in lines_of(table, by + 2)]
        return [*lines, *hanging(by + 2, *shown.notes), ""]
    return [*hanging(by, shown.lead), *_laid_out(shown, by)]


def _laid_out(shown: PartTable, by: int) -> list[str]:
    """Lay a table out; one that is too wide has its last column below it, where it is of notes.

    One without rows is nothing.
    """
    if not shown.rows:
        return []
    whole = [shown.head, *shown.rows]
    wide = squeeze_widths(shown.head, shown.rows, by)
    fits = sum(wide) == sum(max(map(len, column)) for column in zip(*whole, strict=True))
    if not fits and all("notes" in getattr(row[-1], "kind", "") for row in shown.rows):
        rows = [row[:-1] for row in shown.rows]
        notes = [f"{row[0].strip()}: {row[-1]}" for row in shown.rows]
        table = replace(shown, head=shown.head[:-1], rows=rows)
        return [*_laid_out(table, by), *hanging(by, *notes)]
    lines: list[str] = []
    for row, below in zip(whole, [(), *(shown.below or [()] * len(shown.rows))], strict=True):
        lines += wrapped_row(row, wide, by, shown.left)
        lines += hanging(by + wide[0] + 2, *below)
    return lines


def hanging(by: int, *texts: str) -> list[str]:
    """Return texts as lines, each indented by columns, what follows its first line by two more."""
    return [line for text in texts for line in paragraph(text, by, by + 2)]


def label_lines(name: str, text: str) -> list[str]:
    """Return a line that begins with its name, what follows below it."""
    return paragraph(f"{name:<13}{text}", 2, 17)


def squeeze_widths(head: Sequence[str], rows: Sequence[Sequence[str]], by: int) -> list[int]:
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
    parts = [wrap_cell(cell, size) for cell, size in zip(row, wide, strict=True)]
    lines = list(zip_longest(*parts, fillvalue=""))
    return align_columns(lines, left, indent=" " * by, widths=wide)


def wrap_cell(cell: str, size: int) -> list[str]:
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
