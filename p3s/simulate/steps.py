"""Steps: what ranks do, call by call, in program order; the form that all of replay works on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


class Op(IntEnum):
    """What a step does; the numbers are part of no file."""

    SEND = 1
    SSEND = 2
    BSEND = 3  # returns at once, whatever the receiver does
    ISEND = 4
    ISSEND = 5
    START_SEND = 6  # a persistent send is started
    START_SSEND = 7
    RECV = 8
    IRECV = 9
    START_RECV = 10
    SENDRECV = 11  # the receive half is in peer2, tag2, bytes2
    WAIT = 12  # completes all requests listed in `done` (MPI_Wait, MPI_Waitall, successful tests)
    WAITANY = 13  # completes one of those listed
    WAITSOME = 14  # completes `number` of those listed
    COLLECTIVE = 15
    ICOLLECTIVE = 16  # leaves a request behind
    REST = 17  # computation at the end of a section; no call


#: Steps that leave a request behind, completed by a later WAIT, WAITANY or WAITSOME.
REQUESTS = frozenset(
    {Op.ISEND, Op.ISSEND, Op.START_SEND, Op.START_SSEND, Op.IRECV, Op.START_RECV, Op.ICOLLECTIVE}
)
#: Steps that send, and steps that receive; SENDRECV does both.
SENDS = frozenset(
    {Op.SEND, Op.SSEND, Op.BSEND, Op.ISEND, Op.ISSEND, Op.START_SEND, Op.START_SSEND, Op.SENDRECV}
)
RECEIVES = frozenset({Op.RECV, Op.IRECV, Op.START_RECV, Op.SENDRECV})
WAITS = frozenset({Op.WAIT, Op.WAITANY, Op.WAITSOME})


#: Columns of Steps with one entry per step that are not numbers of other steps.
PLAIN = (
    "op",
    "peer",
    "tag",
    "comm",
    "bytes",
    "peer2",
    "tag2",
    "bytes2",
    "call",
    "work_ns",
    "number",
    "row",
    "weight",
    "turn",
)


@dataclass(frozen=True)
class Steps:
    """Steps of some ranks, rank after rank; every column but ``start`` has one entry per step.

    Columns of integers may have fewer than 64 bits, and lie in memory once where all are equal.
    ``ranks`` are world ranks, ascending; those of ``ranks[i]`` are ``start[i]:start[i + 1]``.
    ``peer``: destination of a send, source of a receive, root of a collective, as a world rank (-1:
    none). ``bytes``: of the message; of a collective as in a scaled trace (docs/formats.md).
    ``peer2``, ``tag2``, ``bytes2``: the receive half of a SENDRECV, else -1, -1, 0. ``comm`` is a
    key of ``members`` (world ranks in the order of the communicator). ``call`` is an index into
    ``calls``, the names of MPI calls. ``work_ns``: computation before the step. ``number``: how
    many requests a WAITANY or WAITSOME completes; of a WAIT all that are listed. ``row``: the row
    of the scaled trace it comes from, -1 if none. ``weight``: how many calls of the whole run the
    step stands for. ``turn``: which iteration of the section's loop it is in.

    The requests of step i are those left behind by steps ``done[done_start[i]:done_start[i+1]]``
    (numbers of steps of the same rank, before i). ``to``: the step that receives what step i
    sends, ``source``: the step that sends what step i receives, -1 where there is none (also when
    the other rank is not among ``ranks``). Every request is completed by one step at most; those
    that no step completes are complete at the end of the section.
    """

    n: int
    ranks: Ints
    start: Ints
    op: Ints
    peer: Ints
    tag: Ints
    comm: Ints
    bytes: Ints
    peer2: Ints
    tag2: Ints
    bytes2: Ints
    call: Ints
    work_ns: Floats
    number: Ints
    row: Ints
    weight: Floats
    turn: Ints
    done_start: Ints
    done: Ints
    to: Ints
    source: Ints
    calls: tuple[str, ...]
    members: dict[int, Ints]

    def __len__(self) -> int:
        return len(self.op)

    @property
    def rank(self) -> Ints:
        """World rank of every step."""
        return np.repeat(self.ranks, np.diff(self.start))

    def of(self, rank: int) -> slice:
        """Return where the steps of a world rank are (empty: it is not among ``ranks``)."""
        i = int(np.searchsorted(self.ranks, rank))
        if i == len(self.ranks) or self.ranks[i] != rank:
            return slice(0, 0)
        return slice(int(self.start[i]), int(self.start[i + 1]))

    def is_op(self, *ops: Op) -> Bools:
        """Return which steps do one of these."""
        return np.isin(self.op, [int(op) for op in ops])


def narrow(size: int) -> type[np.signedinteger]:
    """Return the type of integers of numbers below ``size``: they fill most of the memory."""
    return np.int32 if size < 1 << 31 else np.int64


def narrowed(values: Ints) -> np.ndarray:
    """Return a column with as few bits as its values need, 32 at least."""
    fits = not values.size or (
        int(values.min()) >= -(1 << 31) and narrow(int(values.max())) == np.int32
    )
    return values.astype(np.int32, copy=False) if fits else values


def constant(value: int, size: int) -> Ints:
    """Return a column of equal entries, which lie in memory once."""
    return np.broadcast_to(np.int64(value), (size,))


def taken(column: np.ndarray, which: np.ndarray) -> np.ndarray:
    """Return some entries of a column (by number, or a mask); equal ones still lie there once."""
    if column.strides == (0,) and column.size:
        number = int(np.count_nonzero(which)) if which.dtype == bool else len(which)
        return np.broadcast_to(column[0], (number,))
    return np.asarray(column[which])


@dataclass(frozen=True)
class LeftOut:
    """Calls of a section that are not steps: MPI call, why, how many of the run, their rows."""

    call: str
    why: str
    events: float
    rows: Ints


@dataclass(frozen=True)
class Section:
    """A stretch of the program that is executed as one: a few iterations of a loop, or what is
    outside.

    ``name`` is for people; ``phases``: numbers of the phases its steps belong to. ``turns``
    iterations are in the steps, from iteration ``first_turn`` on, of ``run_turns`` iterations that
    one entry of the loop has; 1, 0, 1 outside loops. ``entries``: how often the stretch is entered
    in the run. ``notes``: what was changed so that it can be executed, for people; ``moved``: how
    many sends were made earlier for it."""

    name: str
    phases: tuple[int, ...]
    steps: Steps
    turns: int
    first_turn: int
    run_turns: int
    entries: float
    left_out: tuple[LeftOut, ...]
    notes: tuple[str, ...] = ()
    moved: int = 0
