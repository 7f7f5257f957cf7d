"""Collective steps become the messages of the algorithm that the library would choose."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from p3s.base.arrays import Bools, Ints, starts
from p3s.base.ops import blocking_of
from p3s.program.collectives.choose import Library, chosen_name, most_common, schedule
from p3s.program.collectives.registry import COLLECTIVES
from p3s.program.collectives.writer import Schedule
from p3s.simulate.steps import Op, Steps, constant, narrow, numbered_calls, taken

#: Tags of the messages of collectives: this and the number of the call on its communicator.
FIRST_TAG = 1 << 20
#: A call that would make more steps than this all together with the others stays one step.
MOST_STEPS = 4_000_000

#: Name of the MPI call by which a message of a collective is told.
CALLS = {
    Op.SEND: "MPI_Send",
    Op.SSEND: "MPI_Ssend",
    Op.ISEND: "MPI_Isend",
    Op.RECV: "MPI_Recv",
    Op.IRECV: "MPI_Irecv",
    Op.SENDRECV: "MPI_Sendrecv",
    Op.WAIT: "MPI_Waitall",
}


@dataclass(frozen=True)
class Used:
    """What was taken for some calls: MPI call, members, bytes of a member (at most), algorithm."""

    call: str
    members: int
    bytes: int
    algorithm: str
    times: int


@dataclass(frozen=True)
class Expanded:
    """Steps in which collectives are messages.

    ``origin``: the step of the input that each step comes from. ``used``: algorithms taken.
    ``notes``: which calls stayed as they were, and why; one line each.
    """

    steps: Steps
    origin: Ints
    used: tuple[Used, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass
class _Call:
    """One collective call: its steps, one per member present, and their places in the comm."""

    name: str
    blocking: bool
    comm: int
    number: int
    steps: Ints
    member: Ints
    sizes: Ints
    root: int
    plan: Schedule | None = None


def expand(
    steps: Steps,
    library: Library,
    which: Bools | None = None,
    *,
    node_of: Ints | None = None,
    most_steps: int = MOST_STEPS,
) -> Expanded:
    """Return steps in which collectives (those of ``which``) are point-to-point messages.

    ``node_of``: node of every world rank, for libraries whose algorithms depend on it. The
    messages of a call have the tag FIRST_TAG + its number on the communicator. A nonblocking
    collective posts its first messages where it is called; all that depends on what has arrived
    is done where the program completes it, before the step that does (libraries progress it in
    any MPI call in between; overlap beyond the first messages is therefore not seen).
    Calls that the tables do not know, whose members differ in the call they make, or that would
    be too many messages stay as they are: see ``notes``. With steps of some ranks only, those
    that are absent are taken to have the usual size.
    """
    notes: dict[str, int] = {}
    calls = list(_calls(steps, which, notes))
    used = _plan(calls, library, node_of, steps, most_steps, notes)
    calls = [call for call in calls if call.plan is not None]
    if not calls:
        return Expanded(steps, np.arange(len(steps)), (), _lines(notes))
    made = _Assembly(steps, calls)
    return Expanded(made.steps(), made.origin, used, _lines(notes))


def _lines(notes: dict[str, int]) -> tuple[str, ...]:
    return tuple(f"{text} ({times} call{'s' * (times > 1)})" for text, times in notes.items())


def _calls(steps: Steps, which: Bools | None, notes: dict[str, int]) -> Iterator[_Call]:
    """Group the collective steps by communicator and number on it."""
    at = np.flatnonzero(steps.is_op(Op.COLLECTIVE, Op.ICOLLECTIVE))
    if not len(at):
        return
    rank = steps.rank[at]
    instance, pairs = numbered_calls(rank, steps.comm[at])
    order = np.argsort(instance, kind="stable")  # ranks stay ascending
    at, rank = at[order], rank[order]
    bounds = starts(np.bincount(instance)).tolist()
    wanted = np.ones(len(steps), dtype=bool) if which is None else which
    places: dict[int, Callable[[Ints], Ints]] = {}
    for (c, number), begin, end in zip(pairs.tolist(), bounds, bounds[1:], strict=False):
        mine = at[begin:end]
        if not wanted[mine].any():
            continue
        names = sorted({steps.calls[c] for c in np.unique(steps.call[mine]).tolist()})
        members = steps.members.get(c, np.zeros(0, dtype=np.int64))
        name = blocking_of(names[0]).removeprefix("MPI_").lower()
        if len(members) < 2:
            continue
        present = np.isin(members, steps.ranks).sum()
        roots = np.unique(steps.peer[mine])
        if name not in COLLECTIVES:
            _note(notes, f"{names[0]}: no algorithm is known")
        elif len(names) > 1 or len(np.unique(steps.op[mine])) > 1:
            _note(notes, f"communicator {c}: members make different calls: {', '.join(names)}")
        elif len(mine) != present:
            _note(
                notes,
                f"{names[0]} on communicator {c}: {present - len(mine)} of its members"
                " do not make the call",
            )
        elif COLLECTIVES[name].rooted and (len(roots) > 1 or roots[0] not in members):
            _note(notes, f"{names[0]} on communicator {c}: its root is not clear")
        else:
            if c not in places:
                places[c] = _places(members)
            root = int(places[c](roots[:1])[0]) if COLLECTIVES[name].rooted else 0
            yield _Call(
                name,
                bool(steps.op[mine[0]] == int(Op.COLLECTIVE)),
                c,
                number,
                mine,
                places[c](rank[begin:end]),
                steps.bytes[mine],
                root,
            )


def _places(members: Ints) -> Callable[[Ints], Ints]:
    order = np.argsort(members)
    return lambda ranks: order[np.searchsorted(members[order], ranks)]


def _note(notes: dict[str, int], text: str) -> None:
    notes[text] = notes.get(text, 0) + 1


def _plan(
    calls: list[_Call],
    library: Library,
    node_of: Ints | None,
    steps: Steps,
    most_steps: int,
    notes: dict[str, int],
) -> tuple[Used, ...]:
    """Give every call its schedule; equal calls share one."""
    known: dict[tuple[Any, ...], Schedule] = {}
    names: dict[tuple[Any, ...], str] = {}
    used: dict[tuple[str, int, int, str], int] = {}
    left = most_steps
    for call in calls:
        members = steps.members[call.comm]
        p = len(members)
        sizes = np.full(p, most_common(call.sizes))
        if COLLECTIVES[call.name].varying:
            sizes[call.member] = call.sizes
        node = None if node_of is None else node_of[members]
        amount = sizes.tobytes() if COLLECTIVES[call.name].varying else int(sizes[0])
        key = (
            call.name,
            call.blocking,
            p,
            amount,
            call.root,
            None if node is None else node.tobytes(),
        )
        if key not in names:
            names[key] = chosen_name(library, call.name, sizes, node=node, blocking=call.blocking)
        algorithm = names[key]
        size = len(known[key]) if key in known else records_expected(call.name, algorithm, p)
        if size > left:
            _note(
                notes,
                f"MPI_{call.name.capitalize()} on {p} members: {size:,} steps would be"
                " too many; it stays one call",
            )
            continue
        if key not in known:
            known[key] = schedule(
                library, call.name, sizes, call.root, node=node, blocking=call.blocking
            )
        call.plan = known[key]
        left -= len(call.plan)
        label = (call.name, p, int(sizes.max()), algorithm)
        used[label] = used.get(label, 0) + 1
    return tuple(
        Used(f"MPI_{name.capitalize()}", p, nbytes, algorithm, times)
        for (name, p, nbytes, algorithm), times in used.items()
    )


def records_expected(call: str, algorithm: str, p: int) -> int:
    """Return about how many records a schedule will have, before it is made."""
    if (call.startswith("alltoall") and algorithm != "bruck") or algorithm == "posted":
        return 2 * p * p
    if algorithm in (
        "ring",
        "ring_cut",
        "ring_segmented",
        "neighbor",
        "pairwise",
        "pairwise_xor",
        "scatter_ring",
    ):
        return (3 if call == "allreduce" else 1) * p * p
    return 4 * p * max(p.bit_length(), 1)


#: What only a Sendrecv has.
_OF_HALVES = frozenset({"peer2", "tag2", "bytes2"})


@dataclass
class _Part:
    """Records of one call that go to places in the output."""

    call: _Call
    place: Ints  # of every record, -1 where its member is absent
    tag: int


class _Assembly:
    """Puts the output together: first where everything goes, then the columns."""

    def __init__(self, steps: Steps, calls: list[_Call]) -> None:
        self.input = steps
        n = len(steps)
        number = narrow(n + sum(len(call.plan) for call in calls if call.plan is not None) + 1)
        own = np.ones(n, dtype=number)
        before = np.zeros(n, dtype=number)
        after = np.zeros(n, dtype=number)  # behind the last step of a rank
        self.replaced = np.zeros(n, dtype=bool)
        self.empty = np.zeros(n, dtype=bool)
        completed_by = np.full(n, -1, dtype=number)
        waits = np.repeat(np.arange(n, dtype=number), np.diff(steps.done_start))
        # Waits for any list a request several times; the last one surely has it.
        completed_by[steps.done] = waits
        del waits
        last = np.repeat((steps.start[1:] - 1).astype(number), np.diff(steps.start))
        heads: list[tuple[Ints, Ints, Ints, Ints]] = []
        for call in calls:
            plan = call.plan
            assert plan is not None
            length = np.diff(plan.start)[call.member]
            head = length if call.blocking else _heads(plan)[call.member]
            self.replaced[call.steps] = True
            self.empty[call.steps] = head == 0
            own[call.steps] = np.maximum(head, 1)
            goal = completed_by[call.steps]
            tail = length - head
            at_end = goal < 0
            offset = np.where(at_end, after[last[call.steps]], before[np.maximum(goal, 0)])
            before[goal[~at_end]] += tail[~at_end]
            after[last[call.steps][at_end]] += tail[at_end]
            heads.append((head, tail, goal, offset))
        whole = before + own + after
        ends = np.cumsum(whole, dtype=number)
        begins = ends - whole
        self.own = begins + before
        self.total = int(ends[-1]) if n else 0
        self.start = np.append(ends, number(0))[steps.start - 1].astype(np.int64)
        self.origin = np.repeat(np.arange(n, dtype=number), whole)
        self.first = begins  # first record of a step in the output: gets its computation
        self.parts = [
            self._part(call, *head, begins, last, after, ends)
            for call, head in zip(calls, heads, strict=True)
        ]

    def _part(
        self,
        call: _Call,
        head: Ints,
        tail: Ints,
        goal: Ints,
        offset: Ints,
        begins: Ints,
        last: Ints,
        after: Ints,
        ends: Ints,
    ) -> _Part:
        plan = call.plan
        assert plan is not None
        p = plan.members
        at_head = np.full(p, -1, dtype=np.int64)
        at_tail = np.full(p, -1, dtype=np.int64)
        heads = np.zeros(p, dtype=np.int64)
        step = np.full(p, -1, dtype=np.int64)
        end = ends[last[call.steps]] - after[last[call.steps]]
        at_head[call.member] = self.own[call.steps]
        at_tail[call.member] = np.where(goal < 0, end, begins[np.maximum(goal, 0)]) + offset
        heads[call.member] = head
        step[call.member] = call.steps
        member = np.repeat(np.arange(p), np.diff(plan.start))
        inside = np.arange(len(plan)) - plan.start[member]
        place = np.where(
            inside < heads[member],
            at_head[member] + inside,
            at_tail[member] + inside - heads[member],
        )
        place[at_head[member] < 0] = -1
        origin = step[member]
        here = place >= 0
        self.origin[place[here]] = origin[here]
        return _Part(call, place, FIRST_TAG + call.number)

    def steps(self) -> Steps:
        """Return the output."""
        old = self.input
        calls = list(old.calls)
        number_of = {}
        for kind, name in CALLS.items():
            if name not in calls:
                calls.append(name)
            number_of[int(kind)] = calls.index(name)
        kept = ~self.replaced
        self._exchanges = self._any_exchange()
        new: dict[str, Any] = {
            name: self._moved(getattr(old, name), fill, name in _OF_HALVES and not self._exchanges)
            for name, fill in (
                ("op", int(Op.WAIT)),
                ("peer", -1),
                ("tag", -1),
                ("bytes", 0),
                ("peer2", -1),
                ("tag2", -1),
                ("bytes2", 0),
                ("call", 0),
                ("number", 0),
            )
        }
        for name in ("comm", "row", "weight", "turn"):
            new[name] = taken(getattr(old, name), self.origin)
        empty = self.own[self.empty]  # no message here: only computation is left
        new["call"][empty] = old.call[self.empty]
        work = np.zeros(self.total)
        work[self.first] = old.work_ns
        to, source = (np.full(self.total, -1, dtype=self.own.dtype) for _ in range(2))
        for column, mine in ((to, old.to), (source, old.source)):
            has = np.flatnonzero(kept & (mine >= 0))
            column[self.own[has]] = self.own[mine[has]]
        waits, requests = [], []
        wait = np.repeat(np.arange(len(old), dtype=to.dtype), np.diff(old.done_start))
        stays = kept[old.done]
        waits.append(self.own[wait[stays]])
        requests.append(self.own[old.done[stays]])
        lookup = np.zeros(max(number_of) + 1, dtype=np.int64)
        for op_code, call_number in number_of.items():
            lookup[op_code] = call_number
        for part in self.parts:
            plan = part.call.plan
            assert plan is not None
            here = part.place >= 0
            place = part.place[here]
            members = old.members[part.call.comm]

            def ranks(of: Ints, members: Ints = members) -> Ints:
                return np.where(of >= 0, members[np.maximum(of, 0)], -1)

            op = plan.op[here]
            is_wait, both = op == int(Op.WAIT), op == int(Op.SENDRECV)
            new["op"][place] = op
            new["call"][place] = lookup[op]
            new["peer"][place] = ranks(plan.peer[here])
            new["tag"][place] = np.where(is_wait, -1, part.tag)
            new["bytes"][place] = plan.bytes[here]
            if self._exchanges:
                new["peer2"][place] = ranks(plan.peer2[here])
                new["tag2"][place] = np.where(both, part.tag, -1)
                new["bytes2"][place] = plan.bytes2[here]
            new["number"][place] = np.diff(plan.done_start)[here]
            for column, mine in ((to, plan.to[here]), (source, plan.source[here])):
                column[place] = np.where(mine >= 0, part.place[np.maximum(mine, 0)], -1)
            wait = np.repeat(np.arange(len(plan)), np.diff(plan.done_start))
            told = here[wait]
            waits.append(part.place[wait[told]])
            requests.append(part.place[plan.done[told]])
        waiting, request = np.concatenate(waits), np.concatenate(requests)
        order = np.argsort(waiting, kind="stable")
        done_start = starts(np.bincount(waiting, minlength=self.total))
        return Steps(
            n=old.n,
            ranks=old.ranks,
            start=self.start,
            **new,
            work_ns=work,
            done_start=done_start,
            done=request[order].astype(to.dtype),
            to=to,
            source=source,
            calls=tuple(calls),
            members=old.members,
        )

    def _any_exchange(self) -> bool:
        """Tell whether any record sends and receives."""
        plans = {id(part.call.plan): part.call.plan for part in self.parts}  # calls share them
        return any(
            plan is not None and bool((plan.op == int(Op.SENDRECV)).any())
            for plan in plans.values()
        )

    def _moved(self, column: Ints, fill: int, same: bool) -> Ints:
        """Return a column in its new places; ``same``: no record of a call has another value."""
        if same and column.strides == (0,) and column.size and column[0] == fill:
            return constant(fill, self.total)
        moved = np.full(self.total, fill, dtype=column.dtype)
        kept = ~self.replaced
        moved[self.own[kept]] = taken(column, kept)
        return moved


def _heads(plan: Schedule) -> Ints:
    """Return per member how many records come before the first that waits for anything."""
    posts = (plan.op == int(Op.ISEND)) | (plan.op == int(Op.IRECV))
    blocking = np.append(np.flatnonzero(~posts), len(plan))
    first = blocking[np.searchsorted(blocking, plan.start[:-1])]
    result: Ints = np.minimum(first, plan.start[1:]) - plan.start[:-1]
    return result
