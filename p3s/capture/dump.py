"""Captures as text, JSON lines of numbers, and Parquet."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p3s.base.artefacts import SCHEMA_VERSION, cannot_be_written
from p3s.base.errors import P3SError
from p3s.base.staging import new_file
from p3s.capture.threads import COLUMNS
from p3s.capture.types import Call, RankTrace, RunTrace, present_ranks

#: Events turned into text at once.
_BLOCK = 1 << 14
_PARQUET_VERSION = 1


def ranks_of(run: RunTrace, only: int | None = None) -> Iterator[RankTrace]:
    """Yield the ranks that have a capture, one at a time (or only one of them)."""
    present = present_ranks(run)
    if only is not None and only not in present:
        choice = f"0 to {run.np - 1}" if len(present) == run.np else ", ".join(map(str, present))
        raise P3SError(f"{run.path} has no capture of rank {only}; there is {choice}")
    for rank in present if only is None else [only]:
        yield run.ranks[rank]


def _columns(run: RunTrace, rank: RankTrace) -> dict[str, NDArray[np.generic]]:
    """Return the numbers of each event: ordinal, thread, start, elapsed, work, counters, gap.

    The gap, how many events right before it were only counted, is there where any were.
    """
    length = len(rank.call)
    columns: dict[str, NDArray[np.generic]] = {
        "event": np.arange(length) if rank.ordinal is None else rank.ordinal,
        "thread": np.zeros(length, dtype=np.int32) if rank.thread is None else rank.thread,
        "start_ns": rank.start_ns,
        "elapsed_ns": rank.elapsed_ns,
        "work": rank.work,
        **{name: rank.counters[:, i] for i, name in enumerate(run.counter_names)},
    }
    if run.counted_events:  # the step to an event from the one before need not be the program's
        columns["gap"] = np.zeros(length, dtype=np.int64) if rank.gap is None else rank.gap
    return columns


def _no_events(run: RunTrace) -> RankTrace:
    """Return a rank of a run without events."""
    empty = np.empty(0, dtype=np.int64)
    counters = np.empty((0, len(run.counter_names)), dtype=np.int64)
    call = empty.astype(np.int32)
    return RankTrace(0, True, call, empty, empty, empty, counters=counters)


_RANKS = {-1: "-", -2: "any", -3: "null"}
_BUFFERS = ("", "sent", "received", "both")


def _call_text(call: Call) -> str:
    peer, root = (_RANKS.get(number, str(number)) for number in (call.peer, call.root))
    tag = "-" if call.tag == -1 else str(call.tag)
    comm = "-" if call.comm < 0 else str(call.comm)
    window = f" window={call.window}" if call.window >= 0 else ""
    depth = f" depth={call.depth}" if call.depth else ""
    team = f" team={call.team}" if call.team else ""
    team += f" block={call.block}" if call.block else ""
    team += f" device={_BUFFERS[call.memory & 3]}" if call.memory & 3 else ""
    numbers = f" numbers={','.join(map(str, call.numbers))}" if call.numbers else ""
    return (
        f"{call.op} peer={peer} bytes={call.bytes} count={call.count} elem={call.elem_bytes}"
        f" tag={tag} root={root} comm={comm} site={call.site}{window}{depth}{team}"
        f"{numbers}"
    )


def text(run: RunTrace, only: int | None = None) -> Iterator[str]:
    """Yield the dump in blocks of lines: the tables, then one line per event of every rank."""
    yield _tables_text(run)
    endings = [_call_text(call) for call in run.calls]
    for rank in ranks_of(run, only):
        columns = _columns(run, rank)
        heads = " ".join(columns).translate(_ONE_LINE)
        status = f" ({rank.problem})" if rank.problem else ""
        yield f"\nrank {rank.rank}: {len(rank.call)} events{status}\n# {heads} call"
        for begin in range(0, len(rank.call), _BLOCK):
            part = [column[begin : begin + _BLOCK].tolist() for column in columns.values()]
            calls = rank.call[begin : begin + _BLOCK].tolist()
            yield "\n".join(
                " ".join(map(str, row)) + " " + endings[call]
                for *row, call in zip(*part, calls, strict=True)
            )
        yield from _rank_end(rank, endings)


def _rank_end(rank: RankTrace, endings: Sequence[str]) -> Iterator[str]:
    lines = _thread_lines(rank) + _phase_lines(rank)
    lines += [
        f"neighbours on communicator {comm}: sends to {_ranks(around.destinations)}, receives from"
        f" {_ranks(around.sources)}"
        for comm, around in sorted(rank.neighbours.items())
    ]
    lines += [
        f"counted only: {counts[0]} events, elapsed {counts[1]} ns, work {counts[2]}:"
        f" {endings[call]}"
        for call, counts in sorted(rank.counted.items())
    ]
    if rank.failed_polls:
        lines.append(f"failed polls: {rank.failed_polls} in {rank.failed_poll_ns} ns")
    if rank.paused_calls:
        lines.append(f"calls while recording was off: {rank.paused_calls}")
    for begin in range(0, len(rank.done), _BLOCK):
        rows = zip(
            rank.done[begin : begin + _BLOCK].tolist(),
            rank.cancelled[begin : begin + _BLOCK].tolist(),
            strict=True,
        )
        lines += [
            f"request of event {_ordinal(rank, posted)} completed by {_ordinal(rank, completing)}"
            + (" (cancelled)" if cancelled else "")
            for (completing, posted), cancelled in rows
        ]
        yield "\n".join(lines)
        lines = []
    if lines:
        yield "\n".join(lines)


def _ranks(ranks: Sequence[int]) -> str:
    return ",".join(_RANKS.get(rank, str(rank)) for rank in ranks) or "nobody"


def _phase_lines(rank: RankTrace) -> list[str]:
    if rank.phases is None:
        return []
    return [
        f"phase {row['phase']}: {row['turns']} iterations, {row['detailed']} in detail, mean"
        f" {row['mean']:.0f}, {row['left_out']} events only counted"
        for row in rank.phases
        if row["turns"]
    ]


def _thread_lines(rank: RankTrace) -> list[str]:
    """Return what threads did: what they ran under, each thread, each event's segment."""
    lines = []
    if (under := rank.runtime) is not None:
        level = under.mpi_thread_level or "unknown"
        most = "" if under.max_threads is None else f", at most {under.max_threads} threads"
        lines.append(f"threads: MPI level {level}, {under.openmp or 'no OpenMP'}{most}")
    for thread in rank.team_threads:
        who = f"thread {thread.number}" if thread.number >= 0 else f"{thread.threads} threads"
        calls = f", thread {thread.calls_as} of MPI calls" if thread.calls_as >= 0 else ""
        cores = f", cores {_members(thread.cores)}" if thread.cores else ""
        lines.append(f"{who}: {thread.kind}{calls}, CPU time {thread.cpu_ns} ns{cores}")
    if (rows := rank.threads) is not None:
        for at, event in enumerate(rows.event.tolist()):
            columns = [f"{name}={rows[name][at]}" for name in COLUMNS if rows[name][at]]
            lines.append(f"threads before event {_ordinal(rank, event)}: {' '.join(columns)}")
    return [line.translate(_ONE_LINE) for line in lines]


