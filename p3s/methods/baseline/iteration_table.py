"""Times of iterations of a master and workers: a table with one row per iteration.

CSV as the programs of examples/master_worker print it, or Parquet. Columns of workers hold one
number per worker: in CSV joined by semicolons, in Parquet as lists.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from p3s.base.errors import P3SError, UsageError
from p3s.base.foreign_formats import ReadBy, refuse_foreign
from p3s.base.tables import read_rows
from p3s.methods.baseline.times import REDUCTIONS

#: A worker's time may be this much above that of the iteration: clocks of two nodes differ.
_CLOCKS = 1e-6


@dataclass(frozen=True)
class Row:
    """One iteration. Times in s; tuples have one entry per worker.

    W: workload. K: workers. T: threads of each. T_iter: from the master's preparing to its merging.
    mu_m: the master's own work. mu: of each worker; T_c: their sum (eq. 4.10). send_m, recv_m: in
    the master's calls; send, recv: in the workers'. region: in their parallel regions. cycles,
    instructions, cache_misses, tlb_misses: of a worker, where counters were read.
    """

    app: str
    machine: str
    run: int
    iteration: int
    W: float
    processes: int
    K: int
    T: int
    affinity: str
    T_iter: float
    mu_m: float
    T_c: float
    send_m: float
    recv_m: float
    mu: tuple[float, ...]
    region: tuple[float, ...]
    recv: tuple[float, ...]
    send: tuple[float, ...]
    cycles: tuple[float, ...] = ()
    instructions: tuple[float, ...] = ()
    cache_misses: tuple[float, ...] = ()
    tlb_misses: tuple[float, ...] = ()


@dataclass(frozen=True)
class Run:
    """A run reduced to one iteration: what it is of, and its times by the statistic, in s."""

    app: str
    machine: str
    run: int
    W: float
    K: int
    T: int
    affinity: str
    seconds: float
    compute: tuple[float, ...]
    iterations: int
    rows: tuple[Row, ...] = field(repr=False, default=())


_COUNTERS = ("cycles", "instructions", "cache_misses", "tlb_misses")


def read(paths: Iterable[Path]) -> list[Row]:
    """Return the iterations of files, by suffix CSV or Parquet.

    Errors: P3SError with file and row for a column that is missing, a value of another kind, more
    times than workers, a T_c that is not the sum of mu, or a worker slower than its iteration.
    """
    found = []
    for path in map(Path, paths):
        rows = _parquet(path) if path.suffix.lower() == ".parquet" else _csv(path)
        found += [_row(row, f"{path}: row {number}") for number, row in enumerate(rows, 2)]
    return found


def _csv(path: Path) -> list[dict[str, Any]]:
    refuse_foreign(path, ReadBy.OWN)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise P3SError(f"{path}: cannot be read as a table of iterations") from error
    return list(csv.DictReader(line for line in lines if line.strip()))


def _parquet(path: Path) -> list[dict[str, Any]]:
    import pyarrow as arrow

    try:
        return read_rows(path)
    except (OSError, ValueError, arrow.ArrowException) as error:
        raise P3SError(f"{path}: cannot be read as Parquet") from error


def _row(data: Mapping[str, Any], where: str) -> Row:
    values: dict[str, Any] = {}
    for each in fields(Row):
        value = data.get(each.name)
        if value is None and each.name not in _COUNTERS:
            raise P3SError(f"{where}: no {each.name}; a table of iterations needs it")
        try:
            values[each.name] = _KINDS[str(each.type)](value)
        except (TypeError, ValueError) as error:
            raise P3SError(f"{where}: {each.name} is {value!r:.40}") from error
    return _checked(Row(**values), where)


def _number(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number) or number < 0:
        raise ValueError(value)
    return number


def _numbers(value: Any) -> tuple[float, ...]:
    if isinstance(value, str):
        value = [part for part in value.split(";") if part]
    return tuple(_number(part) for part in value or ())


_KINDS: Mapping[str, Callable[[Any], Any]] = {
    "str": str,
    "int": int,
    "float": _number,
    "tuple[float, ...]": _numbers,
}


def _checked(row: Row, where: str) -> Row:
    for name in ("mu", "region", "recv", "send"):
        if len(getattr(row, name)) != row.K:
            raise P3SError(f"{where}: {name} has not one time for each of {row.K} workers")
    for name in _COUNTERS:
        if len(getattr(row, name)) not in (0, row.K):
            raise P3SError(f"{where}: {name} has not one count for each of {row.K} workers")
    if not math.isclose(row.T_c, sum(row.mu), rel_tol=1e-6, abs_tol=1e-9):
        raise P3SError(f"{where}: T_c is {row.T_c:g}, the sum of mu {sum(row.mu):g}")
    if row.K < 1 or row.processes != row.K + 1 or row.T < 1 or not row.T_iter > 0:
        raise P3SError(f"{where}: {row.processes} processes, {row.K} workers, {row.T} threads")
    if max(row.mu) > row.T_iter * (1 + _CLOCKS):
        raise P3SError(f"{where}: a worker computes longer than the iteration; mixed units?")
    return row


def runs(rows: Iterable[Row], statistic: str = "median", *, skip: int = 1) -> list[Run]:
    """Return each run with its times: of its iterations the median, the mean or the least.

    skip: iterations at its beginning that do not count where others are left. UsageError for
    another statistic.
    """
    if statistic not in REDUCTIONS:
        raise UsageError(f"{statistic}: no statistic of iterations; one of {', '.join(REDUCTIONS)}")
    of, found = REDUCTIONS[statistic], []
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        key = (row.app, row.machine, row.run, row.W, row.K, row.T, row.affinity)
        groups.setdefault(key, []).append(row)
    for own in groups.values():
        own.sort(key=lambda row: row.iteration)
        kept, one = own[skip:] or own, own[0]
        compute = tuple(of([row.mu[i] for row in kept]) for i in range(one.K))
        seconds = of([row.T_iter for row in kept])
        about = (one.app, one.machine, one.run, one.W, one.K, one.T, one.affinity)
        found.append(Run(*about, seconds, compute, len(kept), tuple(own)))
    return found
