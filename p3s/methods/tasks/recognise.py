"""Whether ranks of a run hand out tasks to whoever asks, and what is known of these tasks.

A server receives from anybody (MPI_ANY_SOURCE, also by a probe) and answers the one that it has
heard from before it looks again. Between an answer and a worker's next message lies a task. The
order in which tasks were handed out is the server's; how many each worker did depends on timing.
Where nobody is such a server, a counter in a window may be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from p3s.base.arrays import Bools, Floats, Ints
from p3s.base.errors import P3SError
from p3s.base.ops import ONE_SIDED, RECV, RMA, SEND, is_on_comm, kind_of
from p3s.capture.types import ANY_SOURCE
from p3s.methods.tasks.queue import ServerRecord, TaskQueue, queue_of

if TYPE_CHECKING:
    from pathlib import Path

    from p3s.base.records import Traces
    from p3s.capture import Call, RankTrace, RunTrace


#: A server hears from at least so many, answers at least this share of what it hears, and at least
#: so many times in all: else a wildcard is only a way to write a receive.
_FEWEST_WORKERS, _ANSWERED, _FEWEST = 2, 0.8, 8
#: A worker that was heard this often in a fixed order every time is no matter of timing.
_NS = 1e9
#: With so many processes there is one worker at most: nothing shows that any could ask.
_TOO_FEW = 2


@dataclass(frozen=True)
class _Columns:
    """Events of a rank as columns; ``heard``: the sender of what a wildcard call has found, -1."""

    send: Bools
    recv: Bools
    peer: Ints
    nbytes: Ints
    work: Ints
    site: Ints
    heard: Ints


def servers_of(run: RunTrace) -> tuple[ServerRecord, ...]:
    """Return the servers of a run whose work is a time, in the order of their ranks; usually none.

    Reads the captures once more for what their receives were posted for. A run whose work is
    counted in instructions says nothing of the times of tasks.
    """
    from p3s.capture.capture import read_capture
    from p3s.capture.layout import NAME

    if run.work_unit not in ("cpu_ns", "wall_ns"):
        return ()
    servers = []
    for rank in run.ranks:
        path = run.path / NAME.format(rank.rank)
        if not len(rank.call) or not path.exists():
            continue
        capture = read_capture(path, completions=False)
        wild = np.asarray(capture.calls["peer"] == ANY_SOURCE)[capture.events.call]
        if wild.any() and len(wild) == len(rank.call):
            columns = _columns(run, rank, wild)
            if (served := _record_server(run, rank, columns)) is not None:
                servers.append(served)
    counter = None if servers else counter_of(run)
    return tuple(servers) if counter is None else (counter,)


def _columns(run: RunTrace, rank: RankTrace, wild: Bools | None = None) -> _Columns:
    calls = run.calls
    kinds = [kind_of(call.op) for call in calls]
    probe = np.array([call.op.endswith("robe") for call in calls], dtype=bool)
    column = {
        name: np.array([getattr(call, name) for call in calls], dtype=np.int64)
        for name in ("peer", "bytes", "site")
    }
    recv = np.array([kind == RECV for kind in kinds], dtype=bool)
    peer = column["peer"][rank.call]
    heard = np.full(len(rank.call), -1, dtype=np.int64)
    if wild is not None:
        at = np.flatnonzero(wild & (recv | probe)[rank.call] & (peer >= 0))
        # What was posted is heard of where it is completed.
        completed = dict(zip(rank.done[:, 1].tolist(), rank.done[:, 0].tolist(), strict=True))
        for event in at.tolist():
            heard[completed.get(event, event)] = peer[event]
    return _Columns(
        np.array([kind == SEND for kind in kinds], dtype=bool)[rank.call],
        recv[rank.call],
        peer,
        column["bytes"][rank.call],
        np.asarray(rank.work, dtype=np.int64),
        column["site"][rank.call],
        heard,
    )


def _record_server(run: RunTrace, rank: RankTrace, mine: _Columns) -> ServerRecord | None:
    """Return what a rank with wildcard receives served; None where it does not answer."""
    requests = np.flatnonzero(mine.heard >= 0)
    if not len(requests):  # all that it posted for anybody was cancelled
        return None
    ends = np.append(requests[1:], len(mine.send))
    answers, whom, service = [], [], []
    work_before = np.concatenate(([0], np.cumsum(mine.work)))
    for at, end in zip(requests.tolist(), ends.tolist(), strict=True):
        source = mine.heard[at]
        replies = (
            at + 1 + np.flatnonzero(mine.send[at + 1 : end] & (mine.peer[at + 1 : end] == source))
        )
        if len(replies):
            answers.append(int(replies[-1]))
            whom.append(int(source))
            # Up to the next look; behind the last answer the server does something else.
            until = end if end < len(mine.work) else int(replies[-1])
            service.append(float(work_before[until + 1] - work_before[at + 1]))
    workers = tuple(sorted(set(whom)))
    heard = len(requests)
    if len(workers) < _FEWEST_WORKERS or len(answers) < max(_ANSWERED * heard, _FEWEST):
        return None
    # What was sent before anybody asked are tasks, too.
    before = mine.peer[np.flatnonzero(mine.send[: requests[0]])].tolist() if heard else []
    first = dict.fromkeys(peer for peer in before if peer in workers)
    tasks, of = _tasks(run, rank.rank, [*first, *whom], workers)
    if len(tasks) < _FEWEST:
        return None
    return ServerRecord(
        rank.rank,
        workers,
        tasks / _NS,
        of,
        np.array(service) / _NS,
        float(mine.nbytes[mine.recv].mean()) if mine.recv.any() else 0.0,
        float(mine.nbytes[answers].mean()),
        tuple(sorted({int(site) for site in mine.site[requests].tolist()})),
    )


def _tasks(
    run: RunTrace, server: int, whom: Sequence[int], workers: tuple[int, ...]
) -> tuple[Floats, Ints]:
    """Return the work of each task in the order of the answers, and who did it."""
    each = {worker: _of_worker(run, run.ranks[worker], server) for worker in workers}
    next_of = dict.fromkeys(workers, 0)
    tasks, of = [], []
    for worker in whom:
        at = next_of[worker]
        next_of[worker] += 1
        if at < len(each[worker]):
            tasks.append(each[worker][at])
            of.append(worker)
    return np.array(tasks, dtype=np.float64), np.array(of, dtype=np.int64)


def _of_worker(run: RunTrace, rank: RankTrace, server: int) -> list[float]:
    """Return the work between each answer and the worker's next message to the server."""
    mine = _columns(run, rank)
    with_it = mine.peer == server
    asks, answers = np.flatnonzero(mine.send & with_it), np.flatnonzero(mine.recv & with_it)
    work_before = np.concatenate(([0], np.cumsum(mine.work)))
    durations = []
    # An answer may be several messages: the last before the worker speaks again.
    after = np.searchsorted(asks, answers)
    for i, (at, k) in enumerate(zip(answers.tolist(), after.tolist(), strict=True)):
        last = i + 1 == len(answers) or after[i + 1] != k
        if last and k < len(asks):
            durations.append(float(work_before[asks[k] + 1] - work_before[at + 1]))
    return durations