def _ordinal(rank: RankTrace, index: int) -> int:
    return index if rank.ordinal is None else int(rank.ordinal[index])


def _tables_text(run: RunTrace) -> str:
    lines = [
        f"run of {run.np} ranks; work in {run.work_unit} from {run.work_origin or 'unknown'}",
        "",
        "sites (innermost frame first):",
        *[f"  {i} {site.key} {' < '.join(site.frames)}" for i, site in enumerate(run.sites)],
        "",
        "communicators:",
    ]
    for i, comm in enumerate(run.comms):
        grid = ""
        if comm.dims:
            grid = f" dims={list(comm.dims)} periods={list(map(int, comm.periods or ()))}"
        parent = f" of {comm.parent}" if comm.parent >= 0 else ""
        kind = " (intercommunicator)" if comm.inter else ""
        lines.append(
            f"  {i} {comm.op}{parent}{kind} #{comm.ordinal}{grid} members={_members(comm.members)}"
        )
    if run.windows:
        lines += ["", "windows and files:"]
        lines += [
            f"  {i} {window.kind} {window.op} comm={window.comm} #{window.ordinal}"
            for i, window in enumerate(run.windows)
        ]
    return "\n".join(line.translate(_ONE_LINE) for line in lines)


#: Control characters of frame names do not reach the terminal.
_ONE_LINE = dict.fromkeys([*range(32), 127, *range(128, 160)], "?")


