"""Times of phases by hand: computation and what an estimator would say of communication."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np

from p3s.predict.estimated import COMM, HIGH, LOW, SOFTWARE, TRANSFER, WAITING, Communication
from p3s.predict.times import PhaseTimes

_AT = {
    "comm": COMM,
    "waiting": WAITING,
    "transfer": TRANSFER,
    "software": SOFTWARE,
    "comm_low": LOW,
    "comm_high": HIGH,
}
_SAID = {each.name for each in fields(Communication)} - {"n", "phases"}


def times_by_hand(
    n: int, phases: list[dict[str, Any]], compute: Any, comm: Any, width: Any, head: dict[str, Any]
) -> PhaseTimes:
    """Return times by a simulation that knows no parts of the communication."""
    numbers = tuple(int(each["phase"]) for each in phases)
    mpi = Communication.of_sum("simulation", n, numbers, np.asarray(comm, dtype=float))
    return PhaseTimes(n, phases, compute, mpi, width, head)


def changed(times: PhaseTimes, **new: Any) -> PhaseTimes:
    """Return times with other values, parts of the communication by their names."""
    parts = {name: new.pop(name) for name in list(new) if name in _AT}
    said = {name: new.pop(name) for name in list(new) if name in _SAID}
    seconds = times.mpi.seconds.copy()
    shape = np.shape(parts.get("comm", seconds[COMM]))
    if shape != seconds.shape[1:]:
        seconds = np.full((6, *shape), np.nan)
    for name, values in parts.items():
        seconds[_AT[name]] = values
    return replace(times, mpi=replace(times.mpi, seconds=seconds, **said), **new)
