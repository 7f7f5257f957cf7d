"""What an estimator says of the communication of one process count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from p3s.base.extensions import Estimator, extensions
from p3s.simulate.totals import Followed, StandIns

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from p3s.predict.estimators.drawn import Draws

    FloatArray = NDArray[np.float64]

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


@dataclass(frozen=True)
class Communication:
    """Communication per rank and phase; arrays (ranks, phases) in seconds, of the whole run.

    ``comm``: all time in MPI calls, waiting included; ``low`` and ``high``: the ends of its
    interval from the costs of messages; ``waiting``, ``transfer``, ``software``: its parts, NaN
    where an estimator does not tell them apart. ``phases``: numbers of the phases, as the columns.
    ``why_not``: why the times do not tell how fast the program is, "" if they do.
    ``notes``: what was approximated, a line each. ``followed``: how far a simulation got with it.
    ``beside``: the computation of the ranks that were simulated instead of these, None where these
    were; who computes less than it waits longer. ``stand_ins``: those. ``draws``: how often
    computation was drawn, and what that came to, where it is simulated here and all ranks were.
    """

    estimator: str
    n: int
    phases: tuple[int, ...]
    comm: FloatArray
    low: FloatArray
    high: FloatArray
    waiting: FloatArray
    transfer: FloatArray
    software: FloatArray
    why_not: str = ""
    notes: tuple[str, ...] = ()
    followed: Followed = Followed()
    beside: FloatArray | None = None
    stand_ins: StandIns | None = None
    draws: Draws | None = None
