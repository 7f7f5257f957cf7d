"""Which messages of the loaded ranks run between which processes; tables of events."""

from __future__ import annotations

from dataclasses import dataclass, replace
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
from p3s.simulate.steps import RECEIVES, SENDS, Op, Steps

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
        self.parts: list[tuple[Any, ...]] = []  # events, and columns of their process, key, ...

    def add(
        self, process: Ints, key: Ints, local: Ints, *, main: bool = False, **columns: Any
    ) -> None:
        """Add events of these processes; ``key``: order in a process, ``local``: their step."""
        part = np.zeros(len(process), dtype=EVENT)
        for name in FIELDS:
            part[name] = columns.get(name, DEFAULTS[name])
        self.parts.append((part, process, key, local, np.full(len(process), main)))

    def finish(self, step: Ints) -> Table:
        """Return all events and an END for every process; ``step`` of each loaded step."""
        everyone = np.arange(self.processes)
        nobody = np.full(self.processes, -1, dtype=np.int64)
        self.add(everyone, np.full(self.processes, _LAST), nobody, code=Code.END)
        columns = [np.concatenate(column) for column in zip(*self.parts, strict=True)]
        order = np.lexsort((columns[2], columns[1]))
        events, process, _, local, main = (column[order] for column in columns)
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
    range_bytes = np.maximum(_BUFFER_BYTES - size, 0) + _ALIGNMENT
    return np.where(offset + size > _BUFFER_BYTES, offset % range_bytes, offset)


#: Larger messages are not replayed; their cost is extrapolated.
MAX_MESSAGE_BYTES = 64 << 20
#: No two processes use more tags than every MPI library allows.
_MAX_TAGS = (1 << 19) - FIRST_TAG


class SkipReason(IntEnum):
    """Why a message or call of a loaded rank is not executed."""

    RUNS = 0
    NO_PARTNER = 1
    TOO_LARGE = 2
    DEADLOCK = 3
    NOT_REPLAYED = 4


WHY_TEXT = {
    SkipReason.NO_PARTNER: "no call of the partner matches it",
    SkipReason.TOO_LARGE: "the message is larger than the replay sends",
    SkipReason.DEADLOCK: "executed in the order of the trace it would wait for ever",
    SkipReason.NOT_REPLAYED: "the replay does not know this call",
}


@dataclass(frozen=True)
class Half:
    """The sends of steps, or their receives; every array has one entry per step.

    ``there``: which steps have one; ``partner``: rank at the other end, ``inside``: whether it is
    loaded, else the black hole stands for it. ``tag``: of the message. ``process``: at the other
    end (-1: none). ``why``: a Why.
    """

    there: Bools
    partner: Ints
    inside: Bools
    tag: Ints
    process: Ints
    why: Ints

    @property
    def loaded(self) -> Bools:
        """Return which steps have one with a loaded partner."""
        return self.there & self.inside

    @property
    def away(self) -> Bools:
        """Return which steps have one with an absent partner."""
        return self.there & ~self.inside


@dataclass(frozen=True)
class Traffic:
    """What runs of the steps: halves of messages, with the replay's tags, and collectives.

    ``direct``: collectives that run as such, ``process``: of the step's rank; an entry per step.
    Why a collective does not run is in ``send.why``.
    """

    send: Half
    receive: Half
    direct: Bools
    process: Ints

    @property
    def runs(self) -> Bools:
        """Return which steps send, receive, or are collectives that run."""
        return self.send.there | self.receive.there | self.direct

    @property
    def why(self) -> Ints:
        """Return why each step, or a half of it, does not run."""
        return np.maximum(self.send.why, self.receive.why)


def _halves(loaded: Loaded) -> tuple[Half, Half]:
    """Return the sends of the steps and their receives, with the tags of the program."""
    steps = loaded.steps
    double = steps.op == Op.SENDRECV
    peer2 = np.where(double, steps.peer2, steps.peer)
    tag2 = np.where(double, steps.tag2, steps.tag)
    halves = []
    for ops, partner, tag, other, nbytes in (
        (SENDS, steps.peer, steps.tag, steps.to, steps.bytes),
        (RECEIVES, peer2, tag2, steps.source, loaded.arrives),
    ):
        has_partner = steps.is_op(*ops) & (partner >= 0)
        inside = np.isin(partner, steps.ranks)
        why = np.where(
            has_partner & inside & (other < 0), int(SkipReason.NO_PARTNER), int(SkipReason.RUNS)
        )
        why[has_partner & (nbytes > MAX_MESSAGE_BYTES)] = SkipReason.TOO_LARGE
        halves.append(Half(has_partner, partner, inside, tag, np.full(len(steps), -1), why))
    return halves[0], halves[1]


