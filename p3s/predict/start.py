"""Start and end of a run: the launcher, MPI_Init and what is before it, MPI_Finalize and after.

They are no part of the run time that is predicted: a run begins when MPI_Init returns and ends when
MPI_Finalize is entered. What a launch takes beyond that is known of the traced runs, and of no
other count: a launcher that is measured on few nodes does not tell how it grows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from statistics import median_high

from p3s.base.errors import P3SError
from p3s.base.study import RunRecord, Study
from p3s.base.text import interval, processes, seconds
from p3s.predict.residual import times_of
from p3s.predict.types import Count, StartAndEnd

#: Less is what two clocks differ by, or a simulated run: no process begins in so little time.
_CLOCK_S = 1e-6


def start_and_end(studies: Mapping[int, Study]) -> tuple[StartAndEnd, ...]:
    """Return what start and end took at counts, in s, of their studies; empty: none was timed."""
    return tuple(
        StartAndEnd(n, median_high(found), min(found), max(found))
        for n in sorted(studies)
        if (found := _measured(studies[n].runs(n)))
    )


def _measured(records: Sequence[RunRecord]) -> list[float]:
    """Return the time of each launch beyond its run, of complete runs."""
    found = []
    for record in records:
        wall = record.info.get("wall_s")
        if record.status == "complete" and isinstance(wall, int | float):
            with contextlib.suppress(P3SError):  # p3s check tells what cannot be read
                found.append(float(wall) - times_of(record.path).wall_s)
    return [value for value in found if value > _CLOCK_S]


def sentences(found: Sequence[StartAndEnd], rows: Sequence[Count]) -> list[str]:
    """Say what start and end took at the largest traced count, and that no other is known."""
    if not found:
        return []
    last = found[-1]
    ends = f" ({interval(last.low_s, last.high_s)})" if last.high_s > last.low_s else ""
    said = (
        f"startup and shutdown, launcher included, took {seconds(last.time_s)}{ends} at "
        f"{processes(last.n)}"
    )
    more = rows[-1].n > last.n
    return [f"{said}; what they take at {rows[-1].n:,} is not known" if more else said]
