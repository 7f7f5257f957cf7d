"""One estimator at one process count, and at several at once (p3s.base.workers)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from p3s.base import workers
from p3s.base.arrays import Floats
from p3s.base.errors import P3SError
from p3s.base.extensions import load
from p3s.base.records import Traces, is_old_replay, read_replay, replay_path, scaled_dir
from p3s.base.tables import check_sums, known_tables, read_table
from p3s.base.text import processes, quote_word
from p3s.machine.machinefile import Machine
from p3s.predict.estimated import (
    COMM,
    ESTIMATORS,
    FROM_REPLAY,
    HIGH,
    LOW,
    Communication,
    Say,
    silent,
)
from p3s.predict.estimators.messages import library_for, machine_path, with_packing
from p3s.predict.estimators.settings import USUAL, Setting
from p3s.predict.times import read_head
from p3s.predict.types import few
from p3s.program.own_costs import measured_packing, usual_packing
from p3s.program.scaled import read_scaled
from p3s.simulate.totals import SimulationGaps

#: Columns of a replay's table, as the parts of Communication.seconds, and the sum of calls.
_PARTS = ("comm_ns", "waiting_ns", "transfer_ns", "software_ns", "comm_low_ns", "comm_high_ns")
_COLUMNS = (*_PARTS, "thesis_ns")
_NS_PER_S = 1e9


def _of_replay(
    name: str, traces: Traces, n: int, machine: Path | None, setting: Setting, _say: Say = silent
) -> Communication:
    """Return what a replay said, with the packing of a study's datatypes: its bytes have no gaps.

    ``name``: ``simulation``, its dependency simulation, or ``thesis``, the sum of each rank's own
    calls.
    """
    found, scaled = communication(name, traces, n), scaled_dir(traces.root, n)
    if not read_head(scaled, n).get("packed"):
        return found
    path = machine_path(traces, machine)
    known = Machine.load(path) if path.exists() else None
    costs = measured_packing(known.network or {}) if known is not None else None
    costs = costs or usual_packing(library_for(traces, known, setting).family)
    return with_packing(found, read_scaled(scaled), costs)


simulation, thesis = (partial(_of_replay, name) for name in FROM_REPLAY)


def communication(name: str, traces: Traces, n: int) -> Communication:
    """Return what the replay's table says, as the estimator ``simulation`` or ``thesis``.

    The sum of calls knows neither waiting nor an interval: its parts are NaN, its ends itself.
    """
    phases = _phases(traces, n)
    head = read_replay(traces.root, n)
    path = replay_path(traces.root, n).with_suffix(".parquet")
    columns = _table(path, n, phases, head)
    notes = tuple(_list_guesses(head))
    if name == "thesis":
        made = Communication.of_sum(name, n, phases, columns["thesis_ns"])
        notes = "each rank's own calls alone: nobody waits for a late partner", *notes
    else:
        seconds = np.stack([columns[part] for part in _PARTS])
        seconds[LOW] = np.minimum(seconds[LOW], seconds[COMM])
        seconds[HIGH] = np.maximum(seconds[HIGH], seconds[COMM])
        followed = SimulationGaps().with_unmatched(head.get("unmatched") or {})
        made = Communication(name, n, phases, seconds, followed=followed)
    why = "" if head.get("representative") else head.get("why_not_representative")
    why = "no reason given" if why is None else str(why)
    return replace(made, why_not=why, notes=notes, left_out=_left_out(head))


def _phases(traces: Traces, n: int) -> tuple[int, ...]:
    head = read_head(scaled_dir(traces.root, n), n)
    return tuple(int(phase["phase"]) for phase in head["phases"])


def _list_guesses(head: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a replay guessed."""
    yield from map(str, head.get("notes") or ())
    if head.get("unmeasured"):
        yield "some classes of events could not be measured"
    if twins := sorted(map(str, head.get("as_blocking") or ())):
        yield f"replayed without progress between the call and its completion: {', '.join(twins)}"


