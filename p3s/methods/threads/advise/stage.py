"""Advice for a study: predictions on a ladder of counts, laws of threads, all configurations.

In the Python API: ``study.advise(nodes=8)``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from p3s.base.errors import P3SError, UsageError
from p3s.base.progress import Progress
from p3s.base.settings import has_threads, inputs_in
from p3s.laws.statistics import Z90
from p3s.machine.topology.inside import Node, read_node
from p3s.methods.threads.advise.advisor import Advisor, Workload, next_runs
from p3s.methods.threads.advise.processes import advised_counts
from p3s.methods.threads.advise.text import AdviceFile
from p3s.methods.threads.advise.types import (
    Advice,
    Asked,
    Configuration,
    Limits,
    NextRun,
    Objective,
    admissible,
    of_advice,
)
from p3s.methods.threads.predicting import (
    Case,
    at_threads,
    base_of,
    case_of,
    check_fits,
    ensure_base,
    ensure_threads,
    surface,
)
from p3s.methods.threads.text import doubts
from p3s.methods.threads.types import Value
from p3s.model.grid.admissible import admits
from p3s.pipeline.parameters import PredictionRange, node_of
from p3s.pipeline.prediction import AUTO, Request, request_of
from p3s.pipeline.records import load_study
from p3s.predict.surface import Surface
from p3s.predict.types import filter_untrusted
from p3s.replay.settings import ReplaySettings

#: Numbers of nodes that are predicted for each number of threads; those between are interpolated.
_LADDER = 4


def advise_threads(root: Path, query: Asked, request: Request, progress: Progress) -> AdviceFile:
    """Return the best configurations of a study within limits.

    Raises UsageError where no configuration is admissible, P3SError as predictions do.
    """
    study = load_study(root)
    if not has_threads(study):
        return advised_counts(root, query, request, progress)
    if not query.nodes and not query.cores:
        raise UsageError("--cores, --nodes: say how many there are, as in --cores 1024 --nodes 64")
    node = query.node or node_of(at_threads(study, query.rest, base_of(study)), request)
    if query.threads:
        check_fits(query.threads, node)
    file = ensure_threads(study, node, progress)
    ensure_base(study, file, query.rest)
    case = case_of(study, query.rest)
    if not file.laws or case is None:
        raise P3SError(
            f"{root}: no law of threads: no times were taken; run p3s characterize --threads "
            "again with --work cpu"
        )
    query = replace(query, nodes=query.nodes or -(-query.cores // node.cores))
    limits = _limits(case, node, query)
    options = admissible(limits)
    ladder = _ladder(options)
    counts = sorted({n for each in ladder.values() for n in each})
    predicted = surface(
        study,
        PredictionRange(counts, sorted(ladder), query.rest, node=node),
        request,
        progress,
        only=True,
        each={threads: tuple(ns) for threads, ns in ladder.items()},
    )
    progress.start("comparing configurations")
    advisor = Advisor(file.laws, options, reasons=doubts(file))
    work = _workload(case, file.laws, options, predicted, file.base)
    advice = advisor.advise(work, query.objective, query.top)
    cases = {rest: case_of(study, rest) for rest in inputs_in(study)}
    usable = {rest: each for rest, each in cases.items() if each is not None}
    run, setting = _next(usable, advisor, work, query, node)
    reasons, best = predicted.reasons, advice.best.configuration
    if filter_untrusted(
        reasons
    ):  # of all configurations: those of the advised one speak for themselves
        alone = PredictionRange([best.processes], [best.threads], query.rest, node=node)
        reasons = surface(study, alone, request, progress, only=True).reasons
    return AdviceFile(
        query.rest,
        node,
        query.nodes,
        query.cores,
        advice,
        advisor.cells(work, query.objective),
        run,
        setting,
        tuple(of_advice(reasons, ("wide", "threads-differ"))),
        others=tuple(each for each in filter_untrusted(predicted.reasons) if each not in reasons),
    )


def advise(
    root: Path,
    progress: Progress,
    *,
    nodes: int = 0,
    cores: int = 0,
    node: str = "",
    objective: str = "time",
    setting: str = "",
    network: str = "",
    top: int = 3,
) -> Advice:
    """Return the best numbers of processes and threads on up to ``nodes``, or ``cores``.

    Arguments as of ``p3s advise``. Raises P3SError, in one line.
    """
    if objective not in list(Objective):
        raise UsageError(f"advise: {objective!r} is not one of {', '.join(Objective)}")
    query = Asked(
        nodes,
        cores,
        setting,
        node=read_node(node) if node else None,
        objective=Objective(objective),
        top=top,
    )
    request = request_of(AUTO, network, True, ReplaySettings())
    return advise_threads(root, query, request, progress).advice


def _limits(case: Case, node: Node, query: Asked) -> Limits:
    return Limits(
        node,
        query.nodes,
        query.cores or None,
        query.smt,
        query.threads,
        query.counts or (lambda n: admits(case.work.model.admissible, n)),
        _footprint(case.filled) if node.memory else None,
    )


def _footprint(filled_at: Mapping[int, float]) -> Callable[[int], float] | None:
    """Return the bytes that a process fills, by how many there are; None where nobody knows.

    Between traced counts straight in the logarithms, beyond as at the last.
    """
    known_filled = sorted(filled_at.items())
    if not known_filled:
        return None
    counts, nbytes = zip(*known_filled, strict=True)

    def filled(n: int) -> float:
        between = float(np.interp(np.log(n), np.log(counts), nbytes))
        return float(max(counts[0] / n, 1.0) * between)

    return filled


def _ladder(configurations: Sequence[Configuration]) -> dict[int, list[int]]:
    """Return, for each number of threads, counts to predict: the ends and some between."""
    of: dict[int, set[int]] = {}
    for each in configurations:
        of.setdefault(each.threads, set()).add(each.processes)
    out = {}
    for threads, processes in of.items():
        counts = np.array(sorted(processes))
        points = np.geomspace(counts[0], counts[-1], min(_LADDER, len(counts)))
        at = [int(np.abs(np.log(counts / n)).argmin()) for n in points]
        out[threads] = sorted({int(counts[k]) for k in at})
    return out


def _workload(
    case: Case,
    laws: Sequence[object],
    configurations: Sequence[Configuration],
    predicted: Surface,
    base_threads: int,
) -> Workload:
    """Return what each configuration has to compute and to send.

    Communication is that of the prediction with as many threads on full nodes, straight between
    counts in the logarithms: waiting for each other is part of it, and goes with computation.
    Where the predicted computation (of the busiest ranks, with what costs and profiles say) is not
    the laws', iterations are raised to it.
    """
    phases = [law.phase for law in laws]  # type: ignore[attr-defined]
    counts = sorted({each.processes for each in configurations})
    work, times = case.work.over(counts)
    at = np.searchsorted(counts, [each.processes for each in configurations])
    ratio = _busiest(predicted, counts, work, times, base_threads)
    return Workload(
        np.maximum(work[at][:, phases].T, 1e-300),
        (times * ratio[:, None])[at][:, phases].T,
        Value(*np.array([_of_messages(each, predicted) for each in configurations]).T),
        work_error=_work_error(predicted),
    )


def _busiest(
    predicted: Surface,
    counts: Sequence[int],
    work: np.ndarray,
    times: np.ndarray,
    base_threads: int,
) -> np.ndarray:
    """Return the predicted computation with the base's threads over the mean of ranks."""
    mean = (work * times).sum(axis=1)
    rows = [c for c in predicted.cells if c.threads == base_threads and c.n in counts]
    if not rows:
        return np.ones(len(counts))
    rows.sort(key=lambda cell: cell.n)
    at = [list(counts).index(cell.n) for cell in rows]
    each = [cell.compute_s / max(mean[k], 1e-300) for cell, k in zip(rows, at, strict=True)]
    return np.asarray(np.interp(np.log(counts), np.log([cell.n for cell in rows]), each))


