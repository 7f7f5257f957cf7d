"""What changes save at the counts of a prediction, with the interval of the difference.

The table of a report has the usual changes: one for each thing that could be better.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from p3s.base.arrays import Floats
from p3s.base.ops import blocking_of
from p3s.base.records import Traces, scaled_dir
from p3s.predict.estimated import SOFTWARE, TRANSFER
from p3s.predict.rows import draw_times, slowest_rank, with_transfer
from p3s.predict.times import (
    RESIDUAL,
    T90,
    Factors,
    PhaseTimes,
    coefficients,
    draws,
    factors,
    known_ends,
    own_parts,
    ratio,
)
from p3s.predict.types import Count, Prediction, WhatIf, WhatIfAt
from p3s.predict.what_if.changes import (
    NOT_ASKED,
    PLACEMENT,
    THREADS,
    Changes,
    MoreThreads,
    algorithm,
    check_phases,
    read_changes,
)
from p3s.predict.what_if.simulated import NOTHING, Scenario, SimulatedTimes, Simulation
from p3s.program.collectives.choose import Rule, algorithms
from p3s.program.collectives.registry import COLLECTIVES
from p3s.program.mapping import BLOCK, CYCLIC
from p3s.program.scaled import scaled_head

#: Messages take no time: tells transfer and serialisation apart.
IDEALLY = read_changes("network=ideal")
#: Steps of a count for which the usual changes are simulated without being asked for.
CHEAP = 30_000
#: The same of an ideal network alone: rows of the scaled trace that are read for it, and steps of
#: all counts together.
IDEAL_ROWS, IDEAL_STEPS = 300_000, 3_000_000
#: Rows of the scaled trace for that where smaller grids stand for all ranks.
IDEAL_ROWS_OF_GRIDS = 100_000


def cheap(root: Path, counts: Iterable[int]) -> bool:
    """Tell whether any of the counts is so small that it may be simulated without being asked for.

    By the rows of its scaled trace.
    """
    return any(_rows(root, n) <= IDEAL_ROWS for n in counts)


def _rows(root: Path, n: int) -> int:
    return int(scaled_head(scaled_dir(root, n)).get("rows") or 0)


def with_answers(
    traces: Traces,
    prediction: Prediction,
    asked: Sequence[Changes],
    costs: Scenario,
    *,
    threads: MoreThreads | str = NOT_ASKED,
    table: bool | None = None,
    say: Callable[[str], None],
) -> Prediction:
    """Return a prediction with what changes save.

    ``asked``: at all counts. ``table``: the usual ones too, at the largest count; None: where that
    takes a few seconds. ``threads``: what is known of other numbers of threads.

    Counts that are simulated on an ideal network, or quickly can be, get their
    transfer efficiency. ``costs``: those of the prediction. Errors: UsageError for a phase that
    there is not, P3SError, in one line, where changes cannot be simulated.
    """
    check_phases(asked, (phase.phase for row in prediction.counts for phase in row.phases))
    found: dict[str, WhatIf] = {}
    rows: list[Count] = []
    left = IDEAL_STEPS
    for row in reversed(prediction.counts):  # the largest count matters most
        quick = table is not False and _rows(traces.root, row.n) <= IDEAL_ROWS and left > 0
        moved = any(changes.moves for changes in asked)
        there = Simulation(traces, row.n, costs, threads, moved)
        if quick and not asked and _rows(traces.root, row.n) > IDEAL_ROWS_OF_GRIDS:
            quick = there.all_ranks
        if asked or quick or (table and row is prediction.last):
            small = table is not False and there.size <= CHEAP
            usual_too = row is prediction.last and (bool(table) or small)
            share = _answer_changes(prediction, row, there, asked, usual_too, found, say)
            if share is None and quick and there.size <= left:
                say(f"n={row.n}: on an ideal network")
                share = there.share(IDEALLY)
                left -= there.size
            row = row if share is None else with_transfer(row, share)
        rows.insert(0, row)
    most_first = sorted(found.values(), key=lambda each: -each.last.saved_s)
    return replace(prediction, counts=tuple(rows), what_if=tuple(most_first))


def _answer_changes(
    prediction: Prediction,
    row: Count,
    there: Simulation,
    asked: Sequence[Changes],
    usual_too: bool,
    found: dict[str, WhatIf],
    say: Callable[[str], None],
) -> float | None:
    """Add what changes save at a count to ``found``, which has those of larger counts.

    Returns the run time on an ideal network over that as it is, where that was one of them.
    """
    each = [(changes, True) for changes in asked]
    if usual_too:
        named = {changes.text for changes in asked}
        each += [(one, False) for one in usual(there, row) if one.text not in named]
    share = None
    for changes, own in each:
        say(f"n={row.n}: what if {changes.text}")
        at = answer(row, prediction.base, there.base, there.changed(changes), changes)
        if changes.text == IDEALLY.text and row.time_s > 0:
            share = at.time_s / row.time_s
        larger = found.get(changes.text)
        found[changes.text] = WhatIf(
            text=changes.text,
            asked=own,
            estimator=there.as_is.messages.name,
            why=there.as_is.why,
            notes=_notes(there, changes) if larger is None else larger.notes,
            counts=(at,) if larger is None else (at, *larger.counts),
        )
    return share


def _notes(there: Simulation, changes: Changes) -> tuple[str, ...]:
    """Return what explains what changes do at a count."""
    between = changes.of("latency", "bandwidth", PLACEMENT)
    if there.n > 1 and between and not there.ready[0].node_of.any():
        return (f"all ranks are on one node at {there.n} processes: no message is between nodes",)
    return ()


def answer(
    row: Count, base: Count, as_is: SimulatedTimes, changed: SimulatedTimes, changes: Changes
) -> WhatIfAt:
    """Return what changes do at a count.

    The simulation says by which share they make the run shorter; that is taken of the time of the
    prediction. ``base``: the count that speedups relate to.
    """
    one, other = as_is.times.run_s, changed.times.run_s
    scale = row.time_s / one
    time, saved = scale * other, scale * (one - other)
    speedup = base.time_s / time if time > 0 else 0.0
    both = _draw_times(row, as_is, changed, changes)
    after = None if both is None else scale * both[1]
    less = None if both is None else scale * both[0] - scale * both[1]
    time_ends, saved_ends = known_ends(after, time), known_ends(less, saved)
    over = known_ends(ratio(draw_times(base), after) if time > 0 else None, speedup)
    return WhatIfAt(
        n=row.n,
        time_s=time,
        low_s=time_ends[0],
        high_s=time_ends[1],
        saved_s=saved,
        saved_low_s=saved_ends[0],
        saved_high_s=saved_ends[1],
        speedup=speedup,
        speedup_low=over[0],
        speedup_high=over[1],
    )


def _draw_times(
    row: Count, as_is: SimulatedTimes, changed: SimulatedTimes, changes: Changes
) -> Floats | None:
    """Return draws of both simulated times in s, (2, NUMBER); None where they are not known.

    All parts of the row's interval move both at once. Of the changed time alone is what changes do
    where that is not known exactly; of each alone are messages that the prediction has not.
    """
    own = own_parts(as_is.times), own_parts(changed.times)
    if own[0] is None or own[1] is None or row.low_s is None:
        return None
    one, other = as_is.times.run_s, changed.times.run_s
    rest = draws({RESIDUAL: row.interval_parts.residual}, row.interval_parts.rivals)
    alone: dict[str, Factors | None] = {}
    more: dict[str, Factors | None] = {}
    if changed.ends is not None:
        more["what changes do"] = factors(other, *(each.run_s for each in changed.ends))
    if changes.other_messages:
        alone["messages"] = _messages(as_is.times)
        more["other messages"] = _messages(changed.times)
    return np.stack([one * rest * draws(own[0] | alone), other * rest * draws(own[1] | more)])


def _messages(times: PhaseTimes) -> Factors:
    """Return the ends of a run time whose messages, without waiting, no run had."""
    mpi = times.mpi.seconds
    if not mpi.size:
        return 1.0, 1.0
    rank = slowest_rank(times)
    seconds = float(np.nansum(mpi[TRANSFER, rank] + mpi[SOFTWARE, rank]))
    share = T90 * coefficients()["messages"] * seconds / max(times.run_s, 1e-300)
    return 1.0 - share, 1.0 + share


#: Phases that are in the table, and the least share of the run time that they compute.
_PHASES, _LEAST = 3, 0.01
#: Times as many steps as the program has now: algorithms that make more are not tried.
_MORE_STEPS = 4
#: An algorithm that saves less than this share of the run time is not worth naming.
_WORTH = 1e-3


def usual(there: Simulation, row: Count) -> list[Changes]:
    """Return the usual changes to a program at one count.

    The phases that compute longest twice as fast, balanced ranks, half the latency, twice the
    bandwidth, an ideal network, of each collective the algorithm that does best (if one does better
    than that of now), ranks dealt to nodes the other way where the network between nodes is known,
    twice the threads of a process where laws of threads tell what that does.
    """
    found = [read_changes(f"phase {phase} / 2") for phase in _busiest(row)]
    found += [read_changes(f"{THREADS}={count}") for count in _threads(there)]
    if there.n == 1:
        return found
    texts = ("balanced", "latency / 2", "bandwidth * 2", "network=ideal")
    found += [read_changes(text) for text in texts]
    found += [read_changes(algorithm(rule).text) for rule in _algorithms(there)]
    if there.as_is.setting.topology and int(there.ready[0].node_of.max()) > 0:
        kind = there.as_is.setting.mapping
        found.append(read_changes(f"placement={CYCLIC if kind == BLOCK else BLOCK}"))
    return found


def _threads(there: Simulation) -> list[int]:
    """Return the number of threads of a process that is worth a row; none where laws tell none."""
    known = there.threads
    if not isinstance(known, MoreThreads) or there.as_is.setting.listed_at(there.n):
        return []
    if not there.all_ranks:  # where ranks are is a matter of all of them
        return []
    return [] if known.twice is None else [known.twice]


def _busiest(row: Count) -> list[int]:
    """Return the phases that compute longest, the longest first."""
    busy = [phase for phase in row.phases if phase.compute_s > _LEAST * row.model_s]
    busy.sort(key=lambda phase: -phase.compute_s)
    return [phase.phase for phase in busy[:_PHASES]]


def _algorithms(there: Simulation) -> Iterator[Rule]:
    """Yield the best other algorithm of each collective of the program, where it saves anything.

    They are sorted by simulations in which nothing varies.
    """
    trace = there.ready[0].trace
    names = {blocking_of(trace.ops[op]) for op in np.unique(trace.op).tolist()}
    calls = sorted(name.removeprefix("MPI_").lower() for name in names)
    usual_time: float | None = None
    for call in calls:
        times = {}
        for name in dict.fromkeys(algorithms(call)):
            if name in COLLECTIVES[call].algorithms:
                rule = Rule(call, name)
                seconds = _seconds(there, Changes("", (algorithm(rule),)))
                if seconds is not None:
                    times[rule] = seconds
        if not times:
            continue
        if usual_time is None:
            usual_time = _seconds(there, NOTHING) or 0.0
        best = min(times, key=lambda rule: times[rule])
        if times[best] < (1.0 - _WORTH) * usual_time:
            yield best


def _seconds(there: Simulation, changes: Changes) -> float | None:
    """Return the run time with changes where nothing varies; None: there are too many steps."""
    times = there.even(changes, most=_MORE_STEPS * there.size)
    return None if times is None else times.run_s
