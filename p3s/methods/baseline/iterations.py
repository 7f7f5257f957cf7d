"""Run times from tables of iterations of a master and workers, and what speaks against them.

A table has one row per iteration: CSV as the programs of examples/master_worker print it, or
Parquet. Columns of workers hold one number per worker: in CSV joined by semicolons, in Parquet as
lists. Source: A. Castellanos Carrazana, UAB 2014, section 1.4: workers finish in the order in which
they were served, and times of messages do not vary. Balance is not modelled, it is checked.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from p3s.base.arrays import Floats
from p3s.base.errors import P3SError, UsageError
from p3s.base.foreign_formats import ReadBy, refuse_foreign
from p3s.methods.baseline.read import parquet_rows
from p3s.methods.baseline.times import REDUCTIONS, RunTime, Times

#: A worker's time may be this much above that of the iteration: clocks of two nodes differ.
_CLOCKS = 1e-6


@dataclass(frozen=True)
class Row:
    """One iteration. Times in s; tuples have one entry per worker.

    W: workload. K: workers. T: threads of each. T_iter: from the master's preparing to its merging.
    mu_m: the master's own work. mu: of each worker; T_c: their sum (eq. 4.10). send_m, recv_m: in
    the master's calls; send, recv: in the workers'. region: in their parallel regions.
    """

    app: str
    machine: str
    run: int
    iteration: int
    W: float
    processes: int
    K: int
    T: int
    affinity: str
    T_iter: float
    mu_m: float
    T_c: float
    send_m: float
    recv_m: float
    mu: tuple[float, ...]
    region: tuple[float, ...]
    recv: tuple[float, ...]
    send: tuple[float, ...]


@dataclass(frozen=True)
class Run:
    """A run reduced to one iteration: what it is of, and its times by the statistic, in s."""

    app: str
    machine: str
    run: int
    W: float
    K: int
    T: int
    affinity: str
    seconds: float
    compute: tuple[float, ...]
    iterations: int
    rows: tuple[Row, ...] = field(repr=False, default=())


def read_iterations(paths: Iterable[Path]) -> list[Row]:
    """Return the iterations of files, by suffix CSV or Parquet.

    Errors: P3SError with file and row for a column that is missing, a value of another kind, more
    times than workers, a T_c that is not the sum of mu, or a worker slower than its iteration.
    """
    out = []
    for path in map(Path, paths):
        rows = parquet_rows(path) if path.suffix.lower() == ".parquet" else _csv(path)
        out += [_row(row, f"{path}: row {number}") for number, row in enumerate(rows, 2)]
    return out


def _csv(path: Path) -> list[dict[str, Any]]:
    refuse_foreign(path, ReadBy.OWN)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise P3SError(f"{path}: cannot be read as a table of iterations") from error
    return list(csv.DictReader(line for line in lines if line.strip()))


def _row(data: Mapping[str, Any], where: str) -> Row:
    values: dict[str, Any] = {}
    for each in fields(Row):
        value = data.get(each.name)
        if value is None:
            raise P3SError(f"{where}: no {each.name}; a table of iterations needs it")
        try:
            values[each.name] = _KINDS[str(each.type)](value)
        except (TypeError, ValueError) as error:
            raise P3SError(f"{where}: {each.name} is {value!r:.40}") from error
    return _check_row(Row(**values), where)


def _number(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number) or number < 0:
        raise ValueError(value)
    return number


def _numbers(value: Any) -> tuple[float, ...]:
    if isinstance(value, str):
        value = [part for part in value.split(";") if part]
    return tuple(_number(part) for part in value or ())


_KINDS: Mapping[str, Callable[[Any], Any]] = {
    "str": str,
    "int": int,
    "float": _number,
    "tuple[float, ...]": _numbers,
}


def _check_row(row: Row, where: str) -> Row:
    for name in ("mu", "region", "recv", "send"):
        if len(getattr(row, name)) != row.K:
            raise P3SError(f"{where}: {name} has not one time for each of {row.K} workers")
    if not math.isclose(row.T_c, sum(row.mu), rel_tol=1e-6, abs_tol=1e-9):
        raise P3SError(f"{where}: T_c is {row.T_c:g}, the sum of mu {sum(row.mu):g}")
    if row.K < 1 or row.processes != row.K + 1 or row.T < 1 or not row.T_iter > 0:
        raise P3SError(f"{where}: {row.processes} processes, {row.K} workers, {row.T} threads")
    if max(row.mu) > row.T_iter * (1 + _CLOCKS):
        raise P3SError(f"{where}: a worker computes longer than the iteration; mixed units?")
    return row


def runs(rows: Iterable[Row], statistic: str = "median", *, skip: int = 1) -> list[Run]:
    """Return each run with its times: of its iterations the median, the mean or the least.

    skip: iterations at its beginning that do not count where others are left. UsageError for
    another statistic.
    """
    if statistic not in REDUCTIONS:
        raise UsageError(f"{statistic}: no statistic of iterations; one of {', '.join(REDUCTIONS)}")
    of, runs_found = REDUCTIONS[statistic], []
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        key = (row.app, row.machine, row.run, row.W, row.K, row.T, row.affinity)
        groups.setdefault(key, []).append(row)
    for rows_of_run in groups.values():
        rows_of_run.sort(key=lambda row: row.iteration)
        kept_rows, one = rows_of_run[skip:] or rows_of_run, rows_of_run[0]
        compute = tuple(of([row.mu[i] for row in kept_rows]) for i in range(one.K))
        seconds = of([row.T_iter for row in kept_rows])
        about = (one.app, one.machine, one.run, one.W, one.K, one.T, one.affinity)
        runs_found.append(Run(*about, seconds, compute, len(kept_rows), tuple(rows_of_run)))
    return runs_found


#: What is still accepted: time of the slowest worker over the mean, less 1; coefficients of
#: variation between iterations, of communication and of the whole.
_IMBALANCE, _COMMUNICATION, _ITERATION = 0.10, 0.20, 0.20
#: Communication that is less of an iteration than this does not count; the fewest iterations.
_SHARE, _ITERATIONS = 0.05, 3


@dataclass(frozen=True)
class RunVerdict:
    """What a run's iterations say.

    codes: none (it passes), unbalanced, unstable-communication, unstable-iterations,
    too-few-iterations. imbalance: median over the iterations; slowest: the worker with the largest
    median, from 1 on. share: of communication in an iteration.
    """

    codes: tuple[str, ...]
    imbalance: float
    slowest: int
    communication_variation: float
    iteration_variation: float
    share: float
    iterations: int

    @property
    def passes(self) -> bool:
        """Return whether the models apply."""
        return not self.codes


def check(
    seconds: npt.ArrayLike, compute: npt.ArrayLike, master: npt.ArrayLike = 0.0, *, skip: int = 1
) -> RunVerdict:
    """Return what the iterations of one run say of it.

    seconds: of each iteration. compute: (iterations, workers), s of each worker. master: s of its
    own work in each iteration. skip: iterations at the beginning that do not count where more than
    _ITERATIONS are left. What is neither of the master nor of the slowest worker is
    communication (eq. 3.1).
    """
    t, mu = np.asarray(seconds, dtype=np.float64), np.asarray(compute, dtype=np.float64)
    master_seconds = np.broadcast_to(np.asarray(master, dtype=np.float64), t.shape)
    if len(t) - skip >= _ITERATIONS:
        t, mu, master_seconds = t[skip:], mu[skip:], master_seconds[skip:]
    slowest, mean = mu.max(axis=1), mu.mean(axis=1)
    imbalance = float(np.median(np.where(mean > 0, slowest / np.where(mean > 0, mean, 1), 1))) - 1
    rest = np.maximum(t - slowest - master_seconds, 0.0)
    return _verdict(
        RunVerdict(
            (),
            imbalance,
            1 + int(np.argmax(np.median(mu, axis=0))),
            variation(rest),
            variation(t),
            float(np.median(rest / t)),
            len(t),
        )
    )


def variation(values: Floats) -> float:
    """Return the coefficient of variation: standard deviation over mean, 0 where these are 0."""
    mean = float(np.mean(values))
    return float(np.std(values, ddof=1)) / mean if mean > 0 and len(values) > 1 else 0.0


def _verdict(verdict: RunVerdict) -> RunVerdict:
    heavy = verdict.share >= _SHARE
    wrong = {
        "too-few-iterations": verdict.iterations < _ITERATIONS,
        "unbalanced": verdict.imbalance > _IMBALANCE,
        "unstable-communication": heavy and verdict.communication_variation > _COMMUNICATION,
        "unstable-iterations": verdict.iteration_variation > _ITERATION,
    }
    return replace(verdict, codes=tuple(code for code, is_so in wrong.items() if is_so))


@dataclass(frozen=True)
class IterationTimes:
    """Run times of iterations; checked: what the iterations of each of the runs say of it."""

    times: Times
    runs: tuple[Run, ...]
    checked: tuple[RunVerdict, ...]

    @property
    def doubtful(self) -> list[tuple[Run, RunVerdict]]:
        """Runs that the models of a master and workers do not apply to, the least even first."""
        pairs = [(r, c) for r, c in zip(self.runs, self.checked, strict=True) if not c.passes]
        return sorted(pairs, key=lambda pair: -pair[1].imbalance)


def time_iterations(
    paths: Iterable[Path], statistic: str = "median", *, skip: int = 1, computed: bool = False
) -> IterationTimes:
    """Return the time of an iteration of each run, with workload and threads as inputs.

    statistic: median, mean or min of a run's iterations. skip: iterations at its beginning that do
    not count. computed: only the shortest run of each configuration, with T_c, the computation of
    all workers (eq. 4.10), as an input. Errors: as of
    :func:`read_iterations`.
    """
    all_runs = runs(read_iterations(paths), statistic, skip=skip)
    if not all_runs:
        raise P3SError("no iterations in these tables; a line per iteration is needed")
    runs_used = _shortest(all_runs) if computed else all_runs
    repeat_of: dict[tuple[object, ...], int] = {}
    rows = []
    for run in runs_used:
        key = _configuration(run)
        repeat_of[key] = repeat_of.get(key, -1) + 1
        rows.append(_run_time(run, repeat_of[key], computed))
    verdicts = tuple(_checked_run(run, skip) for run in all_runs)
    return IterationTimes(Times(tuple(rows)), tuple(all_runs), verdicts)


def _checked_run(run: Run, skip: int) -> RunVerdict:
    rows = run.rows
    return check([r.T_iter for r in rows], [r.mu for r in rows], [r.mu_m for r in rows], skip=skip)


def _configuration(run: Run) -> tuple[object, ...]:
    return run.app, run.machine, run.W, run.K, run.T, run.affinity


def _shortest(runs: Sequence[Run]) -> list[Run]:
    shortest: dict[tuple[object, ...], Run] = {}
    for run in runs:
        best = shortest.setdefault(_configuration(run), run)
        if run.seconds < best.seconds:
            shortest[_configuration(run)] = run
    return list(shortest.values())


def _run_time(run: Run, repeat: int, computed: bool) -> RunTime:
    inputs = (("workload", run.W), ("threads", float(run.T)))
    return RunTime(
        run.K + 1,
        run.seconds,
        repeat,
        (*inputs, ("t_c", sum(run.compute))) if computed else inputs,
        (("app", run.app), ("machine", run.machine), ("affinity", run.affinity)),
    )
