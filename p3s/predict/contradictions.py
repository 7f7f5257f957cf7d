"""Counts that contradict the traced ones: a run among these, or the model below them.

A single run contradicts those of the others as a disturbed one does. Each count is left out in turn
and compared with the law of the others. Two things are looked at: the computation of all ranks
together, and run times beside those of the model. Disturbances only make a run slower, so only what
takes longer is named; repeats that agree are believed; and the largest count is never named: what
begins there may go on. Computation that grows with the count need not follow a power of it: the
smallest count is only named where it is above the next one.

The computation of all ranks together changes little with the count, or as it does between the
traced counts. A model that says something else below these has lost some of it, or counts some
twice.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from p3s.predict.measured import Measured

#: How many times as long a contradicting run takes at least: against the law of three counts or
#: more, and against two counts that agree.
LEAST, LEAST_OF_TWO = 1.25, 1.5
#: By how many of the others' own deviations it is off at least.
DEVIATIONS = 4.0
#: Relative error that every run has.
ERROR = 0.03
#: Ratio of the slowest to the fastest repeat up to which repeats agree.
AGREE = 1.1
#: By what factor the computation of all ranks may leave what the traced counts lead to expect.
BELOW_LIMIT = 2.0
#: How many of the smallest traced counts are looked at.
_SMALLEST = 3


def contradictions(
    runs: Mapping[int, Measured], model_s: Mapping[int, float]
) -> dict[int, tuple[str, float]]:
    """Return the count that contradicts the others, if one does: what is off, and how much.

    ``model_s``: the model's run time in s by count. The ratio is that to the law of the others.
    """
    found = []
    work = {
        n: math.log(statistics.median(run.totals_s))
        for n, run in runs.items()
        if run.totals_s and all(total > 0 for total in run.totals_s)
    }
    for n, ratio, by in _odd(work, sloped=True):
        if not _agree(runs[n].totals_s):
            found.append((by, n, ("computation", ratio)))
    times = {
        n: math.log(run.wall_s / model_s[n])
        for n, run in runs.items()
        if run.representative and run.wall_s > 0 and model_s.get(n, 0.0) > 0
    }
    for n, ratio, by in _odd(times, sloped=False):
        if not (len(runs[n].totals_s) > 1 and _agree((runs[n].wall_s, runs[n].wall_max_s))):
            found.append((by, n, ("run time", ratio)))
    if not found:
        return {}
    _, n, what = max(found)
    return {n: what}


def _agree(repeats: Sequence[float]) -> bool:
    return len(repeats) > 1 and max(repeats) <= AGREE * min(repeats)


def _odd(logs: Mapping[int, float], *, sloped: bool) -> list[tuple[int, float, float]]:
    """Return counts that take longer than the others say: ratio, and by how many deviations.

    ``logs``: logarithm of a value that is about constant, or (``sloped``) a power of the count.
    """
    found = []
    counts = sorted(logs)
    for n in counts[:-1]:
        others = [m for m in counts if m != n]
        if len(others) < 2:
            continue
        line = sloped and len(others) > 2
        expected, deviation = _expected(others, [logs[m] for m in others], n, line)
        off = logs[n] - expected
        least = LEAST if len(others) > 2 else LEAST_OF_TWO
        grows = sloped and n == counts[0] and logs[n] <= logs[counts[1]]
        if off > math.log(least) and off > DEVIATIONS * deviation and not grows:
            found.append((n, math.exp(off), off / deviation))
    return found


def _expected(
    counts: Sequence[int], logs: Sequence[float], n: int, line: bool
) -> tuple[float, float]:
    """Return what other counts say of one, and the standard deviation of its difference to that."""
    import numpy as np

    x = np.log(np.array(counts, dtype=float))
    columns = [np.ones_like(x), x] if line else [np.ones_like(x)]
    at = np.array([1.0, math.log(n)] if line else [1.0])
    design = np.stack(columns, axis=1)
    inverse = np.linalg.inv(design.T @ design)
    law = inverse @ design.T @ np.array(logs)
    left = np.array(logs) - design @ law
    variance = float(left @ left) / (len(counts) - len(columns)) + ERROR**2
    return float(at @ law), math.sqrt(variance * (1.0 + float(at @ inverse @ at)))


def below_traced(
    totals_s: Mapping[int, float], traced_s: Mapping[int, float]
) -> dict[int, tuple[float, float]]:
    """Return count -> the total there, and the nearest that the traced counts lead to expect.

    Both are mappings from the count to the computation of all ranks together, in s: of the
    prediction, and of the traced counts. What these lead to expect reaches from the total of the
    smallest one to where powers of the count through it and the next ones lead.
    """
    points = sorted((n, total) for n, total in traced_s.items() if total > 0)[:_SMALLEST]
    if len(points) < 2:
        return {}
    (first, least), *others = points
    slopes = [math.log(total / least) / math.log(n / first) for n, total in others]
    found = {}
    for n, total in totals_s.items():
        ends = [least, *(least * (n / first) ** slope for slope in slopes)]
        nearest = min(max(total, min(ends)), max(ends))
        if n < first and not nearest / BELOW_LIMIT <= total <= nearest * BELOW_LIMIT:
            found[n] = (total, nearest)
    return found
