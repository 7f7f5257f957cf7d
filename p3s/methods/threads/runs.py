"""Samples of computing time over processes and threads, from the runs of a study."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from p3s.base.errors import P3SError
from p3s.base.settings import inputs_in, threads_in
from p3s.base.study import Study
from p3s.base.text import quoted
from p3s.costs.apply import Costs
from p3s.costs.gather import Measured, measured_at
from p3s.costs.table import predicted_sums
from p3s.costs.types import read as read_compute
from p3s.methods.threads.settings import at_threads, base_of
from p3s.methods.threads.types import Samples, samples
from p3s.model.stage import load as load_model
from p3s.model.types import Model
from p3s.signature.beside import load_teams
from p3s.signature.teams import PARTS, WALL_PARTS, Teams
from p3s.signature.times import load_times

#: Phases that take less than this share of the computation at every count have no law.
SMALL = 1e-3
#: Parts of a phase make up its time within this share of it, beside noise, forks and joins.
MAKE_UP = 0.1
#: Work is evaluated up to this count.
EVALUATED = 256
#: Work and iterations by study, time of its laws, and count.
_EVALUATED: dict[tuple[str, int, int], tuple[np.ndarray, np.ndarray]] = {}


@dataclass(frozen=True)
class Run:
    """The computation of one run by phase and rank; work: of one iteration.

    shared: whether threads shared cores: then wall times, as those of waiting, tell nothing.
    """

    threads: int
    n: int
    measured: Measured
    teams: Teams | None
    work: np.ndarray
    shared: bool


def samples_of(root: Study, usable: int, slots: int) -> Samples | None:
    """Return the computing times of all traced runs by phase; None where there are none.

    usable: cores of the machine of the runs; slots: hardware threads of the node: runs with more
    threads in a process are left out. Phases are those of the model with the base's
    threads; work is what its laws say a process computes in an iteration, in seconds.
    """
    every = [run for rest in inputs_in(root) for run in _runs(root, rest)]
    runs = [run for run in every if run.threads <= slots]
    rows = [row for run in runs for row in _rows(run, usable)]
    if not rows:
        return None
    columns: dict[str, Any] = {name: [row[name] for row in rows] for name in rows[0]}
    return samples(**columns)


def _runs(root: Study, rest: str) -> list[Run]:
    base = at_threads(root, rest, base_of(root))
    if not base.model_path.exists():
        return []
    model = load_model(base.root)
    out = []
    for threads in threads_in(root):
        at = at_threads(root, rest, threads)
        for n in at.signature_counts():
            times = load_times(at.root, n)
            if times is not None:
                work, _ = work_at(base, model, n)
                out.append(
                    Run(
                        threads,
                        n,
                        measured_at(model, times),
                        load_teams(at.root, n),
                        work,
                        shared_cores(at, n),
                    )
                )
    return out


def calls_inside(root: Study) -> float:
    """Return the largest share of a run's MPI calls that threads made in parallel regions."""
    every = [at_threads(root, rest, t) for rest in inputs_in(root) for t in threads_in(root)]
    found = [load_teams(at.root, n) for at in every for n in at.signature_counts()]
    return max((teams.inside for teams in found if teams is not None), default=0.0)


def shared_cores(at: Study, n: int) -> bool:
    """Tell whether processes and threads of a run at a count were more than the cores."""
    return any(run.info.get("oversubscribed", True) for run in at.runs(n))


def work_at(base: Study, model: Model, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the seconds that a process computes in an iteration of each phase, and iterations.

    By the laws of the study with the base's threads; the mean of ranks. What was evaluated once is
    kept while the laws stay.
    """
    if not base.compute_path.exists():
        raise P3SError(f"{base.compute_path}: not there; run p3s model {quoted(base.root)}")
    stamp = base.compute_path.stat().st_mtime_ns
    key = (str(base.root.resolve()), stamp, n)
    if key not in _EVALUATED:
        for old in [k for k in _EVALUATED if k[0] == key[0] and k[1] != stamp]:
            del _EVALUATED[old]
        costs = Costs(read_compute(base.compute_path), model)
        sums, grid = predicted_sums(costs, n)
        weights = costs.weights(grid)
        _EVALUATED[key] = (np.asarray(1e-9 * sums.ns / n / weights), weights)
    return _EVALUATED[key]


def work_and_iterations(
    base: Study, model: Model, counts: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Return work and iterations at counts, (counts, phases) each.

    Evaluated at the traced counts and at doublings of the largest up to EVALUATED; straight in
    the logarithms between them and, within bounds, beyond.
    """
    top = max(model.counts)
    at, work, times = [], [], []
    for n in sorted({*model.counts, *(top << k for k in range(11) if top << k <= EVALUATED)}):
        try:
            each, iterations = work_at(base, model, n)
        except P3SError:  # the program does not take this count
            continue
        at.append(n)
        work.append(each)
        times.append(iterations)
    return tuple(_between(counts, at, np.array(rows)) for rows in (work, times))  # type: ignore[return-value]


def _between(counts: Sequence[int], at: Sequence[int], rows: np.ndarray) -> np.ndarray:
    """Return rows (counts, phases) at other counts; 0 stays 0."""
    x, known = np.log(counts), np.log(at)
    out = np.zeros((len(x), rows.shape[1]))
    for k in range(rows.shape[1]):
        if (rows[:, k] <= 0).any():
            out[:, k] = np.interp(x, known, rows[:, k])
            continue
        y = np.log(rows[:, k])
        steps = np.diff(y) / np.diff(known) if len(known) > 1 else np.zeros(1)
        first, last = np.clip(steps[[0, -1]], -2.0, 1.0)
        beyond = first * np.minimum(x - known[0], 0) + last * np.maximum(x - known[-1], 0)
        out[:, k] = np.exp(np.interp(x, known, y) + beyond)
    return out


def _rows(run: Run, usable: int) -> list[dict[str, float]]:
    """Return a row per phase that computes."""
    seconds = 1e-9 * run.measured.per_phase(run.measured.typical)
    total = float(seconds.sum())
    weight = run.measured.weight
    parts = _parts(run)
    out = []
    for k in range(len(weight)):
        mean = float(seconds[k].mean()) / weight[k]
        if seconds[k].sum() < SMALL * total or mean <= 0 or run.work[k] <= 0:
            continue
        out.append(
            {
                "phase": k,
                "n": run.n,
                "threads": run.threads,
                "per_node": _per_node(run, usable),
                "work": float(run.work[k]),
                "seconds": mean,
                **{name: float(parts[name][k]) / weight[k] for name in parts if name != "waiting"},
            }
        )
    return out


def _per_node(run: Run, usable: int) -> int:
    """Return how many processes of a run computed at the same time: no more than cores let."""
    return max(1, min(run.n, usable // run.threads))


def _parts(run: Run) -> dict[str, np.ndarray]:
    """Return what the tracer saw of threads, by phase: sums of a run, mean of ranks."""
    found = {name: np.full(len(run.measured.weight), np.nan) for name in PARTS}
    if run.teams is None:
        return found
    number = {place: k for k, place in enumerate(run.measured.places)}
    place = np.array([number.get(each, -1) for each in run.teams.places], dtype=np.int64)
    row = place[run.teams.place]
    known = row >= 0
    phase = run.measured.phase[row[known]]
    for name in PARTS:
        if run.shared and name in WALL_PARTS:
            continue
        values = run.teams.column(name)[known]
        found[name] = np.bincount(phase, weights=values, minlength=len(found[name])) / run.n
    seconds = 1e-9 * run.measured.per_phase(run.measured.typical)
    return _made_up(found, np.array([each.mean() for each in seconds]))


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
