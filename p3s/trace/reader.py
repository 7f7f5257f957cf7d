"""Merges the captures of all ranks into one RunTrace."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from p3s.errors import P3SError
from p3s.trace import ops
from p3s.trace.capture import NAME, Capture, RawComm, read_capture
from p3s.trace.types import Call, Comm, RankTrace, RunTrace, Site

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Int64s = NDArray[np.int64]

#: Columns of the matrix in which calls of all ranks are compared.
_OP, _SITE, _COMM, _PEER, _BYTES, _ELEM, _TAG, _ROOT = range(8)


@dataclass
class _Tables:
    """What is shared by all ranks while they are merged."""

    ops: dict[str, int]
    sites: dict[int, int]
    site_list: list[Site]
    comms: dict[tuple[tuple[int, ...], int], int]
    comm_list: list[Comm]


def _merge_comms(capture: Capture, tables: _Tables) -> dict[int, int]:
    """Return this rank's communicator ids -> indices of the merged communicators."""
    seen: dict[tuple[int, ...], int] = {}
    index: dict[int, int] = {-1: -1}
    for raw in capture.comms:
        ordinal = seen.get(raw.members, 0)
        seen[raw.members] = ordinal + 1
        key = (raw.members, ordinal)
        if key not in tables.comms:
            tables.comms[key] = len(tables.comm_list)
            tables.comm_list.append(_as_comm(raw, index.get(raw.parent, -1), ordinal))
        index[raw.id] = tables.comms[key]
    return index


def _as_comm(raw: RawComm, parent: int, ordinal: int) -> Comm:
    return Comm(raw.members, raw.op, parent, raw.dims, raw.periods, ordinal, raw.inter)


def _matrix(capture: Capture, tables: _Tables) -> Int64s:
    """Return this rank's calls as rows of numbers that mean the same on every rank."""
    import numpy as np

    comm_of = _merge_comms(capture, tables)
    comm_ids = np.array(sorted(comm_of), dtype=np.int64)
    comm_to = np.array([comm_of[number] for number in sorted(comm_of)], dtype=np.int64)
    for raw in capture.sites:
        if raw.key not in tables.sites:
            tables.sites[raw.key] = len(tables.site_list)
            tables.site_list.append(Site(f"{raw.key:016x}", raw.frames))
    site_to = np.array([tables.sites[raw.key] for raw in capture.sites] or [0], dtype=np.int64)
    op_to = np.zeros(65536, dtype=np.int64)
    for number, name in capture.opnames.items():
        if number < 65536:
            op_to[number] = tables.ops.setdefault(name, len(tables.ops))
    calls = capture.calls
    rows = np.empty((len(calls), 8), dtype=np.int64)
    rows[:, _OP] = op_to[calls["op"]]
    rows[:, _SITE] = site_to[calls["site"]] if len(calls) else 0
    rows[:, _COMM] = comm_to[np.searchsorted(comm_ids, calls["comm"])]
    rows[:, _PEER] = calls["peer"]
    rows[:, _BYTES] = calls["bytes"]
    rows[:, _ELEM] = calls["elem_bytes"]
    rows[:, _TAG] = calls["tag"]
    rows[:, _ROOT] = calls["root"]
    return rows


def _resolve(capture: Capture, rows: Int64s) -> tuple[Int64s, Int64s]:
    """Return (rows, call of each event) with wildcard receives pointed to what they received."""
    import numpy as np

    call = capture.events["call"].astype(np.int64)
    if len(capture.resolved):
        where = capture.resolved["ordinal"].astype(np.int64)
        actual = rows[call[where]].copy()
        actual[:, _PEER] = capture.resolved["source"]
        actual[:, _TAG] = capture.resolved["tag"]
        fresh, inverse = np.unique(actual, axis=0, return_inverse=True)
        call[where] = len(rows) + inverse.reshape(-1)
        rows = np.concatenate([rows, fresh])
    return rows, call


