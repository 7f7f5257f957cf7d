"""What the small runs took beside what the model says of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from p3s.predict.intervals import Factors, combine
from p3s.predict.types import Compared, Count, Residual

#: By what factor a traced count may take longer, or less long, than the model says.
RESIDUAL_LIMIT = 1.5
#: How many times the largest residual of the small runs a larger count may be off by.
BEYOND = 1.5


def residuals(rows: Sequence[Count]) -> tuple[Residual, ...]:
    """Return measured and modelled seconds at every traced count, and their ratio.

    Run times, and computation of the busiest rank in CPU time, which can be compared even where
    ranks shared cores. ``ratio``: measured over model; ``representative``: whether it tells; a run
    that contradicts those of other counts does not.
    """
    found = []
    for row in rows:
        pairs: tuple[tuple[Compared, float | None, float, bool], ...] = (
            (
                "run time",
                row.measured_s,
                row.model_s,
                row.representative and row.model_representative,
            ),
            ("computation", row.measured_work_s, row.work_s, not row.contradicts),
        )
        for what, measured, model, tells in pairs:
            if measured is not None:
                found.append(
                    Residual(
                        row.n,
                        what,
                        measured,
                        model,
                        measured / model if model > 0 else None,
                        bool(tells),
                    )
                )
    return tuple(found)


def off_by(entry: Residual, model_s: float) -> float:
    """Return how many times as long the run takes as ``model_s``, the model's time at its count.

    Computation is taken for its part of the run time, which would change by as much.
    """
    return 1.0 + (entry.measured_s - entry.model_s) / model_s if model_s > 0 else 1.0


def is_off(ratio: float) -> bool:
    """Tell whether a traced count took far longer, or far less, than the model says."""
    return not 1 / RESIDUAL_LIMIT <= ratio <= RESIDUAL_LIMIT


def with_measured_computation(base: Count, found: Sequence[Residual]) -> Count:
    """Return the baseline: with what was measured there where the model is far off.

    Its time is then the measured computation with the model's communication; the ends of its
    interval change by as much.
    """
    whole = base.model_s
    ratio = next(
        (
            off_by(entry, whole)
            for entry in found
            if entry.n == base.n and entry.what == "computation" and entry.representative
        ),
        1.0,
    )
    if base.time_from == "measured" or ratio <= 0 or not is_off(ratio):
        return base
    return replace(
        base,
        time_from="computation",
        time_s=base.time_s * ratio,
        low_s=None if base.low_s is None else base.low_s * ratio,
        high_s=None if base.high_s is None else base.high_s * ratio,
    )


def residual_part(
    found: Sequence[Residual], rows: Sequence[Count], known: Mapping[int, Factors]
) -> tuple[Factors | None, dict[int, Factors]]:
    """Return what the small runs add to the interval, by run times and by computation.

    A run that lies inside of what the other parts (``known``, by count) allow adds nothing;
    outside of it, what is missing to reach it in quadrature, largest over the counts, each side
    for itself. First result: of run times, which holds for any count; None without any. The
    second, where there is none: of computation, by count as a share of the time there.
    """
    run = _excess(found, "run time", known)
    if run is not None:
        return run, {}
    work = _excess(found, "computation", {row.n: _of_computation(row) for row in rows})
    if work is None:
        return None, {}
    return None, {
        row.n: (1.0 - _share(row) * (1.0 - work[0]), 1.0 + _share(row) * (work[1] - 1.0))
        for row in rows
    }


def beyond(run: Factors | None, found: Sequence[Residual], n: int) -> Factors | None:
    """Return what small runs add at ``n``: beyond them as much again by half, on either side.

    What the model misses at small counts says how far it may be off at a larger one, but not in
    which direction.
    """
    if run is None or n <= max((entry.n for entry in found), default=n):
        return run
    off = BEYOND * max(-math.log(run[0]), math.log(run[1]))
    return math.exp(-off), math.exp(off)


def trend_part(found: Sequence[Residual], n: int) -> Factors | None:
    """Return where residuals of run times lead at ``n`` that grow from count to count.

    What is 1, 3 and 9 % off at the three largest traced counts is no noise: it goes on as between
    the last two. None where they do not grow, and at traced counts.
    """
    told = [
        (math.log2(entry.n), math.log(entry.ratio))
        for entry in found
        if entry.what == "run time" and entry.representative and entry.ratio
    ][-3:]
    sizes = [abs(off) for _, off in told]
    same = len({off > 0 for _, off in told}) == 1
    if len(told) < 3 or not (same and sizes[0] < sizes[1] < sizes[2]):
        return None
    (before, less), (last, most) = told[1:]
    beyond = math.log2(n) - last
    if beyond <= 0:
        return None
    off = most + (most - less) / (last - before) * beyond
    limit = math.log(RESIDUAL_LIMIT)
    return math.exp(max(min(off, 0.0), -limit)), math.exp(min(max(off, 0.0), limit))


def _share(row: Count) -> float:
    """Return the share of the computation in the time of the model."""
    return min(row.compute_s / row.model_s, 1.0) if row.model_s > 0 else 0.0


def _of_computation(row: Count) -> Factors:
    """Return the ends of the computation alone: those of work and cost without the messages."""
    low, high = combine((row.interval_parts.work, row.interval_parts.cost))
    share = _share(row)
    if share <= 0.0:
        return 1.0, 1.0
    return max(1.0 - (1.0 - low) / share, 0.0), 1.0 + (high - 1.0) / share


def _excess(
    found: Sequence[Residual], what: Compared, known: Mapping[int, Factors]
) -> Factors | None:
    told = [
        (entry.n, entry.ratio)
        for entry in found
        if entry.what == what and entry.representative and entry.ratio
    ]
    if not told:
        return None
    low = high = 0.0
    for n, ratio in told:
        off = math.log(ratio)
        end = known.get(n, (1.0, 1.0))[off > 0]
        width = abs(math.log(end)) if end > 0 else math.inf
        more = math.sqrt(max(off**2 - width**2, 0.0)) if math.isfinite(width) else 0.0
        low, high = (low, max(high, more)) if off > 0 else (max(low, more), high)
    return math.exp(-low), math.exp(high)
