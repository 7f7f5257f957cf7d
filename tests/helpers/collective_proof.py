"""Execute a collective's schedule on paper and follow the data.

Sends that block wait until their receive is posted (nothing is buffered), so a schedule that ends
here cannot deadlock by itself. What is known about every byte range of the vector at a member is
a set of members whose contributions are in it (a number, one bit each).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from p3s.program.collectives.writer import ADD, ADD_BOTH, STORE, Schedule
from p3s.simulate.steps import Op

State = list[list[int]]


@dataclass
class Execution:
    """State per member after the last record; ``cuts``: where ranges of the vector begin."""

    cuts: list[int]
    state: State
    result: State
    sent: dict[tuple[int, int], list[int]] = field(default_factory=dict)


def cuts_of(schedule: Schedule, total: int, more: list[int]) -> list[int]:
    """Return all places at which the vector is cut by any message."""
    cuts = {0, total, *more}
    for pieces in schedule.carried.values():
        for first, n in pieces:
            if first >= 0:
                cuts |= {first % total, (first + n) % total}
    return sorted(cuts)


def execute(
    schedule: Schedule, total: int, cuts: list[int], state: State, result: State | None = None
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
