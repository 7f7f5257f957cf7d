"""Whole iterations with timed black holes: what loaded ranks took, a check of the simulation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from p3s.program.phase_cells import Places
from p3s.replay.engine.results import ProgramResult
from p3s.replay.plan.program import Program
from p3s.replay.plan.world import MEASURED, World
from p3s.simulate.steps import Floats, Steps


def whole_times(
    programs: Sequence[Program],
    results: Mapping[int, ProgramResult],
    world: World,
    full: Sequence[Steps],
    where: Places,
) -> Floats:
    """Return the communication of every rank in the timed iterations it was loaded in.

    Shape (ranks, phases), in ns; NaN: not measured.

    Per pass the sum of weight x time over its events of a phase, median over the passes of all
    iterations that the rank takes part in: waiting moves between events from pass to pass, so
    that medians of single events do not add up.
    """
    number = len(where.phases)
    sums: dict[tuple[int, int], dict[int, list[Floats]]] = {}
    for index, result in sorted(results.items()):
        program = programs[index]
        if program.what != "timed" or not result.passes:
            continue
        steps = full[program.section]
        rank_of_step = steps.rank
        for process, entry in enumerate(world.processes):
            if entry.role != MEASURED:
                continue
            begin, end = int(program.start[process]), int(program.start[process + 1])
            own = program.step[begin:end]
            if not (own >= 0).any():
                continue
            rank = int(rank_of_step[own[own >= 0][0]])
            column = np.flatnonzero((result.event >= begin) & (result.event < end))
            step = program.step[result.event[column]]
            column, step = column[step >= 0], step[step >= 0]
            weight = where.weight[program.section][step]
            phase = where.cell[program.section][step] % number
            weighted = result.event_ns[:, column] * weight
            for p in np.unique(phase).tolist():
                sums.setdefault((rank, p), {}).setdefault(program.section, []).append(
                    weighted[:, phase == p].sum(axis=1)
                )
    comm = np.full((where.n, number), np.nan)
    needed: dict[tuple[int, int], set[int]] = {}
    for section, (cell, weight) in enumerate(zip(where.cell, where.weight, strict=True)):
        for key in np.unique(cell[weight > 0]).tolist():
            needed.setdefault((key // number, key % number), set()).add(section)
    for key, sections in sums.items():
        if needed.get(key, set()) <= set(sections):
            comm[key] = sum(float(np.median(np.concatenate(s))) for s in sections.values())
    return comm
