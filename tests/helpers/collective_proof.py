"""Execute a collective's schedule on paper and follow the data.

Sends that block wait until their receive is posted (nothing is buffered), so a schedule that ends
here cannot deadlock by itself. What is known about every byte range of the vector at a member is
a set of members whose contributions are in it (a number, one bit each).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from p3s.base.arrays import Ints
from p3s.program.collectives.writer import ADD, ADD_BOTH, STORE, Handle, Pieces, Schedule, Writer
from p3s.simulate.steps import Op

State = list[list[int]]


@dataclass(frozen=True)
class Proved(Schedule):
    """A schedule, and per record the pieces (first byte, bytes) of the vector that it sends."""

    carried: dict[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)


class Proving(Writer):
    """A writer that keeps what messages carry."""

    def __init__(self, members: int) -> None:
        super().__init__(members)
        self.carried: dict[int, tuple[tuple[int, int], ...]] = {}
        self.vector: Sequence[tuple[int, int]] | None = None

    def among(self, some: Ints, vector: Sequence[tuple[int, int]] | None = None) -> Writer:
        view = super().among(some, vector)
        assert isinstance(view, Proving)
        view.carried = self.carried
        view.vector = vector if vector is not None else self.vector
        return view

    def send(self, who, to, first, n, *, op=Op.SEND, pieces=None) -> Handle:
        return self._carry(super().send(who, to, first, n, op=op), first, n, pieces)

    def exchange(self, who, to, first, n, source, n2, how=STORE, pieces=None) -> Handle:
        return self._carry(super().exchange(who, to, first, n, source, n2, how), first, n, pieces)

    def _carry(
        self, handle: Handle, first: Any, n: Any, pieces: Callable[[], Pieces] | None
    ) -> Handle:
        told = pieces() if pieces is not None else [(first, n)]
        columns = [
            [np.broadcast_to(np.asarray(c), handle.record.shape).tolist() for c in piece]
            for piece in told
        ]
        for i, record in enumerate(handle.record.tolist()):
            self.carried[record] = tuple(
                piece
                for a, b in columns
                if b[i] > 0
                for piece in self._in_vector(int(a[i]), int(b[i]))
            )
        return handle

    def _in_vector(self, first: int, n: int) -> list[tuple[int, int]]:
        """Return the pieces of the whole vector that a stretch of the view's is."""
        if self.vector is None or first < 0 or not sum(size for _, size in self.vector):
            return [(first, n)]
        total = sum(size for _, size in self.vector)
        stretches = [(first % total, min(n, total - first % total))]
        if stretches[0][1] < n:
            stretches.append((0, n - stretches[0][1]))
        pieces = []
        for lo, size in stretches:
            begin = 0
            for place, length in self.vector:
                a, b = max(lo, begin), min(lo + size, begin + length)
                if a < b:
                    pieces.append((place + a - begin, b - a))
                begin += length
        return pieces

    def finish(self) -> Proved:
        made = super().finish()
        columns = [column[0] for column in self.notes.columns]
        member = np.concatenate([np.zeros(0, dtype=np.int64), *columns])
        place = np.empty(len(member), dtype=np.int64)
        place[np.argsort(member, kind="stable")] = np.arange(len(member))
        carried = {int(place[record]): told for record, told in self.carried.items()}
        return Proved(**vars(made), carried=carried)


@dataclass
class Execution:
    """State per member after the last record; ``cuts``: where ranges of the vector begin."""

    cuts: list[int]
    state: State
    result: State
    sent: dict[tuple[int, int], list[int]] = field(default_factory=dict)


def cuts_of(schedule: Proved, total: int, more: list[int]) -> list[int]:
    """Return all places at which the vector is cut by any message."""
    cuts = {0, total, *more}
    for pieces in schedule.carried.values():
        for first, n in pieces:
            if first >= 0:
                cuts |= {first % total, (first + n) % total}
    return sorted(cuts)


