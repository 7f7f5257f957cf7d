"""SimGrid's replay of the scaled trace, on a platform with the costs measured between two ranks.

Steps are written as a time-independent trace and run; the timeline is read back. What is replayed,
the iterations that stand for all of a loop, the network and the algorithms of collectives are those
of the estimator ``machine``; only the simulator is another one.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from p3s.base.arrays import Floats, Ints
from p3s.base.errors import P3SError
from p3s.base.host.simgrid import run_simgrid, simgrid_program
from p3s.base.records import Traces, scaled_dir
from p3s.base.text import processes
from p3s.formats.calls import RankProgram, programs_of_steps
from p3s.formats.exported import ExportResult
from p3s.formats.simgrid.format import acts, arguments, write_trace
from p3s.formats.simgrid.platform import lacks, write_platform
from p3s.predict.estimated import Communication
from p3s.predict.estimators.machine import by_phase
from p3s.predict.estimators.messages import measured_messages, with_packing
from p3s.predict.estimators.messages import why_not as no_costs
from p3s.predict.estimators.settings import Setting, SimulationInput, on_nodes_of, read_program
from p3s.predict.times import read_head
from p3s.program.own_costs import usual_packing
from p3s.simulate.folded import Loop, Settling, fold_times
from p3s.simulate.network import Network
from p3s.simulate.steps import Op, Steps

#: Seconds after which a replay is given up.
PATIENCE_S = 1800.0
_TIMELINE = "timeline.paje"
_TRACED = f"-trace -trace-file {_TIMELINE} --cfg=tracing/precision:9 --log=root.thresh:warning"
#: States that are none of the trace's actions.
_OTHER = frozenset(
    "action_init smpi_replay_run_init smpi_replay_run_finalize finalize init action_finalize"
    " computing sleeping".split()
)


@dataclass(frozen=True)
class SimGridTimes:
    """When each step begins and ends in ns, as p3s.simulate.simulate says it.

    What a nonblocking receive takes is computation in the trace, and part of its call here.
    SimGrid tells only how long a call takes: ``waiting_ns``, ``software_ns`` and ``transfer_ns``
    are 0. ``written``: what the trace lacks.
    """

    begin_ns: Floats
    end_ns: Floats
    waiting_ns: Floats
    software_ns: Floats
    transfer_ns: Floats
    written: ExportResult


def replay(
    steps: Steps,
    node_of: Ints,
    network: Network,
    *,
    first_ns: Floats | None = None,
    patience_s: float = PATIENCE_S,
) -> SimGridTimes:
    """Return when each step begins and ends in SimGrid's replay on a platform like the network.

    ``node_of``: the node of every world rank; ``steps`` are those of all ranks. ``first_ns``: when
    each rank starts. Raises P3SError when SimGrid is not there, ends with an error, or takes longer
    than ``patience_s``.
    """
    smpirun = simgrid_program("smpirun")
    programs = list(programs_of_steps(steps))
    with tempfile.TemporaryDirectory(prefix="p3s-simgrid-") as work:
        directory = Path(work)
        start = np.zeros(len(steps.ranks)) if first_ns is None else first_ns
        written = ExportResult("simgrid", steps.n, directory)
        write_trace(programs, written, directory, start, network.post)
        write_platform(directory, network, node_of, written.sizes)
        words = [smpirun, *_TRACED.split(), *arguments(steps.n).split()]
        run_simgrid(words, directory, patience_s, "SimGrid's replay")
        states = _states(directory / _TIMELINE, steps.n)
    begin, end = (np.zeros(len(steps)) for _ in range(2))
    for i, program in enumerate(programs):
        mine = slice(int(steps.start[i]), int(steps.start[i + 1]))
        begin[mine], end[mine] = _times(steps, mine, program, states[program.rank], float(start[i]))
    begin[np.isin(steps.op, (int(Op.IRECV), int(Op.START_RECV)))] -= network.post
    zeros = np.zeros(len(steps))
    return SimGridTimes(begin, end, zeros, zeros, zeros, written)


def _states(path: Path, n: int) -> list[Floats]:
    """Return, per rank, begin and end in ns of every state that is an action (Paje format)."""
    rank_of: dict[str, int] = {}
    other: set[str] = set()
    times: list[list[float]] = [[] for _ in range(n)]
    open_: list[bool] = [False] * n
    with open(path, encoding="utf-8") as file:
        for line in file:
            words = line.split()
            if not words or words[0][0] in "%#":
                continue
            event = words[0]
            if event == "12":  # PajePushState: time, type, container, value
                rank = rank_of.get(words[3], -1)
                if rank >= 0:
                    open_[rank] = words[4] not in other
                    if open_[rank]:
                        times[rank].append(float(words[1]) * 1e9)
            elif event == "13":  # PajePopState: time, type, container
                rank = rank_of.get(words[3], -1)
                if rank >= 0 and open_[rank]:
                    times[rank].append(float(words[1]) * 1e9)
                    open_[rank] = False
            elif event == "6":  # PajeCreateContainer: time, alias, type, container, name
                name = words[-1].strip('"')
                if name.startswith("rank-") and name[5:].isdigit():
                    rank_of[words[2]] = int(name[5:])
            elif event == "5" and words[3].strip('"') in _OTHER:
                other.add(words[1])  # PajeDefineEntityValue: alias, type, name, color
    return [np.array(states).reshape(-1, 2) for states in times]


def _times(
    steps: Steps, mine: slice, program: RankProgram, states: Floats, start: float
) -> tuple[Floats, Floats]:
    """Return begin and end of the steps of a rank; those without an action take no time."""
    number = mine.stop - mine.start
    size = np.where(steps.op[mine] == int(Op.SENDRECV), 3, 1)
    step = np.append(
        np.repeat(np.arange(number), size), np.full(len(program) - int(size.sum()), number)
    )
    of_action = np.repeat(step, acts(program))
    if len(of_action) != len(states):
        raise P3SError(
            f"SimGrid's timeline of rank {program.rank} has {len(states):,} actions, "
            f"its trace {len(of_action):,}"
        )
    begin = np.full(number + 1, np.nan)
    end = np.full(number + 1, np.nan)
    begin[of_action[::-1]] = states[::-1, 0]
    end[of_action] = states[:, 1]
    begin, end = begin[:number], end[:number]
    # Where nothing happened: the end of the step before, and the computation since.
    computed = np.cumsum(steps.work_ns[mine])
    has_state = ~np.isnan(end)
    last = np.maximum.accumulate(np.where(has_state, np.arange(number), -1))
    base = np.where(last >= 0, end[last], start)
    since = computed - np.where(last >= 0, computed[last], 0.0)
    idle = base + since
    return np.where(has_state, begin, idle), np.where(has_state, end, idle)


# ---- the estimator -------------------------------------------------------------------------


def why_not(traces: Traces, machine: Path | None) -> str:
    """Return "" or why SimGrid cannot be used: it is not installed, or there are no costs."""
    if not shutil.which("smpirun"):
        return "SimGrid is not installed (smpirun; Debian: libsimgrid-dev)"
    return no_costs(traces, machine)


def communication(
    traces: Traces, n: int, machine: Path | None, setting: Setting, say: Callable[[str], None]
) -> Communication:
    """Return the communication of ``n`` processes; see estimators.estimate.

    Waiting, transfer and software are NaN: SimGrid tells how long a call takes, not why.
    """
    messages = measured_messages(traces, machine, setting)
    costs = messages.on(1)
    program = read_program(scaled_dir(traces.root, n))
    ready = on_nodes_of(program, messages.library, setting, messages.cores)
    notes: list[str] = []
    sums, settling = [], Settling()
    for network, name in zip(costs, ("typical", "least", "largest"), strict=True):
        say(f"{processes(n)}: SimGrid's replay, {name} costs")
        sums.append(_total(ready, network, notes, settling))
    typical, low, high = sums
    unknown = np.full_like(typical, np.nan)
    ends = np.minimum(low, typical), np.maximum(high, typical)
    head = read_head(scaled_dir(traces.root, n), n)
    phases, seconds = by_phase(ready, head, np.stack([typical, *(unknown,) * 3, *ends]))
    remarks = [
        f"costs of messages: {costs[0].source}",
        f"collectives as in {messages.library}",
        "computation does not vary",
        *_not_in_simgrid(costs[0], ready),
    ]
    result = Communication(
        "simgrid",
        n,
        phases,
        seconds,
        messages.why_not,
        (*remarks, *ready.notes, *dict.fromkeys(notes)),
        followed=settling.into(ready.followed),
    )
    return with_packing(
        result, ready.trace, messages.packing or usual_packing(messages.library.family)
    )


def _total(
    ready: SimulationInput, network: Network, notes: list[str], settling: Settling
) -> Floats:
    """Return the time in calls per cell in ns, over the whole run."""
    total = np.zeros(ready.trace.n * len(ready.phases))
    for loop in ready.loops:
        section_times = fold_times(loop, _runner(ready, loop, network, notes))
        total += section_times.sums[0]
        settling.add(loop, section_times, notes)
    return total


def _runner(
    ready: SimulationInput, loop: Loop, network: Network, notes: list[str]
) -> Callable[..., Any]:
    def run(steps: Steps, cell: Ints, first: Floats) -> Any:
        times = replay(steps, ready.node_of, network, first_ns=first)
        written = times.written
        notes.extend(sorted(written.changed))
        notes.extend(
            f"{loop.section.name}: {call} left out: {why}" for call, why in sorted(written.left_out)
        )
        return times

    return run


def _not_in_simgrid(network: Network, ready: SimulationInput) -> list[str]:
    """Say what of the costs SimGrid's platform does not have."""
    missing = lacks(network)
    if ready.distance is not None:
        missing.append("all nodes are equally far from each other")
    return missing
