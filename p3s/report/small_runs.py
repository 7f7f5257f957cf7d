"""What the runs with another input stand for, as text."""

from __future__ import annotations

from collections.abc import Sequence

from p3s.base.text import ends, paragraph, visible
from p3s.costs.small_runs.cells import PhaseCost
from p3s.costs.small_runs.match import Found, OtherInput
from p3s.costs.small_runs.sites import BY_SITE
from p3s.report.show import Columns, lines_of, table_of
from p3s.signature.rank import INSTRUCTIONS

_STATUS = {
    "reached": "least cost per unit of work reached at {at} processes",
    "falling": "cost per unit of work still falls at {last} processes",
    "steady": "cost per unit of work has not fallen at {counts} processes",
    "unknown": "whether the least cost per unit of work was reached is not known (no times, or one "
    "count only)",
}


def status_text(row: PhaseCost) -> str:
    """Return whether a phase's cost has stopped falling, as words."""
    counts = row.counts or ("?",)
    return _STATUS[row.status].format(
        at=row.at, last=counts[-1], counts=ends(counts[0], counts[-1])
    )


def render(one: OtherInput, work_unit: str) -> list[str]:
    """Return as lines what each phase of an input was matched to; work_unit: of the study."""
    lines = [visible(f"{one.name}: {' '.join(one.command)}", 400)]
    if one.error:
        return lines + paragraph(visible(one.error, 400), 2, 2)
    if one.places != BY_SITE:
        lines.append(f"  another build of the program; its places were matched {one.places}")
    relevant = {row.phase for row in one.minimum}  # more than 1 % of the time
    rows = [row for row in one.rows if not relevant or row.phase in relevant]
    counted = work_unit == INSTRUCTIONS
    lines += [*_table(rows, counted), *_without(rows, counted)]
    for row in one.minimum:
        lines += paragraph(visible(f"phase {row.phase} {row.name}: {status_text(row)}", 400), 2, 4)
    return lines


def _table(rows: Sequence[Found], counted: bool) -> list[str]:
    columns: Columns[Found] = {
        "phase": lambda r: str(r.phase),
        "": lambda r: visible(r.name, 30),
        "processes": lambda r: str(r.np),
        "ranks": lambda r: str(r.number),
        "work per iteration": lambda r: _text(r.x, ".4g"),
        "ns per instruction" if counted else "cost": lambda r: _text(r.cost, ".3g"),
        "stands for": lambda r: _text(r.n, ".1f"),
    }
    shown = [r for r in rows if r.n is not None or r.cost is not None]
    return lines_of(table_of("", columns, shown, left=(1,)), 2)


def _without(rows: Sequence[Found], counted: bool) -> list[str]:
    """Return why phases stand for no count."""
    whys: dict[tuple[int, str], dict[str, None]] = {}
    for r in rows:
        whys.setdefault((r.phase, r.name), {})[r.why] = None
    lines: list[str] = []
    for (phase, name), each in whys.items():
        if "" not in each:
            what = "work per iteration" if counted else "number of bytes per iteration"
            told = " and ".join(
                w if w.startswith(("there", "cannot")) else f"its {what} {w}" for w in each
            )
            text = f"phase {phase} {name} stands for no count: {told}"
            lines += paragraph(visible(text, 600), 2, 4)
    if rows and not counted and all(r.n is None for r in rows):
        lines += paragraph(
            "work is time in this study, and these runs tell no cost: only a study made "
            "with --work instructions has one",
            2,
            4,
        )
    return lines


def _text(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