def execute(
    schedule: Proved, total: int, cuts: list[int], state: State, result: State | None = None
) -> Execution:
    """Execute; raises AssertionError on deadlock, on wrong sizes, or on data that is not there."""
    s = schedule
    number = {cut: i for i, cut in enumerate(cuts)}
    result = result if result is not None else [[0] * (len(cuts) - 1) for _ in state]
    place = list(s.start[:-1].tolist())
    op, peer, to, source = s.op.tolist(), s.peer.tolist(), s.to.tolist(), s.source.tolist()
    n, n2, peer2, how = s.bytes.tolist(), s.bytes2.tolist(), s.peer2.tolist(), s.how.tolist()
    member = np.repeat(np.arange(s.members), np.diff(s.start)).tolist()
    sent: dict[int, dict[int, int]] = {}  # payload by record
    posted = [False] * len(op)
    taken = [False] * len(op)
    last: dict[int, dict[int, int]] = {}
    traffic: dict[tuple[int, int], list[int]] = {}

    def payload(i: int) -> dict[int, int]:
        found: dict[int, int] = {}
        for first, size in s.carried.get(i, ()):
            if first < 0:
                return dict(last[member[i]])
            a, b = number[first % total], number[(first + size) % total]
            parts = range(a, b) if a < b else [*range(a, len(cuts) - 1), *range(b)]
            for part in parts:
                assert state[member[i]][part], f"record {i} sends what it does not have"
                found[part] = state[member[i]][part]
        return found

    def begin(i: int) -> bool:
        if posted[i]:
            return False
        posted[i] = True
        if to[i] >= 0:
            sent[i] = payload(i)
            traffic.setdefault((member[i], peer[i]), []).append(n[i])
        return True

    def take(i: int) -> None:
        if taken[i]:
            return
        taken[i] = True
        j = source[i]
        assert n[j] == (n2[i] if op[i] == int(Op.SENDRECV) else n[i]), (i, j)
        assert member[j] == (peer2[i] if op[i] == int(Op.SENDRECV) else peer[i])
        me = member[i]
        last[me] = sent[j]
        for part, bits in sent[j].items():
            if how[i] == STORE:
                state[me][part] = bits
            else:
                assert how[i] not in (ADD, ADD_BOTH) or not state[me][part] & bits, (
                    f"record {i} adds twice"
                )
                if how[i] == ADD_BOTH:
                    result[me][part] |= bits
                state[me][part] |= bits

    def complete(i: int) -> bool:
        """Complete what was begun in record i if its partner is there."""
        if source[i] >= 0 and not (posted[source[i]]):
            return False
        if to[i] >= 0 and not posted[to[i]]:
            return False
        if source[i] >= 0:
            take(i)
        return True

    going = True
    while going:
        going = False
        for m in range(s.members):
            while place[m] < s.start[m + 1]:
                i = place[m]
                if op[i] == int(Op.WAIT):
                    requests = s.done[s.done_start[i] : s.done_start[i + 1]].tolist()
                    if not all(complete(r) for r in requests):
                        break
                else:
                    going |= begin(i)
                    if op[i] not in (int(Op.ISEND), int(Op.IRECV)) and not complete(i):
                        break
                place[m] += 1
                going = True
    stuck = [m for m in range(s.members) if place[m] < s.start[m + 1]]
    assert not stuck, f"members {stuck} wait for ever"
    requests = np.isin(s.op, [int(Op.ISEND), int(Op.IRECV)])
    assert sorted(s.done.tolist()) == np.flatnonzero(requests).tolist()
    return Execution(cuts, state, result, traffic)


def prove(call: str, schedule: Schedule, sizes: list[int], root: int, at: list[int]) -> Execution:
    """Execute a call's schedule and check that every member has what MPI says it must have."""
    assert isinstance(schedule, Proved)
    p, total = len(sizes), max(int(at[-1]), 1)
    everyone = (1 << p) - 1
    more = list(at)
    if call.startswith("alltoall"):
        for m in range(p):
            share, rest = divmod(int(at[m + 1] - at[m]), p)
            more += [int(at[m]) + d * share + min(d, rest) for d in range(p)]
    cuts = cuts_of(schedule, total, more)
    ranges = list(zip(cuts[:-1], cuts[1:], strict=True))

    def owner(place: int) -> int:
        return int(np.searchsorted(at, place, side="right")) - 1

    def target(place: int) -> int:
        m = owner(place)
        share, rest = divmod(int(at[m + 1] - at[m]), p)
        ends = np.cumsum([share + (d < rest) for d in range(p)])
        return int(np.searchsorted(ends, place - at[m], side="right"))

    state = [[0] * len(ranges) for _ in range(p)]
    result = [[0] * len(ranges) for _ in range(p)]
    for m in range(p):
        for i, (lo, _hi) in enumerate(ranges):
            if call == "bcast" or call.startswith("scatter"):
                has = m == root
            elif call.startswith(("gather", "allgather", "alltoall")):
                has = owner(lo) == m
            else:
                has = True
            state[m][i] = 1 << m if has else 0
            if call == "scan":
                result[m][i] = 1 << m
    done = execute(schedule, total, cuts, state, result)
    for m in range(p):
        for i, (lo, _hi) in enumerate(ranges):
            want = None
            if call in ("barrier", "allreduce") or (call == "reduce" and m == root):
                want = everyone
            elif call == "bcast" or (call.startswith("scatter") and owner(lo) == m):
                want = 1 << root
            elif (
                call.startswith("allgather")
                or (call.startswith("gather") and m == root)
                or (call.startswith("alltoall") and target(lo) == m)
            ):
                want = 1 << owner(lo)
            elif call.startswith("reduce_scatter") and owner(lo) == m:
                want = everyone
            elif call == "scan":
                want = (2 << m) - 1
            elif call == "exscan":
                want = (1 << m) - 1
            if want is None:
                continue
            found = done.result[m][i] if call in ("scan", "exscan") else done.state[m][i]
            if total == 1 and call not in ("barrier",) and int(at[-1]) == 0:
                continue
            assert found == want, f"{call}: member {m} has {found:b} of range {lo}, not {want:b}"
    return done
