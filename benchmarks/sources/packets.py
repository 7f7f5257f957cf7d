"""Packets on the links of a network: how long a phase takes, and where packets wait.

A cycle is the time in which the slowest link passes one packet. The rules are in packets.c; the
model is that of Blue Gene/Q in Jain et al., SC13, as far as it is published: messages wait in
injection queues, packets in the queues of links, and at nodes that take in only so many.
"""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from hybrids import Counters

from p3s.base.arrays import Floats, Ints
from p3s.base.errors import P3SError
from p3s.base.host.compiling import c_compiler, compiled
from p3s.machine.topology.direct import Torus
from p3s.machine.topology.fabric import Fabric
from p3s.methods.placement.links import Paths, network_links, paths, queues
from p3s.methods.placement.phases import Traffic
from p3s.program.mapping import RankMap

#: Bytes of a packet of Blue Gene/Q.
PACKET = 512
#: Packets that may wait for a link before a node injects no more into it.
_ROOM = 4
#: Packets that a node of a torus takes in in a cycle.
_RECEPTION = 8
_MOST_CYCLES = 1 << 40
#: Packets have 32-bit numbers.
_MOST_MESSAGES = (1 << 31) - 1
SOURCES = [Path(__file__).with_name("packets.c")]
FLAGS = ("-O2", "-std=gnu11", "-fPIC", "-shared", "-w")

_INTS = ctypes.POINTER(ctypes.c_int64)
_FLOATS = ctypes.POINTER(ctypes.c_double)


