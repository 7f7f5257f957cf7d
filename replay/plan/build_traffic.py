"""Which messages of the loaded ranks run between which processes; tables of events."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from p3s.base.arrays import Bools, Ints
from p3s.base.errors import P3SError
from p3s.program.order.pairs import codes_of
from p3s.replay.plan.executed import MAX_COLLECTIVE_BYTES, fits
from p3s.replay.plan.loaded import Loaded
from p3s.replay.plan.program import (
    BLACK_HOLE,
    EVENT,
    FIELDS,
    FIRST_TAG,
    MEASURED,
    SLOT_CODES,
    Code,
    World,
    among,
)
from p3s.simulate.steps import RECEIVES, SENDS, Op

#: What an event has in each field where nothing else is said.
DEFAULTS = dict.fromkeys(FIELDS, 0) | dict.fromkeys(("peer", "slot", "comm", "at_ns", "sample"), -1)
_LAST = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Table:
    """Events sorted by process; one entry per event but in ``start``, ``slots``.

    ``local``: the loaded step an event comes from (-1: none), ``step``: as in Program. ``main``:
    the event is the call of its step. ``main_at``: per loaded step the position of its call in
    the list of its process (-1: none). ``open_before``: slots used by earlier events of the
    process.
    """

    events: npt.NDArray[np.void]
    process: Ints
    start: Ints
    step: Ints
    local: Ints
    main: Bools
    main_at: Ints
    open_before: Ints
    slots: Ints


class Blocks:
    """Collects events; ``finish`` sorts them by process and key."""

    def __init__(self, processes: int) -> None:
        self.processes = processes
        self.parts: list[npt.NDArray[np.void]] = []
        self.process: list[Ints] = []
        self.key: list[Ints] = []
        self.local: list[Ints] = []
        self.main: list[Bools] = []

    def add(
        self, process: Ints, key: Ints, local: Ints, *, main: bool = False, **columns: Any
    ) -> None:
        """Add events of these processes; ``key``: order in a process, ``local``: their step."""
        part = np.zeros(len(process), dtype=EVENT)
        for name in FIELDS:
            part[name] = columns.get(name, DEFAULTS[name])
        self.parts.append(part)
        self.process.append(process)
        self.key.append(key)
        self.local.append(local)
        self.main.append(np.full(len(process), main))

    def finish(self, step: Ints) -> Table:
        """Return all events and an END for every process; ``step`` of each loaded step."""
        everyone = np.arange(self.processes)
        nobody = np.full(self.processes, -1, dtype=np.int64)
        self.add(everyone, np.full(self.processes, _LAST), nobody, code=Code.END)
        process = np.concatenate(self.process)
        order = np.lexsort((np.concatenate(self.key), process))
        process = process[order]
        events = np.concatenate(self.parts)[order]
        local = np.concatenate(self.local)[order]
        main = np.concatenate(self.main)[order]
        start = np.searchsorted(process, np.arange(self.processes + 1))
        code = events["code"]
        needs = among(code, *SLOT_CODES)
        used = np.concatenate(([0], np.cumsum(needs)))
        open_before = used[:-1] - used[start[process]]
        events["slot"] = np.where(needs, open_before, -1)
        main_at = np.full(len(step), -1, dtype=np.int64)
        position = np.arange(len(events)) - start[process]
        main_at[local[main]] = position[main]
        whole = np.concatenate((step, [-1]))
        return Table(
            events,
            process,
            start.astype(np.int64),
            whole[local],
            local,
            main,
            main_at,
            open_before,
            used[start[1:]] - used[start[:-1]],
        )


def waited(begin: Ints, number: Ints) -> Ints:
    """Return begin[i], begin[i] + 1, ... (number[i] of them) for all i, one after the other."""
    total = np.concatenate(([0], np.cumsum(number)))
    return np.repeat(begin - total[:-1], number) + np.arange(int(total[-1]))


_ALIGNMENT = 64
#: Messages of a process share room beyond this size; nobody looks at what is received.
_BUFFER_BYTES = 256 << 20


def offsets(process: Ints, channel: Ints, nbytes: Ints) -> Ints:
    """Return where each message is received: every channel of a process has a buffer of its own.

    It is as large as the largest message on the channel, as a program's buffers for a partner are.
    """
    size = -(-nbytes // _ALIGNMENT) * _ALIGNMENT
    code = codes_of((process, channel))
    owner, room = (np.zeros(int(code.max(initial=-1)) + 1, dtype=np.int64) for _ in range(2))
    owner[code] = process
    np.maximum.at(room, code, size)
    total = np.cumsum(room) - room
    offset = (total - total[np.searchsorted(owner, owner)])[code] if len(code) else code
    left = np.maximum(_BUFFER_BYTES - size, 0) + _ALIGNMENT
    return np.where(offset + size > _BUFFER_BYTES, offset % left, offset)


#: Larger messages are not replayed; their cost is extrapolated.
MAX_MESSAGE_BYTES = 64 << 20
#: No two processes use more tags than every MPI library allows.
_MAX_TAGS = (1 << 19) - FIRST_TAG


class Why(IntEnum):
    """Why a message or call of a loaded rank is not executed."""

    RUNS = 0
    NO_PARTNER = 1
    TOO_LARGE = 2
    DEADLOCK = 3
    NOT_REPLAYED = 4


WHY_TEXT = {
    Why.NO_PARTNER: "no call of the partner matches it",
    Why.TOO_LARGE: "the message is larger than the replay sends",
    Why.DEADLOCK: "executed in the order of the trace it would wait for ever",
    Why.NOT_REPLAYED: "the replay does not know this call",
}


@dataclass(frozen=True)
class Traffic:
    """The halves of the steps that run; every array has one entry per step.

    ``send``, ``receive``: which steps send and receive a message in the replay; ``send_in``,
    ``receive_in``: those with a partner that is loaded, the others go to the black hole.
    ``direct``: collectives that run as such. ``process``: of the step's rank. ``send_to``,
    ``receive_from``: process at the other end (-1: none), ``send_tag``, ``receive_tag``: tag of
    the replay. ``why_send``, ``why_receive``: a Why; of collectives in ``why_send``.
    """

    send: Bools
    receive: Bools
    send_in: Bools
    receive_in: Bools
    direct: Bools
    process: Ints
    send_to: Ints
    receive_from: Ints
    send_tag: Ints
    receive_tag: Ints
    why_send: Ints
    why_receive: Ints

    @property
    def outside(self) -> Bools:
        """Return which steps have a message with an absent partner."""
        return (self.send & ~self.send_in) | (self.receive & ~self.receive_in)


@dataclass(frozen=True)
class _Halves:
    """Send half and receive half of every step: whether it has one, and its partner."""

    send: Bools
    receive: Bools
    target: Ints
    source: Ints
    target_in: Bools
    source_in: Bools


def _halves(loaded: Loaded) -> _Halves:
    steps = loaded.steps
    double = steps.op == Op.SENDRECV
    source = np.where(double, steps.peer2, steps.peer)
    send = steps.is_op(*SENDS) & (steps.peer >= 0)
    receive = steps.is_op(*RECEIVES) & (source >= 0)
    return _Halves(
        send,
        receive,
        steps.peer,
        source,
        np.isin(steps.peer, steps.ranks),
        np.isin(source, steps.ranks),
    )


def needs_hole(loaded: Loaded) -> set[tuple[int, int]]:
    """Return (side, slot) of the loaded ranks that talk to absent partners."""
    halves = _halves(loaded)
    away = (halves.send & ~halves.target_in) | (halves.receive & ~halves.source_in)
    return set(zip(loaded.side[away].tolist(), loaded.slot[away].tolist(), strict=True))


def traffic_of(
    loaded: Loaded, world: World, excluded: tuple[Bools, Bools] | None = None
) -> Traffic:
    """Return what runs; ``excluded`` send and receive halves are left out with their other end.

    Raises P3SError when a rank or its black hole is not in the world.
    """
    steps = loaded.steps
    halves = _halves(loaded)
    send, receive = halves.send, halves.receive
    why_send = np.zeros(len(steps), dtype=np.int64)
    why_receive = np.zeros(len(steps), dtype=np.int64)
    for why, half, inside, other in (
        (why_send, send, halves.target_in, steps.to),
        (why_receive, receive, halves.source_in, steps.source),
    ):
        why[half & inside & (other < 0)] = Why.NO_PARTNER
    why_send[send & (steps.bytes > MAX_MESSAGE_BYTES)] = Why.TOO_LARGE
    why_receive[receive & (loaded.arrives > MAX_MESSAGE_BYTES)] = Why.TOO_LARGE
    if excluded is not None:
        why_send[send & excluded[0]] = Why.DEADLOCK
        why_receive[receive & excluded[1]] = Why.DEADLOCK
    # What is left out at one end is left out at the other.
    a = np.flatnonzero(send & halves.target_in & (steps.to >= 0))
    b = steps.to[a]
    both = np.maximum(why_send[a], why_receive[b])
    why_send[a] = both
    why_receive[b] = both
    send = send & (why_send == Why.RUNS)
    receive = receive & (why_receive == Why.RUNS)
    collective = steps.is_op(Op.COLLECTIVE, Op.ICOLLECTIVE)
    direct = fits(steps, steps.ranks) if collective.any() else collective
    why_send[collective & ~direct] = Why.NOT_REPLAYED
    why_send[collective & (steps.bytes > MAX_COLLECTIVE_BYTES)] = Why.TOO_LARGE

    send_in, receive_in = send & halves.target_in, receive & halves.source_in
    process, hole = _processes(loaded, world, (send & ~send_in) | (receive & ~receive_in))
    of_rank = np.full(steps.n, -1, dtype=np.int64)
    of_rank[steps.rank] = process
    send_to = np.where(send_in, of_rank[halves.target], hole)
    receive_from = np.where(receive_in, of_rank[halves.source], hole)
    send_tag, receive_tag = _tags(loaded, halves, send, receive, process, send_to, receive_from)
    return Traffic(
        send,
        receive,
        send_in,
        receive_in,
        direct,
        process,
        np.where(send, send_to, -1),
        np.where(receive, receive_from, -1),
        send_tag,
        receive_tag,
        why_send,
        why_receive,
    )


def _processes(loaded: Loaded, world: World, away: Bools) -> tuple[Ints, Ints]:
    """Return the process and the black hole of every step's rank (-1: it has none)."""
    places = loaded.side * (int(loaded.slot.max(initial=0)) + 1) + loaded.slot
    distinct, first, place = np.unique(places, return_index=True, return_inverse=True)
    found = []
    for role, wanted in ((MEASURED, np.ones(len(away), dtype=bool)), (BLACK_HOLE, away)):
        rank_of = world.rank_of(role)
        table = np.array(
            [rank_of.get((int(loaded.side[i]), int(loaded.slot[i])), -1) for i in first.tolist()],
            dtype=np.int64,
        )
        column = table[place.reshape(-1)] if len(distinct) else np.zeros(0, dtype=np.int64)
        if (column[wanted] < 0).any():
            i = int(np.flatnonzero(wanted & (column < 0))[0])
            raise P3SError(
                f"replay: rank {loaded.steps.rank[i]} has no {role} process in the "
                "layout; this is a fault of the plan"
            )
        found.append(column)
    return found[0], found[1]


