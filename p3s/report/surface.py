"""Run times over processes and threads as text for the terminal, and as rows of CSV."""

from __future__ import annotations

from functools import partial

from p3s.base.text import NOT_KNOWN, interval, percent, plural, seconds, visible
from p3s.predict.surface import Cell, Surface
from p3s.predict.types import filter_untrusted, in_short
from p3s.report.counts import DOUBTFUL
from p3s.report.show import Columns, Page, Part, PartTable, show_page, table_of

#: Rows shown; all of them are in surface.json.
MOST_ROWS, MOST_LINES = 60, 12


def render(surface: Surface) -> str:
    """Return a surface as text: what it says, a table of times, one row per configuration."""
    against = filter_untrusted(surface.reasons)
    signs = [DOUBTFUL] * any(cell.doubtful for cell in surface.cells)
    if any(not cell.traced for cell in surface.cells):
        signs.append("~     no run had so many threads: from the laws of threads")
    notes = [f"note: {visible(note, 400)}" for note in surface.notes[:MOST_LINES]]
    tables = [grid(surface), configurations(surface)]
    page = Page(
        "Run times",
        "",
        [fastest(surface), *on_same_cores(surface)],
        f"Do not rely on this prediction: {in_short(against)}." if against else "",
        against,
        [reason for reason in surface.reasons if not reason.untrustworthy],
        [Part("times", tables=tables, notes=[*signs, *notes])],
    )
    return show_page(page)


def fastest(surface: Surface) -> str:
    """Return which configuration is the fastest of all."""
    best = min(surface.cells, key=lambda cell: cell.time_s)
    ends = interval(best.low_s, best.high_s)
    return (
        f"Fastest: {describe_cell(best)}, {seconds(best.time_s)} ({ends}) on "
        f"{plural(best.cores, 'core')}."
    )


def on_same_cores(surface: Surface) -> list[str]:
    """Return for each number of cores with several configurations which is the fastest there."""
    said = []
    for cores in sorted({cell.cores for cell in surface.cells}):
        alike = [cell for cell in surface.cells if cell.cores == cores]
        if len(alike) > 1:
            first, second = sorted(alike, key=lambda cell: cell.time_s)[:2]
            sure = "" if clear(first, second) else " (the intervals overlap)"
            more = 100 * (second.time_s / first.time_s - 1)
            said.append(
                f"On {cores} cores: {describe_cell(first)} {_verb(first, 'is', 'are')} the "
                f"fastest; {describe_cell(second)} {_verb(second, 'takes', 'take')} "
                f"{more:.0f} % longer{sure}."
            )
    return said


def describe_cell(cell: Cell) -> str:
    """Return a configuration in words."""
    return f"{plural(cell.n, 'process', 'processes')} with {plural(cell.threads, 'thread')}"


def _verb(cell: Cell, one: str, several: str) -> str:
    return one if cell.n == 1 else several


def clear(first: Cell, second: Cell) -> bool:
    """Tell whether the intervals of two times do not overlap."""
    return None not in (first.high_s, second.low_s) and (first.high_s or 0) < (second.low_s or 0)


def grid(surface: Surface) -> PartTable:
    """Return times as a table of processes by threads."""
    columns: Columns[int] = {
        "processes": str,
        **{plural(k, "thread"): partial(_format_time_at, surface, k) for k in surface.threads},
    }
    return table_of("Run times", columns, surface.counts, left=())


def _format_time_at(surface: Surface, threads: int, n: int) -> str:
    return short(surface.at(n, threads))


def short(cell: Cell | None) -> str:
    """Return the time of a configuration, marked where no run had its threads."""
    if cell is None:
        return NOT_KNOWN
    return seconds(cell.time_s) + ("*" if cell.doubtful else "~" if not cell.traced else " ")


_COLUMNS: Columns[Cell] = {
    "cores": lambda cell: cell.cores,
    "processes": lambda cell: cell.n,
    "threads": lambda cell: f"{cell.threads}{'' if cell.traced else '~'}",
    "nodes": lambda cell: cell.nodes,
    "time": lambda cell: seconds(cell.time_s),
    "interval": lambda cell: interval(cell.low_s, cell.high_s),
    "speedup": lambda cell: f"{cell.speedup:.3g}x",
    "efficiency": lambda cell: percent(cell.efficiency),
    "compute": lambda cell: seconds(cell.compute_s),
    "communication": lambda cell: seconds(cell.comm_s),
    "core hours": lambda cell: f"{cell.cost_core_h:.3g}",
}


def configurations(surface: Surface) -> PartTable:
    """Return a row per configuration, those with fewest cores first."""
    ordered = sorted(surface.cells, key=lambda cell: (cell.cores, cell.time_s))
    return table_of("Configurations", _COLUMNS, ordered[:MOST_ROWS], left=())
