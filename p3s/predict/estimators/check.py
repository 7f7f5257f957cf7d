"""Whether smaller grids say what all ranks do.

Their times are tried where all ranks can be simulated. What is on none of them can only be guessed:
smaller grids tell how times change with the sides, the ranks and their logarithm; a level that a
multigrid cycle has from some count on, or partners farther away than a grid is long, adds calls
that no simulated rank makes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from p3s.base.arrays import Ints
from p3s.base.errors import P3SError
from p3s.base.text import join_words, processes
from p3s.model.evaluate import Amounts, Evaluator, ScaledRows
from p3s.model.grid.admissible import doubt
from p3s.model.stage import load
from p3s.model.verdicts import judged_at
from p3s.predict.estimated import COMM, HIGH, LOW, Communication
from p3s.predict.estimators.fewer import GridCheck, slower, taken_to
from p3s.predict.estimators.grids import Grids, GridTimes
from p3s.predict.estimators.settings import Setting
from p3s.program.fewer import Fewer, fewer

#: Steps of all ranks in the iterations that are simulated first: usually, and at most where no
#: count has so few.
USUAL_STEPS, STEPS = 250_000, 1_000_000
#: What variation adds is checked where it is more than this share of communication without it.
_VARIES = 0.2
#: So many counts of other forms are looked at, at most.
_TRIED = 32


def check_smaller_grids(grids: Grids, setting: Setting, cores: int) -> GridCheck | None:
    """Return at which count all ranks were simulated, and how far off smaller grids were there.

    That is the largest of a half, a quarter and so on of the processes, or of the sides of their
    grid, at which all ranks have no more than USUAL_STEPS and smaller grids stand for them, else
    one of another form, or of more steps. How far: of the communication that ranks have there, as a
    share (0.1: smaller grids say 10 % more), with what variation adds where that is no small part.
    None where there is no such count. ``cores``: ranks of a node.
    """
    for few in _smaller(grids, cores):
        asked = grids.asked or grids.few.large.n
        there = replace(grids, few=few, asked=asked, ranks=None, keep=False)
        whole = Fewer(few.model, few.large, few.large.dims)
        made = there.simulated(there.as_predicted, setting, ends=False)
        varies = _varies(made[0])
        if not varies:
            made = [replace(one, more=None) for one in made]
        all_ranks = there.alone(whole, replace(setting, vary=varies))
        more = np.zeros(len(all_ranks.plain)) if all_ranks.more is None else all_ranks.more
        true = all_ranks.mean[COMM] + more
        if true.sum() > 0:
            found, _ = taken_to(few, None, made)
            said = found.comm.mean(axis=0)
            each = np.divide(said - true, true, out=np.zeros_like(true), where=true > 0)
            return GridCheck(
                few.large.n,
                float(said.sum() / true.sum()) - 1.0,
                each,
                slower(found.comm, all_ranks.times[COMM] + more, all_ranks.computed),
            )
    return None


def _varies(smallest: GridTimes) -> bool:
    """Tell whether variation adds so much that it has to be checked as well."""
    more, comm = smallest.more, float(smallest.mean[COMM].sum())
    return more is not None and float(more.sum()) > _VARIES * comm


def _smaller(grids: Grids, cores: int) -> Iterator[Fewer]:
    """Yield the smaller grids of such counts, in the order in which they are tried."""
    model = load(grids.traces.root)
    smallest = grids.grid(0, grids.few)
    per_rank = smallest.size / grids.few.n
    large = grids.few.large
    usual, most = (int(steps / max(per_rank, 1e-9)) for steps in (min(USUAL_STEPS, STEPS), STEPS))
    rather = _counts(large.dims, large.n, usual)
    more = [n for n in _counts(large.dims, large.n, most) if n not in rather]
    for n in (*rather, *reversed(more)):
        if n > max(model.counts) and doubt(model.admissible, n) is None:
            try:
                few = fewer(judged_at(model, n), n, cores)
            except P3SError:  # no process grid
                few = None
            if few is not None:
                yield few


def _counts(dims: Sequence[int], n: int, most: int) -> list[int]:
    """Return counts below ``n``, up to ``most``, those of the likest form first.

    A half, a quarter ... and those of grids with halved sides, descending; then those of grids
    whose sides are divided otherwise, of squares and cubes, and what has few prime factors.
    """
    halves = {n >> k for k in range(1, n.bit_length())}
    forms = {prod(max(side >> k, 1) for side in dims) for k in range(1, max(dims).bit_length())}
    alike = {each for each in halves | forms if each <= most}
    top = min(most, n // 2)
    shorter = {prod(max(side // k, 1) for side in dims) for k in range(3, 32)}
    powers = {side**p for p in (2, 3) for side in range(2, int(top**0.5) + 1)}
    smooth = {2**a * 3**b for a in range(top.bit_length()) for b in range(4)}
    others = sorted({each for each in shorter | powers | smooth if each <= top} - alike)
    return sorted(alike, reverse=True) + others[::-1][:_TRIED]


#: Calls that grow as the ranks do, or a side, but for this share, are told by smaller grids.
_NEARLY = 0.1


@dataclass(frozen=True)
class UnseenCalls:
    """Different calls of an item that a rank makes: most at the large count, and where ranks were
    simulated. Different ones have another partner or another place in an iteration."""

    item: int
    there: int
    seen: int

    @property
    def share(self) -> float:
        """Which share of them was never simulated."""
        return 1.0 - self.seen / self.there


def unseen(few: Fewer, grids: Sequence[Fewer], checked_n: int | None) -> list[UnseenCalls]:
    """Return the items of which ranks make more different calls than anywhere simulated.

    ``grids``: those that stand for the large one; ``checked_n``: a count at which every rank was
    simulated, if any. Left out is what grows with the ranks or the sides of the grid.
    """
    model, large = few.model, few.large
    there = _count_most_calls(
        few, Evaluator(model, large.n, grid=large).rows(few.stands_for, work=False)
    )
    none = np.zeros(len(model.phases))
    found = [(one.n, one.dims, _count_most_calls(few, _rows(one, none))) for one in grids]
    if checked_n is not None:
        every = Evaluator(judged_at(model, checked_n), checked_n)
        found.append((checked_n, every.grid.dims, _count_most_calls(few, every.rows(work=False))))
    n, dims, _ = max(found, key=lambda one: one[0])
    ratios = [large.n / n, *(a / b for a, b in zip(large.dims, dims, strict=False))]
    seen = np.max([most for _, _, most in found], axis=0)
    more = [
        UnseenCalls(int(i), int(there[i]), int(seen[i]))
        for i in np.flatnonzero(there > seen).tolist()
    ]
    return [
        one
        for one in more
        if not one.seen
        or all(abs(one.there / one.seen - each) > _NEARLY * each for each in ratios if each > 1.0)
    ]


def _rows(few: Fewer, none: np.ndarray) -> ScaledRows:
    amounts = Amounts(few.large, few.stands_for, none)
    return Evaluator(few.model, few.n, grid=few.grid, amounts=amounts).rows(work=False)


def _count_most_calls(few: Fewer, rows: ScaledRows) -> Ints:
    """Return how many different calls of each item the rank makes that makes most."""
    items = len(few.model.items)
    cell, number = np.unique(rows.rank * items + rows.item, return_counts=True)
    found = np.zeros(items, dtype=np.int64)
    np.maximum.at(found, cell % items, number)
    return found


def with_unseen(
    found: Communication, few: Fewer, grids: Sequence[Fewer], checked: GridCheck | None
) -> Communication:
    """Return communication by smaller grids that says which calls are on none of them.

    In their phases it may be off by the share of the calls that was never simulated: by all of it
    where a call was on none of them.
    """
    more = unseen(few, grids, None if checked is None else checked.n)
    if not more:
        return found
    items = few.model.items
    off = np.array(
        [
            max((m.share for m in more if items[m.item].phase == k), default=0.0)
            for k in found.phases
        ]
    )
    seconds = found.seconds.copy()
    seconds[LOW] = np.minimum(found.low, found.comm * (1.0 - off))
    seconds[HIGH] = np.maximum(found.high, found.comm * (1.0 + off))
    return replace(found, seconds=seconds, notes=(*found.notes, _describe_unseen(few, more)))


def _describe_unseen(few: Fewer, more: Sequence[UnseenCalls]) -> str:
    worst = max(more, key=lambda one: one.share)
    ops = dict.fromkeys(few.model.items[one.item].op for one in more)
    text = (
        f"at {processes(few.large.n)} ranks make calls of {join_words(ops)} that no simulated grid "
        f"has: up to {worst.there} different ones of {few.model.items[worst.item].op}, and "
        f"{worst.seen or 'none'} where ranks were simulated"
    )
    if not worst.seen:
        return f"{text}; what they take is not known"
    return f"{text}; the time of the others is taken from how that of these grows"
