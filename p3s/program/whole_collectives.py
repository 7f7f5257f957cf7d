"""Collectives of a whole run as the messages that the MPI library sends for them, rank by rank.

The k-th call of a member on a communicator belongs to the k-th of all others; what the first
member calls there says what all of them do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from p3s.base.ops import blocking_of, leaves_request
from p3s.program.calls import NONE, PLAIN, Block, Rows
from p3s.program.collectives.choose import chosen_name, schedule
from p3s.program.collectives.expand import CALLS, records_expected
from p3s.program.collectives.registry import COLLECTIVES
from p3s.program.collectives.rules import Library
from p3s.program.collectives.writer import Schedule
from p3s.program.order.reasons import Reason
from p3s.program.order.sequence import Kind
from p3s.program.scaled import COLLECTIVE, COMM, Bools, Ints, ScaledTrace
from p3s.simulate.steps import Op

#: Messages that one call may become.
MOST_RECORDS = 4_000_000
#: Schedules that are kept.
_MOST_PLANS = 256


@dataclass(frozen=True)
class _Plan:
    schedule: Schedule | None  # None: it stays a call
    why: str = ""


class Collectives:
    """What every collective call of a run becomes; learn all kinds of ranks before expanding."""

    def __init__(
        self,
        trace: ScaledTrace,
        reason: Ints,
        library: Library,
        keep: Callable[[str, bool], bool],
        first_tag: int,
        node_of: Ints,
    ) -> None:
        self.trace, self.library, self.keep, self.first_tag = trace, library, keep, first_tag
        self.node_of = node_of
        called = trace.is_kind(COLLECTIVE) | trace.is_kind(COMM)
        self.mine = called & (reason == Reason.EXECUTED) & (trace.repeat > 0)
        rows = np.flatnonzero(self.mine)
        self.comms = np.unique(trace.comm[rows])
        self.members = {c: trace.members.get(c, NONE) for c in self.comms.tolist()}
        self.firsts = {int(them[0]) for them in self.members.values() if len(them)}
        self._kind_of: dict[int, tuple[Ints, int]] = {}
        self._plans: dict[tuple[Any, ...], _Plan] = {}
        self._of_row: dict[int, _Plan] = {}
        self._reference: dict[int, Ints] = {}
        self._sequences: list[tuple[Ints, Ints, Ints]] = []
        self.stayed: dict[str, str] = {}
        self.expanded = False
        self.most, self._totals = self._count(rows)

    def _count(self, rows: Ints) -> tuple[dict[int, int], dict[int, float]]:
        """Return how many calls all members of each communicator make, and all their calls."""
        trace = self.trace
        most: dict[int, int] = {}
        for c, them in self.members.items():
            mine = rows[trace.comm[rows] == c]
            per = np.bincount(
                trace.rank[mine], weights=trace.repeat[mine].astype(np.float64), minlength=trace.n
            )
            most[c] = int(per[them].min()) if len(them) else 0
        totals = {c: float(trace.repeat[rows[trace.comm[rows] == c]].sum()) for c in most}
        return most, totals

    def left_out(self) -> dict[str, float]:
        """Return MPI call -> calls of the run that not all members make."""
        found: dict[str, float] = {}
        rows = np.flatnonzero(self.mine)
        for c, most in self.most.items():
            lost = self._totals[c] - most * len(self.members[c])
            if lost > 0:
                ops = self.trace.op[rows[self.trace.comm[rows] == c]]
                name = self.trace.ops[int(np.bincount(ops).argmax())]
                found[name] = found.get(name, 0.0) + lost
        return found

    def learn(self, kind: Kind) -> None:
        """Take in the calls of those ranks of a kind that are the first of a communicator."""
        wanted = [k for k, rank in enumerate(kind.ranks.tolist()) if rank in self.firsts]
        if not wanted:
            return
        mine = self.mine[int(kind.first[0]) : int(kind.first[0]) + kind.rows]
        row = kind.row[mine[kind.row]]
        for k in wanted:
            self._kind_of[int(kind.ranks[k])] = row, int(kind.first[k])

    def _rows_of(self, comm: int) -> Ints:
        """Return the row of every call of the first member of a communicator."""
        if comm not in self._reference:
            row, first = self._kind_of[int(self.members[comm][0])]
            rows = row + first
            self._reference[comm] = rows[self.trace.comm[rows] == comm]
        return self._reference[comm]

    def expand(
        self,
        rank: int,
        kind: Kind,
        first: int,
        at: Ints,
        live: Ints,
        pairs: tuple[Ints, Ints],
        rows: Rows,
        replaced: Bools,
        blocks: list[Block],
    ) -> None:
        """Add what the collectives of a rank become; ``at`` changes where a call is left out."""
        trace = self.trace
        events = np.flatnonzero(np.isin(live, (int(Op.COLLECTIVE), int(Op.ICOLLECTIVE))))
        if not len(events):
            return
        row = kind.row[events] + first
        comm = trace.comm[row]
        completed = np.full(len(at), -1, dtype=np.int64)
        completed[pairs[1]] = pairs[0]
        for c in np.unique(comm).tolist():
            mine = events[comm == c]
            place = np.flatnonzero(self.members[c] == rank)
            most = self.most[c] if len(place) else 0
            at[mine[most:]] = kind.row[mine[most:]] + kind.rows
            mine = mine[:most]
            if not most:
                continue
            reference = self._rows_of(c)[: len(mine)]
            member = int(place[0])
            for ref in np.unique(reference).tolist():
                number = np.flatnonzero(reference == ref)
                some = mine[number]
                plan = self._plan(ref, c)
                if plan.schedule is None:
                    self._stay(some, ref, kind, rows, at)
                    continue
                posts = live[some] == int(Op.ICOLLECTIVE)
                self._messages(
                    plan.schedule,
                    member,
                    c,
                    some[~posts],
                    kind,
                    first,
                    rows,
                    blocks,
                    NONE,
                    completed,
                )
                self._messages(
                    plan.schedule,
                    member,
                    c,
                    some[posts],
                    kind,
                    first,
                    rows,
                    blocks,
                    number[posts],
                    completed,
                )
                replaced[some] = True
                self.expanded = True

    def _stay(self, events: Ints, ref: int, kind: Kind, rows: Rows, at: Ints) -> None:
        """Keep calls as they are, with the root and the bytes that the first member has."""
        trace = self.trace
        for local in np.unique(kind.row[events]).tolist():
            some = events[kind.row[events] == local]
            work = rows.parts[0]["work_ns"][local]
            entry = rows.add(
                1,
                op=int(Op.COLLECTIVE),
                peer=trace.root[ref],
                bytes=trace.bytes[ref],
                comm=trace.comm[ref],
                call=trace.op[ref],
                work_ns=work,
            )
            at[some] = entry[0]

    def _messages(
        self,
        plan: Schedule,
        member: int,
        comm: int,
        events: Ints,
        kind: Kind,
        first: int,
        rows: Rows,
        blocks: list[Block],
        numbers: Ints,
        completed: Ints,
    ) -> None:
        """Add the blocks of some calls of one schedule; ``numbers``: those of nonblocking ones.

        Blocking calls follow each other on a communicator, so that one tag is enough for them.
        """
        if not len(events):
            return
        base = self.first_tag + int(np.searchsorted(self.comms, comm))
        a, b = int(plan.start[member]), int(plan.start[member + 1])
        single = len(numbers) == 0
        for local in np.unique(kind.row[events]).tolist():
            some = events[kind.row[events] == local]
            work = float(rows.parts[0]["work_ns"][local])
            if single:
                self._block(plan, member, comm, base, a, b, some, work, rows, blocks)
                continue
            for event, number in zip(
                some.tolist(), numbers[kind.row[events] == local].tolist(), strict=True
            ):
                tag = (
                    self.first_tag
                    + len(self.comms) * (1 + number)
                    + int(np.searchsorted(self.comms, comm))
                )
                head = a + _posts(plan, a, b)
                end = int(completed[event])
                self._block(
                    plan,
                    member,
                    comm,
                    tag,
                    a,
                    head,
                    np.array([event]),
                    work,
                    rows,
                    blocks,
                    tail=(head, b, end),
                )

    def _block(
        self,
        plan: Schedule,
        member: int,
        comm: int,
        tag: int,
        a: int,
        b: int,
        events: Ints,
        work: float,
        rows: Rows,
        blocks: list[Block],
        tail: tuple[int, int, int] | None = None,
    ) -> None:
        """Add one block of records a to b; ``tail``: records that follow before another event."""
        stop = b if tail is None else tail[1]
        members = self.members[comm]
        op = PLAIN[plan.op[a:stop]]
        names = rows.names
        call = np.array(
            [
                names.index(CALLS[Op(k)]) if CALLS.get(Op(k)) in names else -1
                for k in range(1, len(Op) + 1)
            ]
        )[op - 1]

        def ranks(of: Ints) -> Ints:
            return np.where(of >= 0, members[np.maximum(of, 0)], -1)

        both = plan.op[a:stop] == int(Op.SENDRECV)
        op = np.where(both, int(Op.ISEND), op)
        entries = rows.add(
            stop - a,
            op=op,
            peer=ranks(plan.peer[a:stop]),
            tag=np.where(op == int(Op.WAIT), -1, tag),
            bytes=plan.bytes[a:stop],
            comm=comm,
            call=call,
        )
        halves = np.flatnonzero(both)
        seconds = rows.add(
            len(halves),
            op=int(Op.RECV),
            peer=ranks(plan.peer2[a:stop][halves]),
            tag=tag,
            bytes=plan.bytes2[a:stop][halves],
            comm=comm,
            call=call[halves],
        )
        wait = int(rows.add(1, op=int(Op.WAIT))[0]) if len(halves) else -1
        lead = rows.add(1, op=int(Op.REST), work_ns=work)
        # Every record becomes one entry, an exchange three.
        size = np.where(both, 3, 1)
        begin = np.cumsum(size) - size
        sequence = np.zeros(int(size.sum()), dtype=np.int64)
        sequence[begin] = entries
        sequence[begin[halves] + 1] = seconds
        sequence[begin[halves] + 2] = wait
        counts = np.diff(plan.done_start[a : stop + 1])
        waiting = begin[np.repeat(np.arange(stop - a), counts)]
        requests = begin[plan.done[plan.done_start[a] : plan.done_start[stop]] - a]
        waiting = np.concatenate((waiting, begin[halves] + 2)) + 1  # behind the computation
        requests = np.concatenate((requests, begin[halves])) + 1
        sequence = np.concatenate((lead, sequence))
        cut = len(sequence) if tail is None or b == stop else 1 + int(begin[b - a])
        blocks.append(
            Block(
                events,
                sequence[:cut],
                waiting,
                requests,
                tail=sequence[cut:],
                tail_at=-1 if tail is None else tail[2],
            )
        )

    def _plan(self, row: int, comm: int) -> _Plan:
        if row not in self._of_row:
            self._of_row[row] = self._made(row, comm)
        return self._of_row[row]

    def _made(self, row: int, comm: int) -> _Plan:
        trace = self.trace
        members = self.members[comm]
        p = len(members)
        call = trace.ops[int(trace.op[row])]
        name = blocking_of(call).removeprefix("MPI_").lower()
        world = p == trace.n and bool((members == np.arange(p)).all())
        if p < 2:
            return _Plan(_nothing(p))
        blocking = not leaves_request(call)
        if blocking and self.keep(call, world):
            return _Plan(None)
        if name not in COLLECTIVES:
            return self._left(call, "no algorithm is known")
        root = 0
        if COLLECTIVES[name].rooted:
            found = np.flatnonzero(members == trace.root[row])
            if not len(found):
                return self._left(call, "its root is not clear")
            root = int(found[0])
        sizes = np.full(p, int(trace.bytes[row]))
        if COLLECTIVES[name].varying:
            sizes = self._sizes(row, comm, sizes)
        node = self.node_of[members]
        key = (
            name,
            blocking,
            sizes.tobytes() if COLLECTIVES[name].varying else int(sizes[0]),
            p,
            root,
            node.tobytes(),
        )
        if key not in self._plans:
            algorithm = chosen_name(self.library, name, sizes, node=node, blocking=blocking)
            expected = records_expected(name, algorithm, p)
            if expected > MOST_RECORDS:
                return self._left(call, f"on {p:,} ranks it is about {expected:,} messages")
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            self._plans[key] = _Plan(
                schedule(self.library, name, sizes, root, node=node, blocking=blocking)
            )
        return self._plans[key]

    def _sizes(self, row: int, comm: int, usual: Ints) -> Ints:
        """Return the bytes of every member in calls of the rule that a row is of."""
        trace = self.trace
        same = np.flatnonzero(
            (trace.comm == comm)
            & (trace.slot == trace.slot[row])
            & (trace.turn == trace.turn[row])
            & self.mine
        )
        place = {rank: k for k, rank in enumerate(self.members[comm].tolist())}
        for other in same.tolist():
            rank = int(trace.rank[other])
            if rank in place:
                usual[place[rank]] = int(trace.bytes[other])
        return usual

    def _left(self, call: str, why: str) -> _Plan:
        self.stayed[call] = why
        return _Plan(None, why)


def _posts(plan: Schedule, a: int, b: int) -> int:
    """Return how many records of a member come before the first that waits for anything."""
    waits = np.flatnonzero(~np.isin(plan.op[a:b], (int(Op.ISEND), int(Op.IRECV))))
    return int(waits[0]) if len(waits) else b - a


def _nothing(p: int) -> Schedule:
    zero = np.zeros(0, dtype=np.int64)
    return Schedule(
        p,
        np.zeros(p + 1, dtype=np.int64),
        zero,
        zero,
        zero,
        zero,
        zero,
        np.zeros(1, dtype=np.int64),
        zero,
        zero,
        zero,
        zero,
    )
