"""Tasks that ranks hand out, or a counter in a window, in the runs of a program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from p3s.base.arrays import Floats, Ints
from p3s.base.ops import ONE_SIDED, RECV, RMA, SEND, is_on_comm, kind_of

if TYPE_CHECKING:
    from p3s.capture import Call, RankTrace, RunTrace


@dataclass(frozen=True)
class Served:
    """What one server did in a run.

    ``server``: its rank; ``workers``: those that it heard from. ``tasks``: seconds of computation
    of each task, in the order in which they were handed out; ``of``: which worker did it.
    ``service``: seconds of computation of the server for each request that it answered;
    ``asked``, ``told``: mean bytes of a message to the server, and from it. ``sites``: call sites
    (indices of RunTrace.sites) of its wildcard calls. ``counter``: workers fetch from it, and it
    may be a worker itself; ``rounds``: how often all tasks of a kind were handed out, with a
    collective call behind them. ``messages`` of a request, those of its task among them;
    ``inside``: how many of a task are its own, and their mean bytes. ``phases``: of the program
    that all this is in, at most.
    """

    server: int
    workers: tuple[int, ...]
    tasks: Floats
    of: Ints
    service: Floats
    asked: float
    told: float
    sites: tuple[int, ...]
    counter: bool = False
    rounds: int = 1
    messages: float = 2.0
    inside: tuple[float, float] = (0.0, 0.0)
    phases: int = 2

    @property
    def shares(self) -> Ints:
        """How many tasks each worker did, ascending by worker."""
        return np.array([(self.of == w).sum() for w in self.workers], dtype=np.int64)


#: A counter is fetched by at least so many, so many times in all.
_FEWEST_WORKERS, _FEWEST = 2, 8
#: The work behind a last fetch is at most this part of a task's, in the median.
_NO_TASK = 0.5
_NS = 1e9
_CHANGES_AND_FETCHES = frozenset("MPI_Get_accumulate MPI_Rget_accumulate".split())
_ANSWERED = frozenset(
    "MPI_Win_" + name for name in "lock unlock unlock_all flush flush_all".split()
)
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


def counter_of(run: RunTrace) -> Served | None:
    """Return what the counter of a run handed out; None where it has none, or several."""
    fetches = np.array([_fetches(call) for call in run.calls] or [False], dtype=bool)
    places = {(c.peer, c.window) for c, yes in zip(run.calls, fetches, strict=False) if yes}
    if len(places) != 1:
        return None
    (server, _) = places.pop()
    found = {rank.rank: _of_rank(run, rank, fetches) for rank in run.ranks}
    workers = tuple(sorted(rank for rank, one in found.items() if one is not None))
    each = [one for one in found.values() if one is not None]
    tasks = np.array([t for one in each for t in one.tasks])
    rounds = {len(one.behind) for one in each}
    if len(workers) < _FEWEST_WORKERS or len(tasks) < _FEWEST or len(rounds) != 1 or server < 0:
        return None
    behind = np.array([t for one in each for t in one.behind])
    if float(np.median(behind)) > _NO_TASK * float(np.median(tasks)):
        return None
    order = np.argsort([at for one in each for at in one.begun], kind="stable")
    of = np.repeat(workers, [len(one.tasks) for one in each])
    asked = sum(one.asked for one in each)
    inside = np.array([one.inside for one in each], dtype=float).sum(axis=0)
    size = [call.bytes for call, yes in zip(run.calls, fetches, strict=False) if yes]
    return Served(
        server,
        workers,
        tasks[order] / _NS,
        of[order],
        np.zeros(asked),
        float(np.mean(size)),
        float(np.mean(size)),
        tuple(sorted(frozenset().union(*(one.sites for one in each)))),
        counter=True,
        rounds=rounds.pop(),
        messages=sum(one.messages for one in each) / asked,
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
        return sum(ONE_SIDED.get(call.op.removeprefix("MPI_"), (call.op in _ANSWERED,)))
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
    done = np.concatenate(([0], np.cumsum(np.asarray(rank.work, dtype=np.int64))))
    closing = np.append(np.flatnonzero(ends[call]), len(call) - 1)
    until = closing[np.searchsorted(closing, at)]
    last = np.append(until[1:] != until[:-1], True)
    following = np.where(last, until, np.append(at[1:], at[-1]))
    work = (done[following + 1] - done[at + 1]).astype(float)
    own = several * ~(fetches | np.array([c.op.startswith("MPI_Win_") for c in run.calls]))
    nbytes = size * (own > 0)
    inside = np.zeros(len(call), dtype=bool)
    for a, b in zip(at[~last].tolist(), following[~last].tolist(), strict=True):
        inside[a:b] = True
    return _Fetches(
        work[~last].tolist(),
        np.asarray(rank.start_ns)[at[~last]].tolist(),
        work[last].tolist(),
        len(at),
        int(sum(several[call[a:b]].sum() for a, b in zip(at, following, strict=True))),
        (int(own[call[inside]].sum()), int(nbytes[call[inside]].sum())),
        frozenset(run.calls[c].site for c in np.unique(call[at]).tolist()),
        frozenset(run.calls[c].site for c in np.unique(call[inside]).tolist() if several[c]),
    )