def _unique_rows(rows: Int64s) -> tuple[Int64s, Int64s]:
    """Return (distinct rows in order of first use, number of each row)."""
    import numpy as np

    packed = np.ascontiguousarray(rows).view(np.dtype((np.void, 8 * rows.shape[1]))).reshape(-1)
    _, first, inverse = np.unique(packed, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return rows[first[order]], place[inverse.reshape(-1)]


def _captures(run_dir: Path) -> tuple[dict[int, Capture], dict[str, str]]:
    """Return the captures by rank, and what is wrong with files that cannot be read at all."""
    if not run_dir.is_dir():
        raise P3SError(f"{run_dir} is not there; trace the program with `p3s characterize` first")
    files = sorted(run_dir.glob("rank-*.p3t"))
    if not files:
        raise P3SError(
            f"{run_dir} holds no capture: no MPI call was seen; trace the program again and read"
            " what `p3s characterize` says"
        )
    found: dict[int, Capture] = {}
    sizes: dict[int, Path] = {}
    problems: dict[str, str] = {}
    for path in files:
        try:
            capture = read_capture(path)
        except P3SError as error:
            problems[path.name] = str(error)  # one bad file must not take the others with it
            continue
        if path.name != NAME.format(capture.header.rank):
            raise P3SError(f"{path} is the file of rank {capture.header.rank}; it was renamed")
        sizes.setdefault(capture.header.size, path)
        found[capture.header.rank] = capture
    if not found:
        raise P3SError(next(iter(problems.values())))
    if len(sizes) > 1:
        (a, first), (b, second) = list(sizes.items())[:2]
        raise P3SError(
            f"{run_dir} mixes runs: {first.name} is of {a} ranks, {second.name} of {b}; trace the"
            " program again"
        )
    return found, problems


def _wall_ns(run_dir: Path) -> int | None:
    try:
        wall = json.loads((run_dir / "run.json").read_text())["wall_s"]
        return int(wall * 1e9)
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return None


def _rank_trace(
    run_dir: Path, rank: int, capture: Capture | None, call: Any, unreadable: dict[str, str]
) -> RankTrace:
    import numpy as np

    if capture is None:
        none = np.empty(0, dtype=np.int64)
        path = run_dir / NAME.format(rank)
        why = unreadable.get(path.name, f"{path} is missing")
        return RankTrace(rank, False, none.astype(np.int32), none, none, none, problem=why)
    events = capture.events
    return RankTrace(
        rank,
        capture.complete,
        call.astype(np.int32),
        np.ascontiguousarray(events["start_ns"]),
        np.ascontiguousarray(events["elapsed_ns"]),
        np.ascontiguousarray(events["work_ns"]),
        capture.header.failed_polls,
        capture.header.failed_poll_ns,
        f"{capture.path} {capture.problem}" if capture.problem else "",
    )


def read_run(run_dir: Path) -> RunTrace:
    """Read all ranks of one traced run.

    A rank that was killed, or whose file is torn or missing, is there with what was recorded and
    ``complete`` False; ``RankTrace.problem`` says why. Raises P3SError when the directory
    holds no readable capture or mixes runs.
    """
    import numpy as np

    run_dir = Path(run_dir)
    captures, unreadable = _captures(run_dir)
    size = next(iter(captures.values())).header.size
    world = tuple(range(size))
    tables = _Tables(
        {}, {}, [], {(world, 0): 0}, [Comm(world, "MPI_COMM_WORLD", -1, None, None, 0)]
    )
    parts, calls_of, start = [], {}, 0
    for rank in sorted(captures):
        rows, call = _resolve(captures[rank], _matrix(captures[rank], tables))
        parts.append(rows)
        calls_of[rank] = call + start
        start += len(rows)
    distinct, number = _unique_rows(np.concatenate(parts))
    used = np.zeros(len(distinct), dtype=np.int64)
    for rank, call in calls_of.items():
        calls_of[rank] = number[call]
        used += np.bincount(calls_of[rank], minlength=len(distinct))
    keep = np.flatnonzero(used)
    renumber = np.full(len(distinct), -1, dtype=np.int64)
    renumber[keep] = np.arange(len(keep))
    names = list(tables.ops)
    calls = tuple(
        Call(names[op], site, comm, peer, size_, elem, tag, root)
        for op, site, comm, peer, size_, elem, tag, root in distinct[keep].tolist()
    )
    unmodelled: dict[str, int] = {}
    for each, count in zip(calls, used[keep].tolist(), strict=True):
        if not ops.is_modelled(each.op):
            unmodelled[each.op] = unmodelled.get(each.op, 0) + count
    return RunTrace(
        np=size,
        path=run_dir,
        calls=calls,
        comms=tuple(tables.comm_list),
        sites=tuple(tables.site_list),
        ranks=tuple(
            _rank_trace(
                run_dir,
                r,
                captures.get(r),
                renumber[calls_of[r]] if r in calls_of else None,
                unreadable,
            )
            for r in range(size)
        ),
        wall_ns=_wall_ns(run_dir),
        unmodelled=unmodelled,
        missing=tuple(
            r
            for r in range(size)
            if r not in captures and NAME.format(r) not in unreadable
        ),
    )
