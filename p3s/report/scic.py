"""The instruction table (SCIC) as text and as CSV, as in the thesis's Table 5.2."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from p3s.base.text import aligned, percent, visible
from p3s.model.work.scic import InstructionTable, Row
from p3s.report.compute import number
from p3s.report.counts import lines_csv, rows_of

_NAMES = {"instructions": "instructions", "cpu_ns": "ns of CPU time", "wall_ns": "ns"}


def table(found: InstructionTable) -> str:
    """Return the instruction table as text, one part per phase and instruction group."""
    unit = _NAMES.get(found.unit, found.unit)
    out = []
    for phase, group in dict.fromkeys((r.phase, r.group) for r in found.rows):
        rows = [r for r in found.rows if (r.phase, r.group) == (phase, group)]
        groups = len({r.group for r in found.rows if r.phase == phase})
        name = f"phase {phase}: {visible(rows[0].name)}"
        if groups > 1:
            name += f", instruction group {group + 1} of {groups}"
            guard = found.guards.get((phase, group))
            name += f" (if {guard})" if guard else ""
        out += [name, *_part(rows, unit, groups > 1), ""]
        if group == groups - 1:
            out += [*_balance(found, phase), ""]
    return "\n".join(out)


def _part(rows: Sequence[Row], unit: str, grouped: bool) -> list[str]:
    """Return one part of the table: measured above predicted."""
    head = [
        f"{unit} per process and iteration",
        "processes",
        *(["of them"] if grouped else []),
        "weight",
        f"total {unit}",
        "",
        *(["ranks"] if grouped else []),
    ]
    truth = {r.n: r.total for r in rows if r.measured}
    lines: list[list[str] | str] = [head]
    for measured in (True, False):
        lines.append("  measured" if measured else "  predicted")
        for r in rows:
            if r.measured == measured:
                lines.append(
                    [
                        number(r.work),
                        str(r.n),
                        *([str(r.ranks)] if grouped else []),
                        f"{r.weight:,.10g}",
                        number(r.total),
                        "" if measured else _sure(r, truth.get(r.n)),
                        *([r.where] if grouped else []),
                    ]
                )
    return _aligned(lines)


def _sure(row: Row, truth: float | None) -> str:
    """Return the error where it is known, else the half width of the interval."""
    if truth:
        return f"{100 * (row.total - truth) / truth:+.2f} %"
    return f"within {percent(row.half_width / row.total)}" if row.total else ""


def _aligned(lines: Sequence[list[str] | str]) -> list[str]:
    cells = iter(aligned([line for line in lines if not isinstance(line, str)], indent="    "))
    return [line if isinstance(line, str) else next(cells) for line in lines]


def _balance(found: InstructionTable, phase: int) -> list[str]:
    """Return whether the phase's total stays what it was (strong scaling, Eq. 5.4 and 5.5)."""
    counts = sorted({r.n for r in found.rows if r.phase == phase and r.measured})
    totals = [t for n in counts if (t := found.total(phase, n, True))]
    if len(totals) < 2:
        return []
    change = totals[-1] / totals[0] - 1
    return [
        f"  total of all ranks from {counts[0]} to {counts[-1]} processes: {100 * change:+.2f} %"
    ]


def csv(found: InstructionTable) -> str:
    """Return the instruction table as CSV: a line per phase, group and count.

    Columns: phase, name, group (from 1), where (ranks), part (measured or predicted), processes,
    ranks (of the group), weight (iterations of the phase in the run), work (of one process in one
    iteration), total (of the group in the run), half_width (of the total's 90 % interval), unit.
    """
    columns: dict[str, Callable[[Row], object]] = {
        "phase": lambda r: r.phase,
        "name": lambda r: r.name,
        "group": lambda r: r.group + 1,
        "where": lambda r: r.where,
        "part": lambda r: "measured" if r.measured else "predicted",
        "processes": lambda r: r.n,
        "ranks": lambda r: r.ranks,
        "weight": lambda r: f"{r.weight:.10g}",
        "work": lambda r: f"{r.work:.10g}",
        "total": lambda r: f"{r.total:.12g}",
        "half_width": lambda r: f"{r.half_width:.6g}",
        "unit": lambda _: found.unit,
    }
    return lines_csv(rows_of(columns, found.rows))
