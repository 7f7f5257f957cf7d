"""The advisor: all admissible configurations by their predicted time, errors taken together.

Exhaustive, as the thesis's selection (section 4.4.5), but with the laws' draws in place of one
number each: configurations share laws, so what is off moves them together and does not decide
between them. The regret of a configuration is what it is expected to lose against the best one
in the same draw.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from p3s.advise.configurations import Configuration, uses_of
from p3s.advise.reasons import reasons_of
from p3s.advise.types import Advice, Cell, Choice, Interval, Objective
from p3s.errors import P3SError
from p3s.predict.reasons import Reason
from p3s.threads.law import PreparedLaw, ThreadLaw, value_of
from p3s.threads.types import Uses, Value
from p3s.topology.node import Node
from p3s.topology.units import Floats, Ints

#: Part of the variance of communication's errors that is common to all configurations; the rest
#: is common to those of as many processes in all and on a node.
COMMON = 0.8
#: From the ends of a 90 % interval to standard deviations.
_NORMAL = 1.6448536
#: The lower end of an interval counts as this part of the upper one at least.
_LEAST = 1e-2
#: How many configurations are advised.
TOP = 3


@dataclass(frozen=True, eq=False)
class Workload:
    """What is to be done, for each configuration.

    work: of one process in an iteration, (phases, configurations); iterations: of each phase, the
    same shape or (phases, 1); messages: seconds of the run spent in communication, with
    intervals, one per configuration; fixed: seconds of the run beside both; work_error: relative.
    """

    work: Floats
    iterations: Floats
    messages: Value
    fixed: float = 0.0
    work_error: float = 0.0


def workload_of(
    configurations: Sequence[Configuration],
    work: Callable[[int, int], float],
    phases: Sequence[int],
    iterations: Callable[[int, int], float],
    messages: Callable[[int, int], tuple[float, float, float]],
) -> Workload:
    """Return the workload of functions.

    work(phase, n), iterations(phase, n); messages(n, per_node) -> seconds, low, high.
    """
    n = [c.processes for c in configurations]
    counts = sorted(set(n))
    at = np.searchsorted(counts, n)

    def table(of: Callable[[int, int], float]) -> Floats:
        return np.array([[of(phase, k) for k in counts] for phase in phases], dtype=float)[:, at]

    pairs = {(c.processes, c.per_node) for c in configurations}
    told = {pair: messages(*pair) for pair in pairs}
    rows = np.array([told[c.processes, c.per_node] for c in configurations], dtype=float)
    return Workload(table(work), table(iterations), Value(*rows.T))


class Advisor:
    """Laws at all admissible configurations, ready for any workload.

    laws: of the largest rank's time, one per phase; mean: of the mean of ranks, for efficiencies
    (None: the same); reasons: what is doubtful of the laws and of communication.
    """

    def __init__(
        self,
        laws: Sequence[ThreadLaw],
        configurations: Sequence[Configuration],
        *,
        mean: Sequence[ThreadLaw] | None = None,
        reasons: Sequence[Reason] = (),
    ) -> None:
        if not laws or not configurations:
            raise P3SError("the advisor needs laws and configurations; fit the laws over threads")
        self.laws, self.configurations = tuple(laws), tuple(configurations)
        self.mean = self.laws if mean is None else tuple(mean)
        self.reasons = tuple(reasons)
        self.uses: Uses = uses_of(configurations)
        self.node: Node = laws[0].node
        self._nodes = np.array([c.nodes for c in configurations])
        self._prepared = tuple(law.at(self.uses) for law in self.laws)
        self._mean = self._prepared if mean is None else tuple(m.at(self.uses) for m in self.mean)
        draws = len(laws[0].error)
        random = np.random.default_rng(20140626)
        common = random.standard_normal((draws, 1))
        pairs = [(c.processes, c.per_node) for c in configurations]
        same = np.unique(pairs, axis=0, return_inverse=True)[1].ravel()
        own = random.standard_normal((draws, int(same.max()) + 1))[:, same]
        self._normal = np.sqrt(COMMON) * common + np.sqrt(1.0 - COMMON) * own

    # ---- times
    def computing(self, work: Workload) -> Floats:
        """Return seconds of computation in the run: (draws, configurations)."""
        return _sum(self._prepared, work)

    def messages(self, work: Workload) -> Floats:
        """Return seconds of communication in the run: (draws, configurations)."""
        middle, low, high = work.messages
        least = np.maximum(low, _LEAST * np.maximum(high, 1e-300))
        spread = np.log(np.maximum(high, least) / least) / (2 * _NORMAL)
        if not spread.any():
            return np.broadcast_to(middle, self._normal.shape)
        return np.asarray(middle * np.exp(self._normal * spread))

    def seconds(self, work: Workload) -> Floats:
        """Return seconds of the run: (draws, configurations)."""
        return self.computing(work) + self.messages(work) + work.fixed

    def objective(self, work: Workload, objective: Objective) -> Floats:
        """Return what is to be least: (draws, configurations)."""
        seconds = self.seconds(work)
        if objective == Objective.TIME:
            return seconds
        if objective == Objective.CORE_HOURS:
            return seconds * (self._nodes * self.node.cores / 3600.0)
        if objective == Objective.INDEX:
            return np.asarray(seconds**2 / _sum(self._mean, work))
        busy = self._busy(work)
        return np.asarray(seconds**2 * self.uses.threads / busy)

    def _busy(self, work: Workload) -> Floats:
        """Return the busy seconds of all threads of a process, the mean of processes."""
        parts = [
            law.busy(self.uses, each) * times
            for law, each, times in zip(self.mean, work.work, work.iterations, strict=True)
        ]
        return np.asarray(np.sum(parts, axis=0))

    # ---- advice
    def advise(
        self, work: Workload, objective: Objective = Objective.TIME, top: int = TOP
    ) -> Advice:
        """Return the configurations with the least expected regret, the best first."""
        value = self.objective(work, objective)
        ratio = value / value.min(axis=1, keepdims=True)
        regret = ratio.mean(axis=0) - 1.0
        chance = np.bincount(value.argmin(axis=1), minlength=value.shape[1]) / len(value)
        chosen = np.argsort(regret, kind="stable")[:top].astype(np.int64)
        choices = self._choices(work, value, regret, chance, chosen)
        return Advice(objective, choices, len(self.configurations))

    def _choices(
        self, work: Workload, value: Floats, regret: Floats, chance: Floats, chosen: Ints
    ) -> tuple[Choice, ...]:
        seconds = self.seconds(work)[:, chosen]
        computing = self.computing(work)[:, chosen]
        mean = _sum(self._mean, work)[:, chosen]
        objective, time = value_of(value[:, chosen]), value_of(seconds)
        efficiency = np.median(mean / seconds, axis=0)
        out = []
        for k, i in enumerate(chosen.tolist()):
            at = self.configurations[i]
            t = Interval(*(float(x[k]) for x in time))
            out.append(
                Choice(
                    at,
                    Interval(*(float(x[k]) for x in objective)),
                    t,
                    float(np.median(computing[:, k])),
                    float(work.messages.seconds[i]),
                    float(efficiency[k]),
                    float(t.value / efficiency[k]),
                    float(t.value * at.nodes * self.node.cores / 3600.0),
                    float(regret[i]),
                    float(chance[i]),
                    (*reasons_of(self.laws, work.work[:, i], at, t), *self.reasons),
                )
            )
        return tuple(out)

    def value(self, work: Workload, objective: Objective = Objective.TIME) -> Value:
        """Return the objective with its interval at each configuration."""
        return value_of(self.objective(work, objective))

    def cells(self, work: Workload, objective: Objective = Objective.TIME) -> tuple[Cell, ...]:
        """Return the heat map: for each number of processes and threads the best configuration."""
        value = self.objective(work, objective)
        regret = (value / value.min(axis=1, keepdims=True)).mean(axis=0) - 1.0
        middle = np.median(value, axis=0)
        best: dict[tuple[int, int], int] = {}
        for i in np.argsort(regret, kind="stable").tolist():
            at = self.configurations[i]
            best.setdefault((at.processes, at.threads), i)
        return tuple(
            Cell(n, t, self.configurations[i], float(middle[i]), float(regret[i]))
            for (n, t), i in sorted(best.items())
        )


def _sum(prepared: Sequence[PreparedLaw], work: Workload) -> Floats:
    if len(prepared) != len(work.work):
        raise P3SError("the workload has other phases than the laws; take those of one study")
    parts = (
        law.draws(each, work.work_error) * times
        for law, each, times in zip(prepared, work.work, work.iterations, strict=True)
    )
    return np.asarray(sum(parts))