def _tags(
    loaded: Loaded,
    halves: _Halves,
    send: Bools,
    receive: Bools,
    process: Ints,
    send_to: Ints,
    receive_from: Ints,
) -> tuple[Ints, Ints]:
    """Return the tags of the replay: one per communicator, tag and absent partner.

    Tags of one pair of processes count from FIRST_TAG, so that they stay small.
    """
    steps = loaded.steps
    tag2 = np.where(steps.op == Op.SENDRECV, steps.tag2, steps.tag)
    s, r = np.flatnonzero(send), np.flatnonzero(receive)
    absent = np.concatenate(
        (
            np.where(halves.target_in, -1, halves.target)[s],
            np.where(halves.source_in, -1, halves.source)[r],
        )
    )
    pair = codes_of(
        (np.concatenate((process[s], receive_from[r])), np.concatenate((send_to[s], process[r])))
    )
    comm, tag = (
        np.concatenate((steps.comm[s], steps.comm[r])),
        np.concatenate((steps.tag[s], tag2[r])),
    )
    channel = codes_of((pair, absent, comm, tag))
    first = np.full(int(pair.max(initial=-1)) + 1, len(channel), dtype=np.int64)
    np.minimum.at(first, pair, channel)
    number = channel - first[pair]
    if number.max(initial=0) > _MAX_TAGS:
        raise P3SError("replay: two ranks use more tags than MPI allows; take fewer iterations")
    send_tag = np.full(len(steps), -1, dtype=np.int64)
    receive_tag = send_tag.copy()
    send_tag[s] = FIRST_TAG + number[: len(s)]
    receive_tag[r] = FIRST_TAG + number[len(s) :]
    return send_tag, receive_tag
