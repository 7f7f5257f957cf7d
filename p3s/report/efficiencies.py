"""Efficiencies by the names of the POP project as a table, with what each of them means."""

from __future__ import annotations

from dataclasses import dataclass

from p3s.base.text import NOT_KNOWN, aligned, percent, processes
from p3s.predict.types import Count, Efficiencies, Prediction
from p3s.report.counts import thinned

#: Counts of a table; on the terminal.
MAX_COUNTS, MAX_SHOWN = 12, 8


@dataclass(frozen=True)
class Efficiency:
    """One of them: its field, its name, how deep it stands below the global one, what it is."""

    key: str
    name: str
    depth: int
    what: str


ALL = (
    Efficiency(
        "global_efficiency", "Global efficiency", 0, "parallel efficiency × computation scalability"
    ),
    Efficiency(
        "parallel",
        "Parallel efficiency",
        1,
        "load balance × communication efficiency: mean computation of a rank over the run time",
    ),
    Efficiency(
        "load_balance", "Load balance", 2, "mean computation of a rank over that of the busiest one"
    ),
    Efficiency(
        "communication",
        "Communication efficiency",
        2,
        "serialisation × transfer: computation of the busiest rank over the run time",
    ),
    Efficiency(
        "serialisation",
        "Serialisation efficiency",
        3,
        "computation of the busiest rank over the run time on an ideal network: what is missing "
        "is waiting for each other",
    ),
    Efficiency(
        "transfer",
        "Transfer efficiency",
        3,
        "run time on an ideal network, where messages take no time, over the run time",
    ),
    Efficiency(
        "computation_scalability",
        "Computation scalability",
        1,
        "computation of all ranks together at the baseline over that here",
    ),
)
#: From here on an efficiency is taken to be good; below the other one it needs a look.
GOOD, POOR = 0.8, 0.6


@dataclass(frozen=True)
class Row:
    """One efficiency at each count: text and tone (good, fair, poor, none)."""

    name: str
    depth: int
    what: str
    cells: list[tuple[str, str]]


@dataclass(frozen=True)
class EfficiencyTable:
    """Efficiencies over the counts; ``measured``: of runs, each the count and its ``head``'s.

    ``open``: whether serialisation and transfer are unknown at some count.
    """

    counts: list[str]
    rows: list[Row]
    measured_head: list[str]
    measured: list[list[str]]
    open: bool


def efficiencies_of(prediction: Prediction, most: int = MAX_COUNTS) -> EfficiencyTable | None:
    """Return the efficiencies of a prediction; None where none is known."""
    known = [row for row in prediction.counts if row.pop is not None]
    shown = thinned(known, most)
    if not shown:
        return None
    rows = [
        Row(each.name, each.depth, each.what, [_cell(_of(row.pop, each.key)) for row in shown])
        for each in ALL
        if any(_of(row.pop, each.key) is not None for row in shown)
    ]
    order = [each for each in ALL if each.key not in ("serialisation", "transfer")]
    order = [each for each in order if each.key != "global_efficiency"]
    runs = thinned([row for row in prediction.counts if row.pop_measured is not None], most)
    return EfficiencyTable(
        [f"{row.n:,}" for row in shown],
        rows,
        ["processes", *(each.name for each in order)],
        [[f"{row.n:,}", *(_text(_of(row.pop_measured, e.key)) for e in order)] for row in runs],
        any(row.pop is not None and row.pop.transfer is None for row in shown),
    )


def _of(found: Efficiencies | None, key: str) -> float | None:
    value: float | None = None if found is None else getattr(found, key)
    return value


def _text(value: float | None) -> str:
    return NOT_KNOWN if value is None else percent(value)


def _cell(value: float | None) -> tuple[str, str]:
    if value is None:
        return NOT_KNOWN, "none"
    return percent(value), "good" if value >= GOOD else "fair" if value >= POOR else "poor"


def terminal_lines(prediction: Prediction) -> list[str]:
    """Return the efficiencies as lines of text; none where none is known."""
    found = efficiencies_of(prediction, MAX_SHOWN)
    if found is None:
        return []
    names = [("  " * row.depth + row.name[0].lower() + row.name[1:]) for row in found.rows]
    short = [name.removesuffix(" efficiency") for name in names]
    table = [["processes", *found.counts]]
    table += [[n, *(text for text, _ in r.cells)] for n, r in zip(short, found.rows, strict=True)]
    lines = ["efficiencies (POP; indented ones multiply to the one above):", *aligned(table, {0})]
    if found.open:
        lines.append("–     not simulated; --what-if network=ideal tells transfer")
    return [*lines, ""]


def summary_line(prediction: Prediction) -> list[str]:
    """Return the parts of the parallel efficiency at the largest count, in a line."""
    row: Count = prediction.last
    if row.pop is None or row.pop.parallel is None:
        return []
    named = {
        "load balance": row.pop.load_balance,
        "serialisation": row.pop.serialisation,
        "transfer": row.pop.transfer,
        "communication": row.pop.communication if row.pop.transfer is None else None,
    }
    return [
        f"parallel efficiency at {processes(row.n)}: {percent(row.pop.parallel)} = "
        + " x ".join(f"{name} {percent(v)}" for name, v in named.items() if v is not None)
    ]
