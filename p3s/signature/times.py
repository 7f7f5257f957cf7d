"""Computation time per segment at one process count: how long what the signature counts takes.

Work (instructions) is the same in every run; time is not. Both belong to the same segments: the
time of a run is matched to the signature by rank and by the two places a segment lies between.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy
import numpy as np
import numpy.typing

from p3s.base.artefacts import crc_of, file_bytes, is_stale, parse_json, write_json
from p3s.base.records import RunRecord, Traces, signature_path, times_path
from p3s.base.serialise import FileFormat, Natural, NotNegative, ProcessCount, Share, Total, to_data
from p3s.base.tables import OtherTable, check_range, read_columns, unusable_tables, write_columns
from p3s.capture.reader import mark_of
from p3s.signature import clock
from p3s.signature.clock import QUANTILES
from p3s.signature.disturbed import disturbances, floor_ns
from p3s.signature.part import Part, Sites, intact_runs
from p3s.signature.store import load_table
from p3s.signature.tables import PointTable

#: Columns of the table. from_node, to_node: numbers in the signature's ``nodes`` (-1: the start).
COLUMNS = ("rank", "from_node", "to_node", "count")
_VALUES = ("work", "least_ns", "median_ns", "most_ns")


@dataclass(frozen=True)
class RunTimes:
    """A run that times are from.

    dir: in the study; time_ns: of all ranks; disturbed: sentences, empty when nothing is wrong;
    floor_ns: what a segment without computation takes per occurrence, 0: not known; captures: what
    tells its captures from others.
    """

    dir: str
    time_ns: Total
    wall_ns: Total
    disturbed: tuple[str, ...] = field(default=(), metadata={"always": True})
    floor_ns: NotNegative = field(default=0.0, metadata={"always": True})
    captures: str = ""


@dataclass(frozen=True, kw_only=True)
class TimesFacts:
    """Times of one process count, beside their rows.

    unit: clock of the times (cpu_ns or wall_ns). runs: one per repeat. unmatched: share of the
    time in segments that the signature does not have equally often.
    resident_bytes: per rank, memory that the program itself has filled after MPI_Init, 0: unknown.
    counters: hardware counters that all these runs have.
    """

    np: ProcessCount  # the field hides the module inside the class, hence numpy.ndarray below
    nodes: tuple[tuple[str, str], ...]
    work_unit: str
    unit: str = field(default="cpu_ns", metadata={"always": True})
    unmatched: Share = field(default=0.0, metadata={"always": True})
    runs: tuple[RunTimes, ...] = field(default=(), metadata={"always": True})
    resident_bytes: numpy.typing.NDArray[numpy.int64]
    counters: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Times(TimesFacts):
    """Time of the segments of all ranks at one process count, in nanoseconds.

    rank, from_node, to_node, count: int64, one row per rank and segment, equal to the rows of the
    signature's segments that were matched, in their order. least_ns, median_ns, most_ns: float64,
    over the repeats, of the sum over all occurrences of a row in a run. quantile_ns: float64
    (rows, len(QUANTILES)), of single occurrences in the run that took least in all.
    work: float64, the signature's work of the same row (equal to least_ns where work is time).
    counted: float64 (rows, counters), what counters counted, the median of the repeats.
    """

    rank: numpy.ndarray
    from_node: numpy.ndarray
    to_node: numpy.ndarray
    count: numpy.ndarray
    work: numpy.ndarray
    least_ns: numpy.ndarray
    median_ns: numpy.ndarray
    most_ns: numpy.ndarray
    quantile_ns: numpy.ndarray
    counted: numpy.ndarray = field(default_factory=lambda: numpy.zeros((0, 0)))


@dataclass(frozen=True, kw_only=True)
class TimesHead(TimesFacts):
    """What npNNNN.times.json holds: of the table its rows and its CRC-32."""

    quantiles: tuple[float, ...]
    rows: Natural
    table_crc: Natural

    def valid(self) -> None:
        """Raise ValueError where clock, quantiles or memory are none."""
        if self.unit not in clock.TIMES or len(self.resident_bytes) != self.np:
            raise ValueError("unit or memory per rank is none")
        if self.resident_bytes.min(initial=0) < 0:
            raise ValueError("memory is negative")
        if self.quantiles != QUANTILES:
            raise ValueError("quantiles are others")


TIMES = FileFormat("p3s.times", 1, TimesHead, True, "run `p3s characterize` again")


def make_times(traces: Traces, np: int) -> Times | None:
    """Write the times of one process count from its runs; None, and nothing there, if unknown.

    They are those of the study's own runs where these have a clock, else of the native runs
    beside them (timed/). Raises P3SError when the signature is not there or damaged.
    """
    table = load_table(traces.root, np)
    apart = frozenset(site.partition("#")[0] for site, _ in table.nodes if "#" in site)
    records = _runs_with_times(traces, np, table.work_unit)
    if not records:
        return None  # the captures were deleted: what was made from them stays
    parts, _, _, used = intact_runs(records, np, Sites(apart, table.same, table.waits))
    return write_times(traces.root, table, parts, used)


def _runs_with_times(traces: Traces, np: int, work_unit: str) -> list[RunRecord]:
    """Return the complete runs whose times count: timed/ where work is instructions, else own."""
    timed = _list_timed(traces, np) if work_unit not in clock.TIMES else []
    return timed or traces.complete(np)


def _list_timed(traces: Traces, np: int) -> list[RunRecord]:
    return [run for run in traces.timed if run.np == np and run.status == "complete"]


def write_times(
    root: Path, table: PointTable, parts: Sequence[Part], records: Sequence[RunRecord]
) -> Times | None:
    """Write the times of a signature from its runs, one Part each; None where none has a clock.

    records: of the runs. What was there from earlier runs is removed when nothing takes its place.
    """
    path = times_path(root, table.np)
    timed = [(part, record) for part, record in zip(parts, records, strict=True) if part.time_unit]
    if not timed:
        for old in (path, path.with_suffix(".parquet")):
            old.unlink(missing_ok=True)
        return None
    names = [str(record.path.relative_to(root)) for _, record in timed]
    shared = [bool(record.info.get("oversubscribed", True)) for _, record in timed]
    times = times_of_runs(table, [part for part, _ in timed], names, shared)
    marks = [mark_of(record.path) for _, record in timed]
    runs = tuple(replace(run, captures=m) for run, m in zip(times.runs, marks, strict=True))
    files = [record.path / "run.json" for _, record in timed]
    save_times(replace(times, runs=runs), path, [signature_path(root, table.np), *files])
    return times


def times_of_runs(
    table: PointTable, parts: Sequence[Part], dirs: Sequence[str], shared: Sequence[bool]
) -> Times:
    """Return the times of a signature's segments from runs that have a clock.

    dirs, shared: of each run, its place in the study and whether its ranks shared cores.

    A segment is the same in the signature and in a run when rank, both places and how often it
    occurs are equal; ``unmatched`` is the share of the time of all runs where that is not so.
    """
    mine = _codes(table.segments, table.nodes, table.nodes)
    order = np.argsort(mine)
    sums = np.full((len(parts), len(mine)), np.nan)
    all_ns = lost_ns = 0.0
    at: list[numpy.ndarray] = []  # of each run: its row for each of the signature's, -1: none
    for run, part in enumerate(parts):
        theirs = _codes(part.segments, part.nodes, table.nodes)
        where = np.searchsorted(mine[order], theirs)
        row = order[np.minimum(where, len(mine) - 1)]
        equal = (mine[row] == theirs) & (table.segments[row, 3] == part.segments[:, 3])
        part_rows = np.full(len(mine), -1, dtype=np.int64)
        part_rows[row[equal]] = np.flatnonzero(equal)
        at.append(part_rows)
        sums[run, row[equal]] = part.times[equal, 0]
        all_ns += float(part.times[:, 0].sum())
        lost_ns += float(part.times[~equal, 0].sum())
    keep = np.flatnonzero(np.isfinite(sums).any(axis=0))
    totals = [int(part.times[:, 0].sum()) for part in parts]
    quantile = np.zeros((len(keep), len(QUANTILES)))
    missing = np.ones(len(keep), dtype=bool)
    for run in np.argsort(totals, kind="stable").tolist():  # of the least run that has the row
        row = at[run][keep]
        take = missing & (row >= 0)
        quantile[take] = parts[run].times[row[take], 1:]
        missing &= ~take
    names = tuple(x for x in parts[0].counters if all(x in part.counters for part in parts))
    counted = np.full((len(parts), len(keep), len(names)), np.nan)
    for run, part in enumerate(parts):
        row = at[run][keep]
        columns = [part.counters.index(name) for name in names]
        counted[run, row >= 0] = part.counted[row[row >= 0]][:, columns]
    rows = table.segments[keep]
    units = {part.time_unit for part in parts}
    runs = zip(parts, sums, dirs, disturbances(parts, shared), strict=True)
    return Times(
        np=table.np,
        nodes=table.nodes,
        rank=rows[:, 0],
        from_node=rows[:, 1],
        to_node=rows[:, 2],
        count=rows[:, 3],
        work=rows[:, 4].astype(np.float64),
        least_ns=np.nanmin(sums[:, keep], axis=0),
        median_ns=np.nanmedian(sums[:, keep], axis=0),
        most_ns=np.nanmax(sums[:, keep], axis=0),
        quantile_ns=quantile,
        counters=names,
        counted=np.nanmedian(counted, axis=0),
        work_unit=table.work_unit,
        unit=units.pop() if len(units) == 1 else clock.CPU,
        unmatched=lost_ns / all_ns if all_ns > 0 else 0.0,
        runs=tuple(_timed_run(table, *run) for run in runs),
        resident_bytes=_resident(table.np, parts),
    )


def _codes(
    segments: numpy.ndarray, nodes: Sequence[tuple[str, str]], target: Sequence[tuple[str, str]]
) -> numpy.ndarray:
    """Return a number per row from rank and both places as ``target`` has them, or -1."""
    number = {node: k for k, node in enumerate(target)}
    to = np.array([*(number.get(node, -2) for node in nodes), -1], dtype=np.int64)
    before, after = to[segments[:, 1]], to[segments[:, 2]]
    size = len(target) + 1
    codes = (segments[:, 0] * size + before + 1) * size + after
    return np.where((before == -2) | (after == -2), -1, codes)


def _timed_run(
    table: PointTable, part: Part, sums: numpy.ndarray, name: str, disturbed: Sequence[str]
) -> RunTimes:
    """Return what is known of a run; sums: time of each of the table's segments, NaN: has none."""
    wall = part.loads[:, clock.LOADS.index("wall_ns")]
    has_time = np.isfinite(sums)
    work = table.segments[has_time, 4].astype(np.float64)
    floor = floor_ns(
        table.segments[has_time, 3].astype(np.float64),
        sums[has_time],
        None if table.work_unit in clock.TIMES else work,
    )
    return RunTimes(
        name,
        int(part.times[:, 0].sum()),
        int(wall.max(initial=0)),
        tuple(disturbed),
        round(floor, 1),
    )


