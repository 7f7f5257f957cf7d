"""What is said of placements: times with their intervals, how sure a ranking is, gains, reasons."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from p3s.base.arrays import Floats
from p3s.base.text import percent
from p3s.laws.statistics import Z90
from p3s.methods.placement.costs import CostModel, LearnedCost, Seconds
from p3s.methods.placement.learned import doubts as doubts_of_card
from p3s.methods.placement.ranked.job import Job
from p3s.methods.placement.ranked.types import Gain, PhaseUnder, Placements, Ranked, matters
from p3s.predict import doubts
from p3s.predict.checks import of_estimate
from p3s.predict.rows import phases_of
from p3s.predict.times import PhaseTimes, total
from p3s.predict.types import Reason
from p3s.program.mapping import BLOCK, CYCLIC, RankMap

#: Times that are drawn of each placement.
_DRAWS = 4000
_ENDS = (0.05, 0.95)
#: By how much placements of one program are off by themselves, a standard deviation of their time:
#: 1.6 % in 179 simulated runs of seven programs (docs/accuracy.md, "Placements").
OWN = 0.016


@dataclass(frozen=True, eq=False)
class Draws:
    """Times of placements, drawn from their intervals, shape (draws, placements)."""

    seconds: Floats

    @property
    def regret(self) -> Floats:
        """Return the mean of by what share each misses the least time."""
        least = self.seconds.min(axis=1, keepdims=True)
        return np.asarray((self.seconds / least - 1.0).mean(axis=0))

    @property
    def chance(self) -> Floats:
        """Return how often each is the fastest."""
        best = np.argmin(self.seconds, axis=1)
        wins = np.bincount(best, minlength=self.seconds.shape[1])
        return np.asarray(wins / len(self.seconds), dtype=np.float64)

    def gain(self, one: int, over: int) -> tuple[float, float]:
        """Return the ends of the share of another's time by which one is faster."""
        share = 1.0 - self.seconds[:, one] / self.seconds[:, over]
        low, high = np.quantile(share, _ENDS)
        return float(low), float(high)


def sample_intervals(
    middle: Sequence[float], low: Sequence[float], high: Sequence[float], rest: float = OWN
) -> Draws:
    """Return draws of times from their 90 % intervals; the same for the same times.

    Most of an error is that of all placements of a program: what a message costs, which of them
    wait. ``rest``: deviation of the rest as a share of each time, at most that of its
    interval.
    """
    t, a, b = (np.asarray(x, dtype=np.float64) for x in (middle, low, high))
    rng = np.random.default_rng(0)
    common, each = rng.standard_normal((_DRAWS, 1)), rng.standard_normal((_DRAWS, len(t)))
    width = np.maximum((b - a) / (2 * Z90), 1e-300)
    share = np.minimum(rest * t / width, 1.0)
    noise = np.sqrt(1.0 - share**2) * common + share * each
    ends = np.where(noise < 0, t - a, b - t) / Z90
    return Draws(np.maximum(t + noise * ends, t * 1e-3))


@dataclass(frozen=True, eq=False)
class Proposal:
    """A placement with its cost."""

    where: RankMap
    cost: Seconds


def _rank_untimed(one: Proposal) -> Ranked:
    """Return what is said of a placement that has no time."""
    return Ranked(
        name=one.where.kind,
        cost_s=one.cost.middle,
        time_s=None,
        low_s=None,
        high_s=None,
        regret=None,
        chance=None,
        busiest=0.0,
        node_of=(),
        phases=(),
        outside=one.cost.outside,
    )


def by_simulation(job: Job, one: Proposal, times: PhaseTimes) -> Ranked:
    """Return a placement with the run time that was simulated.

    Its interval is that of messages, and of what placements are off by themselves.
    """
    time_s, more = times.run_s, Z90 * OWN * times.run_s
    low, high = (
        total(times.own + comm, times.mpi.estimator) for comm in (times.mpi.low, times.mpi.high)
    )
    low, high = time_s - math.hypot(time_s - low, more), time_s + math.hypot(high - time_s, more)
    phases = tuple(
        PhaseUnder(phase=each.phase, name=each.name, time_s=each.time_s, comm_s=each.comm_s)
        for each in phases_of(times)
    )
    return _rank_timed(job, one, (time_s, low, high), phases)


