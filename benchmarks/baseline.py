"""How far regressions of run times miss: Linpack by its cost model, with published counts.

    python benchmarks/all.py --only baseline

The process counts are those of Kazmina and Antonov. benchmarks/accuracy/run.py has the regressions
of simulated programs.
"""

from __future__ import annotations

import math

import numpy as np
from figures import Figure, Found

from benchmarks.regression import explicit
from p3s.laws.statistics import scores
from p3s.methods.baseline.model import fit_series
from p3s.methods.baseline.times import from_mapping

SMALL = np.arange(16.0, 129.0, 4.0)
LARGE = np.array([144.0, 256.0, 400.0, 576.0, 784.0, 1024.0])
#: Operations and bytes per second of a core, seconds of a message: the two machines.
MACHINES = {"older": (10e9, 3.2e9, 2e-6), "newer": (30e9, 6.0e9, 1.5e-6)}
SERIES = (("older", 16384.0), ("older", 25600.0), ("newer", 25600.0), ("newer", 50000.0))
SEEDS = 50


def linpack(n: float, q: np.ndarray, machine: str) -> np.ndarray:
    """Return seconds by the cost model of HPL's authors on the squarest P x Q grid.

    2 N^3 / 3PQ operations, N^2 (3P+Q) / 2PQ words, N ((NB+1) log2 P + P) / NB messages, NB = 128.
    """
    speed, bandwidth, latency = MACHINES[machine]
    counts = np.asarray(q, dtype=int)
    p = np.array([max(i for i in range(1, math.isqrt(k) + 1) if k % i == 0) for k in counts])
    return np.asarray(
        2 * n**3 / (3 * counts) / speed
        + n * n * (3 * p + counts / p) / (2 * counts) * 8 / bandwidth
        + latency * n * (129 * np.log2(p) + p) / 128
    )


def slower(seconds: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """Return times of runs that were disturbed: never faster."""
    return np.asarray(seconds * (1 + share * np.abs(rng.standard_normal(len(seconds)))))


def medians(noise: float, weights: str) -> dict[str, float]:
    """Return the median error of T(n) over targets and seeds, of each series."""
    found = {}
    for machine, n in SERIES:
        each = []
        for seed in range(SEEDS if noise else 1):
            seconds = slower(linpack(n, SMALL, machine), noise, np.random.default_rng(seed))
            times = dict(zip(SMALL.astype(int).tolist(), seconds.tolist(), strict=True))
            made = fit_series(from_mapping(times), ["three-term"], weights=weights)
            told, true = made.fitted.predict(LARGE), linpack(n, LARGE, machine)
            each.append(scores((told - true) / true).median)
        found[f"{machine}, N={n:.0f}"] = float(np.median(each))
    return found


def explicit_median() -> float:
    """Return by how much the model with all small times as inputs misses a series left out."""
    errors: list[float] = []
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        small, large = [], []
        for machine, n in SERIES:
            for counts, into in ((np.arange(4.0, 129.0, 4.0), small), (LARGE, large)):
                seconds = slower(linpack(n, counts, machine), 0.02, rng)
                into.append(dict(zip(counts.astype(int).tolist(), seconds.tolist(), strict=True)))
        rows = explicit.design(small, large, [{"size": n} for _, n in SERIES])
        for left in range(len(SERIES)):
            out = np.array(rows.series) == left
            told = explicit.fit(rows.only(~out), anyway=True).predict(rows.only(out))
            errors += (told / rows.seconds[out] - 1).tolist()
    return scores(errors).median


def figures(quick: bool) -> Found:
    """Return the medians of T(n) for Linpack, and what the explicit model misses by."""
    out = [
        Figure(
            f"Linpack, {machine}, {noise:.0%} noise, {weights} weights: median error",
            100 * median,
            "%",
        )
        for noise in (0.0, 0.01, 0.02, 0.05)
        for weights in ("absolute", "relative")
        for machine, median in medians(noise, weights).items()
    ]
    name = "Linpack, all small times as inputs, refused: median error"
    return Found((*out, Figure(name, 100 * explicit_median(), "%")))