def _resident(size: int, parts: Sequence[Part]) -> numpy.ndarray:
    out = np.zeros(size, dtype=np.int64)
    rank, column = clock.LOADS.index("rank"), clock.LOADS.index("resident_bytes")
    for part in parts:
        ranks = part.loads[:, rank]
        out[ranks] = np.maximum(out[ranks], part.loads[:, column])
    return out


# ---- the files -----------------------------------------------------------------------------
def _quantile_names() -> list[str]:
    return [f"q{round(100 * share):02d}_ns" for share in QUANTILES]


def _counter(name: str) -> str:
    return f"counter {name}"


def save_times(times: Times, path: Path, made_of: Sequence[Path] = ()) -> None:
    """Write the table, then the readable head that names its checksum and what it was made of."""
    columns = {name: getattr(times, name) for name in (*COLUMNS, *_VALUES)}
    columns |= {name: times.quantile_ns[:, k] for k, name in enumerate(_quantile_names())}
    columns |= {_counter(name): times.counted[:, k] for k, name in enumerate(times.counters)}
    table = path.with_suffix(".parquet")
    write_columns(table, columns)
    facts: dict[str, Any] = {each.name: getattr(times, each.name) for each in fields(TimesFacts)}
    head = TimesHead(**facts, quantiles=QUANTILES, rows=len(times.rank), table_crc=crc_of(table))
    write_json(path, TIMES.data(head), made_of)