def _left_out(head: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what no cost of a replay holds: calls that set up, and those without a cost."""
    found = []
    if free := [str(entry.get("op")) for entry in head.get("left_out") or ()]:
        found.append(f"the time of calls that set up communicators and the like: {few(free)}")
    reasons: dict[str, list[str]] = {}
    for entry in head.get("unmeasured") or ():
        if entry.get("cost") == "none":
            why = str(entry.get("reason") or "could not be executed")
            reasons.setdefault(why, []).append(str(entry.get("op")))
    for why, ops in reasons.items():
        if set(ops) - {"MPI_Init", "MPI_Init_thread", "MPI_Finalize"}:
            found.append(f"not replayed and assumed to cost nothing: {few(ops)} ({why})")
    return tuple(found)


def _table(
    path: Path, n: int, phases: tuple[int, ...], head: Mapping[str, Any]
) -> dict[str, Floats]:
    """Return the columns of the replay's table in seconds, shape (ranks, phases).

    Raises P3SError when the table is damaged or does not belong to these phases.
    """
    again = "run p3s replay again"
    try:
        kinds = {"rank": int, "phase": int, **dict.fromkeys(_COLUMNS, float)}
        known = known_tables(head)
        table = read_table(path, kinds, known)
        rank = table.column("rank").to_numpy().astype(np.int64)
        phase = table.column("phase").to_numpy().astype(np.int64)
        values = {name: table.column(name).to_numpy().astype(np.float64) for name in _COLUMNS}
        check_sums({name: float(values[name].sum()) for name in _COLUMNS}, known)
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as err:
        why = " ".join(str(err).split())[:120]
        raise P3SError(f"{path}: damaged ({why}); {again}") from err
    slot = {number: i for i, number in enumerate(phases)}
    if len(rank) and (rank.min() < 0 or rank.max() >= n or not set(phase.tolist()) <= set(slot)):
        raise P3SError(
            f"{path}: damaged: a row has a rank or phase that is not in scaled.json; {again}"
        )
    width = max(len(phases), 1)
    where = rank * width + np.array([slot[p] for p in phase.tolist()], dtype=np.int64)
    found = {}
    for name, column in values.items():
        if not np.isfinite(column).all() or (column < 0).any():
            raise P3SError(f"{path}: damaged: {name} is negative or no number; {again}")
        summed = np.bincount(where, weights=column, minlength=n * width)
        found[name] = np.asarray(summed.reshape(n, width)[:, : len(phases)] / _NS_PER_S)
    return found


#: Two counts of so many ranks are worth a second process: it imports and reads all that one does.
#: Where estimators only read a table it would cost more than it saves.
_WORTH = 512


def available(traces: Traces, n: int, *, machine: Path | None = None) -> dict[str, str]:
    """Return for every estimator "" or, in one sentence, why it cannot be used at ``n``.

    ``machine``: machine file, default the study's own. Reads heads of files only.
    """
    return {name: _why_not(name, traces, n, machine) for name in ESTIMATORS}


def lacking(name: str, traces: Traces, machine: Path | None) -> str:
    """Return "" or what an estimator lacks at any count: costs of messages, a simulator."""
    where = ESTIMATORS[name].why_not
    return str(load(where)(traces, machine)) if where else ""


def _why_not(name: str, traces: Traces, n: int, machine: Path | None) -> str:
    if not (scaled_dir(traces.root, n) / "scaled.json").exists():
        run = f"p3s scale {quote_word(traces.root)} -n {n}"
        return f"there is no scaled trace of {processes(n)}; run {run}"
    if n == 1:
        return ""  # one process communicates with nobody
    if name not in FROM_REPLAY:
        return lacking(name, traces, machine)
    path = replay_path(traces.root, n)
    again = f"p3s replay {quote_word(traces.root)} -n {n}"
    if not path.exists() or not path.with_suffix(".parquet").exists():
        return f"there is no replay of {processes(n)}; run {again}"
    if is_old_replay(path):
        return f"the replay of {processes(n)} was made by an older P3S; make it again: {again}"
    return ""


def estimate(
    name: str,
    traces: Traces,
    n: int,
    *,
    machine: Path | None = None,
    say: Say = silent,
    setting: Setting = USUAL,
) -> Communication:
    """Return the communication of ``n`` processes as one estimator says it, of the whole run.

    ``name``: a key of ESTIMATORS. ``machine``: machine file, default the study's own. ``setting``:
    cluster and library, for those that simulate here. Raises P3SError, one line, when the
    estimator cannot be used or what it reads is damaged.
    """
    if name not in ESTIMATORS:
        raise P3SError(f"no estimator {name!r}; known: {', '.join(ESTIMATORS)}")
    why = _why_not(name, traces, n, machine)
    if why:
        raise P3SError(f"estimator {name} at {processes(n)}: {why}")
    if n == 1:
        return Communication.none(name, 1, _phases(traces, 1), 1)
    made: Communication = load(ESTIMATORS[name].communication)(traces, n, machine, setting, say)
    return made


def estimate_many(
    name: str,
    traces: Traces,
    counts: Sequence[int],
    *,
    machine: Path | None = None,
    jobs: int = 0,
    say: Say = silent,
    setting: Setting = USUAL,
    done: Callable[[int], None] = silent,
) -> dict[int, Communication]:
    """Return ``estimate`` of several counts, on ``jobs`` cores (0: those that may be used,
    where at least two counts are large).

    ``done`` is told every count that is ready. The result does not depend on ``jobs``; the largest
    counts are begun first. Errors as in ``estimate``: of the first count, in the given order, that
    has one.
    """
    wanted = list(dict.fromkeys(counts))
    order = sorted(wanted, reverse=True)
    beside = _absolute(traces)
    tasks = [(name, beside, n, machine, setting) for n in order]
    if name in FROM_REPLAY or (not jobs and sorted([0, 0, *wanted])[-2] < _WORTH):
        jobs = 1
    found: dict[int, Communication] = {}
    failed: dict[int, P3SError] = {}
    for n, (made, said) in zip(
        order,
        workers.run_tasks(_try_estimate, tasks, traces.root / "study.json", jobs),
        strict=True,
    ):
        for line in said:
            say(line)
        if isinstance(made, P3SError):
            failed[n] = made
        else:
            found[n] = made
            done(n)
    for n in wanted:
        if n in failed:
            raise failed[n]
    return {n: found[n] for n in wanted}


def _absolute(traces: Traces) -> Traces:
    """Return traces as a process in another directory finds them."""
    runs, timed = (
        tuple(replace(run, path=run.path.absolute()) for run in some)
        for some in (traces.runs, traces.timed)
    )
    return Traces(traces.root.absolute(), traces.command, runs, timed, traces.unused)


def _try_estimate(
    name: str, traces: Traces, n: int, machine: Path | None, setting: Setting
) -> tuple[Communication | P3SError, list[str]]:
    """Return an estimate, or why there is none, and what was said meanwhile."""
    said: list[str] = []
    try:
        made = estimate(name, traces, n, machine=machine, say=said.append, setting=setting)
    except P3SError as err:
        return err, said
    return made, said
