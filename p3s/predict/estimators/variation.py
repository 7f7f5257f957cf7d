"""How computation varies in the traced runs, for simulations.

Only what differs between ranks makes them wait. Iterations that are longer for all ranks at once
(every seventh, say) vary as well, so a traced run tells how much of it is each rank's own."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from p3s.base.artefacts import LastRead, files_in
from p3s.costs.spread import EVEN, Distribution, Spread
from p3s.signature.clock import TIMES
from p3s.simulate.steps import Floats, Ints

if TYPE_CHECKING:
    from p3s.base.study import Study

#: Capture files of a run that is read for it, in bytes, at most, where there is a smaller one.
_MOST_BYTES = 64 << 20
#: Stretches between two calls that occur less often on a rank tell nothing about single turns.
_LEAST_OCCURRENCES = 10
#: Steps whose computation is drawn at once: what that takes stays in the cache of a core.
_AT_ONCE = 1 << 14


@dataclass(frozen=True)
class Variation:
    """Variability of each phase, in the order of the columns of the cells (rank x phases).

    ``own``: deviation of single iterations (standard, of the ratio to the mean) that ranks do not
    have in common; what is drawn deviates by no more."""

    spreads: tuple[Spread, ...]
    own: float = math.inf

    @cached_property
    def shares(self) -> tuple[float, ...]:
        """What is drawn of the deviations of the iterations of each phase, 0 to 1."""
        deviations = (one.turns.deviation for one in self.spreads)
        return tuple(min(self.own / each, 1.0) if each > 0 else 0.0 for each in deviations)

    @property
    def varies(self) -> bool:
        """Whether there is any."""
        return any(one.ranks != EVEN for one in self.spreads) or any(self.shares)

    def ranks(self, n: int, rng: np.random.Generator) -> Floats:
        """Return the lasting factor of every cell, mean 1; drawn by rank and phase."""
        columns = [
            np.ones(n) if one.ranks == EVEN else one.ranks.sample(rng, n) for one in self.spreads
        ]
        return np.stack(columns, axis=1).reshape(-1)

    def varying(self, work_ns: Floats, cell: Ints, lasting: Floats | None) -> Varying:
        """Return the computation before some steps, to be drawn many times.

        ``cell``: of each step. ``lasting``: of :meth:`ranks`.
        """
        work, phase = np.array(work_ns, dtype=np.float64), cell % len(self.spreads)
        there = np.zeros(len(self.spreads), dtype=bool)
        for first in range(0, len(work), _AT_ONCE):
            some = slice(first, first + _AT_ONCE)
            there[phase[some]] = True
            if lasting is not None:
                work[some] *= lasting[cell[some]]
        parts = []
        for k in (k for k in np.flatnonzero(there).tolist() if self.shares[k] > 0):
            mine = phase == k
            mine &= work > 0
            where = None if mine.all() else np.flatnonzero(mine)
            parts.append((self.spreads[k].turns, self.shares[k], where))
        return Varying(work, tuple(parts))


@dataclass(frozen=True, eq=False)
class Varying:
    """Computation before steps, and what of it varies: how, how much of that, and where.

    The place None: everywhere."""

    work_ns: Floats
    parts: tuple[tuple[Distribution, float, Ints | None], ...]

    def drawn(self, rng: np.random.Generator) -> Floats:
        """Return the computation before each step, drawn anew."""
        drawn = self.work_ns.copy()
        for turns, share, where in self.parts:
            number = len(drawn) if where is None else len(where)
            for first in range(0, number, _AT_ONCE):
                last = min(first + _AT_ONCE, number)
                factor = turns.sample(rng, last - first)
                factor -= 1.0
                factor *= share
                factor += 1.0
                drawn[slice(first, last) if where is None else where[first:last]] *= factor
        return drawn


def variation_of(study: Study, phases: Sequence[int]) -> Variation | None:
    """Return the variability in compute.json of these phases; None where there is none.

    Raises P3SError when it is damaged.
    """
    from p3s.costs.stage import load, own_cores

    found = load(study.root)
    if found is None or not found.phases:
        return None
    known = {phase.phase: phase.spread for phase in found.phases}
    quiet = own_cores(study, found.runs)
    return Variation(tuple(known.get(phase, Spread()) for phase in phases), _own(study, quiet))


def _own(study: Study, quiet: Collection[int]) -> float:
    """Return ``own_deviation`` of the largest traced run that is not too large; inf: none tells.

    ``quiet``: counts whose ranks had cores of their own; where there are any, it is one of these.
    """
    unused = study.left_out()
    runs = [
        run
        for run in (study.timed_runs() or study.runs())
        if run.status == "complete" and run.np > 1 and run.np not in unused
    ]
    runs = [run for run in runs if run.np in quiet] or runs
    files = {run.path: files_in(run.path) for run in runs}
    sizes = {path: sum(size for _, size, *_ in some) for path, some in files.items()}
    small = [run for run in runs if sizes[run.path] <= _MOST_BYTES]
    chosen = max(small, key=lambda run: (run.np, -run.rep), default=None) or min(
        runs, key=lambda run: sizes[run.path], default=None
    )
    return math.inf if chosen is None else _last_deviation(chosen.path)


def own_deviation(run: Any) -> float:
    """Return by how much single iterations deviate on each rank for itself.

    ``run``: a RunTrace. An iteration is the k-th time that a rank computes between the same two
    places; its deviation is its time over the rank's mean of these, less one. What ranks with as
    many of them have in common is the mean of their k-th deviations. The result is the root of the
    mean square about that, weighted by time; inf where no two ranks can be compared or work is no
    time."""
    if run.work_unit not in TIMES:
        return math.inf
    # Calls of one place in the program, to whatever partner.
    number_of: dict[tuple[str, int], int] = {}
    place_of = np.array(
        [number_of.setdefault((call.op, call.site), len(number_of)) for call in run.calls],
        dtype=np.int64,
    )
    parts: dict[tuple[int, int], list[Floats]] = {}
    for rank in run.ranks:
        if len(rank.call) < _LEAST_OCCURRENCES:
            continue
        place, work = place_of[rank.call], np.asarray(rank.work, dtype=np.float64)
        stretch = place[:-1] * len(number_of) + place[1:]
        order = np.argsort(stretch, kind="stable")
        values, first, count = np.unique(stretch[order], return_index=True, return_counts=True)
        for which, begin, number in zip(
            values.tolist(), first.tolist(), count.tolist(), strict=True
        ):
            times = work[1:][order[begin : begin + number]]
            if number >= _LEAST_OCCURRENCES and times.mean() > 0:
                parts.setdefault((which, number), []).append(times)
    whole = own = 0.0
    for rows in parts.values():
        if len(rows) > 1:
            table = np.stack(rows)
            mean = table.mean(axis=1, keepdims=True)
            off = table / mean - 1.0
            weight = mean * len(rows) / (len(rows) - 1)  # the common part is a mean of the same
            own += float((weight * (off - off.mean(axis=0)) ** 2).sum())
            whole += float(table.sum())
    return float(np.sqrt(own / whole)) if whole > 0 else math.inf


def _read_deviation(run: Path) -> float:
    from p3s.capture import read_run

    return own_deviation(read_run(run))


#: A prediction simulates its counts many times over.
_last_deviation = LastRead(_read_deviation, files=8, mark=files_in)
