"""The work of a worker from samples with hardware counters.

Source: A. Castellanos Carrazana, UAB 2014, section 3.5: cycles per instruction from small
workloads, laws of misses, then the overlaps from what measured times have beyond the instructions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from p3s.base.errors import P3SError
from p3s.methods.tasks.misses import Misses, Rule, fit_misses
from p3s.methods.tasks.model import Node, Work
from p3s.methods.tasks.overlap import Overlap, fit_overlap, penalty
from p3s.methods.tasks.terms import Floats, Sum, sum_of


@dataclass(frozen=True)
class Samples:
    """Samples of a parallel region, one entry each; counts and seconds are those of a thread."""

    workload: Floats
    workers: Floats
    threads: Floats
    seconds: Floats
    cycles: Floats
    instructions: Floats
    cache_misses: Floats
    tlb_misses: Floats


@dataclass(frozen=True)
class Fitted:
    """A region's work with what it rests on."""

    work: Work
    instructions: Misses
    cache: Misses
    tlb: Misses
    overlap: Overlap
    sampled: tuple[float, ...]


def fit_work(
    samples: Samples, node: Node, *, cpi: float | None = None, rule: Rule = "fewest"
) -> Fitted:
    """Return the work of a region.

    cpi: cycles per instruction while memory is not touched [default: the median of the smallest
    workload's, which should fit into the cache]. Errors: P3SError where samples differ in number,
    are too few, or have counts of 0.
    """
    if len({len(column) for column in vars(samples).values()}) != 1:
        raise P3SError("samples of a region: every column needs as many entries")
    ideal = cpi or _ideal_cpi(samples)
    where = (samples.workload, samples.workers, samples.threads)
    executed = fit_misses(*where, samples.instructions, rule=rule)
    cache = fit_misses(*where, samples.cache_misses, rule=rule)
    tlb = fit_misses(*where, samples.tlb_misses, rule=rule)
    hz = np.array([node.frequency(t) for t in samples.threads.tolist()])
    overlap = fit_overlap(
        penalty(samples.seconds, ideal * samples.instructions / hz),
        samples.cache_misses,
        samples.tlb_misses,
        memory_s=node.memory_s,
        tlb_s=node.tlb_s,
    )
    work = Work(
        ideal,
        _of_all(executed.law),
        sum_of((1.0,)),
        cache.law,
        tlb.law,
        overlap.cache.value,
        overlap.tlb.value,
    )
    sampled = tuple(np.unique(samples.workload).tolist())
    return Fitted(work, executed, cache, tlb, overlap, sampled)


def _ideal_cpi(samples: Samples) -> float:
    small = samples.workload == samples.workload.min()
    return float(np.median(samples.cycles[small] / samples.instructions[small]))


def _of_all(law: Sum) -> Sum:
    """Return what all threads of all workers execute, from the law of one thread."""
    return Sum(tuple(t._replace(workers=t.workers + 1, threads=t.threads + 1) for t in law.terms))