def needs_hole(loaded: Loaded) -> set[tuple[int, int]]:
    """Return (side, slot) of the loaded ranks that talk to absent partners."""
    send, receive = _halves(loaded)
    away = send.away | receive.away
    return set(zip(loaded.side[away].tolist(), loaded.slot[away].tolist(), strict=True))


def traffic_of(
    loaded: Loaded, world: World, excluded: tuple[Bools, Bools] | None = None
) -> Traffic:
    """Return what runs; ``excluded`` send and receive halves are left out with their other end.

    Raises P3SError when a rank or its black hole is not in the world.
    """
    steps = loaded.steps
    send, receive = halves = _halves(loaded)
    for half, left_out in zip(halves, excluded or (), strict=False):
        half.why[half.there & left_out] = SkipReason.DEADLOCK
    # What is left out at one end is left out at the other.
    a = np.flatnonzero(send.loaded & (steps.to >= 0))
    b = steps.to[a]
    send.why[a] = receive.why[b] = np.maximum(send.why[a], receive.why[b])
    send, receive = (
        replace(half, there=half.there & (half.why == SkipReason.RUNS)) for half in halves
    )
    collective = steps.is_op(Op.COLLECTIVE, Op.ICOLLECTIVE)
    direct = fits(steps, steps.ranks) if collective.any() else collective
    send.why[collective & ~direct] = SkipReason.NOT_REPLAYED
    send.why[collective & (steps.bytes > MAX_COLLECTIVE_BYTES)] = SkipReason.TOO_LARGE

    process, hole = _processes(loaded, world, send.away | receive.away)
    of_rank = np.full(steps.n, -1, dtype=np.int64)
    of_rank[steps.rank] = process
    ends = (np.where(half.inside, of_rank[half.partner], hole) for half in (send, receive))
    send, receive = (
        replace(half, process=np.where(half.there, end, -1))
        for half, end in zip((send, receive), ends, strict=True)
    )
    return Traffic(*_assign_tags(steps, process, send, receive), direct, process)


def _processes(loaded: Loaded, world: World, away: Bools) -> tuple[Ints, Ints]:
    """Return the process and the black hole of every step's rank (-1: it has none)."""
    places = loaded.side * (int(loaded.slot.max(initial=0)) + 1) + loaded.slot
    distinct, first, place = np.unique(places, return_index=True, return_inverse=True)
    columns = []
    for role, required in ((MEASURED, np.ones(len(away), dtype=bool)), (BLACK_HOLE, away)):
        rank_of = world.rank_of(role)
        table = np.array(
            [rank_of.get((int(loaded.side[i]), int(loaded.slot[i])), -1) for i in first.tolist()],
            dtype=np.int64,
        )
        column = table[place.reshape(-1)] if len(distinct) else np.zeros(0, dtype=np.int64)
        if (column[required] < 0).any():
            i = int(np.flatnonzero(required & (column < 0))[0])
            raise P3SError(
                f"replay: rank {loaded.steps.rank[i]} has no {role} process in the "
                "layout; this is a fault of the plan"
            )
        columns.append(column)
    return columns[0], columns[1]


def _assign_tags(steps: Steps, process: Ints, send: Half, receive: Half) -> tuple[Half, Half]:
    """Return halves with the replay's tags: one per communicator, tag and absent partner.

    Tags of one pair of processes count from FIRST_TAG, so that they stay small.
    """
    at = [np.flatnonzero(half.there) for half in (send, receive)]

    def both(of_send: Ints, of_receive: Ints) -> Ints:
        return np.concatenate((of_send[at[0]], of_receive[at[1]]))

    pair = codes_of((both(process, receive.process), both(send.process, process)))
    absent = both(*(np.where(half.inside, -1, half.partner) for half in (send, receive)))
    channel = codes_of((pair, absent, both(steps.comm, steps.comm), both(send.tag, receive.tag)))
    first = np.full(int(pair.max(initial=-1)) + 1, len(channel), dtype=np.int64)
    np.minimum.at(first, pair, channel)
    number = channel - first[pair]
    if number.max(initial=0) > _MAX_TAGS:
        raise P3SError("replay: two ranks use more tags than MPI allows; take fewer iterations")
    tags = np.full((2, len(steps)), -1, dtype=np.int64)
    for row, where, mine in zip(tags, at, np.split(number, [len(at[0])]), strict=True):
        row[where] = FIRST_TAG + mine
    return replace(send, tag=tags[0]), replace(receive, tag=tags[1])
