"""What the runs with other workloads stand for, as text (far.json)."""

from __future__ import annotations

from collections.abc import Sequence

from p3s.base.text import ends, paragraph, visible
from p3s.costs.small_runs.cells import PhaseCost
from p3s.costs.small_runs.match import FarFile, Found
from p3s.report.show import Columns, lines_of, table_of
from p3s.signature.rank import INSTRUCTIONS

_BY_SITE = "by call site"
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


def render(file: FarFile, only: str | None = None) -> list[str]:
    """Return lines: per workload what each phase was matched to; only: the name of one workload."""
    lines: list[str] = []
    for workload in file.workloads:
        if only is not None and workload.name != only:
            continue
        lines += ["", visible(f"{workload.name}: {' '.join(workload.command)}", 400)]
        if workload.error:
            lines += paragraph(visible(workload.error, 400), 2, 2)
            continue
        if workload.places != _BY_SITE:
            lines.append(
                f"  another build of the program; its places were matched "
                f"{visible(workload.places)}"
            )
        relevant = {row.phase for row in workload.minimum}  # more than 1 % of the time
        rows = [row for row in workload.rows if not relevant or row.phase in relevant]
        lines += _table(rows, file)
        lines += _without(rows, file)
        for row in workload.minimum:
            lines += paragraph(
                visible(f"phase {row.phase} {row.name}: {status_text(row)}", 400), 2, 4
            )
        shapes = sorted({row.phase for row in rows if row.other_shape})
        if shapes:
            lines += paragraph(
                f"phase{'s' * (len(shapes) > 1)} {', '.join(map(str, shapes))}: by the bytes of "
                "the messages it is another count than by work (more than 10 % apart): the blocks "
                "have another shape there, or the law of work does not hold that far",
                2,
                4,
            )
    return lines[1:]


def _table(rows: Sequence[Found], file: FarFile) -> list[str]:
    counted = file.work_unit == INSTRUCTIONS
    columns: Columns[Found] = {
        "phase": lambda r: str(r.phase),
        "": lambda r: visible(file.phases[r.phase], 30),
        "processes": lambda r: str(r.np),
        "ranks": lambda r: str(r.number),
        "work per iteration": lambda r: _text(r.x, ".4g"),
        "ns per instruction" if counted else "cost": lambda r: _text(r.cost, ".3g"),
        "stands for": lambda r: _text(r.n, ".1f"),
        "nearest": lambda r: _text((r.by_work if counted else r.by_bytes).nearest, ""),
        "off by": lambda r: _text((r.by_work if counted else r.by_bytes).distance, ".2%"),
        "by bytes": lambda r: _text(r.by_bytes.n, ".1f"),
    }
    shown = [r for r in rows if r.n is not None or r.cost is not None]
    return lines_of(table_of("", columns, shown, left=(1,)), 2)


def _without(rows: Sequence[Found], file: FarFile) -> list[str]:
    """Return why phases stand for no count."""
    counted = file.work_unit == INSTRUCTIONS
    whys: dict[int, dict[str, None]] = {}
    for r in rows:
        why = (r.by_work if counted else r.by_bytes).why if r.n is None else ""
        whys.setdefault(r.phase, {})[why] = None
    lines: list[str] = []
    for phase, each in whys.items():
        if "" not in each:
            what = "work per iteration" if counted else "number of bytes per iteration"
            told = " and ".join(
                w if w.startswith(("there", "cannot")) else f"its {what} {w}" for w in each
            )
            name = f"phase {phase} {file.phases[phase]}"
            lines += paragraph(visible(f"{name} stands for no count: {told}", 600), 2, 4)
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
