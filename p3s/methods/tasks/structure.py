"""Programs that hand out tasks to whoever asks: their times by a queue, not by a fixed schedule.

What the traces show of such a program - which worker did which task, and how many - depends on
timing. The time of the loop that hands them out is that of p3s.methods.tasks.queue at the count
that is asked for; it takes the place of what the simulation of the traced schedule says.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from p3s.base.records import Traces, read_replay, replay_path, scaled_dir
from p3s.base.text import ends, figures, percent, processes, seconds
from p3s.methods.tasks.queue import Queue, Range, TaskQueue, most_workers, time_of
from p3s.methods.tasks.recognise import find_task_queue, of_path
from p3s.predict.checks import EFFICIENCY_LIMIT
from p3s.predict.estimated import COMM, HIGH, LOW, WAITING
from p3s.predict.estimates import Dealt, Structure
from p3s.predict.residual import RunMeasurement
from p3s.predict.times import PhaseTimes
from p3s.predict.types import Reason
from p3s.simulate.totals import SimulationGaps

if TYPE_CHECKING:
    from p3s.model.comparison import Comparison
    from p3s.predict.estimates import Estimate, Estimates
    from p3s.predict.estimators.settings import Setting
    from p3s.predict.types import Prediction
    from p3s.simulate.network import Network

_NS = 1e9
#: Share of the messages from which on a queue is nearly all of a program's communication.
_NEARLY_ALL = 0.95


def network_for(
    traces: Traces, name: str, n: int, machine: Path | None, setting: Setting | None
) -> Network:
    """Return the costs of messages that an estimator rests on."""
    from p3s.predict.estimators.messages import messages_of
    from p3s.predict.estimators.settings import Setting as Choices
    from p3s.simulate.network import Network

    if name in ("simulation", "thesis") and replay_path(traces.root, n).exists():
        return Network.from_json(read_replay(traces.root, n)["simulated_with"])
    messages = messages_of(traces, name, machine, setting or Choices())
    return messages.on(max(-(-n // messages.cores), 1))[0]


def message_times(queue: TaskQueue, network: Network) -> tuple[float, float, float]:
    """Return the time of one message on its way, of the server's calls for a request, and of the
    messages that are a task's own, there and back one after the other, in s."""
    path = network.path(max(network.paths) if len(network.paths) > 1 else 0)
    way = (path.transfer.at(queue.asked) + path.transfer.at(queue.told)) / 2
    software = path.receive.at(queue.asked) + path.send.at(queue.told)
    number, nbytes = queue.inside
    inner_ns = number * (path.transfer.at(nbytes) + path.transfer.at(0.0))
    return float(way) / _NS, float(software) / _NS, float(inner_ns) / _NS


def with_queue(
    times: PhaseTimes, queue: TaskQueue, traces: Traces, network: Network
) -> tuple[PhaseTimes, Range]:
    """Return times in which the ranks of the queue take as long as that does, and how long.

    Workers compute their even share of all tasks; what is left of the queue's time is
    communication, waiting but for the messages themselves.
    """
    n = times.n
    way, software, inner_s = message_times(queue, network)
    mean = max(statistics.fmean(float(each.mean()) for each in queue.tasks), 1e-300)
    long = time_of(replace(queue, tasks=tuple(t + inner_s for t in queue.tasks)), n, way, software)
    columns, all_of_it = _phases(times, queue, traces.root)
    compute, seconds = times.compute.copy(), times.mpi.seconds.copy()
    comm, low, high = seconds[COMM], seconds[LOW], seconds[HIGH]
    busy = np.full(n, long.working * long.seconds * mean / (mean + inner_s))
    busy[list(queue.apart)] = long.busy * long.seconds
    at = np.arange(n), columns
    was = comm[at].copy()
    compute[at] = busy
    comm[at] = np.maximum(long.seconds - busy, 0.0)
    low[at], high[at] = (np.maximum(end - busy, 0.0) for end in (long.low, long.high))
    seconds[WAITING][at] += comm[at] - was
    seconds[WAITING] = np.maximum(seconds[WAITING], 0.0)
    seconds[LOW] = np.minimum(low, comm)
    seconds[HIGH] = np.maximum(high, comm)
    followed = SimulationGaps() if all_of_it else times.mpi.followed
    changed = replace(
        times,
        compute=compute,
        mpi=replace(times.mpi, seconds=seconds, followed=followed),
        work_rel_half_width=_without_widths(times.work_rel_half_width, columns),
        phases=[_sure(phase, i in set(columns.tolist())) for i, phase in enumerate(times.phases)],
    )
    return changed, long


