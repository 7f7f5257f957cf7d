"""The work of a worker from samples with hardware counters.

Source: A. Castellanos Carrazana, UAB 2014, section 3.5: cycles per instruction from small
workloads, laws of misses, then the overlaps from what measured times have beyond the instructions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from p3s.base.arrays import Floats
from p3s.base.errors import P3SError
from p3s.methods.tasks.terms import Node, Sum, Term, Work, sum_of

#: A factor cannot be told where its term is less than this share of the penalty.
LEAST_SHARE = 0.05
#: Confidence of the intervals.
CONFIDENCE = 0.90


@dataclass(frozen=True)
class Factor:
    """A fitted factor with its interval (90 %); share: of its term in the penalty, the median.

    identifiable: the penalties tell it. physical: it lies between 0 and 1, as a share must.
    """

    value: float
    low: float
    high: float
    share: float
    identifiable: bool

    @property
    def physical(self) -> bool:
        """Return whether it can be a share of the penalty that is not hidden."""
        return 0.0 <= self.value <= 1.0


@dataclass(frozen=True)
class Overlap:
    """Factors of the penalties of cache and TLB misses, and the constant of eq. 3.7 in seconds.

    rms: relative error. points: how many penalties.
    """

    cache: Factor
    tlb: Factor
    constant: float
    rms: float
    points: int

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return what speaks against the factors: codes with the name of the factor."""
        return tuple(
            f"{code}:{name}"
            for name, factor in (("cache", self.cache), ("tlb", self.tlb))
            for code, wrong in (
                ("not-identifiable", not factor.identifiable),
                ("outside-0-1", not factor.physical),
            )
            if wrong
        )


def penalty(seconds: npt.ArrayLike, instructions_s: npt.ArrayLike) -> Floats:
    """Return the measured time of a region beyond that of its instructions (eq. 3.6), in s."""
    return np.asarray(seconds, dtype=np.float64) - np.asarray(instructions_s, dtype=np.float64)


def fit_overlap(
    penalties: npt.ArrayLike,
    cache_misses: npt.ArrayLike,
    tlb_misses: npt.ArrayLike,
    *,
    memory_s: float,
    tlb_s: float,
) -> Overlap:
    """Return the factors of eq. 3.7 with the least relative errors of the penalties.

    P3SError where there are fewer than five penalties, or one is 0: then there is none to explain.
    """
    from scipy.stats import t as student

    y = np.asarray(penalties, dtype=np.float64)
    if len(y) < 5 or not (np.isfinite(y) & (y != 0)).all():
        raise P3SError(
            f"{len(y)} penalties of misses: five or more that are not 0 are needed; sample more"
        )
    cache = np.asarray(cache_misses, dtype=np.float64) * memory_s
    tlb = np.asarray(tlb_misses, dtype=np.float64) * tlb_s
    columns = np.stack([cache, tlb, np.ones(len(y))], axis=-1)
    rows = columns / np.abs(y)[:, None]
    scale = np.linalg.norm(rows, axis=0)
    scale[scale == 0] = 1.0
    found, _, rank, _ = np.linalg.lstsq(rows / scale, np.sign(y), rcond=1e-8)
    misfit = (rows / scale) @ found - np.sign(y)
    free = max(len(y) - rank, 1)
    spread = np.linalg.pinv((rows / scale).T @ (rows / scale), rcond=1e-12)
    error = np.sqrt(np.diag(spread) * (misfit @ misfit) / free) / scale
    values = found / scale
    wide = float(student.ppf((1 + CONFIDENCE) / 2, free)) * error

    def factor(i: int) -> Factor:
        share = float(np.median(np.abs(values[i] * columns[:, i] / y)))
        told = rank == 3 and share >= LEAST_SHARE
        low, high = float(values[i] - wide[i]), float(values[i] + wide[i])
        return Factor(float(values[i]), low, high, share, told)

    rms = float(np.sqrt(misfit @ misfit / len(y)))
    return Overlap(factor(0), factor(1), float(values[2]), rms, len(y))


