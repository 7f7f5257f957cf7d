"""One-sided communication as messages: what each call of a rank stands for.

A Put is a message that the target receives without a call of its own, a Get one that it sends. Both
halves are known only when all ranks have been looked at. The target's half is put where the target
lets others in, so that the message is under way from the origin's call on; where the target
synchronises, it waits for what has been put. docs/one-sided.md.
"""

from __future__ import annotations

import functools
import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from p3s.base import ops
from p3s.capture.parts import CallBook, Family, Laying, Parts
from p3s.capture.types import NO_RANK, PROC_NULL, Call, RankTrace, RunTrace, Site, present_ranks

#: How an operation is synchronised: by all members, for a group, or by the origin alone.
FENCE, GROUP, PASSIVE = range(3)
#: What a message is for; the messages of one channel are of one purpose.
DATA, ANSWER, POSTED, COMPLETED = range(4)
#: Tags of these messages: from here to twice this, above what programs use.
_TAGS = 1 << 20

#: A window by what is the same in all captures: members, which communicator of them, call, number.
Key = tuple[tuple[int, ...], int, str, int]


@dataclass(frozen=True)
class Access:
    """One operation of an origin, or its wait for an answer of the target.

    interval: how many collectives that all members join the origin has made on the window before;
    epoch: of an operation for a group, how many earlier ones of the origin had this target, else
    -1. call: the origin's, as the capture has it; site: its place in the program.
    """

    origin: int
    target: int
    window: Key
    mode: int
    interval: int
    epoch: int
    call: Call
    site: Site


#: What lets an access in: the window, and the interval, or the origin and the number of its epoch.
_Opening = tuple[Key, int, int]


def _opening(access: Access) -> _Opening:
    if access.mode == GROUP:
        return access.window, access.origin, access.epoch
    return access.window, -1, access.interval


class Arrivals:
    """The accesses that have one rank as their target, each taken once."""

    def __init__(self, all_: OneSidedCalls, rank: int) -> None:
        self._waiting: dict[_Opening, list[Access]] = defaultdict(list)
        for access in all_.to.get(rank, ()):
            self._waiting[_opening(access)].append(access)
        self._own: dict[tuple[Key, int], dict[str, list[int]]] = {}
        for access in all_.by.get(rank, ()):
            sites = self._own.setdefault((access.window, access.interval), defaultdict(list))
            sites[access.site.key].append(access.target)

    def of_interval(self, window: Key, interval: int) -> list[Access]:
        """Return what comes by a fence, or without the target's doing, in an interval."""
        return self._in_order(self._waiting.pop((window, -1, interval), []), interval)

    def of_group(
        self, window: Key, epochs: Iterable[tuple[int, int]], interval: int
    ) -> list[Access]:
        """Return what comes after a MPI_Win_post; epochs: (origin, number of its epoch)."""
        came = [a for o, e in epochs for a in self._waiting.pop((window, o, e), ())]
        return self._in_order(came, interval)

    def _in_order(self, came: list[Access], interval: int) -> list[Access]:
        """Return accesses in an order that is alike on all ranks of a regular program.

        Place after place; of one place in the order of the rank's own targets there (who accesses
        its neighbours in some order is accessed by them in that order), then of the rest turn
        after turn, by origin.
        """
        if len(came) < 2:
            return came
        own_accesses = self._own.get((came[0].window, interval), {})
        sites: dict[str, list[Access]] = defaultdict(list)
        for access in came:
            sites[access.site.key].append(access)
        return [a for key in sorted(sites) for a in _as_own(sites[key], own_accesses.get(key, ()))]


def _as_own(came: Sequence[Access], targets: Sequence[int]) -> Iterator[Access]:
    """Yield the accesses of one place, those by the targets first."""
    of: dict[int, list[Access]] = defaultdict(list)
    for access in came:
        of[access.origin].append(access)
    for queue in of.values():
        queue.reverse()
    for target in targets:
        if of.get(target):
            yield of[target].pop()
    while any(of.values()):
        for origin in sorted(of):
            if of[origin]:
                yield of[origin].pop()


@functools.lru_cache(maxsize=1 << 16)
def tag_of(site: str, purpose: int) -> int:
    """Return the tag of the messages of one purpose that belong to a place in the program.

    An empty ``site``: of messages that begin and end at different places.
    """
    if not site:
        return _TAGS + purpose
    digest = hashlib.blake2s(f"{site} {purpose}".encode(), digest_size=4).digest()
    return _TAGS + 16 + int.from_bytes(digest, "little") % (_TAGS - 16)