def load_times(root: Path, np: int) -> Times | None:
    """Return the times of one process count, None when there are none.

    Raises P3SError, in one line, when they are damaged or of another version.
    """
    import pyarrow as pa

    path = times_path(Path(root), np)
    if not path.exists():
        return None
    head = TIMES.read(path)
    try:
        return _with_rows(head, path.with_suffix(".parquet"))
    except (OSError, ValueError, pa.ArrowException) as err:
        raise unusable_tables(path, err, TIMES.again) from err


def _with_rows(head: TimesHead, path: Path) -> Times:
    """Return the times of a head and its table."""
    if zlib.crc32(file_bytes(path)) != head.table_crc:
        raise OtherTable(f"{path.name} is another table than it names")
    kinds = dict.fromkeys(COLUMNS, int) | dict.fromkeys((*_VALUES, *_quantile_names()), float)
    kinds |= dict.fromkeys(map(_counter, head.counters), float)
    columns: dict[str, Any] = dict(read_columns(path, kinds))
    if len(columns["rank"]) != head.rows:
        raise ValueError("head and table do not fit")
    quantile = [columns.pop(name) for name in _quantile_names()]
    counted = [columns.pop(_counter(name)) for name in head.counters]
    check_range(columns["rank"], 0, head.np, "a rank")
    for name in ("from_node", "to_node"):
        check_range(columns[name], -1, len(head.nodes), name)
    for name in ("count", *_VALUES):
        if columns[name].min(initial=0) < 0:
            raise ValueError(f"{name} is negative")
    facts: dict[str, Any] = {each.name: getattr(head, each.name) for each in fields(TimesFacts)}
    table = np.stack(counted, axis=1) if counted else np.zeros((head.rows, 0))
    return Times(**facts, quantile_ns=np.stack(quantile, axis=1), counted=table, **columns)