class HandedOut(Structure):
    """What a queue of tasks makes of a program; remembers its times by estimator and count."""

    fixed = (
        "a master deals out the work, and who waits for whom changes with "
        "every time; leave --what-if out and change the program or the network instead"
    )

    def __init__(self, traces: Traces, queue: TaskQueue) -> None:
        self._traces, self._queue = traces, queue
        self._ranges: dict[str, dict[int, Range]] = {}

    def in_place(
        self, estimates: Estimates, machine: Path | None, setting: Setting | None
    ) -> Estimates:
        """Return estimates with the queue's time in place of the traced schedule's.

        Each estimator has its own costs of messages.
        """
        changed: dict[int, dict[str, Estimate]] = {}
        for n, by_name in estimates.items():
            changed[n] = dict(by_name)
            for name, each in by_name.items():
                if isinstance(each, PhaseTimes) and self._queue.workers(n) > 0:
                    network = network_for(self._traces, name, n, machine, setting)
                    changed[n][name], long = with_queue(each, self._queue, self._traces, network)
                    self._ranges.setdefault(name, {})[n] = long
        return changed

    def even(self, run: RunMeasurement) -> RunMeasurement:
        """Return a traced run whose busiest rank is one with an even share of what it computed.

        Which worker was the busiest depends on timing: totals are what can be compared.
        """
        workers = self._queue.workers(run.np)
        if workers < 1 or not run.totals_s:
            return run
        served = (self._queue.number(run.np)[1] + workers) * self._queue.service
        busiest = max((statistics.median(run.totals_s) - served) / workers, served)
        return replace(run, work_s=min(run.work_s, busiest))

    def told(
        self, prediction: Prediction, name: str, checked: Mapping[str, Sequence[Comparison]]
    ) -> Prediction:
        """Return a prediction that says what of it is a queue's, and what depends on timing."""
        ranges, counts = self._ranges.get(name, {}), [row.n for row in prediction.counts]
        return replace(
            prediction,
            notes=(*sentences(self._queue, ranges, counts), *prediction.notes),
            reasons=tuple(
                _by_workers(reason, self._queue, prediction)
                for reason in self.minded(prediction.reasons, checked)
            ),
        )

    def minded(
        self, reasons: Sequence[Reason], checked: Mapping[str, Sequence[Comparison]]
    ) -> tuple[Reason, ...]:
        """Return what comparisons missed as to be minded where that may be the dealing."""
        return tuple(_by_timing(each, self._queue, checked.get(each.code, ())) for each in reasons)

    def dealt(self, run_dir: Path, compared: Comparison) -> Dealt | None:
        """Return the tasks that servers handed out in a run; None where there are no servers."""
        served = of_path(run_dir)
        if not served:
            return None
        tasks = sum(len(each.tasks) for each in served)
        low, usual, high = self._queue.number(compared.n)
        same = low <= tasks <= high and _missed_by_timing(self._queue, compared)
        shares = [int(k) for each in served for k in each.shares]
        return Dealt(tasks, usual, min(shares), max(shares), same)


def structure(traces: Traces) -> HandedOut | None:
    """Return what the queue of tasks of a program tells; None where none is seen."""
    queue = find_task_queue(traces)
    return None if queue is None else HandedOut(traces, queue)


def _by_timing(reason: Reason, queue: TaskQueue, checked: Sequence[Comparison]) -> Reason:
    if not checked or not all(_missed_by_timing(queue, each) for each in checked):
        return reason
    return Reason(
        "depends-on-timing",
        "which worker does how many tasks depends on timing: what the model misses at "
        f"{processes([each.n for each in checked])} may all be that",
        untrustworthy=False,
    )


