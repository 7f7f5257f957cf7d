"""Start and end of a run: the launcher, MPI_Init and what is before it, MPI_Finalize and after.

They are no part of the run time that is predicted: a run begins when MPI_Init returns and ends when
MPI_Finalize is entered. What the launch takes beyond that is known of the traced runs. A launcher
that starts its processes one after the other takes time that grows with n, one that does it over
a tree of nodes as log2 n: a launcher that is measured on few nodes does not tell which, so the two
laws are the ends of the interval.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from p3s.base.errors import P3SError
from p3s.base.text import figures, seconds
from p3s.predict.types import Count, StartAndEnd

if TYPE_CHECKING:
    from p3s.base.study import RunRecord, Study

#: Both ends of what a law of start and end is off by, at least: launches vary.
_LEAST_SPREAD = 1.25
#: Less is what two clocks differ by, or a simulated run: no process begins in so little time.
_CLOCK_S = 1e-6
#: Growing with n: in proportion, or as the depth of a tree.
_SHAPES: tuple[Callable[[float], float], ...] = (float, lambda n: math.log2(max(n, 1.0)))


def start_and_end(study: Study, counts: Sequence[int]) -> tuple[StartAndEnd, ...]:
    """Return what start and end take at ``counts``, in s; empty where no launch was timed."""
    traced = {n: found for n in study.counts() if (found := _measured(study.runs(n)))}
    return tuple(at(traced, n) for n in sorted(set(counts))) if traced else ()


def _measured(records: Sequence[RunRecord]) -> tuple[float, ...]:
    """Return the time of each launch beyond its run, of complete runs."""
    from p3s.predict.residual import times_of

    found = []
    for record in records:
        wall = record.info.get("wall_s")
        if record.status == "complete" and isinstance(wall, int | float):
            with contextlib.suppress(P3SError):  # p3s check tells what cannot be read
                found.append(float(wall) - times_of(record.path).wall_s)
    return tuple(value for value in found if value > _CLOCK_S)


def at(traced: Mapping[int, Sequence[float]], n: int) -> StartAndEnd:
    """Return start and end at n processes from those of the traced counts."""
    if n in traced:
        mine = sorted(traced[n])
        middle = mine[len(mine) // 2]
        return StartAndEnd(n, middle, mine[0], mine[-1], measured=True)
    points = sorted((count, min(values)) for count, values in traced.items())
    laws: list[tuple[Callable[[float], float], float]]
    if len(points) == 1:  # it may not grow at all, or in proportion
        (count, time), *_ = points
        laws = [(lambda _: time, 1.0), (lambda n: time * n / count, 1.0)]
    else:
        laws = [_law(points, shape) for shape in _SHAPES]
    spread = max(_LEAST_SPREAD, *(misfit for _, misfit in laws))
    ends = sorted(law(n) for law, _ in laws)
    repeats = max(max(values) / min(values) for values in traced.values())
    low, high = ends[0] / spread, ends[1] * max(spread, repeats)
    return StartAndEnd(n, math.sqrt(ends[0] * ends[1]), low, high, measured=False)


def _law(
    points: Sequence[tuple[int, float]], shape: Callable[[float], float]
) -> tuple[Callable[[float], float], float]:
    """Return a + b shape(n), neither negative, and by which factor it misses a point at most."""
    import numpy as np

    from p3s.laws.mixture import nonnegative

    time = np.array([seconds_ for _, seconds_ in points])
    matrix = np.array([[1.0, shape(float(n))] for n, _ in points]) / time[:, None]
    constant, slope = nonnegative(matrix, np.ones(len(time)))
    made = (matrix @ np.array([constant, slope])).tolist()
    misfit = max(max(value, 1.0 / value) if value > 0 else math.inf for value in made)
    return lambda n: float(constant + slope * shape(float(n))), min(misfit, 10.0)


def sentences(found: Sequence[StartAndEnd], rows: Sequence[Count]) -> list[str]:
    """Say what start and end take at the largest count, and from which on it is more than the
    run."""
    if not found:
        return []
    last = found[-1]
    said = [
        f"startup and shutdown, launcher included, take {seconds(last.time_s)} "
        f"({seconds(last.low_s)} to {seconds(last.high_s)}) at {last.n:,} processes, if "
        "launches go on growing as in the traced runs"
    ]
    times = {row.n: row.time_s for row in rows}
    more = [one.n for one in found if one.time_s > times.get(one.n, math.inf)]
    grows = len(found) > 1 and last.time_s > 1.5 * found[0].time_s
    if more and more[-1] == last.n and grows and not last.measured:
        since = next(n for n in more if all(k in more for k in times if k >= n))
        said.append(
            f"from {since:,} processes on, startup and shutdown take longer than the run itself "
            "and limit what more processes gain"
        )
    base = rows[0]
    first = {one.n: one for one in found}.get(base.n)
    if first is not None and rows[-1].n == last.n and last.n > base.n:
        with_it = (base.time_s + first.time_s) / (rows[-1].time_s + last.time_s)
        said.append(
            f"with startup and shutdown the speedup from {base.n:,} to {last.n:,} processes is "
            f"{figures(with_it)}x"
        )
    return said
