"""SimGrid's replay of the scaled trace, on a platform with the costs measured between two ranks.

What is replayed, the iterations that stand for all of a loop, the network and the algorithms of
collectives are those of the estimator ``machine``; only the simulator is another one.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from p3s.base.arrays import Floats, Ints
from p3s.base.study import Study
from p3s.base.text import processes
from p3s.formats.simgrid.platform import lacks
from p3s.formats.simgrid.smpirun import replay
from p3s.predict.estimated import Communication
from p3s.predict.estimators.machine import by_phase
from p3s.predict.estimators.messages import measured_messages, with_packing
from p3s.predict.estimators.messages import why_not as no_costs
from p3s.predict.estimators.settings import Prepared, Setting, prepare
from p3s.predict.times import read_head
from p3s.program.own_costs import usual_packing
from p3s.simulate.folded import Loop, Settling, folded
from p3s.simulate.network import Network
from p3s.simulate.steps import Steps


def why_not(study: Study, machine: Path | None) -> str:
    """Return "" or why SimGrid cannot be used: it is not installed, or there are no costs."""
    if not shutil.which("smpirun"):
        return "SimGrid is not installed (smpirun; Debian: libsimgrid-dev)"
    return no_costs(study, machine)


def communication(
    study: Study, n: int, machine: Path | None, setting: Setting, say: Callable[[str], None]
) -> Communication:
    """Return the communication of ``n`` processes; see estimators.estimate.

    Waiting, transfer and software are NaN: SimGrid tells how long a call takes, not why.
    """
    messages = measured_messages(study, machine, setting)
    costs = messages.on(1)
    ready = prepare(study, n, messages.library, setting, messages.cores)
    notes: list[str] = []
    sums, settling = [], Settling()
    for network, name in zip(costs, ("typical", "least", "largest"), strict=True):
        say(f"{processes(n)}: SimGrid's replay, {name} costs")
        sums.append(_total(ready, network, notes, settling))
    typical, low, high = sums
    ends = np.minimum(low, typical), np.maximum(high, typical)
    phases, (comm, low, high) = by_phase(ready, read_head(study.scaled_dir(n), n), (typical, *ends))
    unknown = np.full_like(comm, np.nan)
    said = [
        f"costs of messages: {costs[0].source}",
        f"collectives as in {messages.library}",
        "computation does not vary",
        *_not_in_simgrid(costs[0], ready),
    ]
    made = Communication(
        "simgrid",
        n,
        phases,
        comm,
        low,
        high,
        unknown,
        unknown.copy(),
        unknown.copy(),
        messages.why_not,
        (*said, *ready.notes, *dict.fromkeys(notes)),
        followed=settling.into(ready.followed),
    )
    return with_packing(
        made, ready.trace, messages.packing or usual_packing(messages.library.family)
    )


def _total(ready: Prepared, network: Network, notes: list[str], settling: Settling) -> Floats:
    """Return the time in calls per cell in ns, over the whole run."""
    total = np.zeros(ready.trace.n * len(ready.phases))
    for loop in ready.loops:
        found = folded(loop, _runner(ready, loop, network, notes))
        total += found.sums[0]
        settling.add(loop, found, notes)
    return total


def _runner(ready: Prepared, loop: Loop, network: Network, notes: list[str]) -> Callable[..., Any]:
    def run(steps: Steps, cell: Ints, first: Floats) -> Any:
        found = replay(steps, ready.node_of, network, first_ns=first)
        written = found.written
        notes.extend(sorted(written.changed))
        notes.extend(
            f"{loop.section.name}: {call} left out: {why}" for call, why in sorted(written.left_out)
        )
        return found

    return run


def _not_in_simgrid(network: Network, ready: Prepared) -> list[str]:
    """Say what of the costs SimGrid's platform does not have."""
    found = lacks(network)
    if ready.distance is not None:
        found.append("all nodes are equally far from each other")
    return found
