"""Sentences that go with a prediction: what was approximated, what is not modelled."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Mapping, Sequence
from statistics import median_high

from p3s.base.errors import P3SError
from p3s.base.records import RunRecord, Traces
from p3s.base.text import interval, mixed_clocks, processes, seconds
from p3s.predict.reach import NOTED, outside, ratios
from p3s.predict.residual import times_of
from p3s.predict.times import PhaseTimes
from p3s.predict.types import Count, StartAndEnd, few
from p3s.signature import buffers, tracing, unmodelled

#: What is not known of calls that are modelled.
_UNKNOWN_OF = {
    "MPI_Win_lock": "how long processes wait for a lock that another one holds (MPI_Win_lock)",
    "MPI_Win_allocate_shared": "loads and stores in shared windows are no calls: they count as "
    "computation (MPI_Win_allocate_shared)",
}


def notes(
    rows: Sequence[Count],
    times: Mapping[int, PhaseTimes],
    asked: Sequence[Count],
    share: Mapping[str, Mapping[str, float]],
    ratio: float,
) -> list[str]:
    """Return what is to be kept in mind about a prediction; ``asked``: rows that were not run."""
    head = times[rows[-1].n].head
    return [
        *_collect_notes(times),
        *_note_limits(rows, ratio),
        *_outside(asked),
        *_soft_rules(share),
        *unmodelled.sentences(head.get("not_modelled")),
        *buffers.sentences(head.get("buffers") or {}, packed=bool(head.get("packed"))),
        *tracing.sentence(head.get("tracing", {})),
        *filter(None, [mixed_clocks(head.get("work_units") or {})]),
    ]


def not_modelled(times: PhaseTimes, calls: Collection[str] = ()) -> list[str]:
    """Return what is in no number, at the largest count; ``calls``: operations of the program."""
    head = times.head
    found = ["MPI_Init and all before it, MPI_Finalize and all after it"]
    if names := [str(entry.get("op")) for entry in head.get("unknown") or ()]:
        found.append(f"calls whose rule is not known: {few(names)}")
    found += unmodelled.sentences(head.get("not_modelled"))
    found += [said for op, said in _UNKNOWN_OF.items() if op in calls]
    found += times.mpi.left_out
    return list(dict.fromkeys(found))


def _collect_notes(times: Mapping[int, PhaseTimes]) -> list[str]:
    """Return what the chosen estimator left out or guessed, with the counts, each line once."""
    found: dict[str, list[int]] = {}
    for n, made in sorted(times.items()):
        for line in made.mpi.notes:
            found.setdefault(line, []).append(n)
    whole = [n for n in sorted(times) if n > 1]
    return [
        line if counts == whole or counts == sorted(times) else f"at {processes(counts)}: {line}"
        for line, counts in found.items()
    ]


def _outside(rows: Sequence[Count]) -> list[str]:
    """Say where each process computes less, or more, per iteration than was measured anywhere."""
    found = {row.n: phases for row in rows if (phases := outside(row, NOTED))}
    if not found:
        return []
    last = max(found)
    at = "" if len(found) == 1 else f" at {processes(last)}"
    return [
        f"at {processes(list(found))} the computation is extrapolated: each process has"
        f"{at} {ratios(found[last])}"
    ]


#: Rules by their verdict, where it is no adjective.
_RULES = {
    "not seen": "rules that the traces do not show",
    "not_seen": "rules that the traces do not show",
    "unknown": "no rule",
}


def _soft_rules(share: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Say how much of the program follows rules that are not exact."""
    return [
        f"{100 * entry.get('events', 0.0):.1f} % of the events, and the calls behind "
        f"{100 * entry.get('work', 0.0):.1f} % of the computation, follow "
        f"{_RULES.get(verdict, f'{verdict} rules')}"
        for verdict, entry in share.items()
        if verdict not in ("exact", "fitted") and max(entry.values(), default=0.0) >= 0.01
    ]


def _note_limits(rows: Sequence[Count], ratio: float) -> list[str]:
    found = []
    unsure = [row.n for row in rows if row.model_low_s is None and row.interval_parts.work is None]
    if unsure:
        found.append(f"no interval at {processes(unsure)}: the spread of a work law is unknown")
    if 1.0 < ratio < math.inf:
        found.append(f"the largest count is {ratio:.3g} times the largest traced count")
    return found


# ---- start and end of a run ---------------------------------------------------------------------
#: Less is what two clocks differ by, or a simulated run: no process begins in so little time.
_CLOCK_S = 1e-6


def start_and_end(traces: Mapping[int, Traces]) -> tuple[StartAndEnd, ...]:
    """Return what start and end took at counts, in s, of their runs; empty: none was timed."""
    return tuple(
        StartAndEnd(n, median_high(found), min(found), max(found))
        for n in sorted(traces)
        if (found := _read_launches(traces[n].complete(n)))
    )


def _read_launches(records: Sequence[RunRecord]) -> list[float]:
    """Return the time of each launch beyond its run, of complete runs."""
    found = []
    for record in records:
        wall = record.info.get("wall_s")
        if isinstance(wall, int | float):
            with contextlib.suppress(P3SError):  # p3s check tells what cannot be read
                found.append(float(wall) - times_of(record.path).wall_s)
    return [value for value in found if value > _CLOCK_S]


def of_start_and_end(found: Sequence[StartAndEnd], rows: Sequence[Count]) -> list[str]:
    """Say what start and end took at the largest traced count, and that no other is known."""
    if not found:
        return []
    last = found[-1]
    ends = f" ({interval(last.low_s, last.high_s)})" if last.high_s > last.low_s else ""
    said = (
        f"startup and shutdown, launcher included, took {seconds(last.time_s)}{ends} at "
        f"{processes(last.n)}"
    )
    more = rows[-1].n > last.n
    return [f"{said}; what they take at {rows[-1].n:,} is not known" if more else said]
