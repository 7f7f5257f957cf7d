"""What teams of OpenMP threads cost on a machine: overheads, bandwidth, latencies, clock.

Sources: A. Castellanos Carrazana, UAB 2014, section 3.4 (overheads, piecewise linear in the
iterations per thread, one curve per construct and number of threads) and table 3.1 (latencies).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from p3s.base.errors import UsageError
from p3s.base.serialise import NotNegative, Positive, check_columns

#: Constructs that are measured: name -> what one of them is.
CONSTRUCTS = {
    "parallel": "a parallel region: threads begin and end together",
    "reduction": "a parallel region with a sum over its threads",
    "static": "a loop in a region, schedule(static), with its barrier",
    "dynamic": "a loop in a region, schedule(dynamic, 1), with its barrier",
    "guided": "a loop in a region, schedule(guided, 1), with its barrier",
    "barrier": "a barrier in a region",
    "single": "a single block in a region, with its barrier",
    "critical": "an entry into a critical block that all threads want",
    "task": "a task of each thread",
}
#: Those of them whose cost depends on the iterations of a thread.
LOOPS = ("static", "dynamic", "guided")
#: Iterations per thread at which these are measured.
ITERATIONS = (1, 8, 64, 512)


@dataclass(frozen=True)
class Overhead:
    """Cost of a construct with a number of threads, over the iterations per thread (ascending).

    ns: least time with bodies less least time of the bodies alone, 0 where that is negative;
    median_ns: the same of medians. One entry per number of iterations.
    """

    threads: Positive
    iterations: tuple[Positive, ...]
    ns: tuple[NotNegative, ...]
    median_ns: tuple[float, ...]
    repeats: tuple[int, ...]

    def valid(self) -> None:
        """Raise ValueError where iterations do not ascend, or have not one time each."""
        check_columns(self, "iterations")

    def at(self, iterations: float) -> float:
        """Return ns, straight between the points; on with the last slope, never less than 0."""
        return max(line_at(self.iterations, self.ns, iterations), 0.0)


@dataclass(frozen=True)
class Bandwidth:
    """Bytes per second of a triad by all threads together: most of the repeats, and the median."""

    threads: tuple[Positive, ...]
    bytes_per_s: tuple[float, ...]
    median_bytes_per_s: tuple[float, ...]
    repeats: tuple[int, ...]

    def valid(self) -> None:
        """Raise ValueError where threads do not ascend, or have not one rate each, above 0."""
        check_columns(self, "threads", "bytes_per_s")

    def at(self, threads: float) -> float:
        """Return bytes per second, straight between points; beyond the ends what it is there."""
        return float(np.interp(threads, self.threads, self.bytes_per_s))


@dataclass(frozen=True)
class Latency:
    """ns of a read whose place the last one says, over the bytes that the places span."""

    bytes: tuple[Positive, ...]
    ns: tuple[float, ...]
    median_ns: tuple[float, ...]
    repeats: tuple[int, ...]

    def valid(self) -> None:
        """Raise ValueError where bytes do not ascend, or have not one time each, above 0."""
        check_columns(self, "bytes", "ns")

    def at(self, size: float) -> float:
        """Return ns, straight on logarithmic axes; beyond the ends what it is there."""
        ns = np.interp(np.log(max(size, 1.0)), np.log(self.bytes), np.log(self.ns))
        return float(np.exp(ns))


@dataclass(frozen=True)
class Clock:
    """Clock of the cores that work, in Hz, by the number of threads.

    hz: what the system tells meanwhile, empty where it does not: then ``why`` says why. additions:
    additions per second of one thread that wait for each other: the clock where one takes a cycle.
    """

    threads: tuple[Positive, ...]
    hz: tuple[float, ...]
    additions: tuple[float, ...]
    source: str = ""
    why: str = ""

    def valid(self) -> None:
        """Raise ValueError where threads do not ascend, or have not one clock each, above 0."""
        check_columns(self, "threads", "hz", may_lack="hz")


@dataclass(frozen=True)
class OpenMP:
    """What was measured of OpenMP threads on a machine.

    runtime: libgomp or libomp. environment: variables found that say how threads wait. cores,
    hardware_threads: that may be used; more threads than these share one. domains: of memory
    (NUMA). overheads: by construct, by threads. far: None where the machine has no other place for
    threads than the close one. line, page: latencies through memory line by line and page by page.
    array_bytes: of each of the triad's three.
    """

    runtime: str
    compiler: str
    compiler_version: str
    flags: str
    environment: Mapping[str, str]
    cores: int
    hardware_threads: int
    domains: int
    seconds: float
    overheads: Mapping[str, tuple[Overhead, ...]]
    array_bytes: int
    close: Bandwidth
    far: Bandwidth | None
    line: Latency
    page: Latency
    clock: Clock
    disturbed: tuple[str, ...] = ()

    def valid(self) -> None:
        """Raise ValueError where a construct was not measured, or threads do not ascend."""
        for name in CONSTRUCTS:
            threads = [curve.threads for curve in self.overheads.get(name, ())]
            if not threads or threads != sorted(set(threads)):
                raise ValueError(f"openmp.overheads has no {name} by ascending threads")

    @property
    def threads(self) -> tuple[int, ...]:
        """Numbers of threads that were measured, ascending."""
        return tuple(each.threads for each in self.overheads["parallel"])

    def oversubscribed(self, threads: int) -> bool:
        """Return whether so many threads share hardware threads."""
        return threads > self.hardware_threads

    def overhead(self, construct: str, threads: float, iterations: float = 1.0) -> float:
        """Return seconds of a construct, straight between measured threads and iterations.

        Beyond the most threads and iterations it goes on with the last slope. UsageError for a
        construct that is not measured.
        """
        if construct not in self.overheads:
            raise UsageError(f"{construct}: no construct that is measured: {', '.join(CONSTRUCTS)}")
        curves = self.overheads[construct]
        values = [curve.at(iterations) for curve in curves]
        return max(line_at([curve.threads for curve in curves], values, threads), 0.0) * 1e-9

    def fork_join(self, threads: float) -> float:
        """Return seconds of an empty parallel region."""
        return self.overhead("parallel", threads)

    def bandwidth(self, threads: float, far: bool = False) -> float:
        """Return bytes per second that threads move together; far: spread over the node."""
        return (self.far if far and self.far is not None else self.close).at(threads)

    @property
    def memory_s(self) -> float:
        """Seconds of a read from memory whose page is known (``Lat_mem`` of eq. 3.3)."""
        return self.line.ns[-1] * 1e-9

    @property
    def walk_s(self) -> float:
        """Seconds that a read takes longer where its page has to be looked up in memory.

        One line of each of many pages, less as many lines of few pages, which lie in the same
        cache.
        """
        lines = self.line.at(self.page.bytes[-1] * _LINE / _PAGE)
        return max(self.page.ns[-1] - lines, 0.0) * 1e-9

    @property
    def tlb_s(self) -> float:
        """Seconds of a read from memory whose page has to be looked up (``Lat_tlb``)."""
        return self.memory_s + self.walk_s


_LINE, _PAGE = 64, 4096


def line_at(knots: Iterable[float], values: Iterable[float], at: float) -> float:
    """Return the value at a place, straight between ascending knots.

    Before the first it is constant, beyond the last it goes on with the last slope.
    """
    xs, ys = np.array(list(knots), dtype=float), np.array(list(values), dtype=float)
    if at > xs[-1] and len(xs) > 1:
        slope = (ys[-1] - ys[-2]) / (xs[-1] - xs[-2])
        return float(ys[-1] + slope * (at - xs[-1]))
    return float(np.interp(at, xs, ys))
