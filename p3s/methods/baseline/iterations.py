"""Run times from tables of iterations of a master and workers, and what speaks against them.

Source: A. Castellanos Carrazana, UAB 2014, section 1.4: workers finish in the order in which they
were served, and times of messages do not vary. Balance is not modelled, it is checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from p3s.base.arrays import Floats
from p3s.base.errors import P3SError
from p3s.methods.baseline import iteration_table
from p3s.methods.baseline.iteration_table import Run
from p3s.methods.baseline.times import RunTime, Times


@dataclass(frozen=True)
class Limits:
    """What is still accepted.

    imbalance: time of the slowest worker over the mean, less 1. communication, iteration:
    coefficients of variation between iterations. share: communication that is less of an iteration
    than this does not count. iterations: the fewest that tell.
    """

    imbalance: float = 0.10
    communication: float = 0.20
    iteration: float = 0.20
    share: float = 0.05
    iterations: int = 3


@dataclass(frozen=True)
class Checked:
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
    seconds: npt.ArrayLike,
    compute: npt.ArrayLike,
    master: npt.ArrayLike = 0.0,
    *,
    skip: int = 1,
    limits: Limits | None = None,
) -> Checked:
    """Return what the iterations of one run say of it.

    seconds: of each iteration. compute: (iterations, workers), s of each worker. master: s of its
    own work in each iteration. skip: iterations at the beginning that do not count where more than
    ``limits.iterations`` are left. What is neither of the master nor of the slowest worker is
    communication (eq. 3.1). P3SError where shapes differ or a worker takes longer than its
    iteration.
    """
    limits = limits or Limits()
    t, mu = np.asarray(seconds, dtype=np.float64), np.asarray(compute, dtype=np.float64)
    own = np.broadcast_to(np.asarray(master, dtype=np.float64), t.shape)
    if mu.ndim != 2 or t.ndim != 1 or len(t) != len(mu) or mu.shape[1] < 1 or not len(t):
        raise P3SError("iterations: one time each, and one of every worker, are needed")
    if (mu.max(axis=1) > t * (1 + 1e-6)).any() or not (t > 0).all():
        raise P3SError("iterations: a worker computes longer than its iteration; mixed units?")
    if len(t) - skip >= limits.iterations:
        t, mu, own = t[skip:], mu[skip:], own[skip:]
    slowest, mean = mu.max(axis=1), mu.mean(axis=1)
    imbalance = float(np.median(np.where(mean > 0, slowest / np.where(mean > 0, mean, 1), 1))) - 1
    rest = np.maximum(t - slowest - own, 0.0)
    return _verdict(
        Checked(
            (),
            imbalance,
            1 + int(np.argmax(np.median(mu, axis=0))),
            variation(rest),
            variation(t),
            float(np.median(rest / t)),
            len(t),
        ),
        limits,
    )


def variation(values: Floats) -> float:
    """Return the coefficient of variation: standard deviation over mean, 0 where these are 0."""
    mean = float(np.mean(values))
    return float(np.std(values, ddof=1)) / mean if mean > 0 and len(values) > 1 else 0.0


def _verdict(found: Checked, limits: Limits) -> Checked:
    heavy = found.share >= limits.share
    wrong = {
        "too-few-iterations": found.iterations < limits.iterations,
        "unbalanced": found.imbalance > limits.imbalance,
        "unstable-communication": heavy and found.communication_variation > limits.communication,
        "unstable-iterations": found.iteration_variation > limits.iteration,
    }
    values = {**vars(found), "codes": tuple(code for code, is_so in wrong.items() if is_so)}
    return Checked(**values)


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
    return check([r.T_iter for r in rows], [r.mu for r in rows], [r.mu_m for r in rows], skip=skip)


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
