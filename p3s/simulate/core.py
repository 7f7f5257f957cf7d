"""What the core of the simulation takes and gives: the structures of state.h."""

from __future__ import annotations

import ctypes

import numpy as np

_INTS = ctypes.c_void_p
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


class Columns(ctypes.Structure):
    """What is packed."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("steps", "ranks", "n", "nodes")),
        *(
            (name, _INTS)
            for name in (
                "rank",
                "start",
                "op",
                "peer",
                "bytes",
                "peer2",
                "bytes2",
                "number",
                "done_start",
                "done",
                "to",
                "source",
                "cell",
                "node_of",
                "path_of",
            )
        ),
        *((name, ctypes.c_int64) for name in ("same", "other", "calls")),
        ("call_step", _INTS),
    ]


class Packing(ctypes.Structure):
    """Where it goes."""

    _fields_ = [
        *((name, _INTS) for name in ("step", "done", "place", "first", "size")),
        *((name, ctypes.c_int64) for name in ("sizes", "room", "longest", "flaw", "where")),
    ]


class Input(ctypes.Structure):
    """What is simulated."""

    _fields_ = [
        *(
            (name, ctypes.c_int64)
            for name in ("steps", "ranks", "nodes", "instances", "sizes", "longest")
        ),
        *(
            (name, _INTS)
            for name in (
                "rank",
                "step",
                "done",
                "first",
                "number",
                "size",
                "work",
                "first_ns",
                "extra",
            )
        ),
        ("slower", ctypes.c_double),
        *(
            (name, _INTS)
            for name in (
                "weight",
                "group",
                "node_of",
                "curve_start",
                "linked",
                "curve_bytes",
                "curve_ns",
                "eager",
            )
        ),
        *((name, ctypes.c_double) for name in ("rate", "burst", "post", "held_ns")),
        ("places", ctypes.c_int64),
        ("trunks", ctypes.c_int64),
        *(
            (name, _INTS)
            for name in ("place_of", "route_start", "route", "trunk_rate", "trunk_burst")
        ),
        *((name, ctypes.c_int64) for name in ("background", "anyway", "handshake", "fair")),
        ("back", ctypes.c_double),
        *(
            (name, _INTS)
            for name in (
                "call_step",
                "call_instance",
                "call_ns",
                "kind",
                "member_start",
                "member",
                "expected",
                "root",
            )
        ),
    ]


class Output(ctypes.Structure):
    """Where the times go."""

    _fields_ = [
        *(
            (name, _INTS)
            for name in (
                "live",
                "state",
                "end",
                "waiting",
                "software",
                "sums",
                "longs",
                "at",
                "order",
            )
        ),
        *((name, ctypes.c_int64) for name in ("begun", "queued", "loosened")),
    ]
