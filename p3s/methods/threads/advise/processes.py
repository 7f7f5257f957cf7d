"""Advice on a study without threads: which process count, by the draws of its prediction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from p3s.base.arrays import Floats
from p3s.base.errors import P3SError, UsageError
from p3s.base.progress import Progress
from p3s.base.settings import counts_behind
from p3s.base.study import Study
from p3s.machine.topology.inside import Node
from p3s.methods.threads.advise.advisor import regret_of
from p3s.methods.threads.advise.text import AdviceFile
from p3s.methods.threads.advise.types import (
    Advice,
    Asked,
    Cell,
    Choice,
    Configuration,
    Interval,
    Objective,
    of_advice,
)
from p3s.model.grid.admissible import candidates
from p3s.model.stage import load as load_model
from p3s.pipeline.parameters import at_value, node_of
from p3s.pipeline.predicting import PredictArguments, ensure_prediction, estimation, predict_study
from p3s.pipeline.prediction import Request
from p3s.pipeline.records import load_study
from p3s.pipeline.stages import ensure_model
from p3s.predict.gate import Answer, parse, settled
from p3s.predict.rows import draw_times
from p3s.predict.times import NUMBER, ends_of
from p3s.predict.types import KNEE_EFFICIENCY, Count, Prediction, Reason, filter_untrusted

#: Counts are advised up to so many times the largest traced one, where no limit is given.
_AHEAD = 4


def advised_counts(root: Path, query: Asked, request: Request, progress: Progress) -> AdviceFile:
    """Return which process counts have the least of the objective, how sure that is, and why.

    Raises UsageError where no count is within the limits, P3SError as predictions do.
    """
    study = load_study(at_value(root, query.rest.split(","), progress) if query.rest else root)
    if query.node:
        settings = replace(request.settings, cores_per_node=query.node.slots)
        request = replace(request, settings=settings)
    node = query.node or node_of(study, request)
    ensure_model(study, progress)
    counts = _counts(study, query, node)
    _, prediction = ensure_prediction(study, PredictArguments(tuple(counts), request), progress)
    rows = [row for row in prediction.counts if row.n in counts and draw_times(row) is not None]
    if not rows:
        raise P3SError(f"{root}: the run time is not known at {', '.join(map(str, counts))}")
    value = np.stack([_draws(row, prediction.base, query.objective, node) for row in rows], axis=1)
    chance = np.bincount(value[1:].argmin(axis=1), minlength=len(rows)) / NUMBER
    drawn = zip(rows, value.T, regret_of(value[1:]).tolist(), chance.tolist(), strict=True)
    choices = [_choice(*each, node) for each in drawn]
    best = min(choices, key=lambda choice: choice.regret).configuration.processes
    reasons = _reasons(study, prediction, best, request, progress)
    return AdviceFile(
        query.rest,
        node,
        query.nodes,
        query.cores,
        Advice(
            query.objective,
            tuple(sorted(choices, key=lambda choice: choice.regret)[: query.top]),
            len(rows),
        ),
        tuple(
            Cell(c.configuration.processes, 1, c.configuration, c.objective.value, c.regret)
            for c in choices
        ),
        None,
        "",
        reasons,
        answers=tuple(_answers(rows, best, prediction, reasons)),
        others=tuple(each for each in filter_untrusted(prediction.reasons) if each not in reasons),
    )


def _counts(study: Study, query: Asked, node: Node) -> list[int]:
    """Return the counts to choose from: those that are named, else traced ones and doublings."""
    traced = study.signature_counts()
    rule, largest = load_model(study.root).admissible, max(traced)
    limits = [limit for limit in (query.cores, query.nodes * node.slots) if limit]
    top = min(limits, default=_AHEAD * largest)
    valid = range(1, top + 1) if rule is None else candidates(rule, top + 1)
    doubled = [largest << k for k in range(1, top.bit_length()) if largest << k <= top]
    near = (min((n for n in valid if n >= at), default=largest) for at in doubled)
    counts = sorted(n for n in {*(query.counts or {*traced, *near})} if not limits or n <= top)
    if not counts:
        raise UsageError(f"no process count that can be predicted is within {top} cores")
    return counts


def _draws(row: Count, base: Count, objective: Objective, node: Node) -> Floats:
    """Return what is to be least at a count and at its draws: (1 + draws,), the first its value."""
    times, first = _drawn(row), _drawn(base)
    if objective == Objective.TIME:
        return times
    if objective == Objective.CORE_HOURS:
        return times * (-(-row.n // node.slots) * node.cores / 3600.0)
    return np.asarray(times**2 * row.n / (base.n * first))


def _drawn(row: Count) -> Floats:
    """Return a row's time and its draws, all the same where they are not known: (1 + NUMBER,)."""
    drawn = draw_times(row)
    return np.append(row.time_s, np.full(NUMBER, row.time_s) if drawn is None else drawn)


def _choice(row: Count, value: Floats, regret: float, chance: float, node: Node) -> Choice:
    """Return a count with what is expected of it; value: of the objective, and its draws."""
    nodes, middle = -(-row.n // node.slots), float(value[0])
    return Choice(
        Configuration(row.n, 1, min(row.n, node.slots), nodes),
        Interval(middle, *ends_of(value[1:], middle)),
        Interval(row.time_s, row.low_s or row.time_s, row.high_s or row.time_s),
        row.compute_s,
        row.comm_s,
        row.efficiency,
        row.time_s / row.efficiency,
        row.time_s * nodes * node.cores / 3600.0,
        regret,
        chance,
    )


def _reasons(
    study: Study, prediction: Prediction, n: int, request: Request, progress: Progress
) -> tuple[Reason, ...]:
    """Return what speaks against the prediction of a count, whatever speaks against larger ones."""
    reasons = prediction.reasons
    if n < prediction.last.n and reasons:
        counts = sorted({*counts_behind(study), n} - {*range(n + 1, prediction.last.n + 1)})
        how = estimation(dict.fromkeys(counts, study), counts, request, progress)
        reasons = predict_study(study, counts, replace(how, requested=[n])).reasons
    return tuple(of_advice(reasons))


def _answers(
    rows: Sequence[Count], best: int, prediction: Prediction, own_reasons: Sequence[Reason]
) -> Iterator[Answer]:
    """Yield which is the largest efficient count, and whether the time turns after the best."""

    def answer(demand: str, condition: str, n: int) -> Answer:
        whose = replace(prediction, reasons=tuple(own_reasons)) if n <= best else prediction
        return settled(demand, parse(condition), whose, n)

    least = f"{100 * KNEE_EFFICIENCY:.0f} %"
    each = [answer(f"{least} or more", f"efficiency@{r.n} >= {least}", r.n) for r in rows]
    yield next((one for one in reversed(each) if (one.chance or 0.0) > 0.5), each[0])
    last = min((row.n for row in rows if row.n > best), default=best)
    before = max((row.n for row in rows if row.n < last), default=last)
    if before < last:
        yield answer(f"slower than {before}", f"time@{last} > time@{before}", last)