def by_cost(job: Job, model: CostModel, one: Proposal) -> Ranked:
    """Return a placement with the sum of computation and of the costs of all phases.

    No waiting, no overlap.
    """
    compute = job.alone.compute[job.alone.compute.sum(axis=1).argmax()]
    comm = {p.phase: model.of(p, one.where, job.fabric).middle for p in job.phases}
    phases = []
    for phase, alone in zip(job.alone.phases, compute.tolist(), strict=True):
        number = int(phase["phase"])
        sent, name = comm.get(number, 0.0), str(phase.get("name", number))
        phases.append(PhaseUnder(phase=number, name=name, time_s=alone + sent, comm_s=sent))
    cost, whole = one.cost, float(compute.sum())
    ends = (None if end is None else whole + end for end in (cost.middle, cost.low, cost.high))
    return _rank_timed(job, one, tuple(ends), tuple(phases))


def _rank_timed(
    job: Job, one: Proposal, times: tuple[float | None, ...], phases: tuple[PhaseUnder, ...]
) -> Ranked:
    """Return a placement with its time and the ends of that, its phases, and its nodes."""
    time_s, low, high = times
    return replace(
        _rank_untimed(one),
        time_s=time_s,
        low_s=low,
        high_s=high,
        busiest=float(job.loads(job.whole, one.where).max(initial=0.0)),
        node_of=tuple(one.where.node_of.tolist()),
        phases=phases,
    )


def rank_proposals(
    job: Job,
    cost: CostModel,
    proposals: Sequence[Proposal],
    by: Mapping[int, Ranked],
    simulated: Mapping[int, PhaseTimes],
    notes: Sequence[str],
) -> Placements:
    """Return what is said of all proposals; those with a time (``by`` number) come first.

    ``simulated``: what the simulation says, none where the times are sums of costs.
    """
    order = sorted(by, key=lambda k: by[k].time_s or 0.0)
    timed = [by[k] for k in order]
    draws = _draws(timed)
    if draws is not None:
        surest = zip(timed, draws.regret.tolist(), draws.chance.tolist(), strict=True)
        timed = [replace(one, regret=regret, chance=chance) for one, regret, chance in surest]
    rest = [_rank_untimed(one) for k, one in enumerate(proposals) if k not in by]
    unknown = job.sent[1]
    return Placements(
        n=job.n,
        hosts=job.where.hosts,
        slots=tuple(job.where.slots.tolist()),
        topology=job.fabric.about.source if job.known else "",
        network=job.fabric.text if job.known else "",
        estimator=job.messages.name if simulated else "",
        cost=cost.name,
        matters=matters([one.time_s or 0.0 for one in timed]),
        ranked=(*timed, *rest),
        gains=tuple(_gains(timed, draws)),
        left_out=unknown,
        reasons=(
            *_reasons(job, [simulated[k] for k in order if k in simulated], unknown),
            *_of_model(cost, bool(simulated)),
        ),
        notes=tuple(notes),
    )


def _draws(timed: Sequence[Ranked]) -> Draws | None:
    """Return times drawn from their intervals, None where those are not known."""
    ends = [(t.low_s, t.high_s) for t in timed if t.low_s is not None and t.high_s is not None]
    if len(ends) < len(timed):
        return None
    low, high = zip(*ends, strict=True)
    return sample_intervals([t.time_s or 0.0 for t in timed], low, high)


def _gains(timed: Sequence[Ranked], draws: Draws | None) -> Iterator[Gain]:
    """Yield by how much the first is faster than block and cyclic, where it is none of them."""
    kinds = [one.name for one in timed]
    for usual in (BLOCK, CYCLIC):
        at = kinds.index(usual) if usual in kinds else 0
        if at:
            low, high = (None, None) if draws is None else draws.gain(0, at)
            middle = 1.0 - (timed[0].time_s or 0.0) / (timed[at].time_s or 1.0)
            yield Gain(over=usual, middle=middle, low=low, high=high)


def _of_model(cost: CostModel, simulated: bool) -> Iterator[Reason]:
    """Yield what speaks against a learned model; where all is simulated it has only sorted."""
    for reason in doubts_of_card(cost.model.card) if isinstance(cost, LearnedCost) else ():
        yield replace(reason, untrustworthy=False, rough=True) if simulated else reason


def _reasons(job: Job, simulated: Sequence[PhaseTimes], unknown: float) -> Iterator[Reason]:
    """Yield what speaks against the times."""
    best = simulated[0] if simulated else None
    if best is None:
        yield from (reason for reason, _ in doubts.of_rules(job.alone.head))
        yield from doubts.of_structure(job.alone.head)
    if unknown > doubts.UNKNOWN_LIMIT:
        yield Reason(
            "left-out",
            f"messages of {percent(unknown)} of the calls that communicate are not known "
            f"(limit {percent(doubts.UNKNOWN_LIMIT)})",
        )
    if best is not None:
        yield from of_estimate(replace(best, mpi=replace(best.mpi, why_not=job.messages.why_not)))