def stale(traces: Traces, np: int) -> bool:
    """Tell whether times are missing, older than the signature or a run they come from, or from a
    run that was deleted."""
    path, signature = times_path(traces.root, np), signature_path(traces.root, np)
    complete, timed = traces.complete(np), _list_timed(traces, np)
    if not signature.exists() or not (complete or timed):
        return False  # there is nothing to make them from
    if not path.exists():
        units = {run.info.get("work_unit", clock.CPU) for run in complete}
        return bool(timed) or bool(units & set(clock.TIMES))
    native = [run.path / "run.json" for run in traces.timed if run.np == np]
    return is_stale(path, [signature, *native]) or any(
        _is_another(traces.root / name, mark) for name, mark in _run_dirs(path)
    )


def _is_another(run_dir: Path, mark: str) -> bool:
    """Tell whether a run is gone, or holds other captures than it did."""
    return not run_dir.is_dir() or bool(mark and (now := mark_of(run_dir)) and now != mark)


def _run_dirs(path: Path) -> list[tuple[str, str]]:
    """Return the places in the study of the runs that times are from, and their captures' marks."""
    try:
        runs = parse_json(file_bytes(path))["runs"]
        return [(str(run["dir"]), str(run.get("captures", ""))) for run in runs]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []  # damaged: reading it says so


#: Share of the time that may have no partner in the signature before it is said.
_UNMATCHED = 0.01


def notes(times: Times | None) -> list[str]:
    """Return what is to be said of the times of one count, each in one line."""
    if times is None:
        return []
    remarks = []
    if times.unmatched > _UNMATCHED:
        remarks.append(
            f"{100 * times.unmatched:.0f} % of the computation time is in steps that the"
            " signature does not have as often: it is in no cost"
        )
    bad = [(k, run.disturbed) for k, run in enumerate(times.runs) if run.disturbed]
    if bad:
        (first, why), total = bad[0], len(times.runs)
        subject = f"run {first + 1} of {total} was" if total > 1 else "the run was"
        if 1 < len(bad) == total:
            subject = f"all {total} runs were"
        more = f"; {len(bad) - 1} more too" if 1 < len(bad) < total else ""
        remarks.append(f"{subject} disturbed: {why[0]}{more}")
    return remarks


#: Runs of a count, at most, up to which disturbed ones are made once more unasked.
MOST_RUNS = 3


def lacks_quiet_runs(times: Times | None, min_quiet: int = 1) -> bool:
    """Tell whether fewer than ``min_quiet`` of the runs whose times are known were undisturbed."""
    runs = times.runs if times is not None else ()
    return bool(runs) and sum(not run.disturbed for run in runs) < min_quiet


def needs_repeat(times: Times | None, min_quiet: int) -> bool:
    """Tell whether a count lacks undisturbed runs and has fewer than MOST_RUNS in all."""
    return lacks_quiet_runs(times, min_quiet) and len(times.runs if times else ()) < MOST_RUNS


def as_json(times: Times | None) -> dict[str, Any]:
    """Return what the commands say of the times of one count."""
    if times is None:
        return {}
    return {"runs": to_data(times.runs), "unmatched": times.unmatched, "unit": times.unit}
