"""Write down a collective's messages for all members at once, and turn them into a schedule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from p3s.base.arrays import Ints, starts
from p3s.program.order.pairs import channels_of, pair_channels
from p3s.simulate.steps import RECEIVES, SENDS, Op

#: What a receive does with the data, for the proof by data flow: takes it as it is, combines
#: contributions that must be distinct, combines them also into the result kept behind the vector
#: (scans), or unites what is known (barriers).
STORE, ADD, ADD_BOTH, UNITE = 0, 1, 2, 3

#: Pieces of a virtual vector: (first byte, number of bytes), one entry per message each.
Pieces = Sequence[tuple[npt.ArrayLike, npt.ArrayLike]]


@dataclass(frozen=True)
class Handle:
    """Requests that some members have left behind: one record number per member."""

    member: Ints
    record: Ints


@dataclass(frozen=True)
class Schedule:
    """The messages of one collective call, member after member.

    Those of member m are ``start[m]:start[m + 1]``; ``op`` is one of SEND, SSEND, ISEND, RECV,
    IRECV, SENDRECV and WAIT; ``peer``, ``peer2`` are members (-1: none). Requests of a WAIT:
    ``done[done_start[i]:done_start[i + 1]]``. ``to``, ``source``: the record that receives what
    this one sends, that sends what it receives, -1 if none. ``how``: what its receive does with the
    data.
    """

    members: int
    start: Ints
    op: Ints
    peer: Ints
    bytes: Ints
    peer2: Ints
    bytes2: Ints
    done_start: Ints
    done: Ints
    to: Ints
    source: Ints
    how: Ints

    def __len__(self) -> int:
        return len(self.op)


@dataclass
class _Notes:
    """What has been written so far."""

    columns: list[tuple[Ints, ...]] = field(default_factory=list)
    explicit: list[tuple[Ints, Ints]] = field(default_factory=list)
    records: int = 0


class Writer:
    """Collects records; those of one member are executed in the order they were added.

    All methods take arrays with one entry per message; scalars stand for all of them. Members are
    numbered 0 to ``members`` - 1; within ``among(some)`` they are places in ``some``. Which bytes a
    message carries (``first``, ``pieces``, ``vector``) is for those who prove that the right data
    moves, and override what takes it.
    """

    def __init__(self, members: int) -> None:
        self.members = members
        self.notes = _Notes()
        self.names: Ints | None = None

    def among(self, members: Ints, vector: Sequence[tuple[int, int]] | None = None) -> Writer:
        """Return a view in which member i is ``some[i]``; what it adds is added here.

        ``vector``: the pieces (first byte, bytes) of the whole vector that make up that of the
        view, one after the other; by default the vector is the same.
        """
        view = type(self)(len(members))
        view.notes = self.notes
        view.names = members if self.names is None else self.names[members]
        return view

    def send(
        self,
        who: npt.ArrayLike,
        to: npt.ArrayLike,
        first: npt.ArrayLike,
        n: npt.ArrayLike,
        *,
        op: Op = Op.SEND,
        pieces: Callable[[], Pieces] | None = None,
    ) -> Handle:
        """Send ``n`` bytes of the vector from ``first`` on (or ``pieces``, of ``n`` in all)."""
        return self._add(who, op, to, n)

    def isend(
        self, who: npt.ArrayLike, to: npt.ArrayLike, first: npt.ArrayLike, n: npt.ArrayLike
    ) -> Handle:
        """Send without waiting."""
        return self.send(who, to, first, n, op=Op.ISEND)

    def recv(
        self,
        who: npt.ArrayLike,
        source: npt.ArrayLike,
        n: npt.ArrayLike,
        how: int = STORE,
        *,
        op: Op = Op.RECV,
    ) -> Handle:
        """Receive ``n`` bytes."""
        return self._add(who, op, source, n, how=how)

    def irecv(
        self, who: npt.ArrayLike, source: npt.ArrayLike, n: npt.ArrayLike, how: int = STORE
    ) -> Handle:
        """Receive without waiting."""
        return self.recv(who, source, n, how, op=Op.IRECV)

    def move(
        self,
        who: npt.ArrayLike,
        to: npt.ArrayLike,
        first: npt.ArrayLike,
        n: npt.ArrayLike,
        how: int = STORE,
        *,
        sends: Op = Op.SEND,
        takes: Op = Op.RECV,
        pieces: Callable[[], Pieces] | None = None,
    ) -> None:
        """Send from ``who`` to others, who receive; whoever does both receives first."""
        who, to = np.broadcast_arrays(np.atleast_1d(who), np.atleast_1d(to))
        self.recv(to, who, n, how, op=takes)
        self.send(who, to, first, n, op=sends, pieces=pieces)

    def exchange(
        self,
        who: npt.ArrayLike,
        to: npt.ArrayLike,
        first: npt.ArrayLike,
        n: npt.ArrayLike,
        source: npt.ArrayLike,
        n2: npt.ArrayLike,
        how: npt.ArrayLike = STORE,
        pieces: Callable[[], Pieces] | None = None,
    ) -> Handle:
        """Send to one and receive from another member at once."""
        return self._add(who, Op.SENDRECV, to, n, source, n2, how)

    def trade(
        self,
        who: Ints,
        to: Ints,
        first: npt.ArrayLike,
        n: npt.ArrayLike,
        how: npt.ArrayLike = STORE,
        *,
        empty: bool = True,
        pieces: Callable[[], Pieces] | None = None,
    ) -> None:
        """Let each of ``who`` send to one of them, and receive from one of them, at once.

        ``empty``: of nothing, too.
        """
        first, n, how = (np.broadcast_to(np.asarray(each), who.shape) for each in (first, n, how))
        giver = np.empty(len(who), dtype=np.int64)
        giver[np.argsort(who)] = np.argsort(to)
        both = (n > 0) & (n[giver] > 0) | empty
        pair = giver[both]
        mine, its = who[both], to[both]
        self.exchange(mine, its, first[both], n[both], who[pair], n[pair], how[both], pieces)
        gives, takes = ~both & (n > 0), ~both & (n[giver] > 0)
        self.send(who[gives], to[gives], first[gives], n[gives])
        self._add(who[takes], Op.RECV, who[giver[takes]], n[giver[takes]], how=how[takes])

    def wait(self, who: npt.ArrayLike, *handles: Handle) -> None:
        """Wait for these requests of ``who``; without handles for all that are outstanding."""
        waiting = self._add(who, Op.WAIT, how=STORE if handles else 1)
        if not handles or not len(waiting.member):
            return
        order = np.argsort(waiting.member, kind="stable")
        sorted_members = waiting.member[order]
        for handle in handles:
            at = np.minimum(np.searchsorted(sorted_members, handle.member), len(order) - 1)
            mine = sorted_members[at] == handle.member
            self.notes.explicit.append((waiting.record[order[at[mine]]], handle.record[mine]))

    def _add(
        self,
        who: npt.ArrayLike,
        op: Op,
        peer: npt.ArrayLike = -1,
        n: npt.ArrayLike = 0,
        peer2: npt.ArrayLike = -1,
        n2: npt.ArrayLike = 0,
        how: npt.ArrayLike = STORE,
    ) -> Handle:
        members: Ints = np.atleast_1d(np.asarray(who, dtype=np.int64))
        columns = [
            np.broadcast_to(np.asarray(c, dtype=np.int64), members.shape)
            for c in (peer, n, peer2, n2, how)
        ]
        if self.names is not None:
            members = self.names[members]
            for i in (0, 2):
                valid = columns[i] >= 0
                columns[i] = np.where(valid, self.names[np.where(valid, columns[i], 0)], -1)
        op_column = np.full(len(members), int(op), dtype=np.int64)
        notes = self.notes
        notes.columns.append((members, op_column, *columns))
        records = np.arange(notes.records, notes.records + len(members))
        notes.records += len(members)
        return Handle(members, records)

    def finish(self) -> Schedule:
        """Return the schedule: records by member, requests and partners resolved."""
        none = np.zeros(0, dtype=np.int64)
        parts = self.notes.columns or [(none,) * 7]
        member, op, peer, n, peer2, n2, how = (np.concatenate(c) for c in zip(*parts, strict=True))
        order = np.argsort(member, kind="stable")
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        member, op, peer, n, peer2, n2, how = (
            c[order] for c in (member, op, peer, n, peer2, n2, how)
        )
        start = np.searchsorted(member, np.arange(self.members + 1))
        done_start, requests = self._requests(member, op, how, place)
        how = np.where(op == int(Op.WAIT), STORE, how)
        to, source = partners(member, op, peer, peer2)
        columns = (op, peer, n, peer2, n2, done_start, requests, to, source, how)
        return Schedule(self.members, start, *columns)

    def _requests(self, member: Ints, op: Ints, how: Ints, place: Ints) -> tuple[Ints, Ints]:
        """Return the done lists: those told, and for waits for all what is outstanding."""
        waits = [place[w] for w, _ in self.notes.explicit]
        requests = [place[r] for _, r in self.notes.explicit]
        is_request = (op == int(Op.ISEND)) | (op == int(Op.IRECV))
        for request in requests:
            is_request[request] = False
        for_all = np.flatnonzero((op == int(Op.WAIT)) & (how == 1))
        outstanding = np.flatnonzero(is_request)
        if len(for_all) and len(outstanding):
            at = np.minimum(np.searchsorted(for_all, outstanding), len(for_all) - 1)
            fits = (for_all[at] > outstanding) & (member[for_all[at]] == member[outstanding])
            waits.append(for_all[at[fits]])
            requests.append(outstanding[fits])
        if not waits:
            return np.zeros(len(op) + 1, dtype=np.int64), np.zeros(0, dtype=np.int64)
        wait, request = np.concatenate(waits), np.concatenate(requests)
        order = np.lexsort((request, wait))
        counts = np.bincount(wait, minlength=len(op))
        return starts(counts), request[order]


def partners(member: Ints, op: Ints, peer: Ints, peer2: Ints) -> tuple[Ints, Ints]:
    """Return (to, source): the k-th send of a pair meets its k-th receive, by record number."""
    sends, receives = (np.isin(op, [int(each) for each in kinds]) for kinds in (SENDS, RECEIVES))
    giver = np.where(op == int(Op.SENDRECV), peer2, peer)
    same = np.zeros_like(member)
    out, into = channels_of(member, peer, same, same, sends, giver, same, receives)
    to, source = pair_channels(out, into)
    if (sends & (to < 0) | receives & (source < 0)).any():
        raise AssertionError("a send without its receive in a collective")
    return to.astype(np.int64), source.astype(np.int64)
