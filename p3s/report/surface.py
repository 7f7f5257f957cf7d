"""Run times over processes and threads as text for the terminal, and as rows of CSV."""

from __future__ import annotations

from p3s.base.text import NOT_KNOWN, interval, percent, plural, seconds, table, visible
from p3s.predict.surface import Cell, Surface
from p3s.predict.types import in_short, untrusted
from p3s.report.counts import DOUBTFUL
from p3s.report.sure import reason_lines

#: Rows shown; all of them are in surface.json.
MOST_ROWS, MOST_LINES = 60, 12


def render(surface: Surface) -> str:
    """Return a surface as text: what it says, a table of times, one row per configuration."""
    against = untrusted(surface.reasons)
    parts = []
    if against:
        parts += [f"Do not rely on this prediction: {in_short(against)}.", ""]
        parts += [*reason_lines(against[:MOST_LINES]), ""]
    parts += [*sentences(surface), "", grid(surface), "", rows(surface)]
    if any(cell.doubtful for cell in surface.cells):
        parts.append(DOUBTFUL)
    if any(not cell.traced for cell in surface.cells):
        parts.append("~     no run had so many threads: from the laws of threads")
    parts += reason_lines([r for r in surface.reasons if not r.untrustworthy][:MOST_LINES])
    parts += [f"note: {visible(note, 400)}" for note in surface.notes[:MOST_LINES]]
    return "\n".join(parts)


def sentences(surface: Surface) -> list[str]:
    """Return what a surface says in words: the fastest, and for each number of cores the best."""
    return [fastest(surface), *on_same_cores(surface)]


def fastest(surface: Surface) -> str:
    """Return which configuration is the fastest of all."""
    best = min(surface.cells, key=lambda cell: cell.time_s)
    return (
        f"Fastest: {what(best)}, {seconds(best.time_s)} ({span(best)}) on "
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
                f"On {cores} cores: {what(first)} {_verb(first, 'is', 'are')} the fastest; "
                f"{what(second)} {_verb(second, 'takes', 'take')} {more:.0f} % longer{sure}."
            )
    return said


def what(cell: Cell) -> str:
    """Return a configuration in words."""
    return f"{plural(cell.n, 'process', 'processes')} with {plural(cell.threads, 'thread')}"


def _verb(cell: Cell, one: str, several: str) -> str:
    return one if cell.n == 1 else several


def span(cell: Cell) -> str:
    """Return the interval of a time."""
    return interval(cell.low_s, cell.high_s)


def clear(first: Cell, second: Cell) -> bool:
    """Tell whether the intervals of two times do not overlap."""
    return None not in (first.high_s, second.low_s) and (first.high_s or 0) < (second.low_s or 0)


def grid(surface: Surface) -> str:
    """Return times as a table of processes by threads."""
    head = ["processes", *(plural(threads, "thread") for threads in surface.threads)]
    cells = [
        [str(n), *(short(surface.at(n, threads)) for threads in surface.threads)]
        for n in surface.counts
    ]
    return table(cells, head, left=0)


def short(cell: Cell | None) -> str:
    """Return the time of a configuration, marked where no run had its threads."""
    if cell is None:
        return NOT_KNOWN
    return seconds(cell.time_s) + ("*" if cell.doubtful else "~" if not cell.traced else " ")


def rows(surface: Surface) -> str:
    """Return a row per configuration, those with fewest cores first."""
    head, cells = table_of(surface)
    return table(cells, head, left=0)


def table_of(surface: Surface) -> tuple[list[str], list[list[str]]]:
    """Return a head and a row per configuration, those with fewest cores first."""
    ordered = sorted(surface.cells, key=lambda cell: (cell.cores, cell.time_s))
    cells = [
        [
            str(cell.cores),
            str(cell.n),
            str(cell.threads) + ("" if cell.traced else "~"),
            str(cell.nodes),
            seconds(cell.time_s),
            span(cell),
            f"{cell.speedup:.3g}x",
            percent(cell.efficiency),
            seconds(cell.compute_s),
            seconds(cell.comm_s),
            f"{cell.cost_core_h:.3g}",
        ]
        for cell in ordered[:MOST_ROWS]
    ]
    head = ["cores", "processes", "threads", "nodes", "time", "interval", "speedup", "efficiency"]
    return [*head, "compute", "communication", "core hours"], cells
