"""Run time and speedup at large counts from phase times and weights (Eq. 8.1), and their notes.

Notes say what was approximated, and what is not modelled.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from statistics import median_high

from p3s.base.errors import P3SError
from p3s.base.records import RunRecord, Traces
from p3s.base.serialise import from_data
from p3s.base.text import interval, mixed_clocks, processes, seconds
from p3s.costs.types import FileUseAt
from p3s.predict import doubts
from p3s.predict.case import Case, Doubt, Facts, rivals_at
from p3s.predict.checks import NOTED, doubts_of, outside, ratios, reasons_of
from p3s.predict.estimated import TYPICAL
from p3s.predict.residual import (
    RunMeasurement,
    below_traced,
    contradictions,
    find_excess,
    residuals,
    times_of,
)
from p3s.predict.rows import (
    add_speedup,
    baseline,
    knee,
    limits,
    recommend_count,
    row_of,
    with_efficiencies,
    with_interval,
)
from p3s.predict.times import END, REST, START, PhaseTimes, residual_ends
from p3s.predict.types import Count, Law, PhaseAt, PhaseLaw, Prediction, StartAndEnd, few, part_s
from p3s.signature import buffers, tracing, unmodelled

PARTS = ("time", "compute", "transfer", "waiting", "software")
#: Of phases that use files this too.
FILES = "io"
#: A law that misses a count by more than this is none.
WORST_MISS = 0.25
#: Phases with less than this share of the time at every count get no laws.
LEAST_SHARE = 0.005
#: Values below this share of the phase's time at their count do not decide on a law.
_SMALL = 1e-4


def phase_laws(rows: Sequence[Count]) -> tuple[PhaseLaw, ...]:
    """Return laws over n of every phase's time and parts (rows of prediction.json).

    Sums of non-negative terms in n and log2 n, found by p3s.laws.lawfinder as those of the work
    are. ``error``: largest relative miss at the counts. A part has no law ("" as text) where fewer
    counts are there than its terms need and one to check them, or where the best law misses one
    by more than a quarter.
    """
    found = []
    table = [{phase.phase: phase for phase in row.phases} for row in rows]
    names = {phase.phase: phase.name for row in rows for phase in row.phases}
    for number, name in names.items():
        mine = [(row.n, phases.get(number)) for row, phases in zip(rows, table, strict=True)]
        large = any(
            phase is not None and phase.time_s >= LEAST_SHARE * row.model_s
            for row, (_, phase) in zip(rows, mine, strict=True)
        )
        parts = (*PARTS, FILES) if any(phase and phase.io_s for _, phase in mine) else PARTS
        found.append(PhaseLaw(number, name, {part: _law(part, mine, large) for part in parts}))
    return tuple(found)


def _law(part: str, mine: Sequence[tuple[int, PhaseAt | None]], large: bool) -> Law:
    from p3s.laws.lawfinder import find_law

    points = [
        (n, seconds, phase.time_s)
        for n, phase in mine
        if phase is not None and (seconds := part_s(phase, part)) is not None
    ]
    counts = tuple(n for n, _, _ in points)
    none = Law(text="", latex="", error=None, counts=counts)
    if not large or len(points) < 3:
        return none
    if not any(value > _SMALL * whole for _, value, whole in points):
        return replace(none, text="0", latex="0", error=0.0)
    law = find_law(
        ((n, value) for n, value, _ in points),
        "work",
        resolution=[_SMALL * whole for _, _, whole in points],
    ).fit
    if len(law.terms) >= len(points):
        return none
    miss = max(
        (
            abs(float(law.value(n)) - value) / value
            for n, value, whole in points
            if value > _SMALL * whole
        ),
        default=0.0,
    )
    if not miss <= WORST_MISS:
        return none
    return Law(
        text=law.text(),
        latex=law.latex(),
        terms=tuple(map(tuple, law.to_json()["terms"])),
        error=miss,
        counts=counts,
    )


#: Nothing is known but times.
NO_MODEL = Facts()


def compose(
    times: Mapping[int, PhaseTimes],
    runs: Mapping[int, RunMeasurement],
    traced: Sequence[int],
    facts: Facts = NO_MODEL,
) -> Prediction:
    """Put phase times and measured runs of all counts together.

    ``times``: by the chosen estimator. ``traced``: the counts that the model rests on.
    """
    if not times:
        raise P3SError("nothing to predict: no process count given")
    counts = sorted(times)
    runs = {
        n: replace(run, elsewhere=times[n].mpi.estimator == TYPICAL)
        for n, run in runs.items()
        if n in times
    }
    said = {n: facts.others.get(n, {}) for n in counts}
    model_s = {n: made.run_s for n, made in times.items()}
    odd = {} if facts.weak else contradictions(runs, model_s)
    runs = {n: replace(run, contradicts=n in odd) for n, run in runs.items()}
    wrong = {} if facts.weak else _below(times, traced, facts.totals)
    rows = [
        replace(row_of(times[n], runs.get(n), said[n]), below_traced=n in wrong) for n in counts
    ]
    residual = residuals(rows)
    case = Case(
        rows=rows,
        base=baseline(rows),
        times=times,
        runs=runs,
        traced=traced,
        residuals=residual,
        contradicting=odd,
        below=wrong,
        facts=facts,
    )
    found = doubts_of(case)
    rows = _without_empty_ends([_with_interval(row, case, found) for row in rows])
    rows = _add_speedups(rows, facts)
    rows = with_efficiencies(rows, times, runs, baseline(rows).n, weak=facts.weak)
    base = baseline(rows)
    case = replace(case, rows=rows, base=base)
    last = times[counts[-1]]
    ratio = counts[-1] / max(traced) if traced else math.inf
    share = doubts.verdict_share(last.head)
    return Prediction(
        counts=tuple(rows),
        baseline_n=base.n,
        baseline_measured=base.time_from == "measured",
        knee=knee(rows, facts.threshold),
        knee_efficiency=facts.threshold,
        recommended=recommend_count(rows, facts.threshold, facts.admits),
        network=facts.network,
        estimator=last.mpi.estimator,
        estimator_why=facts.why,
        residuals=residual,
        phase_laws=phase_laws(rows),
        limits=limits(rows[rows.index(base) :], facts.threshold, weak=facts.weak),
        unknown_share=max(doubts.unknown_share(times[n].head) for n in counts),
        verdict_share=share,
        traced_counts=tuple(traced),
        extrapolation_ratio=ratio if math.isfinite(ratio) else None,
        reasons=tuple(reasons_of(case, found)),
        not_modelled=tuple(not_modelled(last, facts.calls)),
        notes=tuple(list_notes(rows, times, case.untraced, share, ratio)),
        files=tuple(from_data(FileUseAt, use) for use in last.head.get("files") or []),
        files_from=str(last.head.get("files_from") or ""),
    )


def _below(
    times: Mapping[int, PhaseTimes], traced: Sequence[int], totals: Mapping[int, float]
) -> dict[int, tuple[float, float]]:
    """Return the counts below the traced ones whose computation does not go on from theirs."""
    made = {n: float(each.compute.sum()) for n, each in times.items()}
    return below_traced(made, {**totals, **{n: made[n] for n in traced if n in made}})


def _with_interval(row: Count, case: Case, found: Sequence[Doubt]) -> Count:
    """Return a row with its interval; none where the model's data runs out."""
    times = case.times[row.n]
    if times.head.get("emptied"):
        none = replace(row, model_low_s=None, model_high_s=None)
        return none if row.time_from == "measured" else replace(none, low_s=None, high_s=None)
    work = row.interval_parts.work or (1.0, 1.0)
    own = max(math.log(work[1]), -math.log(max(work[0], 1e-9)))
    off = case.computes(row.n) * case.work_missed
    beyond = max(math.log2(row.n / max(case.traced, default=row.n)), 0.0)
    runs, checked = (
        find_excess(case.residuals, case.rows, row.n),
        math.sqrt(max(off**2 - own**2, 0.0)),
    )
    ends = residual_ends(case.talk(row.n), beyond, runs, checked)
    heeded = [each for each in found if each.code not in case.facts.allowed]
    return with_interval(row, times, ends, rivals_at(heeded, row.n))


def _add_speedups(rows: Sequence[Count], facts: Facts) -> list[Count]:
    """Return the rows with their speedups, relative to the baseline."""
    base = baseline(rows)
    if not facts.weak:
        return [add_speedup(row, base) for row in rows]
    return [
        replace(add_speedup(row, base, row.n / base.n), setting=facts.settings.get(row.n))
        for row in rows
    ]


def _without_empty_ends(rows: Sequence[Count]) -> list[Count]:
    """Leave out the start, the end or the rest where it takes no time at any count."""
    parts = [phase for row in rows for phase in row.phases]
    divided = any(phase.phase in (START, END) for phase in parts)
    taken = {phase.phase for phase in parts if phase.time_s > 0}
    gone = {START, END, REST} - taken if divided else set()
    return [
        replace(row, phases=tuple(p for p in row.phases if p.phase not in gone)) for row in rows
    ]


#: What is not known of calls that are modelled.
_UNKNOWN_OF = {
    "MPI_Win_lock": "how long processes wait for a lock that another one holds (MPI_Win_lock)",
    "MPI_Win_allocate_shared": "loads and stores in shared windows are no calls: they count as "
    "computation (MPI_Win_allocate_shared)",
}


def list_notes(
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
