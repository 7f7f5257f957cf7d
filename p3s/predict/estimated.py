"""What an estimator says of the communication of one process count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

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
class Followed:
    """How far a simulation could follow the messages and loops of the model.

    unmatched: messages that no call of the partner meets, out of ``messages`` of the kind (sends,
    or receives) of which most are; calls: the MPI calls that send or receive them. unsettled: share
    of the time in calls that rests on loops whose iterations went on changing; change: by how
    much they did, largest share of their time.
    """

    unmatched: float = 0.0
    messages: float = 0.0
    calls: tuple[str, ...] = ()
    unsettled: float = 0.0
    change: float = 0.0

    @property
    def lost(self) -> float:
        """Which share of the messages was left out."""
        return self.unmatched / self.messages if self.messages > 0 else 0.0

    def with_unmatched(self, found: Mapping[str, Any]) -> Followed:
        """Return it with what ``replay.order.reasons.unmatched`` says."""
        return replace(self, unmatched=float(found.get("events") or 0.0),
                       messages=float(found.get("of") or 0.0),
                       calls=tuple(str(call) for call in found.get("calls") or ()))


@dataclass(frozen=True)
class Communication:
    """Communication per rank and phase; arrays (ranks, phases) in seconds, of the whole run.

    ``comm``: all time in MPI calls, waiting included; ``low`` and ``high``: the ends of its
    interval from the costs of messages; ``waiting``, ``transfer``, ``software``: its parts, NaN
    where an estimator does not tell them apart. ``phases``: numbers of the phases, as the columns.
    ``why_not``: why the times do not tell how fast the program is, "" if they do.
    ``notes``: what was approximated, a line each. ``followed``: how far a simulation got with it.
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
