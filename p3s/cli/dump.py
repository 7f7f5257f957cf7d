"""``p3s dump``: everything a capture holds, as text, totals, JSON or Parquet."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from p3s.base.text import one_line, plural, table
from p3s.cli.common import JSON_OPTION, emit, out, say, write_out
from p3s.cli.helptext import argument, option

if TYPE_CHECKING:
    from p3s.capture import RunTrace, ThreadTotals
    from p3s.capture.recover import Place

EPILOG = """\b
Example:
  p3s dump study/runs/np0008.r0 --summary
  p3s dump study/runs/np0008.r0 --rank 3 | less
  p3s dump study/runs/np0008.r0 --parquet events.parquet
Next:
  p3s check study/runs/np0008.r0    (whether anything is missing)"""


def dump(
    path: Path = argument("PATH", "Study, run directory or .p3t file."),
    rank: int | None = option(None, "--rank R", "Only this rank.", min=0),
    summary: bool = option(False, "--summary", "Totals by MPI call, of every run."),
    parquet: Path | None = option(None, "--parquet FILE", "Write the events as one Parquet file."),
    json_: bool = JSON_OPTION,
) -> int:
    """Print every record of a capture, or its totals; or write it as Parquet.

    Exit code 3 when the capture is partial or damaged: what is intact is there all the same.
    """
    from p3s.capture.recover import one_place, places_at

    if summary:
        return _summaries(places_at(path), json_)
    place = one_place(path)
    run = place.read()
    if parquet is not None:
        _parquet(run, parquet, rank, json_)
    elif json_:
        _json(run, rank)
    else:
        from p3s.capture.dump import text

        for block in text(run, rank):
            out(block)
    return _code([run])


def _parquet(run: RunTrace, path: Path, rank: int | None, json_: bool) -> None:
    from p3s.capture.dump import write_parquet

    events = write_parquet(run, path, rank)
    if json_:
        emit("dump", parquet=str(path), events=events)
    else:
        out(f"{path}: {plural(events, 'event')}")


def _json(run: RunTrace, rank: int | None) -> None:
    from p3s.capture.dump import json_pieces

    for piece in json_pieces(run, rank):
        write_out(piece)
    out("")


def _summaries(places: list[Place], json_: bool) -> int:
    from p3s.capture.summary import summary, thread_totals

    runs, found = [], []
    for place in places:
        run = place.read()
        calls, threads = summary(run), thread_totals(run)
        runs.append(run)
        found.append(_run_json(place.path, run, calls, threads))
        if not json_:
            _show(found[-1])
    if json_:
        emit("dump", runs=found)
    return _code(runs)


def _run_json(
    path: Path, run: RunTrace, calls: dict[str, dict[str, Any]], threads: ThreadTotals | None
) -> dict[str, Any]:
    from p3s.capture.dump import ranks_of

    polls = poll_ns = paused = events = tracer_ns = resident = 0
    for rank in ranks_of(run):
        polls += rank.failed_polls
        poll_ns += rank.failed_poll_ns
        paused += rank.paused_calls
        events += len(rank.call)
        tracer_ns += rank.tracer_ns
        resident = max(resident, rank.resident_bytes)
    return {
        "path": str(path),
        "np": run.np,
        "complete": not run.problem,
        "problem": run.problem,
        "work_unit": run.work_unit,
        "work_origin": run.work_origin,
        "events": events,
        "counted_events": run.counted_events,
        "failed_polls": polls,
        "failed_poll_ns": poll_ns,
        "paused_calls": paused,
        "tracer_ns": tracer_ns,
        "resident_bytes": resident,
        "unmodelled": run.unmodelled,
        "calls": calls,
        **({} if threads is None else {"threads": asdict(threads)}),
    }


def _show(run: dict[str, Any]) -> None:
    ranks = plural(run["np"], "rank")
    out(f"{one_line(run['path'])}: {ranks}, {plural(run['events'], 'event')}")
    unit = run["work_unit"]
    timed = unit.endswith("_ns")
    rows = []
    for op, row in run["calls"].items():
        work = f"{row['work'] / 1e9:.6f} s" if timed else str(row["work"])
        rows.append(
            [
                op,
                row["kind"],
                str(row["events"]),
                str(row["bytes"]),
                str(row["elements"]),
                f"{row['elapsed_ns'] / 1e9:.6f} s",
                work,
                str(row["sites"]),
            ]
        )
    head = "work before" if timed else f"{unit} before"
    out(table(rows, ["call", "kind", "events", "bytes", "elements", "time", head, "sites"], 2))
    for name, text in (
        ("failed_polls", "polls found nothing and are counted, not recorded"),
        (
            "counted_events",
            "events are counted, not recorded (after the limit, or of phases seen often enough)",
        ),
        ("paused_calls", "calls were made while MPI_Pcontrol had switched recording off"),
    ):
        if run[name]:
            out(f"{run[name]} {text}")
    if run["unmodelled"]:
        listed = ", ".join(f"{op} ({k})" for op, k in sorted(run["unmodelled"].items()))
        out(f"not modelled: {listed}")
    if run["work_origin"]:
        out(f"work from {one_line(run['work_origin'])}")
    if run["resident_bytes"]:
        size = f"{run['resident_bytes'] / 2**20:.1f} MiB"
        out(f"a rank filled at most {size} of memory after MPI_Init")
    if "threads" in run:
        out(_threads_line(run["threads"]))
    if run["tracer_ns"]:
        out(f"the tracer itself took {run['tracer_ns'] / 1e9:.6f} s, which is in no call")


def _threads_line(t: dict[str, Any]) -> str:
    """Return what the threads of a run did, in a line."""
    said = []
    if t["regions"]:
        said.append(f"{plural(t['regions'], 'parallel region')} of at most {t['team']} threads")
        if t["nested"]:
            said.append(f"{t['nested']} inside others")
        said.append(f"busy {t['busy_ns'] / 1e9:.6f} s")
        if t["imbalance"] is not None:
            said.append(f"imbalance {t['imbalance']:.1%}")
        said.append(f"waiting {t['waiting_ns'] / 1e9:.6f} s")
        said.append(f"fork and join {t['overhead_ns'] / 1e9:.6f} s")
    if t["others_ns"]:
        said.append(f"threads outside of teams {t['others_ns'] / 1e9:.6f} s of CPU time")
    return f"threads of {plural(t['ranks'], 'rank')}: {', '.join(said)}"


def _code(runs: list[RunTrace]) -> int:
    problems = [run.problem for run in runs if run.problem]
    for problem in problems:
        say(f"partial: {problem}")
    return 3 if problems else 0