#: MPI_MODE_NOCHECK, as the tag of an event says it.
_NOCHECK = 1
_MAKES = frozenset(
    "MPI_Win_" + name for name in ("create", "allocate", "allocate_shared", "create_dynamic")
)
#: Collectives that nobody leaves before all have come.
_SYNCHRONISES = _MAKES | frozenset(
    "MPI_" + name
    for name in "Barrier Allreduce Allgather Allgatherv Alltoall Alltoallv Alltoallw"
    " Reduce_scatter Reduce_scatter_block Comm_dup Comm_split Win_fence Win_free".split()
)


@dataclass
class OneSidedCalls(Family):
    """One-sided calls: the accesses of all ranks, by their target and by their origin."""

    to: dict[int, list[Access]] = field(default_factory=lambda: defaultdict(list))
    by: dict[int, list[Access]] = field(default_factory=lambda: defaultdict(list))

    def takes(self, op: str) -> bool:
        """Tell whether a rank that makes this call may be the target of others."""
        return ops.kind_of(op) == ops.RMA or op in _MAKES

    def asks(self, run: RunTrace, call: Call) -> bool:
        """Tell whether it takes other ranks to know what a call stands for."""
        return self.takes(call.op)

    def learn(self, run: RunTrace) -> None:
        """Add what the ranks of a run do to the windows of others."""
        for rank in present_ranks(run):
            walk = _Walk(run, run.ranks[rank], CallBook(list(run.calls), list(run.sites)), None)
            walk.parts()
            self.by[rank] += walk.accesses
            for access in walk.accesses:
                self.to[access.target].append(access)

    def parts(self, run: RunTrace, rt: RankTrace, book: CallBook) -> Parts:
        """Return the messages that stand in place of a rank's one-sided calls."""
        return _Walk(run, rt, book, Arrivals(self, rt.rank)).parts()


@dataclass
class _Window:
    """What is open on a window, seen from the rank.

    around: communicators with all its members; base: collectives on these before it was made;
    open: parts that posted what is not complete, by target; due: targets whose answer is to come;
    arriving: parts that receive what others put.
    """

    key: Key
    comm: int
    around: tuple[int, ...]
    base: int
    targets: tuple[int, ...] = ()
    epochs: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    origins: tuple[int, ...] = ()
    posts: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    locked: set[int] = field(default_factory=set)
    locked_all: bool = False
    open: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    due: dict[int, None] = field(default_factory=dict)
    arriving: list[int] = field(default_factory=list)

    def mode(self, target: int) -> int:
        """Return how an operation on a target is synchronised."""
        if self.locked_all or target in self.locked:
            return PASSIVE
        return GROUP if target in self.targets else FENCE

    def completed(self, targets: Sequence[int]) -> list[int]:
        """Take the parts that posted what is complete at these targets."""
        return [part for target in targets for part in self.open.pop(target, ())]