#: Powers of W in f(W), by name; cubic is eq. 3.5, jacobi that of section 3.6.
FORMS: Mapping[str, tuple[int, ...]] = {
    "linear": (1,),
    "square": (2,),
    "cube": (3,),
    "line": (1, 0),
    "jacobi": (2, 1),
    "quadratic": (2, 1, 0),
    "cubic": (3, 2, 1, 0),
}
Rule = Literal["fewest", "least-error"]
#: AICc units that count as no difference (Burnham and Anderson 2002: 4 to 7 is much less support).
ALIKE = 6.0


@dataclass(frozen=True)
class Candidate:
    """A form that was tried: sum of squared relative errors, AICc, and its coefficients."""

    form: str
    error: float
    aicc: float
    coefficients: tuple[float, ...]


@dataclass(frozen=True)
class Misses:
    """A law of counts: form, sum over W, K and T, root mean square relative error, candidates."""

    form: str
    law: Sum
    rms: float
    candidates: tuple[Candidate, ...]


def fit_misses(
    workload: npt.ArrayLike,
    workers: npt.ArrayLike,
    threads: npt.ArrayLike,
    counts: npt.ArrayLike,
    *,
    rule: Rule = "fewest",
    forms: Mapping[str, tuple[int, ...]] = FORMS,
) -> Misses:
    """Return the law of measured counts, fitted to their relative errors.

    P3SError where a count is not above 0 or no form has fewer coefficients than there are counts.
    """
    w, k, t, y = np.broadcast_arrays(
        *(np.asarray(x, dtype=np.float64) for x in (workload, workers, threads, counts))
    )
    if not (np.isfinite(y) & (y > 0)).all():
        raise P3SError("counts of misses must be above 0; leave out what could not be measured")
    found = [c for name, powers in forms.items() if (c := _candidate(name, powers, w, k * t, y))]
    if not found:
        raise P3SError(f"{len(y)} counts of misses determine no law; sample more workloads")
    chosen = _chosen(found, rule)
    law = Sum(
        tuple(
            Term(c, float(p), -1.0, -1.0)
            for c, p in zip(chosen.coefficients, forms[chosen.form], strict=True)
        )
    )
    return Misses(chosen.form, law, math.sqrt(chosen.error / len(y)), tuple(found))


def _candidate(
    name: str, powers: tuple[int, ...], w: Floats, shared: Floats, y: Floats
) -> Candidate | None:
    """Return a fitted form; None where the counts do not determine it."""
    free = len(y) - len(powers) - 2  # AICc has the variance as a parameter, too
    solved = relative(np.stack([w**p / shared for p in powers], axis=-1), y)
    if free < 1 or solved is None:
        return None
    coefficients, error = solved
    parameters = len(powers) + 1
    # Rounding, where a form is exact, is no misfit that could be smaller.
    variance = max(error / len(y), 1e-24)
    aicc = len(y) * math.log(variance) + 2 * parameters * (1 + (parameters + 1) / free)
    return Candidate(name, error, aicc, tuple(coefficients.tolist()))


def relative(columns: Floats, y: Floats) -> tuple[Floats, float] | None:
    """Return coefficients with the least squared relative errors, and their sum.

    None where the columns do not determine them.
    """
    rows = columns / y[:, None]
    scale = np.linalg.norm(rows, axis=0)
    if not (scale > 0).all() or len(y) < columns.shape[1]:
        return None
    found, _, rank, _ = np.linalg.lstsq(rows / scale, np.ones(len(y)), rcond=1e-10)
    if rank < columns.shape[1]:
        return None
    error = float(((rows / scale) @ found - 1.0) @ ((rows / scale) @ found - 1.0))
    return np.asarray(found / scale), error


def _chosen(found: list[Candidate], rule: Rule) -> Candidate:
    if rule == "least-error":
        return min(found, key=lambda c: c.error)
    least = min(c.aicc for c in found)
    near = [c for c in found if c.aicc <= least + ALIKE]
    return min(near, key=lambda c: (len(c.coefficients), c.aicc))


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
