"""A synthetic cluster on which true times of hybrid master/worker programs are known.

Virtual nodes of four cores and two L2 caches of 4 MB, one process per node; an N-body program (nb)
and a heat program (ht): times follow from operations, caches, fork and join, and messages.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from p3s.base.arrays import Floats
from p3s.methods.baseline.trees.features import derive_features
from p3s.methods.baseline.trees.types import Table

EXPRESSION = {
    "nb": "b4*w2 + b3*w1 + b2*workers + b1*local_workld + b0",
    "ht": "b4*w2 + b3*w1 + b2*workers + b1*workload + b0",
}
VARIABLES = ("w2", "w1", "workers", "workload", "local_workld", "threads", "l2_0", "l2_1")
WORKERS, THREADS = tuple(range(2, 29, 2)), (1, 2, 3, 4)
#: A. Castellanos Carrazana, UAB 2014, tables 5.2 and 5.3 (the latter's order is the printed one).
TRAINING = {
    "nb": """25 70 130 200 300 400 550 650 750 850 950 1100 1300 1500 1750 1900 2000 2200 2400 2600
    2800 3000 3200 3400 3600 3800 4000 4200 4400 4600 4750 4900 5100 5300 5500 5780 5900 6300 6800
    7300 7800 8300 8800 9200 9750 12000 15000 19000 22000 25000 29000 32000 35000 39000 42000 45000
    55000 65000 75000 85000""",
    "ht": """50 100 180 300 500 900 1250 1800 2100 2300 2700 2900 3100 3300 3700 3900 4100 4300 4700
    4900 5100 5300 5700 5900 6100 6300 6700 6900 7100 7300 7700 7900 8100 8300 8700 8900 9100 9300
    9700 9900 10500 28000 11500 12500 13500 15000 17000 20000 23000 33000 44000 37000 39000 42000
    50000 60000 70000 80000 90000""",
}
VALIDATION = {
    "nb": """50 100 150 250 350 500 600 700 800 900 1000 1250 1400 1600 1800 1950 2100 2300 2500
    2700 2900 3100 3300 3500 3750 3900 4100 4300 4500 4700 4800 5000 5250 5400 5600 5800 6000 6500
    7000 7500 8000 8500 9000 9500 10000 14000 17000 20000 24000 27000 30000 34000 37000 40000 43500
    50000 60000 70000 80000 90000""",
    "ht": """80 150 250 400 750 1000 1500 2000 2200 2500 2800 3000 3200 3500 3800 4000 4200
    4500 4800 5000 5200 5500 5800 6000 6200 6500 6800 7000 7200 7500 7800 8000 8200 8500 8800
    9000 9200 9500 9800 10000 11000 12000 13000 14000 16000 18000 21000 25000 30000 35000 38000
    40000 43500 45000 55000 65000 75000 85000""",
}
_SPEEDUP = np.array([np.nan, 1.0, 1.97, 2.9, 3.8])


def workloads(text: str) -> list[float]:
    """Return the numbers of a list."""
    return [float(word) for word in text.split()]


def _message(size: Floats) -> Floats:
    return 25e-6 + size / 1.1e8 + np.where(size > 65536, 60e-6, 0.0)


def times(program: str, w: Floats, k: Floats, t: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Return seconds of an iteration, and of its computation in all workers, without noise."""
    local = w / k
    if program == "nb":
        operations, each, out, back = w * local, 20, 56 * w, 56 * local
    else:
        operations, each, out, back = local * w, 8, 16 * w, 16 * w
    compute = 0.9 * each * operations / (3e9 * _SPEEDUP[t])
    if program == "ht":
        cache = np.where(t > 2, 8e6, 4e6)
        over = np.clip(16 * local * w / cache - 1, 0, 3) / 3
        compute = compute + over * operations * 24 / (np.minimum(t, 2) * 2.2e9)
    region = 1.5e-6 + 2e-6 * t + 0.4e-6 * t**2
    whole = k * _message(out) + compute + region + _message(back) + 2e-6 * k + 5e-9 * w
    return whole, k * (compute + region)


def grid(of: list[float], workers: tuple[int, ...] = WORKERS) -> dict[str, Floats]:
    """Return the columns of all configurations at some workloads."""
    w, k, t = (a.ravel() for a in np.meshgrid(of, workers, THREADS, indexing="ij"))
    columns = derive_features(w.astype(float), k.astype(float), t.astype(float))
    columns["l2_0"] = np.minimum(2.0, columns["threads"])
    columns["l2_1"] = columns["threads"] - columns["l2_0"]
    return columns


def runs(program: str, of: list[float], noise: float, seed: int) -> Table:
    """Return a table of runs, their times with noise (standard deviation of their logarithm)."""
    columns = grid(of)
    exact, _ = times(
        program, columns["workload"], columns["workers"], columns["threads"].astype(int)
    )
    rng = np.random.default_rng(seed)
    return Table(columns, exact * np.exp(noise * rng.standard_normal(len(exact))))
