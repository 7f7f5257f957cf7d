"""What computing times over threads are made of: samples of runs, laws of phases, their values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np

from p3s.base.arrays import Bools, Floats, Ints
from p3s.base.errors import P3SError


@dataclass(frozen=True, eq=False)
class Uses:
    """How nodes are used, one row per configuration: processes in all and of a node, threads of
    each, and whether they lie far from each other (p3s.methods.threads.places)."""

    n: Ints
    threads: Ints
    per_node: Ints
    far: Bools

    def __len__(self) -> int:
        return len(self.n)

    def take(self, rows: Any) -> Uses:
        """Return some rows."""
        return Uses(self.n[rows], self.threads[rows], self.per_node[rows], self.far[rows])


def uses(
    n: Sequence[int], threads: Sequence[int], per_node: Sequence[int], far: Sequence[bool] = ()
) -> Uses:
    """Return columns of uses; all close where ``far`` is empty."""
    lies = np.asarray(far, dtype=bool) if len(far) else np.zeros(len(n), dtype=bool)
    processes, team, on_node = (np.asarray(x, dtype=np.int64) for x in (n, threads, per_node))
    return Uses(processes, team, on_node, lies)


@dataclass(frozen=True, eq=False)
class Samples:
    """Computing times of runs, one row per phase, run and repeat.

    phase: its number; n, threads, per_node, far: as in :class:`Uses`; work: what one process has
    to do in an iteration of the phase, in a unit of which the time of one thread is about
    proportional; seconds: the critical path of computation of one iteration, mean of ranks. The
    parts of ``seconds``, nan where not known: serial (outside of regions), busy (CPU time of all
    threads in regions), longest (the longest thread's), overhead (fork and join, barriers);
    regions: how many there are in an iteration; rows: iterations of the outermost parallel loop of
    a process, that its threads share.
    """

    phase: Ints
    n: Ints
    threads: Ints
    per_node: Ints
    far: Bools
    work: Floats
    seconds: Floats
    serial: Floats
    busy: Floats
    longest: Floats
    regions: Floats
    overhead: Floats
    rows: Floats

    def __len__(self) -> int:
        return len(self.phase)

    @property
    def uses(self) -> Uses:
        """How nodes were used in each row."""
        return Uses(self.n, self.threads, self.per_node, self.far)

    @property
    def phases(self) -> list[int]:
        """The phases there are."""
        return [int(x) for x in np.unique(self.phase)]

    def take(self, rows: Any) -> Samples:
        """Return some rows."""
        return Samples(*(getattr(self, each.name)[rows] for each in fields(self)))

    def of_phase(self, phase: int) -> Samples:
        """Return the rows of a phase."""
        return self.take(self.phase == phase)


def samples(
    *,
    n: Sequence[int],
    threads: Sequence[int],
    per_node: Sequence[int],
    work: Sequence[float],
    seconds: Sequence[float],
    phase: Sequence[int] | int = 0,
    far: Sequence[bool] | bool = False,
    **extra_columns: Sequence[float],
) -> Samples:
    """Return samples of columns; ``extra_columns``: those of :class:`Samples` that are measured.

    Errors: P3SError, in one line, for columns of unlike length, counts below 1 and times that are
    no positive numbers.
    """
    rows = len(n)

    def real(x: Any) -> Floats:
        return np.broadcast_to(np.asarray(x, dtype=float), rows).copy()

    def whole(x: Any) -> Ints:
        return np.broadcast_to(np.asarray(x, dtype=np.int64), rows).copy()

    names = [each.name for each in fields(Samples)][7:]
    if unknown_names := set(extra_columns) - set(names):
        raise P3SError(
            f"samples of threads: no column is called {min(unknown_names)};"
            " see p3s.methods.threads.types"
        )
    try:
        lies = np.broadcast_to(np.asarray(far, dtype=bool), rows).copy()
        columns = [whole(phase), whole(n), whole(threads), whole(per_node), lies]
        columns += [real(work), real(seconds), *(real(extra_columns.get(k, np.nan)) for k in names)]
    except ValueError as err:
        raise P3SError("samples of threads: the columns have different lengths") from err
    return check_samples(Samples(*columns))


def check_samples(samples_made: Samples) -> Samples:
    """Return samples that can be used. Errors: P3SError, in one line."""
    if not len(samples_made):
        raise P3SError("samples of threads: there are none; trace some runs")
    least = min(int(x.min()) for x in (samples_made.n, samples_made.threads, samples_made.per_node))
    if least < 1:
        raise P3SError("samples of threads: processes and threads are 1 and more")
    if not (np.all(samples_made.seconds > 0) and np.all(np.isfinite(samples_made.seconds))):
        raise P3SError("samples of threads: a time is no positive number; leave its row out")
    if not (np.all(samples_made.work > 0) and np.all(np.isfinite(samples_made.work))):
        raise P3SError("samples of threads: work is no positive number; leave the phase out")
    return samples_made


def round_digits(values: Floats) -> Floats:
    """Return numbers with the seven digits that files keep."""
    return np.array([float(f"{value:.7g}") for value in values.tolist()])


class Value(NamedTuple):
    """Seconds of an iteration at each use, and the ends of their 90 % interval."""

    seconds: Floats
    low: Floats
    high: Floats


class TracedRange(NamedTuple):
    """The smallest and largest of what was traced."""

    low: float
    high: float


@dataclass(frozen=True)
class Envelope:
    """What the runs covered: processes, threads of each, threads of a node, work of a process.

    in_all: most threads of all processes; rows: whether iterations of loops are known.
    """

    n: TracedRange
    threads: TracedRange
    on_node: TracedRange
    work: TracedRange
    far: bool
    in_all: float
    rows: bool


@dataclass(frozen=True)
class Part:
    """A number of a law with its 90 % interval.

    unit: "share" of the time at the traced use with most threads in all, "threads", or "ratio" to
    computing of one thread. seen: whether the runs tell it; else it is what is usual.
    """

    name: str
    unit: str
    value: float
    low: float
    high: float
    seen: bool