# ---- counters --------------------------------------------------------------------------------

#: A counter is fetched by at least so many, so many times in all.
_FETCHERS, _FETCHED = 2, 8
#: The work behind a last fetch is at most this part of a task's, in the median.
_NO_TASK = 0.5
_CHANGES_AND_FETCHES = frozenset("MPI_Get_accumulate MPI_Rget_accumulate".split())
_AWAITED = frozenset("MPI_Win_" + name for name in "lock unlock unlock_all flush flush_all".split())
_TOGETHER = frozenset("MPI_Win_" + name for name in "fence free".split()) | {"MPI_Finalize"}


@dataclass(frozen=True)
class _Fetches:
    """What one rank did between its fetches.

    ``tasks``: nanoseconds of work of each task, ``begun``: when its number was fetched;
    ``behind``: work behind the last fetch before each collective call; ``asked``: all fetches.
    ``messages``: of all between the first fetch and the last; ``inside``: those of them that are
    the tasks' own, and their bytes. ``sites`` fetch, ``others`` exchange messages as well.
    """

    tasks: list[float]
    begun: list[int]
    behind: list[float]
    asked: int
    messages: int
    inside: tuple[int, int]
    sites: frozenset[int]
    others: frozenset[int]


def counter_of(run: RunTrace) -> ServerRecord | None:
    """Return what the counter of a run handed out; None where it has none, or several."""
    fetches = np.array([_fetches(call) for call in run.calls] or [False], dtype=bool)
    places = {(c.peer, c.window) for c, yes in zip(run.calls, fetches, strict=False) if yes}
    if len(places) != 1:
        return None
    (server, _) = places.pop()
    fetches_of = {rank.rank: _of_rank(run, rank, fetches) for rank in run.ranks}
    workers = tuple(sorted(rank for rank, one in fetches_of.items() if one is not None))
    each = [one for one in fetches_of.values() if one is not None]
    tasks = np.array([t for one in each for t in one.tasks])
    rounds = {len(one.behind) for one in each}
    if len(workers) < _FETCHERS or len(tasks) < _FETCHED or len(rounds) != 1 or server < 0:
        return None
    behind = np.array([t for one in each for t in one.behind])
    if float(np.median(behind)) > _NO_TASK * float(np.median(tasks)):
        return None
    order = np.argsort([at for one in each for at in one.begun], kind="stable")
    of = np.repeat(workers, [len(one.tasks) for one in each])
    requests = sum(one.asked for one in each)
    inside = np.array([one.inside for one in each], dtype=float).sum(axis=0)
    size = [call.bytes for call, yes in zip(run.calls, fetches, strict=False) if yes]
    return ServerRecord(
        server,
        workers,
        tasks[order] / _NS,
        of[order],
        np.zeros(requests),
        float(np.mean(size)),
        float(np.mean(size)),
        tuple(sorted(frozenset().union(*(one.sites for one in each)))),
        counter=True,
        rounds=rounds.pop(),
        messages=sum(one.messages for one in each) / requests,
        phases=1 + len(frozenset().union(*(one.sites | one.others for one in each))),
        inside=(float(inside[0]) / len(tasks), float(inside[1]) / max(float(inside[0]), 1.0)),
    )