class _Phase(ctypes.Structure):
    """What packets.c calls Phase."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("links", "nodes", "queues", "messages", "dims")),
        *((name, ctypes.c_int64) for name in ("room", "reception", "wrap")),
        ("seed", ctypes.c_uint64),
        *((name, _INTS) for name in ("queue", "dest", "packets", "first", "last")),
        ("nbytes", _FLOATS),
        *((name, _INTS) for name in ("route", "extent", "source")),
        ("rate", _FLOATS),
        ("sent_bytes", _FLOATS),
        *((name, _INTS) for name in ("received", "buffered")),
    )


@dataclass(frozen=True, eq=False)
class Packets:
    """What a phase does on a network.

    ``cycles``: until the last packet is received. ``packets``: how many there were.
    """

    cycles: int
    packets: int
    counters: Counters


@dataclass(frozen=True, eq=False)
class _Posted:
    """Messages between nodes in the order in which they are posted.

    ``path``: row of the two nodes. ``packets``: of each message, ``nbytes``: of one of its packets.
    """

    path: Ints
    packets: Ints
    nbytes: Floats


@functools.cache
def _library() -> ctypes.CDLL:
    name = "packets.so"
    what = "the packet simulation"
    made = compiled(name, SOURCES, FLAGS, compiler=c_compiler(what), what=what)
    try:
        found = ctypes.CDLL(str(made))
    except OSError as err:
        raise P3SError(f"{made}: cannot be loaded ({err}); remove it and try again") from err
    found.p3s_packets.restype = ctypes.c_int64
    found.p3s_packets.argtypes = (ctypes.POINTER(_Phase), ctypes.c_int64, ctypes.c_int64)
    return found


def packet_size(traffic: Traffic, number: int) -> int:
    """Return how large packets are if a phase is to have about ``number``, at least 512 bytes."""
    return max(PACKET, -(-int(traffic.volume.sum()) // max(number, 1)))


def simulate_packets(
    traffic: Traffic,
    placed: RankMap,
    fabric: Fabric,
    *,
    packet: int = PACKET,
    adaptive: bool = False,
    seed: int = 0,
) -> Packets:
    """Return how long a phase takes on a network, and what its links count.

    All messages are posted at once, in an order that ``seed`` draws. ``packet``: bytes that one
    holds at most. ``adaptive``: packets take the link with the fewest waiting of those that bring
    them nearer (torus and mesh only). Links are as fast as the network says, as the slowest of
    them where it does not. Messages inside nodes take no time. Errors: P3SError for nodes that the
    network does not have, adaptive routes on other networks, and without a C compiler.
    """
    if adaptive and not isinstance(fabric, Torus):
        raise P3SError(f"{fabric.about.source}: only a torus or mesh has adaptive routes here")
    if packet < 1:
        raise P3SError(f"a packet of {packet} bytes holds nothing")
    found = paths(traffic, placed, fabric)
    posted = _posted(traffic, placed, fabric, found, packet, seed)
    return _run(fabric, found, posted, adaptive, seed)


def _posted(
    traffic: Traffic, placed: RankMap, fabric: Fabric, found: Paths, packet: int, seed: int
) -> _Posted:
    """Return the messages that leave their node, in the order in which they are posted."""
    rows = np.repeat(np.arange(len(traffic)), traffic.messages)
    path = found.row[rows]
    out = found.source[path] != found.dest[path]
    rows, path = rows[out], path[out]
    if len(rows) > _MOST_MESSAGES:
        raise P3SError(f"{len(rows):,} messages are more than can be simulated")
    order = np.random.default_rng(seed).permutation(len(rows))
    nbytes = traffic.nbytes[rows[order]]
    number = np.maximum(-(-nbytes // packet), 1)
    return _Posted(path[order], number, nbytes / number)


def _routes(fabric: Fabric, found: Paths) -> tuple[Ints, Ints]:
    """Return where the route of each row begins, and the links of all."""
    routes = fabric.routes(found.source, found.dest)
    kept = network_links(fabric)[routes.link]
    before = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(kept)])
    return before[routes.start], routes.link[kept]


def _run(fabric: Fabric, found: Paths, posted: _Posted, adaptive: bool, seed: int) -> Packets:
    start, route = _routes(fabric, found)
    names, queue = np.unique(queues(found, fabric)[posted.path], return_inverse=True)
    rate = _rates(fabric)
    extent = fabric.dims if isinstance(fabric, Torus) and adaptive else ()
    columns = {
        "queue": queue.ravel(),
        "dest": found.dest[posted.path],
        "packets": posted.packets,
        "first": start[:-1][posted.path],
        "last": start[1:][posted.path],
        "route": route,
        "extent": np.array(extent, dtype=np.int64),
        "source": found.source[posted.path],
        "received": np.zeros(fabric.links, dtype=np.int64),
        "buffered": np.zeros(fabric.links, dtype=np.int64),
    }
    columns = {name: np.ascontiguousarray(x, dtype=np.int64) for name, x in columns.items()}
    numbers = {"nbytes": posted.nbytes, "rate": rate, "sent_bytes": np.zeros(fabric.links)}
    phase = _Phase(
        links=fabric.links,
        nodes=fabric.nodes,
        queues=len(names),
        messages=len(posted.path),
        dims=len(extent),
        room=_ROOM,
        reception=_RECEPTION if isinstance(fabric, Torus) else 0,
        wrap=int(isinstance(fabric, Torus) and fabric.wrap),
        seed=seed & ((1 << 64) - 1),
        **{name: x.ctypes.data_as(_INTS) for name, x in columns.items()},
        **{name: x.ctypes.data_as(_FLOATS) for name, x in numbers.items()},
    )
    moved = int(np.ceil(rate + 1).sum())
    cycles = _library().p3s_packets(ctypes.byref(phase), moved, _MOST_CYCLES)
    if cycles < 0:
        raise P3SError("the packet simulation has no memory left; take larger packets")
    counters = Counters(numbers["sent_bytes"], columns["received"], columns["buffered"])
    return Packets(cycles, int(posted.packets.sum()), counters)


def _rates(fabric: Fabric) -> Floats:
    """Return how many packets each directed link passes in a cycle of the slowest one."""
    rate = np.repeat(fabric.rate, 2)
    known = rate[network_links(fabric) & np.isfinite(rate)]
    slowest = float(known.min()) if len(known) else 1.0
    return np.where(np.isfinite(rate), np.maximum(rate / slowest, 1.0), 1.0)
