"""What the core of the simulation takes and gives: the structures of state.h."""

from __future__ import annotations

import ctypes

import numpy as np

_INTS = ctypes.c_void_p
#: struct live of state.h; the state is in the upper bits of the owner.
LIVE = np.dtype(
    [("begin", "f8"), ("began", "f8"), ("arrival", "f8"), ("cost", "i4"), ("owner", "u4")]
)
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


class Input(ctypes.Structure):
    """What is simulated."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("steps", "ranks", "n", "nodes", "instances")),
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
                "work",
                "first_ns",
                "extra",
            )
        ),
        ("known", ctypes.c_int64),
        ("slower", ctypes.c_double),
        *((name, _INTS) for name in ("cell", "weight", "group", "node_of", "path_of")),
        ("same", ctypes.c_int64),
        ("other", ctypes.c_int64),
        *((name, _INTS) for name in ("curve_start", "linked", "curve_bytes", "curve_ns", "eager")),
        *((name, ctypes.c_double) for name in ("rate", "burst", "post", "held_ns")),
        ("places", ctypes.c_int64),
        ("trunks", ctypes.c_int64),
        *(
            (name, _INTS)
            for name in ("place_of", "route_start", "route", "trunk_rate", "trunk_burst")
        ),
        ("background", ctypes.c_int64),
        ("anyway", ctypes.c_int64),
        ("handshake", ctypes.c_int64),
        ("fair", ctypes.c_int64),
        ("back", ctypes.c_double),
        *(
            (name, _INTS)
            for name in (
                "call_start",
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
        *((name, _INTS) for name in ("live", "end", "waiting", "software", "sums", "longs", "at")),
        *((name, ctypes.c_int64) for name in ("queued", "flaw", "where", "loosened")),
    ]
