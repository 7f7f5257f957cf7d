"""Efficiencies by the names of the POP project as a table, with what each of them means."""

from __future__ import annotations

from dataclasses import dataclass

from p3s.base.text import aligned, percent, processes
from p3s.predict.types import Count, Efficiencies, Prediction
from p3s.report.counts import thinned

#: Counts of a table; on the terminal.
MAX_COUNTS, MAX_SHOWN = 12, 8
#: Efficiencies by their field: name, how deep it stands below the global one, what it is.
ALL = {
    "global_efficiency": ("Global efficiency", 0, "parallel efficiency × computation scalability"),
    "parallel": (
        "Parallel efficiency",
        1,
        "load balance × communication efficiency: mean computation of a rank over the run time",
    ),
    "load_balance": ("Load balance", 2, "mean computation of a rank over that of the busiest one"),
    "communication": (
        "Communication efficiency",
        2,
        "serialisation × transfer: computation of the busiest rank over the run time",
    ),
    "serialisation": (
        "Serialisation efficiency",
        3,
        "computation of the busiest rank over the run time on an ideal network: what is missing "
        "is waiting for each other",
    ),
    "transfer": (
        "Transfer efficiency",
        3,
        "run time on an ideal network, where messages take no time, over the run time",
    ),
    "computation_scalability": (
        "Computation scalability",
        1,
        "computation of all ranks together at the baseline over that here",
    ),
}
#: What traced runs do not tell.
_SIMULATED = ("global_efficiency", "serialisation", "transfer")
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
    shown = thinned([(row.n, row.pop) for row in prediction.counts if row.pop], most)
    if not shown:
        return None
    runs = thinned(
        [(row.n, row.pop_measured) for row in prediction.counts if row.pop_measured], most
    )
    of_runs = [key for key in ALL if key not in _SIMULATED]
    return EfficiencyTable(
        [f"{n:,}" for n, _ in shown],
        [
            Row(*ALL[key], [_cell(_of(pop, key)) for _, pop in shown])
            for key in ALL
            if any(_of(pop, key) is not None for _, pop in shown)
        ],
        ["processes", *(ALL[key][0] for key in of_runs)],
        [[f"{n:,}", *(percent(_of(pop, key)) for key in of_runs)] for n, pop in runs],
        any(pop.transfer is None for _, pop in shown),
    )


def _of(found: Efficiencies, key: str) -> float | None:
    value: float | None = getattr(found, key)
    return value


def _cell(value: float | None) -> tuple[str, str]:
    if value is None:
        return percent(None), "none"
    return percent(value), "good" if value >= GOOD else "fair" if value >= POOR else "poor"


def terminal_lines(prediction: Prediction) -> list[str]:
    """Return the efficiencies as lines of text; none where none is known."""
    found = efficiencies_of(prediction, MAX_SHOWN)
    if found is None:
        return []
    table = [["processes", *found.counts]]
    for row in found.rows:
        name = f"{'  ' * row.depth}{row.name[0].lower()}{row.name[1:]}"
        table.append([name.removesuffix(" efficiency"), *(text for text, _ in row.cells)])
    lines = ["efficiencies (POP; indented ones multiply to the one above):", *aligned(table, {0})]
    if found.open:
        lines.append("–     not simulated; --what-if network=ideal tells transfer")
    return [*lines, ""]


def summary_line(prediction: Prediction) -> list[str]:
    """Return the parts of the parallel efficiency at the largest count, in a line."""
    row: Count = prediction.last
    if row.pop is None or row.pop.parallel is None:
        return []
    names = ["load_balance", "serialisation", "transfer"]
    names += ["communication"] if row.pop.transfer is None else []
    known = {name.replace("_", " "): _of(row.pop, name) for name in names}
    parts = " x ".join(f"{name} {percent(v)}" for name, v in known.items() if v is not None)
    return [f"parallel efficiency at {processes(row.n)}: {percent(row.pop.parallel)} = {parts}"]
