"""What an estimator says of the communication of one process count."""

from __future__ import annotations

from dataclasses import dataclass, field

from p3s.base.arrays import Floats
from p3s.base.extensions import Estimator, extensions
from p3s.simulate.totals import Followed, StandIns

#: The one whose times are of another network than that of the runs.
TYPICAL = "typical"
#: Those that only read what a replay left.
FROM_REPLAY = ("simulation", "thesis")
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
    """Communication per rank and phase; arrays (ranks, phases) in seconds, of the whole run.

    ``comm``: all time in MPI calls, waiting included; ``low`` and ``high``: the ends of its
    interval from the costs of messages; ``waiting``, ``transfer``, ``software``: its parts, NaN
    where an estimator does not tell them apart. ``phases``: numbers of the phases, as the columns.
    ``why_not``: why the times do not tell how fast the program is, "" if they do.
    ``notes``: what was approximated, ``left_out``: what is in no number, a line each.
    ``followed``: how far a simulation got with it.
    ``beside``: the computation of the ranks that were simulated instead of these, None where these
    were; who computes less than it waits longer. ``stand_ins``: those. ``draws``: how often
    computation was drawn, where it is simulated here and all ranks were.
    """

    estimator: str
    n: int
    phases: tuple[int, ...]
    comm: Floats
    low: Floats
    high: Floats
    waiting: Floats
    transfer: Floats
    software: Floats
    why_not: str = ""
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    followed: Followed = Followed()
    beside: Floats | None = None
    stand_ins: StandIns | None = None
    draws: Draws | None = None
