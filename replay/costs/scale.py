"""How much of the measured deviations the executed programs show as a whole."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from p3s.base.errors import P3SError
from p3s.replay.costs.correct import Executions, node_distance
from p3s.replay.costs.spread import Spread, varied
from p3s.replay.engine.results import ProgramResult
from p3s.replay.plan.world import MEASURED
from p3s.simulate.network import Network
from p3s.simulate.simulate import simulate_anyway
from p3s.simulate.steps import Floats

#: Simulations with drawn deviations per program, and programs that are looked at.
_DRAWS, _MOST = 6, 8


def share_of_spread(
    executions: Executions,
    results: Mapping[int, ProgramResult],
    network: Network,
    spread: Spread,
    work: Floats,
) -> float:
    """Return the factor on all deviations with which trace programs take as long as they did.

    Deviations are drawn one by one, though what delays one message often delays its neighbours as
    well, and waiting hides some: drawn in full they can cost more than the programs have shown.
    Between 0 and 1; 1 where no trace program without noise tells.
    """
    found = needed = 0.0
    processes = [i for i, p in enumerate(executions.world.processes) if p.role == MEASURED]
    numbers = [
        n
        for n, result in sorted(results.items())
        if executions.programs[n].what == "trace"
        and result.passes
        and not executions.programs[n].noise
    ]
    for number in numbers[:_MOST]:
        program, done = executions.programs[number], executions.done(number)
        distance = node_distance(program, executions.classes)
        here = executions.place(number, network)
        vary = varied(done.steps, done.node_of, distance, here, spread, work)
        last = np.array(
            [
                done.steps.start[p + 1] - 1
                for p in processes
                if done.steps.start[p + 1] > done.steps.start[p]
            ]
        )
        if not len(last):
            continue
        try:
            typical, _ = simulate_anyway(done.steps, done.node_of, here, distance=distance)
            drawn = []
            for draw in range(_DRAWS):
                rng = np.random.default_rng(draw)
                extra = vary.draw(rng)
                made, _ = simulate_anyway(
                    vary.computing(rng), done.node_of, here, distance=distance, extra_ns=extra
                )
                drawn.append(made.end_ns[last].max())
        except P3SError:
            continue
        plain = float(typical.end_ns[last].max())
        found += float(np.mean(drawn)) - plain
        needed += float(np.median(results[number].pass_ns[:, processes].max(axis=1))) - plain
    return float(np.clip(needed / found, 0.0, 1.0)) if found > 0 else 1.0