def _members(members: Sequence[int]) -> str:
    if members and tuple(members) == tuple(range(members[0], members[0] + len(members))):
        return f"{members[0]}-{members[-1]}" if len(members) > 1 else str(members[0])
    return ",".join(map(str, members))


def json_pieces(run: RunTrace, only: int | None = None) -> Iterator[str]:
    """Yield one JSON object in pieces: tables, then every rank's events as rows of numbers."""
    head = {
        "schema": "p3s.dump",
        "schema_version": SCHEMA_VERSION,
        "path": str(run.path),
        "np": run.np,
        "work_unit": run.work_unit,
        "work_origin": run.work_origin,
        "counters": list(run.counter_names),
        "sites": [{"key": site.key, "frames": list(site.frames)} for site in run.sites],
        "comms": [vars(comm) for comm in run.comms],
        "windows": [vars(window) for window in run.windows],
        "calls": [vars(call) for call in run.calls],
        "columns": [*_columns(run, _no_events(run)), "call"],
    }
    yield json.dumps(head, ensure_ascii=True)[:-1] + ', "ranks": ['
    for place, rank in enumerate(ranks_of(run, only)):
        yield from _rank_json(run, rank, ",\n" if place else "\n")
    yield "\n]}"


def _rank_json(run: RunTrace, rank: RankTrace, before: str) -> Iterator[str]:
    about = {
        "rank": rank.rank,
        "complete": rank.complete,
        "problem": rank.problem,
        "failed_polls": rank.failed_polls,
        "failed_poll_ns": rank.failed_poll_ns,
        "paused_calls": rank.paused_calls,
        "counted": [[call, *row] for call, row in sorted(rank.counted.items())],
        "done": [
            [_ordinal(rank, completing), _ordinal(rank, posted), int(cancelled)]
            for (completing, posted), cancelled in zip(
                rank.done.tolist(), rank.cancelled.tolist(), strict=True
            )
        ],
        **_threads_json(rank),
    }
    if rank.neighbours:
        about["neighbours"] = {comm: vars(each) for comm, each in rank.neighbours.items()}
    yield before + json.dumps(about)[:-1] + ', "events": ['
    columns = [*_columns(run, rank).values(), rank.call]
    for begin in range(0, len(rank.call), _BLOCK):
        part = [column[begin : begin + _BLOCK].tolist() for column in columns]
        rows = json.dumps(list(zip(*part, strict=True)), separators=(",", ":"))[1:-1]
        yield ("," if begin else "") + "\n" + rows
    yield "]}"


def _threads_json(rank: RankTrace) -> dict[str, Any]:
    """Return the entries of a rank with threads: columns by name, what they ran under, each."""
    if rank.runtime is None and rank.threads is None:
        return {}
    columns: dict[str, list[int]] = {}
    if (rows := rank.threads) is not None:
        events = [_ordinal(rank, event) for event in rows.event.tolist()]
        columns = {"event": events, **{name: rows[name].tolist() for name in COLUMNS}}
    return {
        "threads": columns,
        "runtime": None if rank.runtime is None else asdict(rank.runtime),
        "each_thread": [asdict(thread) for thread in rank.team_threads],
    }


