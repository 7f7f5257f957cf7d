"""The time of an iteration of a master and workers: the analytical model, sums of powers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from p3s.base.arrays import Floats
from p3s.base.errors import P3SError, UsageError
from p3s.machine.teams import OpenMP, Region, line_at
from p3s.methods.tasks.messages import MessageTimes


class Term(NamedTuple):
    """coefficient * W^workload * K^workers * T^threads."""

    coefficient: float
    workload: float = 0.0
    workers: float = 0.0
    threads: float = 0.0


@dataclass(frozen=True)
class Sum:
    """A sum of terms; none: 0."""

    terms: tuple[Term, ...] = ()

    def at(self, workload: Any, workers: Any = 1.0, threads: Any = 1.0) -> Floats:
        """Return the value; the three broadcast."""
        w, k, t = np.broadcast_arrays(*(np.asarray(x, float) for x in (workload, workers, threads)))
        total = np.zeros(w.shape)
        for a, i, j, m in self.terms:
            total = total + a * w**i * k**j * t**m
        return total


def sum_of(*terms: Iterable[float]) -> Sum:
    """Return the sum of (coefficient, power of W, of K, of T); powers left out are 0."""
    return Sum(tuple(Term(*term) for term in terms))


#: Relative distance from the sampled workloads: beyond the first the model warns (section 3.7),
#: beyond the second it refuses (section 6.1).
WARNED, REFUSED = 0.10, 0.15


@dataclass(frozen=True)
class Node:
    """What the node does: Hz by threads, seconds of a read from memory and of one with a TLB miss.

    openmp: overheads of constructs; None: regions cost ``overhead_s`` each.
    """

    threads: tuple[int, ...]
    hz: tuple[float, ...]
    memory_s: float
    tlb_s: float
    openmp: OpenMP | None = None
    overhead_s: float = 0.0

    def frequency(self, threads: float) -> float:
        """Return Hz with so many threads at work; beyond the most, as with these."""
        return line_at(self.threads, self.hz, min(threads, self.threads[-1]))

    def theta(self, region: Region, threads: float) -> float:
        """Return seconds that a region takes beyond its work (section 3.4)."""
        return self.openmp.theta([region], threads) if self.openmp else self.overhead_s


def node_of(openmp: OpenMP) -> Node:
    """Return the node of a machine file.

    Where the system tells no clock, it is the additions per second that wait for each other, one a
    cycle.
    """
    clock = openmp.clock
    hz = clock.hz or clock.additions
    return Node(clock.threads, hz, openmp.memory_s, openmp.tlb_s, openmp)


@dataclass(frozen=True)
class Work:
    """A parallel region of a worker: what it executes and misses, as sums over W, K and T.

    cpi: cycles per instruction while memory is not touched. instructions: per result. results: of
    an iteration, over all workers. cache_misses, tlb_misses: of a thread. cache_overlap,
    tlb_overlap: factors of eq. 3.7. constructs: each with how often the region has it; iterations:
    of a thread in its loops.
    """

    cpi: float
    instructions: Sum
    results: Sum = field(default_factory=lambda: sum_of((1.0,)))
    cache_misses: Sum = Sum()
    tlb_misses: Sum = Sum()
    cache_overlap: float = 0.0
    tlb_overlap: float = 0.0
    constructs: Mapping[str, float] = field(default_factory=lambda: {"parallel": 1.0})
    iterations: Sum = field(default_factory=lambda: sum_of((1.0,)))


@dataclass(frozen=True)
class Compute:
    """The time of a worker, in s: instructions (eq. 3.2), misses (eq. 3.3), OpenMP's overhead."""

    instructions: float
    cache: float
    tlb: float
    overhead: float

    @property
    def total(self) -> float:
        """Seconds of all."""
        return self.instructions + self.cache + self.tlb + self.overhead


