"""Candidates sorted by a cost, the best of them by the simulation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from p3s.base.arrays import Ints
from p3s.base.errors import P3SError
from p3s.base.progress import Progress
from p3s.base.text import plural
from p3s.methods.placement.candidates import USUAL, candidates
from p3s.methods.placement.costs import CostModel, QuickCost, Seconds, whole_cost
from p3s.methods.placement.ranked.job import Job
from p3s.methods.placement.ranked.result import Proposal, by_cost, by_simulation, rank_proposals
from p3s.methods.placement.ranked.types import Placements
from p3s.methods.placement.search import bisect_ranks, improve_by_swaps
from p3s.predict.times import PhaseTimes
from p3s.program.mapping import BLOCK, CYCLIC, RankMap

#: Candidates that are simulated beside block and cyclic: as many as so many steps of theirs allow
#: (a minute or so), at least and at most.
_STEPS, _SIMULATED = 2_500_000, (8, 40)
#: Rows of traffic whose cost swaps may be tried with, in all, and swaps at least and at most.
_SWAP_ROWS, _SWAPS = 4_000_000, (40, 600)
#: Swaps are worth it above this share of the cost.
_BETTER = 1e-6


@dataclass(frozen=True)
class Search:
    """How placements are looked for.

    ``number``: of candidates; ``simulated``: how many of them, None: as many as take a minute.
    ``model``: cost that sorts them, None: the quick one. ``seed``: of what is drawn.
    """

    number: int = USUAL
    simulated: int | None = None
    model: CostModel | None = None
    seed: int = 0


def placements(
    job: Job, grid: Sequence[int], order: Ints | None, search: Search, progress: Progress
) -> Placements:
    """Return placements of a job, ranked by their predicted time.

    ``grid``, ``order``: process grid, and the rank at each of its places (None: in order).
    ``progress`` is told of candidates and simulations. Errors: P3SError, in one line, where nodes
    are too few or the network does not have them.
    """
    model = search.model or QuickCost(job.network)
    notes: list[str] = []
    proposals = _sort_proposals(
        job, _proposals(job, grid, order, search, notes, progress), model, progress
    )
    number = search.simulated
    if number is None:
        steps = sum(len(section.steps) for section in job.program.sections)
        number = int(np.clip(_STEPS // max(steps, 1), *_SIMULATED))
    simulated = _finalists(job, proposals, number)
    progress.expect(len(simulated))
    timed: dict[int, PhaseTimes] = {}
    for number in simulated:
        progress.start(f"simulating {proposals[number].where.kind}")
        timed[number] = job.times(proposals[number].where)
        progress.step()
    if timed:
        progress.say(f"n={job.n}: simulated {len(timed)} of {plural(len(proposals), 'placement')}")
    by = {k: by_simulation(job, proposals[k], times) for k, times in timed.items()}
    if not by:
        cheapest = _finalists(job, proposals, _SIMULATED[0])
        by = {k: by_cost(job, model, proposals[k]) for k in cheapest}
    return rank_proposals(job, model, proposals, by, timed, notes)


def _proposals(
    job: Job,
    grid: Sequence[int],
    order: Ints | None,
    search: Search,
    notes: list[str],
    progress: Progress,
) -> Iterator[RankMap]:
    """Yield candidates, and those that are worked out from the traffic."""
    progress.start("candidates")
    fabric_known = job.fabric if job.known else None
    yield from candidates(
        job.n,
        job.where,
        grid=grid,
        order=order,
        fabric=fabric_known,
        number=search.number,
        seed=search.seed,
    )
    progress.start("halving network and traffic")
    try:
        bisected = [
            bisect_ranks(job.whole, job.where, job.fabric, search.seed, arranged=arranged)
            for arranged in (False, True)
        ]
    except P3SError as err:
        notes.append(str(err))
        return
    yield bisected[0]
    if (bisected[1].node_of != bisected[0].node_of).any():
        yield bisected[1]


def _sort_proposals(
    job: Job, proposals: Iterator[RankMap], model: CostModel, progress: Progress
) -> list[Proposal]:
    """Return proposals by their cost, with what swaps make of the cheapest one."""

    def cost(where: RankMap) -> Seconds:
        return whole_cost(model, job.phases, where, job.fabric)

    ranked = []
    for where in proposals:
        progress.start(f"cost of {where.kind}")
        ranked.append(Proposal(where, cost(where)))
    best = min(ranked, key=lambda one: one.cost.middle)
    progress.start(f"swaps from {best.where.kind}")
    rows = sum(len(phase.traffic) for phase in job.phases)
    swaps_wanted = int(np.clip(_SWAP_ROWS // max(rows, 1), *_SWAPS))
    trials = swaps_wanted if isinstance(model, QuickCost) else _SWAPS[0]
    swapped, least = improve_by_swaps(best.where, lambda where: cost(where).middle, trials)
    if least < best.cost.middle * (1 - _BETTER):
        ranked.append(Proposal(swapped, cost(swapped)))
    return sorted(ranked, key=lambda one: one.cost.middle)


def _finalists(job: Job, proposals: Sequence[Proposal], number: int) -> list[int]:
    """Return which placements are simulated: block, cyclic and the cheapest ones.

    Of several that load the links alike, which are mostly one seen from elsewhere, the first.
    """
    if not number:
        return []
    usual = [k for k, one in enumerate(proposals) if one.where.kind in (BLOCK, CYCLIC)]
    loads_seen: set[tuple[float, bytes]] = set()
    chosen: list[int] = []
    for k, one in enumerate(proposals):
        if len(chosen) == number:
            break
        loads = job.loads(job.whole, one.where)
        key = (float(f"{one.cost.middle:.9g}"), np.sort(loads).tobytes())
        if key not in loads_seen:
            chosen.append(k)
        loads_seen.add(key)
    return sorted({*chosen, *usual})
