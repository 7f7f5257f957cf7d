"""What of a simulation is another way than predicted, and the draws that two of them share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from p3s.predict.estimators.variation import Variation
from p3s.simulate.network import Network
from p3s.simulate.steps import Floats


@dataclass
class Draws:
    """How often computation is drawn, by loop, and what each draw has come to.

    ``plan``: windows and repeats of a loop that is simulated with drawn computation; a simulation
    that finds one here follows it, so that both draw the same. ``seconds``: time in calls of each
    repeat over the run, mean over the ranks. ``most``: repeats, at most; 0: as many as there are.
    """

    plan: dict[int, tuple[int, int]] = field(default_factory=dict)
    seconds: dict[int, Floats] = field(default_factory=dict)
    most: int = 0

    def planned(self, loop: int, windows: int, repeats: int) -> tuple[int, int]:
        """Return windows and repeats of a loop: those of its plan, else these, which are kept."""
        repeats = min(repeats, self.most or repeats)
        return self.plan.setdefault(loop, (windows, repeats))

    def again(self) -> Draws:
        """Return the same plan for another simulation."""
        return Draws(dict(self.plan), most=self.most)


def off_by_draws(one: Draws, other: Draws, quantile: Callable[[int], float]) -> float:
    """Return by how much the difference of two simulations may be off for the few draws, in s.

    The same draws differ by the same each time; what is left varies, and its mean over the repeats
    has this half width. ``quantile``: of Student's t, by degrees of freedom.
    """
    square, fewest = 0.0, 0
    for loop, (_, repeats) in one.plan.items():
        apart = _of(one.seconds, loop, repeats) - _of(other.seconds, loop, repeats)
        if repeats > 1 and apart.any():
            square += float(np.var(apart, ddof=1)) / repeats
            fewest = min(fewest or repeats, repeats)
    return quantile(fewest - 1) * square**0.5 if square > 0 else 0.0


def _of(found: Mapping[int, Floats], loop: int, repeats: int) -> Floats:
    """Return the draws of a loop; of one in which nothing varies all are alike."""
    return found.get(loop, np.zeros(repeats))


@dataclass(frozen=True)
class Altered:
    """What is done to the costs of messages and to how computation varies before simulating."""

    network: Callable[[Network], Network] | None = None
    variation: Callable[[Variation], Variation] | None = None
    draws: Draws | None = None