def compute(regions: Iterable[Work], node: Node, w: float, k: int, t: int) -> Compute:
    """Return the time of the last worker: its regions one after the other (eq. 3.2, 3.3)."""
    parts = [_region(region, node, w, k, t) for region in regions]
    return Compute(*(sum(each) for each in zip(*parts, strict=True)))


def _region(work: Work, node: Node, w: float, k: int, t: int) -> tuple[float, float, float, float]:
    cycles = work.cpi * float(work.instructions.at(w, k, t)) * float(work.results.at(w, k, t))
    region = Region(work.constructs, float(work.iterations.at(w, k, t)))
    return (
        cycles / (node.frequency(t) * k * t),
        float(work.cache_misses.at(w, k, t)) * node.memory_s * work.cache_overlap,
        float(work.tlb_misses.at(w, k, t)) * node.tlb_s * work.tlb_overlap,
        node.theta(region, t),
    )


@dataclass(frozen=True)
class Program:
    """A program of a master and workers.

    regions: of a worker. out, back: bytes of a message to and from a worker. master: seconds that
    it prepares. sampled: workloads that its misses and overlaps were measured at.
    """

    regions: tuple[Work, ...]
    out: Sum
    back: Sum
    master: Sum = Sum()
    sampled: tuple[float, ...] = ()


@dataclass(frozen=True)
class Iteration:
    """The predicted time of an iteration, its parts in s, and codes of what speaks against it."""

    workload: float
    workers: int
    threads: int
    master: float
    out: float
    compute: Compute
    back: float
    warnings: tuple[str, ...] = ()

    @property
    def total(self) -> float:
        """Seconds of the iteration (eq. 3.1)."""
        return self.master + self.out + self.compute.total + self.back


def iteration(
    program: Program,
    node: Node,
    messages: MessageTimes,
    workload: float,
    workers: int,
    threads: int,
    *,
    force: bool = False,
) -> Iteration:
    """Return the time of an iteration (eq. 3.1).

    Warnings: far-workload (over 10 % from every sampled one), message-outside (of the measured
    sizes), threads-outside (of the measured teams). UsageError for what cannot be, P3SError for a
    workload over 15 % from every sampled one, unless ``force``.
    """
    if not workload > 0 or workers < 1 or threads < 1:
        raise UsageError("workload, workers and threads must be above 0")
    warnings = list(_distance(program.sampled, workload, force))
    sizes = [float(size.at(workload, workers, threads)) for size in (program.out, program.back)]
    if messages.outside(sizes).any():
        warnings.append("message-outside")
    if threads > node.threads[-1]:
        warnings.append("threads-outside")
    return Iteration(
        workload,
        workers,
        threads,
        float(program.master.at(workload, workers, threads)),
        messages.to_workers(sizes[0], workers),
        compute(program.regions, node, workload, workers, threads),
        float(messages.at(sizes[1])),
        tuple(warnings),
    )


def _distance(sampled: Sequence[float], workload: float, force: bool) -> Iterable[str]:
    if not sampled:
        return
    nearest = min(sampled, key=lambda w: abs(workload - w) / w)
    away = abs(workload - nearest) / nearest
    if away > REFUSED and not force:
        raise P3SError(
            f"workload {workload:g}: {100 * away:.0f} % from the nearest that was sampled "
            f"({nearest:g}); overlaps do not hold beyond {100 * REFUSED:.0f} %: sample nearer, or "
            "force it"
        )
    if away > WARNED:
        yield "far-workload"


def best(
    program: Program,
    node: Node,
    messages: MessageTimes,
    workload: float,
    configurations: Iterable[tuple[int, int]],
    *,
    force: bool = False,
) -> list[Iteration]:
    """Return the iterations of (workers, threads), the shortest first; errors as ``iteration``."""
    found = [
        iteration(program, node, messages, workload, k, t, force=force) for k, t in configurations
    ]
    return sorted(found, key=lambda each: each.total)
