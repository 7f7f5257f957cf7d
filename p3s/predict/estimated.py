"""What an estimator says of the communication of one process count."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from p3s.base.arrays import Floats
from p3s.base.extensions import Estimator, extensions
from p3s.simulate.totals import SimulationGaps, StandIns

#: Of Communication.seconds: the time in calls, its parts, the ends of its interval.
COMM, WAITING, TRANSFER, SOFTWARE, LOW, HIGH = range(6)
#: The one whose times are of another network than that of the runs.
TYPICAL = "typical"
#: Those that only read what a replay left.
FROM_REPLAY = ("simulation", "thesis")
#: Told of every step.
Say = Callable[[str], None]
#: Estimators by name, as they are preferred.
ESTIMATORS = {
    each.name: each
    for each in (
        Estimator(
            "simulation",
            "dependency simulation with the costs that the replay measured",
            "costs of messages were measured by a replay at every count",
            "p3s.predict.estimators.one:simulation",
        ),
        Estimator(
            "machine",
            "dependency simulation with costs measured between two ranks (p3s machine measure)",
            "costs of messages were measured between two ranks",
            "p3s.predict.estimators.machine:communication",
            "p3s.predict.estimators.messages:why_not",
        ),
        *(each for extension in extensions() for each in extension.estimators),
        Estimator(
            TYPICAL,
            "dependency simulation with published costs of a typical cluster",
            "message costs are published figures of a typical cluster",
            "p3s.predict.estimators.machine:of_typical",
        ),
        Estimator(
            "thesis",
            "sum of each rank's own calls with immediate black holes (Eq. 8.1)",
            "nothing but the sum of each rank's calls is there",
            "p3s.predict.estimators.one:thesis",
        ),
    )
}


def silent(_: object) -> None:
    """Say nothing: what estimators get where nobody listens."""


@dataclass
class Draws:
    """How often computation is drawn, by loop.

    ``plan``: windows and repeats of a loop that is simulated with drawn computation; a simulation
    that finds one here follows it, so that both draw the same. ``most``: repeats, at most; 0: as
    many as there are.
    """

    plan: dict[int, tuple[int, int]] = field(default_factory=dict)
    most: int = 0

    def planned(self, loop: int, windows: int, repeats: int) -> tuple[int, int]:
        """Return windows and repeats of a loop: those of its plan, else these, which are kept."""
        repeats = min(repeats, self.most or repeats)
        return self.plan.setdefault(loop, (windows, repeats))

    def again(self) -> Draws:
        """Return the same plan for another simulation."""
        return Draws(dict(self.plan), most=self.most)


@dataclass(frozen=True)
class Communication:
    """Communication per rank and phase, of the whole run.

    ``seconds``: (6, ranks, phases): all time in MPI calls, waiting included; its waiting, transfer
    and software, NaN where an estimator does not tell them apart; the low and the high end of its
    interval from the costs of messages. ``phases``: numbers of the phases, as the columns.
    ``why_not``: why the times do not tell how fast the program is, "" if they do.
    ``notes``: what was approximated, ``left_out``: what is in no number, a line each.
    ``followed``: how far a simulation got with it.
    ``beside``: the computation of the ranks that were simulated instead of these, None where these
    were; who computes less than it waits longer. ``stand_ins``: those. ``longer``: how much longer
    than without variation these were simulated to compute (less than 0: shorter), in s, (ranks,
    phases); None: no more and no less. ``draws``: how often computation was drawn, where it is
    simulated here and all ranks were.
    """

    estimator: str
    n: int
    phases: tuple[int, ...]
    seconds: Floats
    why_not: str = ""
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    followed: SimulationGaps = SimulationGaps()
    beside: Floats | None = None
    longer: Floats | None = None
    stand_ins: StandIns | None = None
    draws: Draws | None = None

    @classmethod
    def of_sum(cls, estimator: str, n: int, phases: tuple[int, ...], comm: Floats) -> Communication:
        """Return a sum of calls, (ranks, phases): with no interval, and of unknown parts."""
        unknown = np.full_like(comm, np.nan)
        return cls(estimator, n, phases, np.stack([comm, *(unknown,) * 3, comm, comm]))

    @classmethod
    def none(cls, estimator: str, n: int, phases: tuple[int, ...], ranks: int) -> Communication:
        """Return no communication."""
        return cls(estimator, n, phases, np.zeros((6, ranks, len(phases))))

    @property
    def comm(self) -> Floats:
        """All time in calls."""
        return np.asarray(self.seconds[COMM])

    @property
    def waiting(self) -> Floats:
        """Waiting for other ranks."""
        return np.asarray(self.seconds[WAITING])

    @property
    def low(self) -> Floats:
        """The low end of the time in calls."""
        return np.asarray(self.seconds[LOW])

    @property
    def high(self) -> Floats:
        """The high end of the time in calls."""
        return np.asarray(self.seconds[HIGH])
