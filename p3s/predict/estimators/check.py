"""Whether smaller grids say what all ranks do, tried where all of these can be simulated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from p3s.errors import P3SError
from p3s.predict.estimators.fewer import Checked, estimated
from p3s.predict.estimators.grids import COMM, Grids
from p3s.program.fewer import Fewer, fewer

if TYPE_CHECKING:
    from p3s.predict.estimators.settings import Setting

#: Steps of all ranks, at most, in the iterations that are simulated first.
STEPS = 100_000


def missed(grids: Grids, setting: Setting, cores: int) -> Checked | None:
    """Return at which count all ranks were simulated, and how far off smaller grids were there.

    That is the largest of a half, a quarter and so on of the processes, or of the sides of their
    grid, at which all ranks have no more than STEPS and smaller grids stand for them. How far: of
    the mean communication that all ranks have there where nothing varies, as a share (0.1: smaller
    grids say 10 % more). None where there is no such count. ``cores``: ranks of a node.
    """
    still = replace(setting, vary=False)
    for few in _smaller(grids, cores):
        asked = grids.asked or grids.few.large.n
        there = replace(grids, few=few, asked=asked, ranks=None, keep=False)
        whole = Fewer(few.model, few.large, few.large.dims)
        all_ranks = there.alone(whole, still)
        true = all_ranks.mean[COMM]
        if true.sum() > 0:
            found, _ = estimated(there, there.plainly, still)
            said = found.comm.mean(axis=0)
            each = np.divide(said - true, true, out=np.zeros_like(true), where=true > 0)
            return Checked(few.large.n, float(said.sum() / true.sum()) - 1.0, each)
    return None


def _smaller(grids: Grids, cores: int) -> Iterator[Fewer]:
    """Yield the smaller grids of such counts, those of the largest first."""
    from p3s.model.grid.admissible import doubt
    from p3s.model.stage import load
    from p3s.model.verdicts import judged_at

    model = load(grids.study.root)
    smallest = grids.grid(0, grids.few)
    per_rank = smallest.size / grids.few.n
    for n in _counts(grids.few.large.dims, grids.few.large.n):
        if n > max(model.counts) and n * per_rank <= STEPS and doubt(model.admissible, n) is None:
            try:
                few = fewer(judged_at(model, n), n, cores)
            except P3SError:  # no process grid
                few = None
            if few is not None:
                yield few


def _counts(dims: Sequence[int], n: int) -> list[int]:
    """Return a half, a quarter ... of a count, and those of grids with halved sides, descending."""
    halves = {n >> k for k in range(1, n.bit_length())}
    forms = {prod(max(side >> k, 1) for side in dims) for k in range(1, max(dims).bit_length())}
    return sorted(halves | forms, reverse=True)
