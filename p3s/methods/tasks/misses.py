"""Counts of a worker's thread as a law f(W) / (K T): cache misses, TLB misses, instructions.

Source: A. Castellanos Carrazana, UAB 2014, section 3.5.2, eq. 3.5, and section 3.6 (Jacobi). The
thesis takes the form with the least sum of squared errors, which is always one of the richest;
the other rule is the form with fewest coefficients within 6 units of the least AICc.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from p3s.base.errors import P3SError
from p3s.methods.tasks.terms import Floats, Sum, Term

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
