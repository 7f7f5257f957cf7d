"""The advisor: all admissible configurations by their predicted time, errors taken together.

Exhaustive, as the thesis's selection (section 4.4.5), but with the laws' draws in place of one
number each: configurations share laws, so what is off moves them together and does not decide
between them. The regret of a configuration is what it is expected to lose against the best one
in the same draw.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from p3s.base.arrays import Floats, Ints
from p3s.base.errors import P3SError
from p3s.base.text import ends, plural, processes
from p3s.base.text import seconds as time_text
from p3s.laws.statistics import Z90
from p3s.machine.topology.inside import Node
from p3s.methods.threads.advise.types import (
    Advice,
    Cell,
    Choice,
    Configuration,
    Interval,
    NextRun,
    Objective,
    uses_of,
)
from p3s.methods.threads.law import PreparedLaw, ThreadLaw, value_of
from p3s.methods.threads.types import Envelope, TracedRange, Uses, Value
from p3s.predict.types import Reason

#: How far outside the traced runs a law is still believed: threads, threads of a node, processes,
#: work of a process, as ratios.
FAR_THREADS, FAR_ON_NODE, FAR_COUNT, FAR_WORK = 2.0, 2.0, 16.0, 16.0
#: Threads in all beyond so many times the traced ones may find nothing to do.
FAR_IN_ALL = 4.0
#: An interval whose ends are further apart than this factor tells nothing.
WIDE = 2.0
#: Laws that are off by more at the runs they were fitted to are not to be trusted.
OFF = 0.15


class Outside(NamedTuple):
    """How far a configuration lies outside the traced runs, as ratios; 1 inside."""

    n: float
    threads: float
    on_node: float
    work: float
    in_all: float


def outside_work(laws: Sequence[ThreadLaw], work: Floats) -> float:
    """Return the ratio of the work of a process, one per phase."""
    ends = np.array([law.envelope.work for law in laws])
    return float(max(1.0, (work / ends[:, 1]).max(), (ends[:, 0] / work).max()))


def reasons_of(
    envelope: Envelope, off: float, at: Configuration, far: Outside, seconds: Interval
) -> Iterator[Reason]:
    """Yield what is doubtful of one configuration; off: how far laws are at the traced runs."""
    if far.threads > 1 or far.on_node > 1:
        most = max(far.threads / FAR_THREADS, far.on_node / FAR_ON_NODE)
        yield Reason(
            "outside-threads",
            f"{plural(at.threads, 'thread')} a process and {at.per_node * at.threads} on a node: "
            f"traced were {_range(envelope.threads)}, and {_range(envelope.on_node)} on a node",
            f"trace {processes(at.per_node)} of {plural(at.threads, 'thread')} on one node",
            most > 1,
        )
    if far.n > FAR_COUNT:
        yield Reason(
            "extrapolated",
            f"{processes(at.processes)} are {far.n:.0f} times as many as traced",
            "trace a larger count",
        )
    if far.work > FAR_WORK:
        yield Reason(
            "outside",
            f"the work of a process is {far.work:.0f} times outside that of traced ones",
            "trace another workload",
        )
    if far.in_all > FAR_IN_ALL:
        yield Reason(
            "idle-threads",
            f"{at.processes * at.threads} threads in all are {far.in_all:.0f} times as many as in "
            "any run, and no run tells how many iterations their loops have: some may have none",
            "compare the iterations of the outermost parallel loops with it",
            False,
        )
    if at.far and not envelope.far:
        yield Reason("outside-place", "no run had threads far from each other", "", False)
    if off > OFF:
        yield Reason(
            "model-off",
            f"the laws are off by {off:.0%} at the traced runs",
            "trace them again on quiet nodes",
        )
    if seconds.high > WIDE * seconds.low:
        yield Reason(
            "wide",
            f"the time lies between {time_text(seconds.low)} and {time_text(seconds.high)}",
            "trace more runs; p3s next names the one that tells most",
        )


def _range(traced: TracedRange) -> str:
    return ends(round(traced.low), round(traced.high))


#: Part of the variance of communication's errors that is common to all configurations; the rest
#: is common to those of as many processes in all and on a node.
COMMON = 0.8
#: The lower end of an interval counts as this part of the upper one at least.
_LEAST = 1e-2
#: How many configurations are advised.
TOP = 3


@dataclass(frozen=True, eq=False)
class Workload:
    """What is to be done, for each configuration.

    work: of one process in an iteration, (phases, configurations); iterations: of each phase, the
    same shape or (phases, 1); messages: seconds of the run spent in communication, with
    intervals, one per configuration; work_error: relative.
    """

    work: Floats
    iterations: Floats
    messages: Value
    work_error: float = 0.0


@dataclass(frozen=True, eq=False)
class Times:
    """Seconds of the run and of its computation: (draws, configurations)."""

    seconds: Floats
    computing: Floats


class Advisor:
    """Laws at all admissible configurations, ready for any workload.

    laws: one per phase; reasons: what is doubtful of the laws and of communication.
    """

    def __init__(
        self,
        laws: Sequence[ThreadLaw],
        configurations: Sequence[Configuration],
        *,
        reasons: Sequence[Reason] = (),
    ) -> None:
        if not laws or not configurations:
            raise P3SError("the advisor needs laws and configurations; fit the laws over threads")
        self.laws, self.configurations = tuple(laws), tuple(configurations)
        self.reasons = tuple(reasons)
        self.uses: Uses = uses_of(configurations)
        self.node: Node = laws[0].node
        self._nodes = np.array([c.nodes for c in configurations])
        self._outside = np.max([law.outside(self.uses) for law in laws], axis=0)
        self._unit = np.array([law.unit for law in laws])
        self._fit = np.array([law.fit for law in laws])
        self._prepared = tuple(law.at(self.uses) for law in self.laws)
        draws = len(laws[0].error)
        random = np.random.default_rng(20140626)
        common = random.standard_normal((draws, 1))
        pairs = [(c.processes, c.per_node) for c in configurations]
        same = np.unique(pairs, axis=0, return_inverse=True)[1].ravel()
        individual = random.standard_normal((draws, int(same.max()) + 1))[:, same]
        self._normal = np.sqrt(COMMON) * common + np.sqrt(1.0 - COMMON) * individual

    # ---- times
    def computing(self, work: Workload) -> Floats:
        """Return seconds of computation in the run: (draws, configurations)."""
        return _sum(self._prepared, work)

    def messages(self, work: Workload) -> Floats:
        """Return seconds of communication in the run: (draws, configurations)."""
        middle, low, high = work.messages
        least = np.maximum(low, _LEAST * np.maximum(high, 1e-300))
        spread = np.log(np.maximum(high, least) / least) / (2 * Z90)
        if not spread.any():
            return np.broadcast_to(middle, self._normal.shape)
        return np.asarray(middle * np.exp(self._normal * spread))

    def times(self, work: Workload) -> Times:
        """Return seconds of the run and its computation."""
        computing = self.computing(work)
        return Times(computing + self.messages(work), computing)

    def objective(self, work: Workload, objective: Objective) -> Floats:
        """Return what is to be least: (draws, configurations)."""
        return self._objective(work, objective, self.times(work))

    def _objective(self, work: Workload, objective: Objective, times: Times) -> Floats:
        seconds = times.seconds
        if objective == Objective.TIME:
            return seconds
        if objective == Objective.CORE_HOURS:
            return seconds * (self._nodes * self.node.cores / 3600.0)
        if objective == Objective.INDEX:
            return np.asarray(seconds**2 / times.computing)
        return np.asarray(seconds**2 * self.uses.threads / self._busy(work))

    def _busy(self, work: Workload) -> Floats:
        """Return the busy seconds of all threads of a process, the mean of processes."""
        parts = [
            law.busy(self.uses, each) * times
            for law, each, times in zip(self.laws, work.work, work.iterations, strict=True)
        ]
        return np.asarray(np.sum(parts, axis=0))

    # ---- advice
    def advise(
        self, work: Workload, objective: Objective = Objective.TIME, top: int = TOP
    ) -> Advice:
        """Return the configurations with the least expected regret, the best first."""
        times = self.times(work)
        value = self._objective(work, objective, times)
        regret = regret_of(value)
        chance = np.bincount(value.argmin(axis=1), minlength=value.shape[1]) / len(value)
        chosen = np.argsort(regret, kind="stable")[:top].astype(np.int64)
        choices = self._choices(work, chosen, value, times, regret, chance)
        return Advice(objective, choices, len(self.configurations))

    def _choices(
        self,
        work: Workload,
        chosen: Ints,
        value: Floats,
        times: Times,
        regret: Floats,
        chance: Floats,
    ) -> tuple[Choice, ...]:
        columns = (value, times.seconds, times.computing, times.computing / times.seconds)
        intervals = value_of(np.stack([x[:, chosen] for x in columns], axis=1))
        low, high = intervals.low.tolist(), intervals.high.tolist()
        out = []
        for k, i in enumerate(chosen.tolist()):
            middle = intervals.seconds[:, k].tolist()
            objective, time = (Interval(middle[j], low[j][k], high[j][k]) for j in (0, 1))
            at = self.configurations[i]
            out.append(
                Choice(
                    at,
                    objective,
                    time,
                    middle[2],
                    float(work.messages.seconds[i]),
                    middle[3],
                    time.value / middle[3],
                    time.value * at.nodes * self.node.cores / 3600.0,
                    float(regret[i]),
                    float(chance[i]),
                    self._reasons(work, i, time),
                )
            )
        return tuple(out)

    def _reasons(self, work: Workload, i: int, time: Interval) -> tuple[Reason, ...]:
        n, threads, on_node = self._outside[:, i].tolist()
        envelope, at = self.laws[0].envelope, self.configurations[i]
        in_all = 1.0 if envelope.rows else at.processes * at.threads / envelope.in_all
        far = Outside(n, threads, on_node, outside_work(self.laws, work.work[:, i]), in_all)
        times = work.iterations[:, i if work.iterations.shape[1] > 1 else 0]
        share = self._unit * work.work[:, i] * times
        off = float(share @ self._fit / max(float(share.sum()), 1e-300))
        return (*reasons_of(envelope, off, at, far, time), *self.reasons)

    def cells(self, work: Workload, objective: Objective = Objective.TIME) -> tuple[Cell, ...]:
        """Return the heat map: for each number of processes and threads the best configuration."""
        value = self.objective(work, objective)
        regret = regret_of(value)
        middle = np.median(value, axis=0)
        best: dict[tuple[int, int], int] = {}
        for i in np.argsort(regret, kind="stable").tolist():
            at = self.configurations[i]
            best.setdefault((at.processes, at.threads), i)
        return tuple(
            Cell(n, t, self.configurations[i], float(middle[i]), float(regret[i]))
            for (n, t), i in sorted(best.items())
        )


def regret_of(value: Floats) -> Floats:
    """Return by how much each configuration is expected to be above the best one, relative.

    value: (draws, configurations). A configuration that is the best in all draws has none.
    """
    return np.asarray((value / value.min(axis=1, keepdims=True)).mean(axis=0) - 1.0)


def _sum(prepared: Sequence[PreparedLaw], work: Workload) -> Floats:
    if len(prepared) != len(work.work):
        raise P3SError("the workload has other phases than the laws; take those of one study")
    parts = (
        law.draws(each, work.work_error) * times
        for law, each, times in zip(prepared, work.work, work.iterations, strict=True)
    )
    return np.asarray(sum(parts))


#: Noise of one run, relative; how many of the best configurations the spread is taken of.
NOISE, FEW = 0.03, 8
#: Runs that tell as much within this part of the best one's gain are told apart by their cost.
_ALIKE = 0.1


def next_runs(
    advisor: Advisor,
    work: Workload,
    candidates: Sequence[Configuration],
    candidate_work: Workload,
    *,
    objective: Objective = Objective.TIME,
    workloads: Sequence[float] = (),
) -> tuple[NextRun, ...]:
    """Return candidates, the one first that narrows the decision most.

    work: what is to be decided for; candidate_work: of the candidates, with the work of the laws'
    phases (messages are not needed); workloads: what to call them, one per candidate. Among runs
    that tell as much the cheaper one comes first.

    Every draw of the laws is taken for the truth in turn. A candidate's time would be seen with the
    noise of a run; it makes those draws likely that tell about this time; with their weights the
    best configuration is chosen anew, and what it loses in the draw that was the truth is its
    regret (the value of information; Raiffa and Schlaifer, 1961; as the knowledge gradient of
    Frazier and others, 2008). Draws share laws, so a run on one node tells about many.
    """
    if not candidates:
        raise P3SError("no run is possible to choose from; allow more nodes or counts")
    value = advisor.objective(work, objective)
    uses = uses_of(candidates)
    prepared = [law.at(uses) for law in advisor.laws]
    parts = zip(prepared, candidate_work.work, candidate_work.iterations, strict=True)
    times = np.sum([law.draws(w) * i for law, w, i in parts], axis=0)
    now = _expect_regret(value, np.full((len(value), len(value)), 1.0 / len(value)))
    proposals = []
    for k, at in enumerate(candidates):
        weight = _draw_weights(np.log(times[:, k]))
        after = _expect_regret(value, weight)
        cost = float(np.median(times[:, k])) * at.nodes * advisor.node.cores / 3600.0
        named = workloads[k] if len(workloads) else None
        proposals.append(NextRun(at, named, now[0], after[0], now[1], after[1], cost))
    return _in_order(proposals)


def _draw_weights(log_times: Floats) -> Floats:
    """Return how likely each draw is where each in turn is the truth: (truth, draws)."""
    away = (log_times[:, None] - log_times[None, :]) / NOISE
    weight = np.exp(-0.25 * np.minimum(away**2, 2000.0))  # noise of the run on both sides
    return np.asarray(weight / weight.sum(axis=1, keepdims=True))


def _expect_regret(value: Floats, weight: Floats) -> tuple[float, float]:
    """Return the regret of what is chosen with weights, and the spread of the best few."""
    ratio = value / value.min(axis=1, keepdims=True)
    expected = weight @ ratio
    chosen = expected.argmin(axis=1)
    regret = float(ratio[np.arange(len(ratio)), chosen].mean() - 1.0)
    few = np.argsort(expected.mean(axis=0), kind="stable")[:FEW]
    logs = np.log(value[:, few])
    middle = weight @ logs
    spread = np.sqrt(np.maximum(weight @ logs**2 - middle**2, 0.0))
    return max(regret, 0.0), float(spread.mean())


def _in_order(runs: list[NextRun]) -> tuple[NextRun, ...]:
    """Return runs by what they tell: regret, then spread; of those alike the cheaper first."""
    most = max(max(each.gain for each in runs), 1e-9)
    widest = max(max(each.spread - each.spread_after for each in runs), 1e-9)

    def rank(each: NextRun) -> tuple[float, float]:
        gain = each.gain / most + 0.5 * (each.spread - each.spread_after) / widest
        return (-np.floor(gain / _ALIKE), each.core_hours)

    return tuple(sorted(runs, key=rank))