def _of_messages(at: Configuration, predicted: Surface) -> tuple[float, float, float]:
    """Return seconds of communication, waiting included, as predicted with as many threads."""
    cells = sorted((c for c in predicted.cells if c.threads == at.threads), key=lambda c: c.n)
    n = np.log([cell.n for cell in cells])

    def value(name: str) -> float:
        logs = np.log([max(float(getattr(cell, name)), 1e-12) for cell in cells])
        return float(np.exp(np.interp(np.log(at.processes), n, logs)))

    return value("comm_s"), value("comm_low_s"), value("comm_high_s")


def _work_error(predicted: Surface) -> float:
    """Return the relative error of computation that all configurations share, one deviation.

    That of the best cell's, beside what the laws of threads say themselves.
    """
    best = min(predicted.cells, key=lambda cell: cell.time_s)
    ends = best.compute_high_s / max(best.compute_low_s, 1e-12)
    return float(np.log(max(ends, 1.0)) / (2 * Z90))


def _next(
    cases: Mapping[str, Case], advisor: Advisor, work: Workload, query: Asked, node: Node
) -> tuple[NextRun | None, str]:
    """Return the run on one node that narrows the decision most, and the values of its input.

    None where none is possible. Runs of all values that have a model are candidates.
    """
    rests = list(cases)
    works = [_candidates(case, query, node, advisor) for case in cases.values()]
    candidates = [at for runs, _ in works for at in runs]
    if not candidates:
        return None, query.rest
    each, times = (np.concatenate([part[k] for _, part in works], axis=1) for k in (0, 1))
    none = np.zeros(len(candidates))
    load = Workload(each, times, Value(none, none, none))
    of = [float(k) for k, (runs, _) in enumerate(works) for _ in runs]
    best = next_runs(advisor, work, candidates, load, objective=query.objective, workloads=of)[0]
    return best, rests[int(best.workload or 0)]


def _candidates(
    case: Case, query: Asked, node: Node, advisor: Advisor
) -> tuple[list[Configuration], tuple[np.ndarray, np.ndarray]]:
    """Return runs on one node that are possible, and their work and iterations by phase."""
    limits = replace(_limits(case, node, query), nodes=1, cores=None, footprint=None)
    largest = 4 * max(case.work.model.counts)
    configurations = [c for c in admissible(limits) if c.processes <= largest and not c.far]
    phases = [law.phase for law in advisor.laws]
    counts = sorted({c.processes for c in configurations})
    if not configurations:
        return [], (np.zeros((len(phases), 0)), np.zeros((len(phases), 0)))
    each, times = case.work.over(counts)
    at = np.searchsorted(counts, [c.processes for c in configurations])
    return configurations, (np.maximum(each[at][:, phases].T, 1e-300), times[at][:, phases].T)
