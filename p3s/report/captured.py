"""What captures hold, as text: totals of runs by call, and what is wrong with their ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from p3s.base.text import one_line, plural, table
from p3s.capture import RunTrace
from p3s.capture.check import MISSING, RunCheck
from p3s.capture.dump import ranks_of
from p3s.capture.summary import summary, thread_totals

#: Complete ranks of larger runs are not listed one by one.
_LISTED_RANKS = 16
#: What is said of a number that is not zero.
_COUNTED = {
    "failed_polls": "polls found nothing and are counted, not recorded",
    "counted_events": "events are counted, not recorded (after the limit, or of phases seen often "
    "enough)",
    "paused_calls": "calls were made while MPI_Pcontrol had switched recording off",
}


def totals_of(path: Path, run: RunTrace) -> dict[str, Any]:
    """Return the totals of a run as plain data; times in ns."""
    sums = dict.fromkeys(("failed_polls", "failed_poll_ns", "paused_calls", "tracer_ns"), 0)
    events = resident = 0
    for rank in ranks_of(run):
        sums = {name: value + getattr(rank, name) for name, value in sums.items()}
        events += len(rank.call)
        resident = max(resident, rank.resident_bytes)
    threads = thread_totals(run)
    return {
        "path": str(path),
        "np": run.np,
        "complete": not run.problem,
        "problem": run.problem,
        "work_unit": run.work_unit,
        "work_origin": run.work_origin,
        "events": events,
        "counted_events": run.counted_events,
        **sums,
        "resident_bytes": resident,
        "unmodelled": run.unmodelled,
        "calls": summary(run),
        **({} if threads is None else {"threads": threads}),
    }


def totals_text(run: dict[str, Any]) -> str:
    """Return the totals of a run, as of :func:`totals_of`."""
    unit = run["work_unit"]
    timed = unit.endswith("_ns")
    rows = [
        [
            op,
            *(str(row[name]) for name in ("kind", "events", "bytes", "elements")),
            _seconds(row["elapsed_ns"]),
            _seconds(row["work"]) if timed else str(row["work"]),
            str(row["sites"]),
        ]
        for op, row in run["calls"].items()
    ]
    head = ["call", "kind", "events", "bytes", "elements", "time"]
    head += ["work before" if timed else f"{unit} before", "sites"]
    ranks = plural(run["np"], "rank")
    lines = [f"{one_line(run['path'])}: {ranks}, {plural(run['events'], 'event')}"]
    lines.append(table(rows, head, 2))
    lines += [f"{run[name]} {what}" for name, what in _COUNTED.items() if run[name]]
    if run["unmodelled"]:
        listed = ", ".join(f"{op} ({k})" for op, k in sorted(run["unmodelled"].items()))
        lines.append(f"not modelled: {listed}")
    if run["work_origin"]:
        lines.append(f"work from {one_line(run['work_origin'])}")
    if run["resident_bytes"]:
        size = f"{run['resident_bytes'] / 2**20:.1f} MiB"
        lines.append(f"a rank filled at most {size} of memory after MPI_Init")
    if "threads" in run:
        lines.append(_threads_line(run["threads"]))
    if run["tracer_ns"]:
        lines.append(f"the tracer itself took {_seconds(run['tracer_ns'])}, which is in no call")
    return "\n".join(lines)


def _seconds(ns: int) -> str:
    return f"{ns / 1e9:.6f} s"


def _threads_line(t: dict[str, Any]) -> str:
    """Return what the threads of a run did, in a line."""
    said = []
    if t["regions"]:
        said.append(f"{plural(t['regions'], 'parallel region')} of at most {t['team']} threads")
        if t["nested"]:
            said.append(f"{t['nested']} inside others")
        said.append(f"busy {_seconds(t['busy_ns'])}")
        if t["imbalance"] is not None:
            said.append(f"imbalance {t['imbalance']:.1%}")
        said.append(f"waiting {_seconds(t['waiting_ns'])}")
        said.append(f"fork and join {_seconds(t['overhead_ns'])}")
    if t["others_ns"]:
        said.append(f"threads outside of teams {_seconds(t['others_ns'])} of CPU time")
    return f"threads of {plural(t['ranks'], 'rank')}: {', '.join(said)}"


def check_text(run: RunCheck) -> str:
    """Return what a run holds and what is wrong with it."""
    events = sum(rank.events for rank in run.ranks)
    size = sum(rank.bytes for rank in run.ranks)
    ranks = plural(run.np, "rank") if run.path.is_dir() else "one rank"
    lines = [
        f"{one_line(str(run.path))}: {run.status}, {ranks}, {plural(events, 'event')}, "
        f"{plural(size, 'byte')}"
    ]
    shown = [rank for rank in run.ranks if len(run.ranks) <= _LISTED_RANKS or rank.problem]
    missing = [rank.rank for rank in shown if rank.status == MISSING]
    unlisted = set(missing[_LISTED_RANKS:])
    shown = [rank for rank in shown if rank.rank not in unlisted]
    if shown:
        rows = [[str(r.rank), r.status, str(r.events), str(r.bytes)] for r in shown]
        cells = table(rows, ["rank", "status", "events", "bytes"], left=2).split("\n")
        said = ["", *[one_line(rank.problem) for rank in shown]]
        lines += [f"  {cell}  {why}".rstrip() for cell, why in zip(cells, said, strict=True)]
    if unlisted:
        lines.append(f"  and {len(unlisted)} more ranks are missing")
    lines += [f"  {one_line(problem)}" for problem in run.problems]
    return "\n".join([*lines, *(f"  note: {one_line(note)}" for note in run.notes)])
