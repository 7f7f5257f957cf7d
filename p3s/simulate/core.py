"""The core of the simulation: compiled, its structures of state.h, and deadlocks in words."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any

import numpy as np

from p3s.base.arrays import Ints
from p3s.base.errors import P3SError
from p3s.base.host import compiling
from p3s.base.host.compiling import c_compiler, compile_cached
from p3s.simulate.steps import Op, Steps

#: struct live, struct step and struct size of state.h.
LIVE = np.dtype([("begin", "f8"), ("began", "f8"), ("arrival", "f8")])
STEP = np.dtype(
    [(name, "i4") for name in ("to", "source", "next", "send", "receive", "cell", "node")]
    + [("owner_and_op", "u4")]
)
SIZE = np.dtype([("bytes", "i8"), ("path", "i8")])
#: In the groups of steps: this one is passed over.
APART = 255
#: What p3s_simulate and p3s_pack return.
DEADLOCK, FLAWED, NO_ROOM = 1, 3, 4
#: What the core finds wrong with a step, by number.
FLAWS = (
    "",
    "no operation",
    "its partner is no rank",
    "negative bytes",
    "its work is negative or no number",
    "what it sends is not received by the step that it names",
    "what it receives is not sent by the step that it names",
    "what it completes is no request of its rank that was left behind before",
)


_INT, _REAL, _COLUMN = ctypes.c_int64, ctypes.c_double, ctypes.c_void_p


def _fields(*parts: tuple[Any, str]) -> list[tuple[str, Any]]:
    """Return the fields of a structure of C: names by type, in their order."""
    return [(name, kind) for kind, names in parts for name in names.split()]


class Columns(ctypes.Structure):
    """What is packed."""

    _fields_ = _fields(
        (_INT, "steps ranks n nodes"),
        (_COLUMN, "rank start op peer bytes peer2 bytes2 number done_start done to source cell"),
        (_COLUMN, "node_of path_of"),
        (_INT, "same other calls"),
        (_COLUMN, "call_step"),
    )


class Packing(ctypes.Structure):
    """Where it goes."""

    _fields_ = _fields(
        (_COLUMN, "step done place first size"), (_INT, "sizes room longest flaw where")
    )


class Input(ctypes.Structure):
    """What is simulated."""

    _fields_ = _fields(
        (_INT, "steps ranks nodes instances sizes longest"),
        (_COLUMN, "rank step done first number size work first_ns extra"),
        (_REAL, "slower"),
        (_COLUMN, "weight group node_of curve_start linked curve_bytes curve_ns eager"),
        (_REAL, "rate burst post held_ns"),
        (_INT, "places trunks"),
        (_COLUMN, "place_of route_start route trunk_rate trunk_burst"),
        (_INT, "background anyway handshake fair"),
        (_REAL, "back"),
        (_COLUMN, "call_step call_instance call_ns kind member_start member expected root"),
    )


class Output(ctypes.Structure):
    """Where the times go."""

    _fields_ = _fields(
        (_COLUMN, "live state end waiting software sums longs at order"),
        (_INT, "begun queued loosened"),
    )


def pointer(keep: list[Any], values: Any, dtype: Any = None) -> int:
    """Return where a column lies as the core reads it; ``keep`` holds it as long as that does."""
    keep.append(np.ascontiguousarray(values, dtype=dtype))
    return int(keep[-1].ctypes.data)


FLAGS = ("-O2", "-std=gnu11", "-fPIC", "-shared", "-w")
SOURCES = [
    Path(__file__).with_name(name)
    for name in ("simulate.c", "ends.h", "fair.h", "messages.h", "pack.h", "state.h")
]


@functools.cache
def library() -> ctypes.CDLL:
    """Return the compiled core, loaded; from the cache if it is there.

    Errors: P3SError when it did not come with P3S and cannot be compiled, or no place is writable.
    """
    name = "simulate.so"
    binary = compiling.taken(name, SOURCES, FLAGS) or compile_cached(
        name,
        SOURCES,
        FLAGS,
        compiler=c_compiler("the simulation"),
        what="the dependency simulation",
        libraries=["-lm"],
    )
    try:
        return ctypes.CDLL(str(binary))
    except OSError as err:
        raise P3SError(f"{binary}: cannot be loaded ({err}); remove it and try again") from err


#: State of a step; the numbers are those of state.h.
_LET_GO, _CUT = 64, 128
_NAMED = 4


def stuck(steps: Steps, at: Ints) -> str:
    """Return the message: how many ranks wait, and the calls that some of them are in.

    ``at``: the step each rank is in.
    """
    waiting = np.flatnonzero(at < steps.start[1:])
    parts = []
    for k in waiting[:_NAMED].tolist():
        i = int(at[k])
        name = steps.calls[steps.call[i]] if steps.call[i] < len(steps.calls) else Op(steps.op[i])
        parts.append(f"rank {steps.ranks[k]} in {name} (step {i - int(steps.start[k])})")
    more = f", and {len(waiting) - _NAMED} more" if len(waiting) > _NAMED else ""
    return (
        f"the ranks would wait for ever: {len(waiting)} of {len(steps.ranks)} cannot go on; "
        f"{'; '.join(parts)}{more}"
    )


def count_cut_waits(state: np.ndarray) -> int:
    """Return how many calls were taken as not waiting; ``state``: of every step."""
    return int(np.count_nonzero(state & _CUT))


def describe_changes(steps: Steps, state: np.ndarray) -> tuple[str, ...]:
    """Return what had to be changed so that the simulation ended, a line for each kind of call.

    ``state``: of every step, as the core left it.
    """
    changed = np.flatnonzero(state & (_LET_GO | _CUT))
    if not len(changed):
        return ()
    rank = steps.ranks[np.searchsorted(steps.start, changed, side="right") - 1]
    let_go = (state[changed] & _LET_GO) > 0
    notes = []
    for kind, text in (
        (let_go, "wait for their receivers for ever: taken as buffered"),
        (~let_go, "cannot end in this order: taken as not waiting"),
    ):
        for call in np.unique(steps.call[changed[kind]]).tolist():
            mine = kind & (steps.call[changed] == call)
            where = np.unique(rank[mine])
            ranks_named = ", ".join(map(str, where[:_NAMED].tolist()))
            more = f" and {len(where) - _NAMED} more" if len(where) > _NAMED else ""
            notes.append(
                f"{int(mine.sum())} {steps.calls[call]} of rank{'s' * (len(where) > 1)} "
                f"{ranks_named}{more} {text}"
            )
    return tuple(notes)
