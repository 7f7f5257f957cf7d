"""A made-up measurement of OpenMP threads whose values are known."""

from __future__ import annotations

from p3s.machine.machinefile import CONSTRUCTS, LOOPS, Bandwidth, Clock, Latency, OpenMP, Overhead

THREADS = (1, 2, 4)


def overhead_ns(threads: int, iterations: int) -> float:
    """Return what every construct costs: 100 ns and 50 a thread, 2 an iteration and thread."""
    return 100.0 + 50.0 * threads + 2.0 * iterations * threads


def openmp(far: bool = True, slow: float = 1.0) -> OpenMP:
    """Return teams of 1, 2 and 4 threads on four cores in two memory domains."""
    points = len(THREADS)
    curves = {}
    for name in CONSTRUCTS:
        at = (1, 8, 64) if name in LOOPS else (1,)
        curves[name] = tuple(
            Overhead(
                t,
                at,
                tuple(slow * overhead_ns(t, i) for i in at),
                tuple(slow * 1.2 * overhead_ns(t, i) for i in at),
                (3,) * len(at),
            )
            for t in THREADS
        )
    sizes = (8 << 10, 1 << 20, 128 << 20)
    return OpenMP(
        runtime="libgomp",
        compiler="cc",
        compiler_version="cc 1",
        flags="-O2 -fopenmp",
        environment={"OMP_WAIT_POLICY": "passive"},
        cores=4,
        hardware_threads=4,
        domains=2,
        seconds=1.0,
        overheads=curves,
        array_bytes=128 << 20,
        close=Bandwidth(THREADS, (1e10, 1.8e10, 2e10), (9e9, 1.7e10, 1.9e10), (3,) * points),
        far=Bandwidth(THREADS, (1e10, 2e10, 4e10), (9e9, 1.7e10, 3e10), (3,) * points)
        if far
        else None,
        line=Latency(sizes, (1.0, 4.0, 80.0), (1.0, 4.0, 81.0), (3, 3, 3)),
        page=Latency(sizes, (1.0, 8.0, 150.0), (1.0, 8.0, 151.0), (3, 3, 3)),
        clock=Clock(THREADS, (3.6e9, 3.5e9, 3.2e9), (3.6e9, 3.5e9, 3.2e9), "cpufreq"),
    )
