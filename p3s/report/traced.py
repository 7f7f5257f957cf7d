"""What tracing has made, as text: runs of counts, of values, of smaller inputs, of a signature."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from p3s.base.extents import shape
from p3s.base.text import one_line, plural, processes, seconds, size_text, table
from p3s.pipeline.tracing.results import TracedCount
from p3s.pipeline.tracing.values import TracedValue
from p3s.signature import buffers
from p3s.signature.tracing import sentence
from p3s.signature.unmodelled import sentences


def traced_text(rows: Sequence[TracedCount]) -> str:
    """Return a table of counts, then what the model will leave out at the largest, and of which
    calls buffers and times tell little."""
    largest = max(rows, key=lambda row: row.np)
    lines = [_table(rows), *map(one_line, sentences(largest.not_modelled))]
    lines += buffers.sentences({str(row.np): row.buffers for row in rows})
    return "\n".join(lines + sentence({str(row.np): row.tracing for row in rows}))


def _table(rows: Sequence[TracedCount]) -> str:
    columns: dict[str, Callable[[TracedCount], str]] = {"processes": lambda row: str(row.np)}
    if any(run.dims for row in rows for run in row.runs):
        columns["grid"] = _grid
    columns |= {
        "runs": lambda row: str(len(row.runs)),
        "run time": lambda row: _least([run.wall_s for run in row.runs]),
    }
    if any(row.timed for row in rows):
        columns["native runs"] = lambda row: str(len(row.timed))
        columns["native time"] = lambda row: _least([run.wall_s for run in row.timed])
    columns["shared cores"] = lambda row: (
        "yes" if any(run.oversubscribed for run in row.runs + row.timed) else "no"
    )
    cells = [
        [
            *(cell(row) for cell in columns.values()),
            *(str(row.signature.get(key, "-")) for key in ("events", "phases", "sites")),
        ]
        for row in rows
    ]
    return table(cells, [*columns, "events", "phases", "sites"], left=0)


def small_runs_table(rows: Sequence[TracedCount]) -> str:
    """Return the runs of a smaller input as a table."""
    cells = [
        [
            str(row.np),
            str(len(row.runs)),
            _least([run.wall_s for run in row.runs]),
            str(row.signature.get("events", "-")),
        ]
        for row in rows
    ]
    return table(cells, ["processes", "runs", "run time", "events"], left=0)


def values_table(values: Sequence[TracedValue]) -> str:
    """Return the counts of every value of the parameters as a table."""
    cells = [
        [
            each.name,
            ", ".join(str(count.np) for count in each.done.counts) or "none",
            ", ".join(map(str, each.characterized)) or "none",
        ]
        for each in values
    ]
    return table(cells, ["value", "traced now", "in the study"], left=1)


def _grid(row: TracedCount) -> str:
    """Return the extents that the program was given."""
    return next((shape(run.dims) for run in row.runs if run.dims), "-")


def _least(seconds: Sequence[float]) -> str:
    """Return what the shortest run took."""
    return f"{min(seconds):.2f} s" if seconds else "-"


# ---- runs of a signature -------------------------------------------------------------------------
def sampled_text(result: Mapping[str, Any]) -> str:
    """Return what the run of a signature has told, as plain data of sampled.json, for people."""
    counted = result["work_unit"] == "instructions"
    what = "computation per process" if result["measure"] == "work" else "time"
    what = "instructions per process" if counted else what

    def amount(value: float) -> str:
        return f"{value:,.0f}" if counted else seconds(value / 1e9)

    rows = []
    for row in result["phases"]:
        low, high = row["in_detail"]
        known = row["mean"] is not None
        rows.append(
            [
                str(row["phase"]),
                one_line(row["name"]),
                f"{row['turns']:,}",
                f"{low:,}" if low == high else f"{low:,}-{high:,}",
                amount(row["mean"]) if known else "-",
                f"{100 * row['relative_half_width']:.1f} %" if known else "-",
                ", ".join(row["state"]) or "not begun",
                f"{100 * row['share']:.1f} %",
            ]
        )
    head = ["phase", "name", "turns", "in detail", "one iteration", "within", "state", "share"]
    events, saved, half = result["events"], result["saved"], result["half_width"]
    whole = f" of {plural(events['run'], 'event')}" if events["run"] else ""
    error = f" ± {amount(half)}" if half > 0 else ""
    unknown = "" if half > 0 else "; no spread between iterations is known"
    lines = [
        processes(result["np"]),
        table(rows, head, 2),
        f"full detail for {100 * events['share_in_detail']:.1f} % of the events"
        f" ({events['recorded']:,}{whole}, {events['counted']:,} counted)",
        f"predicted {what}: {amount(result['predicted'])}{error} "
        f"(weights from {result['weights_from']}{unknown})",
        f"by the iterations in full detail alone: {amount(result['from_detail'])}",
    ]
    for key, name in (("of_this_run", "this run, all of it"), ("of_full_run", "the full run")):
        row = result[key]
        if row is not None and row["difference"] is not None:
            lines.append(
                f"{name}: {amount(row['time'])}, predicted {100 * row['difference']:+.2f} %,"
                f" by the iterations in full detail alone {100 * row['from_detail']:+.2f} %"
            )
    if saved["full_wall_s"]:
        lines.append(
            f"run time {saved['wall_s']:.2f} s{' (stopped)' if result['stopped'] else ''}, of the"
            f" full run {saved['full_wall_s']:.2f} s; captures {size_text(saved['bytes'])}, of the"
            f" full run {size_text(saved['full_bytes'])}"
        )
    return "\n".join(lines)
