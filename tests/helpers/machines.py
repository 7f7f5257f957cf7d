"""Synthetic machines: cost curves of known caches and core speed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from p3s.machine.machinefile import CORE_KERNELS, Cache, Cost, Curve, Facts, Machine

SIZES = tuple(size for k in range(13, 28) for size in (1 << k, 3 << (k - 1)))[:-1]
#: ns per operation at 1 GHz.
CYCLES = {"int_add": 1.0, "fp_add": 3.0, "multiply_add": 0.25, "divide": 13.0, "branch": 9.0}
#: cycles per access in cache level 1, 2, 3; ns per access in memory is given apart.
_ACCESS = {
    "read": (0.4, 0.4, 0.5),
    "triad": (0.6, 0.8, 1.1),
    "strided": (1.0, 2.0, 2.7),
    "gather": (1.5, 2.5, 8.0),
    "chase": (4.0, 14.0, 50.0),
}
_MEMORY_NS = {"read": 0.4, "triad": 1.4, "strided": 7.0, "gather": 15.0, "chase": 100.0}


def level(working_set: float, size: float, softness: float = 0.25) -> float:
    """Return the share of accesses that a cache of a size does not hold: 0 to 1, a soft step."""
    return 1.0 / (1.0 + math.exp(-(math.log(working_set / size)) / softness))


def true_cost(
    kernel: str,
    working_set: float,
    ghz: float,
    caches: Sequence[float],
    memory: float | Mapping[str, float],
) -> float:
    """Return the cost of one access in ns on a machine without noise."""
    slower = memory if isinstance(memory, float | int) else memory[kernel]
    steps = _ACCESS[kernel]
    cost = steps[0] / ghz
    for number, size in enumerate(caches):
        last = number + 1 == len(caches)
        beyond = _MEMORY_NS[kernel] * slower if last else steps[min(number + 1, 2)] / ghz
        here = steps[min(number, 2)] / ghz
        cost += level(working_set, size) * max(beyond - here, 0.0)
    return cost


def synthetic(
    ghz: float = 3.0,
    caches: Sequence[float] = (32 << 10, 1 << 20, 32 << 20),
    memory: float | Mapping[str, float] = 1.0,
    *,
    name: str = "synthetic",
    noise: float = 0.0,
    spread: float = 0.005,
    seed: int = 0,
    architecture: str = "x86_64",
    core: Mapping[str, float] | None = None,
    sizes: Sequence[int] = SIZES,
) -> Machine:
    """Return a machine of a clock (GHz), cache sizes in bytes, and factors on memory costs.

    ``noise``: relative standard deviation of each measured cost; ``spread``: as stored; ``core``:
    factors on the cycles of core kernels.
    """
    rng = np.random.default_rng(seed)

    def measured(value: float) -> float:
        return value * math.exp(noise * rng.standard_normal())

    factors = core or {}
    curves = {
        kernel: Curve(
            tuple(sizes),
            tuple(measured(true_cost(kernel, size, ghz, caches, memory)) for size in sizes),
            (spread,) * len(sizes),
            (5,) * len(sizes),
        )
        for kernel in _ACCESS
    }
    return Machine(
        name=name,
        created="2026-01-01T00:00:00+00:00",
        p3s_version="0.1.0",
        facts=Facts(
            architecture=architecture,
            processor="synthetic",
            cores=1,
            memory_bytes=1 << 34,
            kernel="Linux",
            huge_pages="never",
            caches=tuple(Cache(i + 1, int(size), 64, 1) for i, size in enumerate(caches)),
        ),
        settings={"flags": "-O2", "compiler_version": "cc 1", "quick": False, "seconds": 1.0},
        core={
            kernel: Cost(measured(CYCLES[kernel] / ghz * factors.get(kernel, 1.0)), spread, 5)
            for kernel in CORE_KERNELS
        },
        curves=curves,
        network_missing="synthetic",
    )
