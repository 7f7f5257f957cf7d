"""How computation varies in the traced runs, for simulations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from p3s.compute.spread import EVEN, Spread
from replay.steps import Floats, Ints

if TYPE_CHECKING:
    from p3s.study import Study


@dataclass(frozen=True)
class Variation:
    """Variability of each phase, in the order of the columns of the cells (rank x phases)."""

    spreads: tuple[Spread, ...]

    @property
    def varies(self) -> bool:
        """Whether there is any."""
        return any(one.ranks != EVEN or one.turns != EVEN for one in self.spreads)

    def ranks(self, n: int, rng: np.random.Generator) -> Floats:
        """Return the lasting factor of every cell, mean 1; drawn by rank and phase."""
        columns = [np.ones(n) if one.ranks == EVEN else one.ranks.sample(rng, n)
                   for one in self.spreads]
        return np.stack(columns, axis=1).reshape(-1)

    def computing(self, work_ns: Floats, cell: Ints, lasting: Floats | None,
                  rng: np.random.Generator) -> Floats:
        """Return the computation before each step, drawn anew.

        ``lasting``: of :meth:`ranks`. ``cell``: of each step.
        """
        work = work_ns if lasting is None else work_ns * lasting[cell]
        drawn = np.array(work, dtype=np.float64)
        busy = np.flatnonzero(work > 0)
        phase = cell[busy] % len(self.spreads)
        for k, one in enumerate(self.spreads):
            if one.turns != EVEN:
                mine = busy[phase == k]
                drawn[mine] *= one.turns.sample(rng, len(mine))
        return drawn


def variation_of(study: Study, phases: Sequence[int]) -> Variation | None:
    """Return the variability in compute.json of these phases; None where there is none.

    Raises P3SError when it is damaged.
    """
    from p3s.study import read_json

    if not study.compute_path.exists():
        return None
    content = read_json(study.compute_path, "p3s.compute")
    known = {int(phase["phase"]): Spread.from_json(phase["spread"])
             for phase in content.get("phases", ()) if "phase" in phase and "spread" in phase}
    if not known:
        return None
    return Variation(tuple(known.get(phase, Spread()) for phase in phases))
