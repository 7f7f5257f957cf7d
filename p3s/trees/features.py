"""Variables of a run that its time may depend on: of its workload, and of shared caches."""

from __future__ import annotations

import numpy as np

from p3s.trees.types import Array


def derived(workload: Array, workers: Array, threads: Array) -> dict[str, Array]:
    """Return the variables w2, w1, workers, workload, local_workld, threads of runs.

    w2 = W^2 / (K T), w1 = W / (K T) (eq. 4.2), local_workld = W / K.
    """
    share = workers * threads
    return {
        "w2": workload**2 / share,
        "w1": workload / share,
        "workers": np.asarray(workers, dtype=float),
        "workload": np.asarray(workload, dtype=float),
        "local_workld": workload / workers,
        "threads": np.asarray(threads, dtype=float),
    }
