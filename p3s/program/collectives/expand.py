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
class AlgorithmUse:
    """What was taken for some calls: MPI call, members, bytes of a member (at most), algorithm."""

    call: str
    members: int
    bytes: int
    algorithm: str
    times: int


@dataclass(frozen=True)
class ExpandedSteps:
    """Steps in which collectives are messages.

    ``origin``: the step of the input that each step comes from. ``used``: algorithms taken.
    ``notes``: which calls stayed as they were, and why; one line each.
    """

    steps: Steps
    origin: Ints
    used: tuple[AlgorithmUse, ...] = ()
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
    selected: Bools | None = None,
    *,
    node_of: Ints | None = None,
    most_steps: int = MOST_STEPS,
) -> ExpandedSteps:
    """Return steps in which collectives (those of ``selected``) are point-to-point messages.

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
    calls = list(_calls(steps, selected, notes))
    used = _plan(calls, library, node_of, steps, most_steps, notes)
    calls = [call for call in calls if call.plan is not None]
    if not calls:
        return ExpandedSteps(steps, np.arange(len(steps)), (), _lines(notes))
    return ExpandedSteps(*_replace_calls(steps, calls), used, _lines(notes))


def _lines(notes: dict[str, int]) -> tuple[str, ...]:
    return tuple(f"{text} ({times} call{'s' * (times > 1)})" for text, times in notes.items())


def _calls(steps: Steps, selected: Bools | None, notes: dict[str, int]) -> Iterator[_Call]:
    """Group the collective steps by communicator and number on it."""
    at = np.flatnonzero(steps.is_op(Op.COLLECTIVE, Op.ICOLLECTIVE))
    if not len(at):
        return
    rank = steps.rank[at]
    instance, pairs = numbered_calls(rank, steps.comm[at])
    order = np.argsort(instance, kind="stable")  # ranks stay ascending
    at, rank = at[order], rank[order]
    bounds = starts(np.bincount(instance)).tolist()
    is_wanted = np.ones(len(steps), dtype=bool) if selected is None else selected
    places: dict[int, Callable[[Ints], Ints]] = {}
    for (c, number), begin, end in zip(pairs.tolist(), bounds, bounds[1:], strict=False):
        mine = at[begin:end]
        if not is_wanted[mine].any():
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
) -> tuple[AlgorithmUse, ...]:
    """Give every call its schedule; equal calls share one."""
    plans: dict[tuple[Any, ...], Schedule] = {}
    names: dict[tuple[Any, ...], str] = {}
    used: dict[tuple[str, int, int, str], int] = {}
    room = most_steps
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
        size = len(plans[key]) if key in plans else records_expected(call.name, algorithm, p)
        if size > room:
            _note(
                notes,
                f"MPI_{call.name.capitalize()} on {p} members: {size:,} steps would be"
                " too many; it stays one call",
            )
            continue
        if key not in plans:
            plans[key] = schedule(
                library, call.name, sizes, call.root, node=node, blocking=call.blocking
            )
        call.plan = plans[key]
        room -= len(call.plan)
        label = (call.name, p, int(sizes.max()), algorithm)
        used[label] = used.get(label, 0) + 1
    return tuple(
        AlgorithmUse(f"MPI_{name.capitalize()}", p, nbytes, algorithm, times)
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


@dataclass(frozen=True)
class _Records:
    """The records of a call whose members are present.

    ``which``: their numbers in its plan; ``step``: the call of their member; ``key``: where they
    go (see _anchored).
    """

    call: _Call
    plan: Schedule
    which: Ints
    step: Ints
    key: Ints


#: Where records go: what is anchored at step s has key 3 s + one of these.
_BEFORE, _THERE, _BEHIND = 0, 1, 2


def _anchor_records(steps: Steps, calls: list[_Call]) -> Iterator[_Records]:
    """Yield the records of calls: those before the first wait where the call is, others later.

    These are before the step that completes it, or behind the last step of the rank.
    """
    waits = np.repeat(np.arange(len(steps)), np.diff(steps.done_start))
    completed_by = np.full(len(steps), -1, dtype=np.int64)
    completed_by[steps.done] = waits  # Waits for any list a request several times: the last one
    last = np.repeat(steps.start[1:] - 1, np.diff(steps.start))
    for call in calls:
        plan = call.plan
        assert plan is not None
        at = np.full(plan.members, -1, dtype=np.int64)
        at[call.member] = call.steps
        member = np.repeat(np.arange(plan.members), np.diff(plan.start))
        step = at[member]
        records = np.flatnonzero(step >= 0)
        step, member = step[records], member[records]
        goal = completed_by[step]
        later = np.where(goal < 0, 3 * last[step] + _BEHIND, 3 * goal + _BEFORE)
        head = records - plan.start[member] < _heads(plan)[member]
        key = np.where(head | call.blocking, 3 * step + _THERE, later)
        yield _Records(call, plan, records, step, key)


def _replace_calls(old: Steps, calls: list[_Call]) -> tuple[Steps, Ints]:
    """Return steps with the messages of calls in their place, and the step each comes from.

    Items are the old steps that stay, then the records of all calls.
    """
    parts = list(_anchor_records(old, calls))
    is_expanded = np.zeros(len(old), dtype=bool)
    is_expanded[np.concatenate([call.steps for call in calls])] = True
    keys = np.concatenate([part.key for part in parts])
    filled = np.zeros(len(old), dtype=bool)
    filled[keys[keys % 3 == _THERE] // 3] = True
    empty = is_expanded & ~filled  # no message here: only computation is left
    kept_steps = np.flatnonzero(~is_expanded | empty)
    total = len(kept_steps) + len(keys)
    dtype = narrow(total)
    key = np.concatenate((3 * kept_steps + _THERE, keys))
    order = np.argsort(key, kind="stable")
    anchor = key[order] // 3
    place = np.empty(total, dtype=dtype)
    place[order] = np.arange(total, dtype=dtype)
    origin = np.concatenate((kept_steps, *(part.step for part in parts)))[order]
    work = np.zeros(total)
    work[np.searchsorted(anchor, np.arange(len(old)))] = old.work_ns
    names = list(old.calls)
    names += [name for name in CALLS.values() if name not in names]
    columns = _columns(old, parts, kept_steps, empty, names)
    number_of = np.full(len(old), -1, dtype=np.int64)
    number_of[kept_steps] = np.arange(len(kept_steps))
    links: dict[str, list[Ints]] = {}
    waits = np.repeat(np.arange(len(old)), np.diff(old.done_start))
    stays = ~is_expanded[old.done]
    waiting, requests = [number_of[waits[stays]]], [number_of[old.done[stays]]]
    for name in ("to", "source"):
        link = getattr(old, name)[kept_steps]
        links[name] = [
            np.where((link >= 0) & ~empty[kept_steps], number_of[np.maximum(link, 0)], -1)
        ]
    base = len(kept_steps)
    for part in parts:
        plan = part.plan
        number = np.full(len(plan), -1, dtype=np.int64)
        number[part.which] = base + np.arange(len(part.which))
        base += len(part.which)
        for name, ends in links.items():
            link = getattr(plan, name)[part.which]
            ends.append(np.where(link >= 0, number[np.maximum(link, 0)], -1))
        wait = number[np.repeat(np.arange(len(plan)), np.diff(plan.done_start))]
        waiting.append(wait[wait >= 0])
        requests.append(number[plan.done[wait >= 0]])
    wait, request = place[np.concatenate(waiting)], place[np.concatenate(requests)]
    for name, ends in links.items():
        item = np.concatenate(ends)[order]
        columns[name] = np.where(item >= 0, place[np.maximum(item, 0)], dtype(-1))
    for name, column in columns.items():
        if name not in links and column.strides != (0,):
            columns[name] = column[order]
    for name in ("comm", "row", "weight", "turn"):
        columns[name] = taken(getattr(old, name), origin)
    return (
        Steps(
            n=old.n,
            ranks=old.ranks,
            start=np.searchsorted(anchor, old.start),
            **columns,
            work_ns=work,
            done_start=starts(np.bincount(wait, minlength=total)),
            done=request[np.argsort(wait, kind="stable")],
            calls=tuple(names),
            members=old.members,
        ),
        origin,
    )


def _columns(
    old: Steps, parts: list[_Records], kept_steps: Ints, empty: Bools, names: list[str]
) -> dict[str, Any]:
    """Return what old steps that stay, and records, are; equal entries lie in memory once."""
    call_of = np.zeros(len(Op) + 1, dtype=np.int64)
    for op, name in CALLS.items():
        call_of[op] = names.index(name)

    def column(name: str, fill: int, of: Callable[[_Records], Ints]) -> np.ndarray:
        mine = getattr(old, name)
        records = [of(part) for part in parts]
        alike = mine.strides == (0,) and mine.size and mine[0] == fill
        if alike and all((each == fill).all() for each in records):
            return constant(fill, len(kept_steps) + sum(map(len, records)))
        kept_values = np.where(empty, fill, mine)[kept_steps] if empty.any() else mine[kept_steps]
        return np.concatenate((kept_values, *records)).astype(mine.dtype)

    def ranks(part: _Records, peer: Ints) -> Ints:
        mine = peer[part.which]
        return np.where(mine >= 0, old.members[part.call.comm][np.maximum(mine, 0)], -1)

    def tag(part: _Records, has: Bools) -> Ints:
        return np.where(has[part.which], FIRST_TAG + part.call.number, -1)

    wait, both = int(Op.WAIT), int(Op.SENDRECV)
    columns_found = {
        "op": column("op", wait, lambda part: part.plan.op[part.which]),
        "peer": column("peer", -1, lambda part: ranks(part, part.plan.peer)),
        "tag": column("tag", -1, lambda part: tag(part, part.plan.op != wait)),
        "bytes": column("bytes", 0, lambda part: part.plan.bytes[part.which]),
        "peer2": column("peer2", -1, lambda part: ranks(part, part.plan.peer2)),
        "tag2": column("tag2", -1, lambda part: tag(part, part.plan.op == both)),
        "bytes2": column("bytes2", 0, lambda part: part.plan.bytes2[part.which]),
        "number": column("number", 0, lambda part: np.diff(part.plan.done_start)[part.which]),
    }
    calls = [call_of[part.plan.op[part.which]] for part in parts]
    return {**columns_found, "call": np.concatenate((old.call[kept_steps], *calls))}


def _heads(plan: Schedule) -> Ints:
    """Return per member how many records come before the first that waits for anything."""
    posts = (plan.op == int(Op.ISEND)) | (plan.op == int(Op.IRECV))
    blocking = np.append(np.flatnonzero(~posts), len(plan))
    first = blocking[np.searchsorted(blocking, plan.start[:-1])]
    result: Ints = np.minimum(first, plan.start[1:]) - plan.start[:-1]
    return result
