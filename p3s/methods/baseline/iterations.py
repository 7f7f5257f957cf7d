"""Run times from tables of iterations of a master and workers, and what speaks against them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from p3s.base.errors import P3SError
from p3s.methods.baseline import iteration_check, iteration_table
from p3s.methods.baseline.iteration_check import Checked
from p3s.methods.baseline.iteration_table import Run
from p3s.methods.baseline.times import RunTime, Times


@dataclass(frozen=True)
class Iterated:
    """Run times of iterations; checked: what the iterations of each of the runs say of it."""

    times: Times
    runs: tuple[Run, ...]
    checked: tuple[Checked, ...]

    @property
    def doubtful(self) -> list[tuple[Run, Checked]]:
        """Runs that the models of a master and workers do not apply to, the least even first."""
        pairs = [(r, c) for r, c in zip(self.runs, self.checked, strict=True) if not c.passes]
        return sorted(pairs, key=lambda pair: -pair[1].imbalance)


def iterated(
    paths: Iterable[Path], statistic: str = "median", *, skip: int = 1, computed: bool = False
) -> Iterated:
    """Return the time of an iteration of each run, with workload and threads as inputs.

    statistic: median, mean or min of a run's iterations. skip: iterations at its beginning that do
    not count. computed: only the shortest run of each configuration, with T_c, the computation of
    all workers (eq. 4.10), as an input. Errors: as of
    :func:`p3s.methods.baseline.iteration_table.read`.
    """
    runs = iteration_table.runs(iteration_table.read(paths), statistic, skip=skip)
    if not runs:
        raise P3SError("no iterations in these tables; a line per iteration is needed")
    checked = [_checked(run, skip) for run in runs]
    kept = _shortest(runs) if computed else runs
    seen: dict[tuple[object, ...], int] = {}
    rows = []
    for run in kept:
        key = _configuration(run)
        seen[key] = seen.get(key, -1) + 1
        rows.append(_run_time(run, seen[key], computed))
    return Iterated(Times(tuple(rows)), tuple(runs), tuple(checked))


def _checked(run: Run, skip: int) -> Checked:
    rows = run.rows
    return iteration_check.check(
        [r.T_iter for r in rows], [r.mu for r in rows], [r.mu_m for r in rows], skip=skip
    )


def _configuration(run: Run) -> tuple[object, ...]:
    return run.app, run.machine, run.W, run.K, run.T, run.affinity


def _shortest(runs: Sequence[Run]) -> list[Run]:
    found: dict[tuple[object, ...], Run] = {}
    for run in runs:
        best = found.setdefault(_configuration(run), run)
        if run.seconds < best.seconds:
            found[_configuration(run)] = run
    return list(found.values())


def _run_time(run: Run, repeat: int, computed: bool) -> RunTime:
    inputs = (("workload", run.W), ("threads", float(run.T)))
    return RunTime(
        run.K + 1,
        run.seconds,
        repeat,
        (*inputs, ("t_c", sum(run.compute))) if computed else inputs,
        (("app", run.app), ("machine", run.machine), ("affinity", run.affinity)),
    )