def write_parquet(run: RunTrace, path: Path, only: int | None = None) -> int:
    """Write the events of all ranks as one Parquet file, a row group per rank; return how many.

    Only one rank is in memory at a time. The file's metadata tells units, sites and
    communicators. Raises P3SError when the file cannot be written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = _CallColumns(run)
    schema = tables.table(_no_events(run)).schema.with_metadata(_metadata(run))
    total = 0
    temporary: Path | None = None
    try:
        handle, temporary = new_file(path)
        with (
            open(handle, "wb") as file,
            pq.ParquetWriter(
                file,
                schema,
                compression="zstd",
                compression_level=1,
                write_statistics=False,
                use_dictionary=["op", "site", *tables.numbers],
                write_page_checksum=True,
                store_schema=True,
            ) as writer,
        ):
            for rank in ranks_of(run, only):
                if len(rank.call):
                    writer.write_table(tables.table(rank), row_group_size=len(rank.call))
                total += len(rank.call)
            writer.close()
            file.flush()
            os.replace(temporary, path)
    except OSError as error:
        raise cannot_be_written(path, error) from error
    except pa.ArrowException as error:
        why = str(error).splitlines()[0][:120]
        raise P3SError(f"{path}: cannot be written: {why}; give another place") from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
    return total


class _CallColumns:
    """What the rows of the Parquet file take from the run's table of calls."""

    #: Numbers of a call, and those of them that do not fit into 32 bits.
    _NUMBERS = (
        *("comm", "peer", "bytes", "count", "elem_bytes", "tag", "root", "depth", "window", "team"),
        *("block", "memory"),
    )
    _WIDE = ("bytes", "count", "block")

    def __init__(self, run: RunTrace) -> None:
        import pyarrow as pa

        self.run = run
        ops = sorted({call.op for call in run.calls})
        number = {op: i for i, op in enumerate(ops)}
        self.ops = pa.array(ops, pa.string())
        self.sites = pa.array([site.key for site in run.sites], pa.string())
        self.op = np.array([number[call.op] for call in run.calls], dtype=np.int32)
        self.site = np.array([call.site for call in run.calls], dtype=np.int32)
        self.numbers = {
            name: np.array([getattr(call, name) for call in run.calls], dtype=np.int64).astype(
                np.int64 if name in self._WIDE else np.int32
            )
            for name in self._NUMBERS
        }

    def table(self, rank: RankTrace) -> Any:
        """Return one rank's events as an Arrow table."""
        import pyarrow as pa

        call, counters = rank.call, self.run.counter_names
        event, thread, *_ = columns = _columns(self.run, rank)
        arrays = {
            "rank": np.full(len(call), rank.rank, dtype=np.int32),
            event: columns.pop(event),
            thread: columns.pop(thread),
            "op": pa.DictionaryArray.from_arrays(pa.array(self.op[call]), self.ops),
            "site": pa.DictionaryArray.from_arrays(pa.array(self.site[call]), self.sites),
            **{name: column[call] for name, column in self.numbers.items()},
            **{
                f"counter:{name}" if name in counters else name: np.ascontiguousarray(each)
                for name, each in columns.items()
            },
        }
        return pa.table({name: pa.array(each) for name, each in arrays.items()})


def _metadata(run: RunTrace) -> dict[str, str]:
    """Return what the Parquet file says of the whole run."""
    return {
        "p3s.schema": "p3s.events",
        "p3s.schema_version": str(_PARQUET_VERSION),
        "p3s.np": str(run.np),
        "p3s.time_unit": "ns",
        "p3s.work_unit": run.work_unit,
        "p3s.work_origin": run.work_origin,
        "p3s.sites": json.dumps({site.key: site.frames for site in run.sites}),
        "p3s.comms": json.dumps([vars(comm) for comm in run.comms]),
        "p3s.windows": json.dumps([vars(window) for window in run.windows]),
        "p3s.problems": json.dumps({str(k): v for k, v in run.problems.items()}),
    }
