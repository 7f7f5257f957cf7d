"""Samples of computing time over processes and threads, from traced runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from p3s.base.errors import P3SError
from p3s.costs.apply import Costs, predicted_sums
from p3s.costs.gather import TracedComputation, measured_at
from p3s.costs.types import ComputeModel
from p3s.methods.threads.types import Samples, samples
from p3s.model.types import Model
from p3s.signature.teams import PARTS, WALL_PARTS, Teams
from p3s.signature.times import Times

#: Phases that take less than this share of the computation at every count have no law.
SMALL = 1e-3
#: Parts of a phase make up its time within this share of it, beside noise, forks and joins.
MAKE_UP = 0.1
#: Work is evaluated up to this count.
EVALUATED = 256


@dataclass(frozen=True)
class Run:
    """The runs of a count with one number of threads.

    rest: name of the values of the input; times, teams: None where none were taken. shared:
    whether threads shared cores: then wall times, as those of waiting, tell nothing.
    """

    rest: str
    threads: int
    n: int
    times: Times | None
    teams: Teams | None
    shared: bool


class Work:
    """What a process computes by the laws of a model; remembers what was evaluated."""

    def __init__(self, compute: ComputeModel, model: Model) -> None:
        """Take the laws, of the base's threads."""
        self.model = model
        self._costs = Costs(compute, model)
        self._evaluated: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def at(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the seconds of one iteration of each phase, mean of ranks, and iterations."""
        if n not in self._evaluated:
            sums, grid = predicted_sums(self._costs, n)
            weights = self._costs.weights(grid)
            self._evaluated[n] = (np.asarray(1e-9 * sums.ns / n / weights), weights)
        return self._evaluated[n]

    def over(self, counts: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Return work and iterations at counts, (counts, phases) each.

        Evaluated at the traced counts and at doublings of the largest up to EVALUATED; straight in
        the logarithms between them and, within bounds, beyond.
        """
        traced, top = self.model.counts, max(self.model.counts)
        at, work, times = [], [], []
        for n in sorted({*traced, *(top << k for k in range(11) if top << k <= EVALUATED)}):
            try:
                each, iterations = self.at(n)
            except P3SError:  # the program does not take this count
                continue
            at.append(n)
            work.append(each)
            times.append(iterations)
        return _interpolate_rows(counts, at, np.array(work)), _interpolate_rows(
            counts, at, np.array(times)
        )


def samples_of(
    runs: Iterable[Run], bases: Mapping[str, Work], usable: int, slots: int
) -> Samples | None:
    """Return the computing times of runs by phase; None where there are none.

    bases: by the values of the input, with the base's threads; phases are those of their models,
    and work is what their laws say a process computes in an iteration, in seconds. usable: cores of
    the machine of the runs; slots: hardware threads of the node: runs with more threads in a
    process are left out.
    """
    runs_used = [run for run in runs if run.threads <= slots and run.rest in bases]
    rows = [row for run in runs_used for row in _rows(run, bases[run.rest], usable)]
    if not rows:
        return None
    columns: dict[str, Any] = {name: [row[name] for row in rows] for name in rows[0]}
    return samples(**columns)


def calls_inside(runs: Iterable[Run]) -> float:
    """Return the largest share of a run's MPI calls that threads made in parallel regions."""
    return max((run.teams.inside for run in runs if run.teams is not None), default=0.0)


def _interpolate_rows(counts: Sequence[int], at: Sequence[int], rows: np.ndarray) -> np.ndarray:
    """Return rows (counts, phases) at other counts; 0 stays 0."""
    x, log_at = np.log(counts), np.log(at)
    out = np.zeros((len(x), rows.shape[1]))
    for k in range(rows.shape[1]):
        if (rows[:, k] <= 0).any():
            out[:, k] = np.interp(x, log_at, rows[:, k])
            continue
        y = np.log(rows[:, k])
        steps = np.diff(y) / np.diff(log_at) if len(log_at) > 1 else np.zeros(1)
        first, last = np.clip(steps[[0, -1]], -2.0, 1.0)
        beyond = first * np.minimum(x - log_at[0], 0) + last * np.maximum(x - log_at[-1], 0)
        out[:, k] = np.exp(np.interp(x, log_at, y) + beyond)
    return out


def _rows(run: Run, base: Work, usable: int) -> list[dict[str, float]]:
    """Return a row per phase that computes."""
    if run.times is None:
        return []
    measured, (work, _) = measured_at(base.model, run.times), base.at(run.n)
    seconds = 1e-9 * measured.per_phase(measured.typical)
    total = float(seconds.sum())
    weight = measured.weight
    parts = _parts(run, measured)
    out = []
    for k in range(len(weight)):
        mean = float(seconds[k].mean()) / weight[k]
        if seconds[k].sum() < SMALL * total or mean <= 0 or work[k] <= 0:
            continue
        out.append(
            {
                "phase": k,
                "n": run.n,
                "threads": run.threads,
                "per_node": _per_node(run, usable),
                "work": float(work[k]),
                "seconds": mean,
                **{name: float(parts[name][k]) / weight[k] for name in parts if name != "waiting"},
            }
        )
    return out


def _per_node(run: Run, usable: int) -> int:
    """Return how many processes of a run computed at the same time: no more than cores let."""
    return max(1, min(run.n, usable // run.threads))


def _parts(run: Run, measured: TracedComputation) -> dict[str, np.ndarray]:
    """Return what the tracer saw of threads, by phase: sums of a run, mean of ranks."""
    parts = {name: np.full(len(measured.weight), np.nan) for name in PARTS}
    if run.teams is None:
        return parts
    number = {place: k for k, place in enumerate(measured.places)}
    place = np.array([number.get(each, -1) for each in run.teams.places], dtype=np.int64)
    row = place[run.teams.place]
    is_placed = row >= 0
    phase = measured.phase[row[is_placed]]
    for name in PARTS:
        if run.shared and name in WALL_PARTS:
            continue
        values = run.teams.column(name)[is_placed]
        parts[name] = np.bincount(phase, weights=values, minlength=len(parts[name])) / run.n
    seconds = 1e-9 * measured.per_phase(measured.typical)
    return _made_up(parts, np.array([each.mean() for each in seconds]))


def _made_up(parts: dict[str, np.ndarray], seconds: np.ndarray) -> dict[str, np.ndarray]:
    """Return parts that make up the times of phases: the longest threads' and what is outside.

    What is in no region is outside, also where the tracer has no rows since nothing forked. Regions
    that go on over calls belong to the last of them: then parts that do not make up a phase's time
    are not known (NaN).
    """
    missing = seconds - parts["serial"] - parts["longest"]
    off = np.abs(missing) > MAKE_UP * seconds
    if (off & (missing < 0)).any():
        return {name: np.where(off, np.nan, value) for name, value in parts.items()}
    return {**parts, "serial": np.where(off, seconds - parts["longest"], parts["serial"])}
