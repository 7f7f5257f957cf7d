"""Whether smaller grids say what all ranks do, tried where all of these can be simulated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from p3s.errors import P3SError
from p3s.predict.estimators.fewer import estimated
from p3s.predict.estimators.grids import COMM, Grids
from p3s.program.fewer import Fewer, fewer

if TYPE_CHECKING:
    from p3s.predict.estimators.settings import Setting

#: Steps of all ranks, at most, in the iterations that are simulated first.
STEPS = 150_000


def missed(grids: Grids, setting: Setting, cores: int) -> tuple[int, float] | None:
    """Return at which count all ranks were simulated, and how far off smaller grids were there.

    That is the largest of a half, a quarter and so on of the processes at which all ranks have no
    more than STEPS, the program has a process grid, and smaller ones stand for it. How far: of the
    mean communication that all ranks have there where nothing varies, as a share (0.1: smaller
    grids say 10 % more). None where there is no such count. ``cores``: ranks of a node.
    """
    still = replace(setting, vary=False)
    for few in _smaller(grids, cores):
        asked = grids.asked or grids.few.large.n
        there = replace(grids, few=few, asked=asked, ranks=None, keep=False)
        whole = Fewer(few.model, few.large, few.large.dims)
        all_ranks = there.alone(whole, still)
        true = float(all_ranks.mean[COMM].sum())
        if true > 0:
            found, _ = estimated(there, there.plainly, still)
            return few.large.n, float(found.comm.mean(axis=0).sum()) / true - 1.0
    return None


def _smaller(grids: Grids, cores: int) -> Iterator[Fewer]:
    """Yield the smaller grids of such counts, those of the largest first."""
    from p3s.model.grid.admissible import doubt
    from p3s.model.stage import load
    from p3s.model.verdicts import judged_at

    model = load(grids.study.root)
    smallest = grids.grid(0, grids.few)
    per_rank = smallest.size / grids.few.n
    n = grids.few.large.n // 2
    while n > max(model.counts):
        if n * per_rank <= STEPS and doubt(model.admissible, n) is None:
            try:
                few = fewer(judged_at(model, n), n, cores)
            except P3SError:  # no process grid
                few = None
            if few is not None:
                yield few
        n //= 2
