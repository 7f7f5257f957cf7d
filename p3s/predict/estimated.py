"""What an estimator says of the communication of one process count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from p3s.simulate.followed import Followed, StandIns

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from p3s.predict.estimators.altered import Draws

    FloatArray = NDArray[np.float64]

#: Estimators by name, as they are preferred, and what each is, for people.
ESTIMATORS = {
    "simulation": "dependency simulation with the costs that the replay measured",
    "machine": "dependency simulation with costs measured between two ranks (p3s machine measure)",
    "simgrid": "SimGrid's replay of the exported trace, on costs measured between two ranks",
    "typical": "dependency simulation with published costs of a typical cluster",
    "thesis": "sum of each rank's own calls with immediate black holes (Eq. 8.1)",
}

#: The one whose times are of another network than that of the runs.
TYPICAL = "typical"


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
