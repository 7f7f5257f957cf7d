"""How well workers are used: efficiency, and the index that weighs it with the time.

A. Castellanos Carrazana, UAB 2014, eq. 4.9 and 4.10, after the master/worker model of Cesar et al.
"""

from __future__ import annotations

import numpy as np

from p3s.base.errors import P3SError
from p3s.methods.baseline.trees.types import Array

#: By how much computation may exceed what workers had time for: clocks of two processes.
_CLOCKS = 1e-6


def efficiency(workers: Array, time: Array, computed: Array) -> Array:
    """Return E = T_c / (K T_iter), at most 1.

    ``workers`` K, ``time`` T_iter of an iteration and ``computed`` T_c, the computation of all
    workers added up (eq. 4.10), both in seconds. Errors: P3SError where E is above 1.
    """
    found = computed / (workers * time)
    _check(found, "the workers' computation is more than all of them had time for")
    return np.asarray(found)


def index(workers: Array, time: Array, computed: Array) -> Array:
    """Return E_index = T_iter / E = K T_iter^2 / T_c in seconds (eq. 4.9), never below T_iter.

    The less the better. Threads are no resource in it: see :func:`core_index`.
    """
    return np.asarray(time / efficiency(workers, time, computed))


def core_efficiency(workers: Array, threads: Array, time: Array, busy: Array) -> Array:
    """Return E_core = seconds that threads were busy, all added up, over K T T_iter."""
    found = busy / (workers * threads * time)
    _check(found, "the threads were busy for longer than all of them had time for")
    return np.asarray(found)


def core_index(workers: Array, threads: Array, time: Array, busy: Array) -> Array:
    """Return T_iter / E_core in seconds: the index with cores as the resource."""
    return np.asarray(time / core_efficiency(workers, threads, time, busy))


def _check(found: Array, what: str) -> None:
    wrong = np.flatnonzero(~((found > 0) & (found <= 1 + _CLOCKS)))
    if len(wrong):
        at = int(wrong[0])
        raise P3SError(
            f"row {at + 1}: an efficiency of {float(found[at]):.4g}: {what}, or there was none; "
            "are both times in one unit, and of one iteration?"
        )