def _fetches(call: Call) -> bool:
    """Tell whether a call takes the next number of a counter, or may."""
    return call.op == "MPI_Fetch_and_op" or (call.op in _CHANGES_AND_FETCHES and call.count == 1)


def _messages(call: Call) -> int:
    """Return as how many messages a call is taken (docs/one-sided.md)."""
    kind = kind_of(call.op)
    if kind == RMA:
        return sum(ONE_SIDED.get(call.op.removeprefix("MPI_"), (call.op in _AWAITED,)))
    return int(kind in (SEND, RECV))


def _of_rank(run: RunTrace, rank: RankTrace, fetches: np.ndarray) -> _Fetches | None:
    """Return what a rank did between its fetches; None where it makes none."""
    call = np.asarray(rank.call)
    at = np.flatnonzero(fetches[call]) if len(call) else call
    if not len(at):
        return None
    ends = np.array([is_on_comm(c.op) or c.op in _TOGETHER for c in run.calls], dtype=bool)
    several = np.array([_messages(c) for c in run.calls], dtype=np.int64)
    size = np.array([c.bytes for c in run.calls], dtype=np.int64)
    work_before = np.concatenate(([0], np.cumsum(np.asarray(rank.work, dtype=np.int64))))
    closing = np.append(np.flatnonzero(ends[call]), len(call) - 1)
    until = closing[np.searchsorted(closing, at)]
    last = np.append(until[1:] != until[:-1], True)
    following = np.where(last, until, np.append(at[1:], at[-1]))
    work = (work_before[following + 1] - work_before[at + 1]).astype(float)
    own_messages = several * ~(fetches | np.array([c.op.startswith("MPI_Win_") for c in run.calls]))
    nbytes = size * (own_messages > 0)
    inside = np.zeros(len(call), dtype=bool)
    for a, b in zip(at[~last].tolist(), following[~last].tolist(), strict=True):
        inside[a:b] = True
    return _Fetches(
        work[~last].tolist(),
        np.asarray(rank.start_ns)[at[~last]].tolist(),
        work[last].tolist(),
        len(at),
        int(sum(several[call[a:b]].sum() for a, b in zip(at, following, strict=True))),
        (int(own_messages[call[inside]].sum()), int(nbytes[call[inside]].sum())),
        frozenset(run.calls[c].site for c in np.unique(call[at]).tolist()),
        frozenset(run.calls[c].site for c in np.unique(call[inside]).tolist() if several[c]),
    )


# ---- all runs --------------------------------------------------------------------------------


def of_path(path: Path) -> tuple[ServerRecord, ...]:
    """Return the servers of the run in a directory."""
    from p3s.capture import read_run

    return servers_of(read_run(path))


def find_task_queue(traces: Traces) -> TaskQueue | None:
    """Return the queue of tasks of the program that was traced; None where none is seen."""
    runs = {}
    try:
        for n in traces.ran:
            servers = [of_path(run.path) for run in traces.of(n) if run.status == "complete"]
            if not servers or (n <= _TOO_FEW and not all(servers)):
                continue
            if not all(servers):
                return None
            runs[n] = servers
    except P3SError:  # p3s check tells which capture cannot be read
        return None
    return queue_of(runs) if runs else None