def _by_workers(reason: Reason, queue: TaskQueue, prediction: Prediction) -> Reason:
    """Return an efficiency above one as something to be minded where servers, which do no tasks,
    are a smaller part of more processes."""
    if reason.code != "superlinear":
        return reason
    base = queue.workers(prediction.baseline_n) / prediction.baseline_n
    if any(
        row.efficiency > EFFICIENCY_LIMIT * queue.workers(row.n) / row.n / base
        for row in prediction.counts
    ):
        return reason
    text = "efficiencies are above 100 %: servers do no tasks, and are a smaller part of more ranks"
    return replace(reason, text=text, advice="", untrustworthy=False, rough=False)


def _without_widths(width: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return widths of work laws, none where the queue's interval stands for it."""
    zeroed = width.copy()
    zeroed[np.unique(columns)] = 0.0
    return zeroed


def _sure(phase: dict, queued: bool) -> dict:  # type: ignore[type-arg]
    keys = ("no_trend", "compute_low", "compute_high", "work_error", "x", "covered", "outside")
    return {key: value for key, value in phase.items() if not queued or key not in keys}


def _phases(times: PhaseTimes, queue: TaskQueue, root: Path) -> tuple[np.ndarray, bool]:
    """Return for every rank the column of the phase in which it takes part in the queue.

    That in which it receives most by itself: servers and workers each as a group. Also whether
    these phases hold nearly all messages, so that nothing of what the simulation could not follow
    is left.
    """
    from p3s.base.ops import lacks_waiter
    from p3s.program.scaled import RECV, read_scaled

    trace = read_scaled(scaled_dir(root, times.n))
    number = [int(phase["phase"]) for phase in times.phases]
    serves = np.isin(trace.rank, queue.apart)
    receives = trace.is_kind(RECV) & ~trace.is_op(*filter(lacks_waiter, trace.ops))
    column = np.zeros(times.n, dtype=np.int64)
    for group in (serves, ~serves):
        rows = np.flatnonzero(group & receives)
        totals = {p: float(trace.repeat[rows][trace.phase[rows] == p].sum()) for p in number}
        best = number.index(max(totals, key=lambda p: totals[p]))
        column[np.unique(trace.rank[group])] = best
    inside = receives & (trace.phase == np.array(number)[column][trace.rank])
    share = trace.repeat[inside].sum() / max(trace.repeat[receives].sum(), 1)
    return column, bool(share >= _NEARLY_ALL)


def sentences(queue: TaskQueue, ranges: Mapping[int, Range], counts: Sequence[int]) -> list[str]:
    """Say what was recognised, what depends on timing, and where the server is the limit."""
    n = max(counts)
    least, most = queue.shares[max(queue.shares)]
    servers = " and ".join(str(rank) for rank in queue.servers)
    who = f"a counter of rank {servers}" if queue.counter else f"rank {servers}"
    cost = "" if queue.counter else f", {seconds(queue.service)} at the server"
    law = (
        f"{queue.number(n)[1]:,.0f} tasks at {processes(n)}"
        if queue.exact is not None
        else f"tasks without a law of their number ("
        f"{ends(*(f'{queue.number(n)[k]:,.0f}' for k in (0, 2)))} were seen)"
    )
    mean = float(np.mean([each.mean() for each in queue.tasks]))
    texts = [
        f"a queue of tasks: {who} hands them out to whoever asks; {law}, "
        f"{seconds(mean)} each in the mean{cost}; a queue model "
        "takes the place of the traced schedule",
        f"depends on timing: which worker does which task, and how many ({ends(least, most)} of a "
        f"worker at {processes(max(queue.shares))})",
    ]
    if n in ranges and not queue.counter:
        limit = most_workers(Queue(queue.service, 0.0, servers=len(queue.servers)), mean)
        texts.append(
            f"the server is busy for {percent(ranges[n].busy)} of the time at {processes(n)}; "
            f"it can keep about {figures(limit)} workers busy"
        )
    return texts


def _missed_by_timing(queue: TaskQueue, compared: Comparison) -> bool:
    """Tell whether what a model misses of a run may all be how the tasks were dealt.

    No more messages differ than the queue has, no more phases than servers and workers have (each
    call on a counter may be one of the rank that has it), and all other calls are equal.
    """
    pair, n = compared.p2p_triples, compared.n
    messages = max(pair.true, pair.predicted) - pair.equal
    off = compared.weights.phases - compared.weights.exact
    others = compared.collectives.all_equal and compared.files.all_equal
    return others and messages <= queue.exchanged(n) and off <= queue.phases
