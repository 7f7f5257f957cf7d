"""Candidates sorted by a cost, the best of them by the simulation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from p3s.errors import P3SError
from p3s.placement.advice import matters
from p3s.placement.candidates import USUAL, candidates
from p3s.placement.costs import CostModel, QuickCost, Seconds, whole_cost
from p3s.placement.links import paths
from p3s.placement.phases import PhaseTraffic, all_traffic
from p3s.placement.search import bisected, improved
from p3s.placement.traffic import Traffic
from p3s.predict import doubts
from p3s.predict.intervals import total
from p3s.predict.placing.job import Job
from p3s.predict.placing.picture import picture
from p3s.predict.placing.sure import drawn
from p3s.predict.placing.types import Gain, LinkPicture, PhaseUnder, Placements, Ranked, Validity
from p3s.predict.placing.validity import validity
from p3s.predict.reasons import Reason
from p3s.predict.rows import phases_of, row_of
from p3s.predict.times import PhaseTimes
from p3s.program.mapping import BLOCK, CYCLIC, RankMap
from p3s.progress import Progress
from p3s.text import percent
from p3s.topology.units import Floats, Ints

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


@dataclass(frozen=True, eq=False)
class _Proposed:
    """A placement with its cost."""

    where: RankMap
    cost: Seconds


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
    found = _sorted(job, _proposals(job, grid, order, search, notes, progress), model, progress)
    number = _affordable(job) if search.simulated is None else search.simulated
    simulated = _finalists(job, found, number)
    progress.expect(len(simulated))
    timed: dict[int, PhaseTimes] = {}
    for number in simulated:
        progress.start(f"simulating {found[number].where.kind}")
        timed[number] = job.times(found[number].where)
        progress.done(f"{found[number].where.kind}: {_seconds(timed[number]):.4g} s")
    return _ranked(job, model, found, timed, notes)


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
    known = job.fabric if job.known else None
    yield from candidates(
        job.n,
        job.where,
        grid=grid,
        order=order,
        fabric=known,
        number=search.number,
        seed=search.seed,
    )
    progress.start("halving network and traffic")
    try:
        made = bisected(all_traffic(job.phases, job.n), job.where, job.fabric, search.seed)
    except P3SError as err:
        notes.append(str(err))
        return
    yield made


def _sorted(
    job: Job, proposals: Iterator[RankMap], model: CostModel, progress: Progress
) -> list[_Proposed]:
    """Return proposals by their cost, with what swaps make of the cheapest one."""

    def cost(where: RankMap) -> float:
        return whole_cost(model, job.phases, where, job.fabric).middle

    found = []
    for where in proposals:
        progress.start(f"cost of {where.kind}")
        found.append(_Proposed(where, whole_cost(model, job.phases, where, job.fabric)))
    best = min(found, key=lambda one: one.cost.middle)
    progress.start(f"swaps from {best.where.kind}")
    trials = _trials(job.phases) if isinstance(model, QuickCost) else _SWAPS[0]
    swapped, least = improved(best.where, cost, trials)
    if least < best.cost.middle * (1 - _BETTER):
        found.append(_Proposed(swapped, whole_cost(model, job.phases, swapped, job.fabric)))
    return sorted(found, key=lambda one: one.cost.middle)


def _trials(phases: Sequence[PhaseTraffic]) -> int:
    rows = sum(len(phase.traffic) for phase in phases)
    return int(np.clip(_SWAP_ROWS // max(rows, 1), *_SWAPS))


def _affordable(job: Job) -> int:
    steps = sum(len(section.steps) for section in job.program.sections)
    return int(np.clip(_STEPS // max(steps, 1), *_SIMULATED))


def _finalists(job: Job, found: Sequence[_Proposed], number: int) -> list[int]:
    """Return which placements are simulated: block, cyclic and the cheapest ones.

    Of several that load the links alike, which are mostly one seen from elsewhere, the first.
    """
    if not number:
        return []
    usual = [k for k, one in enumerate(found) if one.where.kind in (BLOCK, CYCLIC)]
    sent = all_traffic(job.phases, job.n)
    seen: set[tuple[float, bytes]] = set()
    chosen: list[int] = []
    for k, one in enumerate(found):
        if len(chosen) == number:
            break
        loads = _loads(job, sent, one.where)
        key = (float(f"{one.cost.middle:.9g}"), np.sort(loads).tobytes())
        if key not in seen:
            chosen.append(k)
        seen.add(key)
    return sorted({*chosen, *usual})


def _loads(job: Job, sent: Traffic, where: RankMap) -> Floats:
    """Return the bytes on each link."""
    found = paths(sent, where, job.fabric)
    apart = found.source != found.dest
    return job.fabric.loads(found.source[apart], found.dest[apart], found.nbytes[apart])


def _seconds(times: PhaseTimes) -> float:
    return total(times.compute + times.comm, times.estimator)


def _ends(times: PhaseTimes) -> tuple[float, float]:
    low, high = (
        total(times.compute + comm, times.estimator) for comm in (times.comm_low, times.comm_high)
    )
    return low, high


@dataclass(frozen=True, eq=False)
class _Timed:
    """Run time under a placement, with its interval and its phases."""

    middle: float
    low: float
    high: float
    phases: tuple[PhaseUnder, ...]


def _by_simulation(times: PhaseTimes) -> _Timed:
    phases = tuple(
        PhaseUnder(phase=each.phase, name=each.name, time_s=each.time_s, comm_s=each.comm_s)
        for each in phases_of(times, ends_too=False)
    )
    low, high = _ends(times)
    return _Timed(_seconds(times), low, high, phases)


def _by_cost(job: Job, model: CostModel, one: _Proposed) -> _Timed:
    """Return the sum of computation and of the costs of all phases: no waiting, no overlap."""
    rank = int(job.alone.compute.sum(axis=1).argmax())
    compute = dict(
        zip((p["phase"] for p in job.alone.phases), job.alone.compute[rank].tolist(), strict=True)
    )
    parts = []
    for phase in job.phases:
        comm = model.of(phase, one.where, job.fabric).middle
        seconds = compute.pop(phase.phase, 0.0)
        parts.append(
            PhaseUnder(phase=phase.phase, name=phase.name, time_s=seconds + comm, comm_s=comm)
        )
    alone = float(job.alone.compute[rank].sum())
    low, high = (one.cost.middle if end is None else end for end in (one.cost.low, one.cost.high))
    return _Timed(alone + one.cost.middle, alone + low, alone + high, tuple(parts))


def _ranked(
    job: Job,
    model: CostModel,
    found: Sequence[_Proposed],
    timed: dict[int, PhaseTimes],
    notes: Sequence[str],
) -> Placements:
    """Return what is said of all proposals; those with a time come first."""
    by = (
        {k: _by_simulation(times) for k, times in timed.items()}
        if timed
        else {k: _by_cost(job, model, found[k]) for k in _finalists(job, found, _SIMULATED[0])}
    )
    order = sorted(by, key=lambda k: by[k].middle)
    times = [by[k] for k in order]
    draws = drawn([t.middle for t in times], [t.low for t in times], [t.high for t in times])
    regret, chance = draws.regret, draws.chance
    ranked = [
        _one(job, found[k], by[k], float(regret[i]), float(chance[i])) for i, k in enumerate(order)
    ]
    gains = []
    for usual in (BLOCK, CYCLIC):
        at = next((i for i, k in enumerate(order) if found[k].where.kind == usual), 0)
        if at:
            low, high = draws.gain(0, at)
            middle = 1.0 - times[0].middle / times[at].middle
            gains.append(Gain(over=usual, middle=middle, low=low, high=high))
    rest = [_one(job, one, None, None, None) for k, one in enumerate(found) if k not in by]
    valid = validity(job.program.trace, job.phases, job.alone)
    return Placements(
        n=job.n,
        hosts=job.where.hosts,
        slots=tuple(job.where.slots.tolist()),
        topology=job.fabric.about.source if job.known else "",
        network=job.fabric.text if job.known else "",
        estimator=job.messages.name if timed else "",
        cost=model.name,
        matters=matters([t.middle for t in times]),
        ranked=(*ranked, *rest),
        gains=tuple(gains),
        validity=valid,
        reasons=tuple(_reasons(job, timed, order, valid)),
        notes=tuple(notes),
        picture=_picture(job, found, order),
    )


def _picture(job: Job, found: Sequence[_Proposed], order: Sequence[int]) -> LinkPicture | None:
    """Return the links under the first placement and under block, or the last one."""
    by_name = {found[k].where.kind: found[k].where for k in order}
    first, last = found[order[0]].where, found[order[-1]].where
    return picture(job, by_name.get(BLOCK, last), first)


def _one(
    job: Job, one: _Proposed, time: _Timed | None, regret: float | None, chance: float | None
) -> Ranked:
    return Ranked(
        name=one.where.kind,
        cost_s=one.cost.middle,
        time_s=None if time is None else time.middle,
        low_s=None if time is None else time.low,
        high_s=None if time is None else time.high,
        regret=regret,
        chance=chance,
        busiest=0.0 if time is None else _busiest(job, one.where),
        node_of=() if time is None else tuple(one.where.node_of.tolist()),
        phases=() if time is None else time.phases,
        outside=one.cost.outside,
    )


def _busiest(job: Job, where: RankMap) -> float:
    """Return the bytes of all phases on the busiest link."""
    return float(_loads(job, all_traffic(job.phases, job.n), where).max(initial=0.0))


def _reasons(
    job: Job, timed: dict[int, PhaseTimes], order: Sequence[int], valid: Validity
) -> Iterator[Reason]:
    """Yield what speaks against the times."""
    yield from doubts.of_rules([job.alone.head])
    if valid.left_out > doubts.UNKNOWN_LIMIT:
        yield Reason(
            "left-out",
            f"messages of {percent(valid.left_out)} of the calls that communicate are not known "
            f"(limit {percent(doubts.UNKNOWN_LIMIT)})",
        )
    if not timed:
        return
    best = timed[order[0]]
    rows = [row_of(best, None, {}, {})]
    yield from doubts.of_communication({job.n: job.messages.why_not}, rows)
    yield from doubts.of_simulation({job.n: best.followed}, rows)