class _Walk:
    """Goes through a rank's events and says what stands in place of them."""

    def __init__(
        self, run: RunTrace, rt: RankTrace, book: CallBook, arrivals: Arrivals | None
    ) -> None:
        self.run, self.rt, self.book, self.arrivals = run, rt, book, arrivals
        self.accesses: list[Access] = []
        self._windows: dict[int, _Window] = {}
        self._made: dict[tuple[int, str], int] = defaultdict(int)
        self._joined: dict[int, int] = defaultdict(int)  # collectives on a communicator
        self._number = {(w.comm, w.op, w.ordinal): i for i, w in enumerate(run.windows)}
        self._laid = Laying(book)

    def parts(self) -> Parts:
        """Return what stands in place of the rank's events."""
        calls = [call.op for call in self.run.calls]
        chosen = np.array([ops.kind_of(op) == ops.RMA or op in _SYNCHRONISES for op in calls])
        number = np.asarray(self.rt.call)
        for at in np.flatnonzero(chosen[number]).tolist() if len(number) else ():
            self._take(at, number)
        return self._laid.parts(single=True)

    def _take(self, at: int, number: NDArray[np.int32]) -> None:
        self._at, self._here = at, self.run.calls[int(number[at])]
        call = self._here
        before = len(self._laid.event)
        operation = call.op.removeprefix("MPI_")
        if operation in ops.ONE_SIDED and call.window in self._windows:
            self._operation(self._windows[call.window], operation)
        elif operation in _SYNC and call.window in self._windows:
            _SYNC[operation](self, self._windows[call.window])
        if call.op in _SYNCHRONISES:
            self._joined[call.comm] += 1
            if call.op in _MAKES:
                self._make()
            if not self._locks_all_next(number, at):
                self._let_in(before, call.comm)
        elif call.op == "MPI_Win_lock_all":
            self._let_in(before, None)

    def _make(self) -> None:
        comm, op = self._here.comm, self._here.op
        number = self._number.get((comm, op, self._made[comm, op]))
        self._made[comm, op] += 1
        if number is None or comm < 0:
            return
        creator = self.run.comms[comm]
        inside = frozenset(creator.members)
        around = tuple(i for i, c in enumerate(self.run.comms) if inside <= frozenset(c.members))
        base = sum(self._joined[c] for c in around)
        key = (creator.members, creator.ordinal, op, self._made[comm, op] - 1)
        self._windows[number] = _Window(key, comm, around, base)

    def _interval(self, w: _Window) -> int:
        return sum(self._joined[c] for c in w.around) - w.base

    # ---- parts --------------------------------------------------------------------------------

    def _add(self, call: Call, late: bool = False) -> int:
        return self._laid.add(self._at, call, late)

    def _part(self, name: str, peer: int, purpose: int) -> int:
        """Add a message; data have the sizes of the call, all others none."""
        call = self._here
        site = self.run.sites[call.site].key if purpose in (DATA, ANSWER) else ""
        part = replace(
            call, op=f"{call.op}_{name}", peer=peer, tag=tag_of(site, purpose), numbers=()
        )
        return self._add(part if call.op.removeprefix("MPI_") in ops.ONE_SIDED else _empty(part))

    def _wait(self, name: str, posted: Sequence[int]) -> None:
        """Add a completion of parts."""
        number = len(posted)
        call = replace(_empty(self._here), op=f"{self._here.op}_{name}", comm=-1, peer=NO_RANK)
        part = self._add(replace(call, tag=-1, bytes=number, count=number, numbers=()))
        self._laid.done += [(part, one) for one in posted]

    def _complete_empty(self, messages: object) -> None:
        """Add a completion of nothing for a call that neither sends nor receives."""
        if not messages:
            self._wait("wait", ())

    # ---- operations ---------------------------------------------------------------------------

    def _operation(self, w: _Window, operation: str) -> None:
        target = self._here.peer
        sends, receives = ops.ONE_SIDED[operation]
        posted = self._part("send", target, DATA) if sends else -1
        if receives:
            posted = self._part("recv", target, ANSWER)
        if target == PROC_NULL:
            return
        self._access(w, target, w.mode(target))
        if operation.startswith("R"):
            self._laid.stands.append((self._at, posted))
        else:
            w.open[target].append(posted)
        if not receives and w.mode(target) == PASSIVE and target != self.rt.rank:
            w.due[target] = None

    def _access(self, w: _Window, target: int, mode: int) -> None:
        epoch = w.epochs[target] - 1 if mode == GROUP else -1
        call = self._here
        site = self.run.sites[call.site]
        interval = self._interval(w)
        self.accesses.append(Access(self.rt.rank, target, w.key, mode, interval, epoch, call, site))

    # ---- synchronisation ----------------------------------------------------------------------

    def _fence(self, w: _Window) -> None:
        if posted := w.completed(list(w.open)):
            self._wait("wait", posted)
        self._await_arrivals(w)
        self._add(replace(self._here, op="MPI_Win_fence_barrier", tag=-1))

    def _await_arrivals(self, w: _Window) -> None:
        if w.arriving:
            self._wait("target_wait", w.arriving)
            w.arriving = []

    def _post(self, w: _Window) -> None:
        w.origins = self._group()
        origins = () if self._here.tag & _NOCHECK and self._here.tag > 0 else w.origins
        for origin in origins:
            self._part("send", origin, POSTED)
        self._complete_empty(origins)
        epochs = [(origin, w.posts[origin]) for origin in w.origins]
        for origin in w.origins:
            w.posts[origin] += 1
        if self.arrivals is not None:
            for access in self.arrivals.of_group(w.key, epochs, self._interval(w)):
                self._arrive(w, access)

    def _start(self, w: _Window) -> None:
        w.targets = self._group()
        targets = () if self._here.tag & _NOCHECK and self._here.tag > 0 else w.targets
        for target in w.targets:
            w.epochs[target] += 1
        for target in targets:
            self._part("recv", target, POSTED)
        self._complete_empty(targets)

    def _complete(self, w: _Window) -> None:
        for target in w.targets:
            self._part("send", target, COMPLETED)
        posted = w.completed(w.targets)
        if posted or not w.targets:
            self._wait("wait", posted)
        w.targets = ()

    def _end(self, w: _Window) -> None:
        for origin in w.origins:
            self._part("recv", origin, COMPLETED)
        self._complete_empty(w.origins or w.arriving)
        self._await_arrivals(w)
        w.origins = ()

    def _lock(self, w: _Window) -> None:
        target = self._here.peer
        w.locked.add(target)
        checked = self._here.tag > 0 and self._here.tag & _NOCHECK
        locks_remotely = not checked and target not in (PROC_NULL, self.rt.rank)
        self._wait("wait", [self._receive_answer(w, target)] if locks_remotely else ())

    def _lock_all(self, w: _Window) -> None:
        w.locked_all = True
        self._complete_empty(None)

    def _flush_local(self, w: _Window) -> None:
        self._wait("wait", w.completed(self._completed_targets(w)))

    def _unlock(self, w: _Window) -> None:
        self._flush(w)
        if self._here.peer == NO_RANK:
            w.locked_all = False
        w.locked.discard(self._here.peer)

    def _completed_targets(self, w: _Window) -> list[int]:
        """Return the targets that a call completes: the one it names, or all."""
        return [self._here.peer] if self._here.peer != NO_RANK else list({**w.open, **w.due})

    def _flush(self, w: _Window) -> None:
        targets = self._completed_targets(w)
        posted = w.completed(targets)
        for target in [target for target in targets if target in w.due]:
            del w.due[target]
            posted.append(self._receive_answer(w, target))
        self._wait("wait", posted)

    def _synchronise(self, w: _Window) -> None:
        self._complete_empty(None)

    def _receive_answer(self, w: _Window, target: int) -> int:
        """Add the receive of an answer that the target gives without a call of its own."""
        self._access(w, target, PASSIVE)
        return self._part("recv", target, ANSWER)

    def _group(self) -> tuple[int, ...]:
        return tuple(rank for rank in self._here.numbers if rank >= 0)

    # ---- the target's half --------------------------------------------------------------------

    def _locks_all_next(self, number: NDArray[np.int32], at: int) -> bool:
        """Tell whether MPI_Win_lock_all follows: it begins the steps of many programs.

        What may come is put behind it, where it comes in each of these steps.
        """
        return at + 1 < len(number) and (
            self.run.calls[int(number[at + 1])].op == "MPI_Win_lock_all"
        )

    def _let_in(self, before: int, comm: int | None) -> None:
        """Add what may come from now on, behind what the event itself stands for.

        comm: of the collective that has been joined, None: any window's.
        """
        if self.arrivals is None:
            return
        for w in self._windows.values():
            if comm is not None and comm not in w.around:
                continue
            came = self.arrivals.of_interval(w.key, self._interval(w))
            if came and len(self._laid.event) == before:
                self._add(self._here)
            for access in came:
                self._arrive(w, access)

    def _arrive(self, w: _Window, access: Access) -> None:
        """Add the target's half of an access, at the origin's place in the program."""
        operation = access.call.op.removeprefix("MPI_")
        sends, answers = ops.ONE_SIDED.get(operation, (False, True))
        call = replace(
            access.call if operation in ops.ONE_SIDED else _empty(access.call),
            site=self.book.site(access.site),
            comm=w.comm,
            peer=access.origin,
            window=-1,
            numbers=(),
            team=0,
        )
        if sends:
            passive = access.mode == PASSIVE
            name = f"{call.op}_{'passive' if passive else 'target'}_recv"
            part = self._add(replace(call, op=name, tag=tag_of(access.site.key, DATA)), late=True)
            if not passive:
                w.arriving.append(part)
        if answers:
            tag = tag_of(access.site.key, ANSWER)
            self._add(replace(call, op=f"{call.op}_target_send", tag=tag), late=True)


def _empty(call: Call) -> Call:
    return replace(call, bytes=0, count=0, elem_bytes=1)


_SYNC: dict[str, Callable[[_Walk, _Window], None]] = {
    "Win_fence": _Walk._fence,
    "Win_post": _Walk._post,
    "Win_start": _Walk._start,
    "Win_complete": _Walk._complete,
    "Win_wait": _Walk._end,
    "Win_test": _Walk._end,
    "Win_lock": _Walk._lock,
    "Win_lock_all": _Walk._lock_all,
    "Win_unlock": _Walk._unlock,
    "Win_unlock_all": _Walk._unlock,
    "Win_flush": _Walk._flush,
    "Win_flush_all": _Walk._flush,
    "Win_flush_local": _Walk._flush_local,
    "Win_flush_local_all": _Walk._flush_local,
    "Win_sync": _Walk._synchronise,
}
