"""When every call begins and ends: program order, matching, eager and rendezvous, node links."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from p3s.errors import P3SError
from p3s.simulate.collectives import Instances, instances, rough_costs
from p3s.simulate.core import FLAWS, LIVE, Input, Output
from p3s.simulate.network import Network
from p3s.simulate.steps import Floats, Ints, Op, Steps
from p3s.simulate.switch_links import routes
from p3s.simulate.totals import PARTS, Known, Room, Tally, Totals, columns_of
from p3s.trace.ops import is_answer


@dataclass(frozen=True)
class Simulated:
    """Times of every step in ns, from the begin of the section on; one entry per step.

    A call lasts from ``begin_ns`` to ``end_ns`` and that is ``waiting_ns + software_ns +
    transfer_ns``. *Waiting*: by how much it would have ended earlier had every partner begun when
    the call began at the latest (the message then takes what it took, in queues too). *Software*:
    what the call takes for itself: an eager send its ``send``, a receive or the completion of
    receives their ``receive``, others ``post``. *Transfer*: the rest, data on its way, queues.

    ``began_ns``, ``arrival_ns``: of what a step sends, when its transfer began and when the
    receiver had it; of a collective, when the last that it waits for began and its end; NaN where
    there is nothing. ``queued``: how many messages found their node's link busy.
    ``cut``: how many calls were taken as not waiting (simulate_anyway).
    """

    begin_ns: Floats
    end_ns: Floats
    waiting_ns: Floats
    software_ns: Floats
    began_ns: Floats
    arrival_ns: Floats
    queued: int
    cut: int = 0

    @property
    def transfer_ns(self) -> Floats:
        """Time of each call in which data was on its way to it or from it."""
        rest = self.end_ns - self.begin_ns
        rest -= self.waiting_ns
        rest -= self.software_ns
        return np.maximum(rest, 0.0, out=rest)


def simulate(
    steps: Steps,
    node_of: Ints,
    network: Network,
    *,
    distance: Ints | None = None,
    collective_ns: Floats | None = None,
    first_ns: Floats | None = None,
    extra_ns: Floats | None = None,
) -> Simulated:
    """Return when each step begins and ends on a network.

    ``node_of``: the node of every world rank (``steps.n`` of them). ``distance``: nodes x nodes,
    by default 0 inside a node and 1 between nodes. ``collective_ns``: what each collective step
    costs when everybody has begun, by default a rough guess. ``first_ns``: when each of
    ``steps.ranks`` starts, by default 0. ``extra_ns``: added to what the transfer of the message
    that each step sends takes, or to the cost of a collective step (less than 0: taken off, but
    nothing takes less than 0): noise, drawn by who calls.

    Rules. A rank makes one call after the other; ``work_ns`` passes before each. An *eager*
    message (``Path.eager_bytes`` or less, or a buffered send) begins with its send, whose call
    takes ``Path.send``; a *rendezvous* message (larger, or a synchronous send) begins when send
    and receive have both begun (a nonblocking receive: when it is posted; with
    ``network.background`` False moreover when both ranks are in a call; with ``handshake``, what
    announces it and the answer wait at busy links too), and its blocking send,
    or the wait for it, ends when the sender is rid of it: ``Path.send`` after that begin, and not
    before the arrival less ``transfer(0)`` and less what ``network.sender_buffer`` holds.
    A message arrives ``Path.transfer`` after its begin, plus what it is delayed by others on the
    link out of its node, on those between switches (``network.trunks``; up and down a tree) and on
    the link into the other node: each is a token bucket (rate, burst; first come, first served by
    time; at one time by rank, then program order) that it passes one after the other, and the
    delay is the time it has passed all less the time it would have passed them alone with full
    buckets. On a node's link it counts as many bytes as pass in ``Path.busy``, if those are more.
    With ``network.fair`` all messages on a link share it instead, each with one rate on all of its
    way (max-min fair, in inverse proportion to the links on their ways), and arrive later by as
    much as they take longer than alone; of a link back they take ``network.back`` of that rate.
    Ways may be those of any network (``network.wires``). Messages inside a node use no link.
    A receive ends when the message has arrived and not before its own ``Path.receive``; a wait
    takes the messages that it completes in one by one as they come, so k of them that are there
    already take the sum of their ``receive``. A call that only starts a request takes
    ``network.post`` (an eager send: ``Path.send``), a wait at least that.
    WAITANY completes the request that is complete first (of those complete when it is called, the
    first listed), WAITSOME the first ``number``; requests taken by one before are passed over.
    A partner that is not among the ranks is always ready: a receive from it takes its
    ``receive``, a send is eager (and uses the links). Without a partner (peer -1): ``post``.
    Collectives (the k-th call of each member on a communicator) end for all when all have begun,
    plus their cost; Bcast, Scatter: own or root's begin plus cost; Reduce, Gather: root when all
    have begun plus cost, others after their ``send``; Scan: one member after the other.

    Errors: P3SError when steps refer to what is not there, a cost is negative, there is no C
    compiler, or ranks wait for each other for ever.
    """
    return _run(steps, node_of, network, distance, collective_ns, first_ns, extra_ns, False)[0]


def simulate_anyway(
    steps: Steps,
    node_of: Ints,
    network: Network,
    *,
    distance: Ints | None = None,
    collective_ns: Floats | None = None,
    first_ns: Floats | None = None,
    extra_ns: Floats | None = None,
) -> tuple[Simulated, tuple[str, ...]]:
    """Return what ``simulate`` does, also where ranks wait for each other for ever.

    Where none can go on, all sends that are waited for go on as if they were buffered; where
    there is none, the rank that has been in its call for the longest time waits no more. The
    notes, one line each, say which calls that were; none: it was not necessary. Arguments and
    other errors as in ``simulate``.
    """
    found, state = _run(steps, node_of, network, distance, collective_ns, first_ns, extra_ns, True)
    number, notes = _changed(steps, state)
    return replace(found, cut=number), notes


def totals(
    steps: Steps,
    node_of: Ints,
    network: Network,
    tally: Tally,
    *,
    distance: Ints | None = None,
    first_ns: Floats | None = None,
    slower: float = 1.0,
    room: Room | None = None,
) -> Totals:
    """Return the times that simulate_anyway returns, added up.

    ``slower``: so many times as long as the steps say takes everything but their computation, in
    another unit of time: what is returned is to be multiplied by it. ``room``: of simulations
    before, whose results nobody needs any more.
    """
    room = room or Room()
    found, state = _run(
        steps, node_of, network, distance, None, first_ns, None, True, tally, slower, room
    )
    longs = room.column("longs", tally.groups * len(steps.ranks), np.float64)
    sums = room.column("sums", tally.cells * PARTS, np.float64)
    return Totals(
        sums.reshape(-1, PARTS).T.copy(),
        longs.reshape(-1, len(steps.ranks)).copy(),
        found.end_ns,
        *_changed(steps, state),
    )


def _changed(steps: Steps, state: Ints | None) -> tuple[int, tuple[str, ...]]:
    """Return how many calls were taken as not waiting, and what was changed so that all end."""
    from p3s.simulate.deadlock import cut, loosened

    return (0, ()) if state is None else (cut(state), loosened(steps, state))


def _run(
    steps: Steps,
    node_of: Ints,
    network: Network,
    distance: Ints | None,
    collective_ns: Floats | None,
    first_ns: Floats | None,
    extra_ns: Floats | None,
    anyway: bool,
    tally: Tally | None = None,
    slower: float = 1.0,
    room: Room | None = None,
) -> tuple[Simulated, Ints | None]:
    """Call the core; return times, and the state of every step where any had to be changed.

    With a ``tally`` times are added up in ``room``, and only begins and ends are in the result.
    """
    from p3s.simulate.build import library

    room = room or Room()
    known = room.known if room.known is not None and room.known.are(steps) else None
    calls = known.calls if known is not None else instances(steps)
    keep: list[Any] = []
    inputs = _inputs(
        keep, steps, calls, node_of, network, distance, collective_ns, first_ns, extra_ns, anyway
    )
    inputs.slower, inputs.known = slower, int(known is not None)
    each = len(steps) if tally is None else 0
    live = room.column("live", len(steps), LIVE)
    end = room.column("end", len(steps), np.float64)
    waiting, software = (room.column(name, each, np.float64) for name in ("waiting", "software"))
    added = _added(keep, inputs, tally, room, len(steps.ranks))
    at = np.empty(len(steps.ranks), dtype=np.int64)
    columns = (live, end, waiting, software, *added, at)
    out = Output(*(column.ctypes.data for column in columns))
    result = library().p3s_simulate(ctypes.byref(inputs), ctypes.byref(out))
    if result == 1:
        from p3s.simulate.deadlock import stuck

        raise P3SError(stuck(steps, calls, at, live["owner"] >> 24))
    if result == 3:
        rank = steps.ranks[int(np.searchsorted(steps.start, out.where, side="right")) - 1]
        raise P3SError(f"simulation: step {out.where} of rank {rank}: {FLAWS[out.flaw]}")
    if result:
        raise P3SError(f"not enough memory to simulate {len(steps):,} steps; take fewer iterations")
    room.known = known or Known(columns_of(steps), calls)
    times = Simulated(
        live["begin"], end, waiting, software, live["began"], live["arrival"], int(out.queued)
    )
    return times, live["owner"] if out.loosened else None


def _asked_for(
    steps: Steps, node_of: Ints, network: Network, distance: Ints | None, extra_ns: Floats | None
) -> Floats | None:
    """Return ``extra_ns`` with the way of the request that the target of a one-sided call answers.

    That is the latency: of a message without bytes.
    """
    names = [number for number, name in enumerate(steps.calls) if is_answer(name)]
    if not names:
        return extra_ns
    asked = np.flatnonzero(np.isin(steps.call, names) & (steps.peer >= 0))
    if not len(asked) or not network.paths:
        return extra_ns
    here, there = node_of[steps.rank[asked]], node_of[steps.peer[asked]]
    far = np.asarray(here != there, dtype=np.int64)
    if distance is not None:
        far = np.asarray(distance)[here, there]
    values, which = np.unique(far, return_inverse=True)
    latency = [network.path(int(value)).transfer.at(0.0) for value in values]
    out = np.zeros(len(steps)) if extra_ns is None else extra_ns.copy()
    out[asked] += np.array(latency)[which.reshape(-1)]
    return out


def _added(
    keep: list[Any], inputs: Input, tally: Tally | None, room: Room, ranks: int
) -> tuple[Floats, Floats]:
    """Tell the core what to add times up to; return where the sums will be."""
    if tally is None:
        return np.zeros(0), np.zeros(0)
    cell = np.ascontiguousarray(tally.cell, dtype=np.int32)
    if len(cell) != inputs.steps or (len(cell) and not 0 <= cell.min() <= cell.max() < tally.cells):
        raise P3SError(f"simulation: {len(cell)} cells of {inputs.steps} steps, or one is no cell")
    keep.append(cell)
    inputs.cell, inputs.weight = cell.ctypes.data, _pointer(keep, tally.weight)
    if tally.group is not None:
        inputs.group = _pointer(keep, tally.group.astype(np.uint8, copy=False))
    sums = room.column("sums", tally.cells * PARTS, np.float64)
    longs = room.column("longs", tally.groups * ranks, np.float64)
    sums[:], longs[:] = 0.0, 0.0
    return sums, longs


def _inputs(
    keep: list[Any],
    steps: Steps,
    calls: Instances,
    node_of: Ints,
    network: Network,
    distance: Ints | None,
    collective_ns: Floats | None,
    first_ns: Floats | None,
    extra_ns: Floats | None,
    anyway: bool,
) -> Input:
    """Return the arguments of the core; ``keep`` holds the arrays that they point into."""

    def ints(values: Any) -> int:
        keep.append(np.ascontiguousarray(values, dtype=np.int64))
        return int(keep[-1].ctypes.data)

    def narrow(name: str, dtype: type) -> int:
        keep.append(_narrow(getattr(steps, name), name, dtype))
        return int(keep[-1].ctypes.data)

    def floats(values: Any, what: str) -> int:
        keep.append(np.ascontiguousarray(values, dtype=np.float64))
        if keep[-1].size and not (np.isfinite(keep[-1]).all() and keep[-1].min() >= 0):
            raise P3SError(f"simulation: {what} is negative or no number")
        return int(keep[-1].ctypes.data)

    _check(steps, node_of)
    nodes = int(max(node_of)) + 1
    distances = sorted(network.paths)
    if not distances:
        raise P3SError("simulation: the network has no path")
    paths = [network.paths[d] for d in distances]
    number = {d: distances.index(_nearest(network, d)) for d in (0, 1)}
    path_of = 0
    if distance is not None:
        table = np.asarray(distance)
        if table.ndim != 2 or table.shape[0] != table.shape[1] or table.shape[0] < nodes:
            raise P3SError(f"simulation: distances are {table.shape}, not {nodes} x {nodes} nodes")
        nodes = len(table)
        values, which = np.unique(table, return_inverse=True)
        picked = np.array([distances.index(_nearest(network, int(d))) for d in values])
        keep.append(np.ascontiguousarray(picked[which].reshape(table.shape), dtype=np.uint8))
        path_of = int(keep[-1].ctypes.data)
    curves = [
        curve for path in paths for curve in (path.transfer, path.send, path.receive, path.busy)
    ]
    if collective_ns is None and len(calls.call_step):
        collective_ns = rough_costs(steps, network, np.asarray(node_of))
    if collective_ns is not None and len(collective_ns) != len(steps):
        raise P3SError(f"simulation: {len(collective_ns)} costs of collectives, {len(steps)} steps")
    call_ns = np.zeros(0) if collective_ns is None else collective_ns[calls.call_step]
    if first_ns is not None and len(first_ns) != len(steps.ranks):
        raise P3SError(f"simulation: {len(first_ns)} start times, {len(steps.ranks)} ranks")
    if extra_ns is not None:
        if len(extra_ns) != len(steps) or not np.isfinite(extra_ns).all():
            raise P3SError(f"simulation: extra_ns is not a time for each of {len(steps)} steps")
        call_ns = np.maximum(call_ns + extra_ns[calls.call_step], 0.0)
    extra_ns = _asked_for(steps, np.asarray(node_of), network, distance, extra_ns)
    scalars = [network.post, network.burst, network.sender_buffer]
    floats(scalars, "post, burst or sender_buffer")
    if not network.rate > 0:
        raise P3SError(f"simulation: the rate of links is {network.rate} bytes per ns")
    both, some = bool((steps.op == Op.SENDRECV).any()), bool((steps.op == Op.WAITSOME).any())
    return Input(
        len(steps),
        len(steps.ranks),
        steps.n,
        nodes,
        len(calls.kind),
        ints(steps.ranks),
        ints(steps.start),
        narrow("op", np.uint8),
        narrow("peer", np.int32),
        ints(steps.bytes),
        narrow("peer2", np.int32) if both else 0,
        ints(steps.bytes2) if both else 0,
        narrow("number", np.int32) if some else 0,
        ints(steps.done_start),
        narrow("done", np.int32),
        narrow("to", np.int32),
        narrow("source", np.int32),
        _pointer(keep, np.ascontiguousarray(steps.work_ns, dtype=np.float64)),
        floats(np.zeros(len(steps.ranks)) if first_ns is None else first_ns, "a start time"),
        0 if extra_ns is None else _pointer(keep, np.ascontiguousarray(extra_ns, dtype=np.float64)),
        0,
        1.0,
        *(0, 0, 0),
        ints(node_of),
        path_of,
        number[0],
        number[1],
        ints(np.cumsum([0, *(len(curve.nbytes) for curve in curves)])),
        ints([path.linked for path in paths]),
        floats([x for curve in curves for x in curve.nbytes], "the bytes of a cost"),
        floats([y for curve in curves for y in curve.ns], "the cost of a message"),
        _pointer(keep, np.array([path.eager_bytes for path in paths], dtype=np.float64)),
        network.rate,
        network.burst,
        network.post,
        network.sender_buffer / network.rate,
        *_ways(keep, network, nodes, steps, np.asarray(node_of)),
        int(network.background),
        int(anyway),
        int(network.handshake),
        int(network.fair and _shared(network)),
        network.back,
        ints(calls.call_start),
        ints(calls.call_step),
        ints(calls.call_instance),
        floats(call_ns, "the cost of a collective"),
        ints(calls.kind),
        ints(calls.member_start),
        ints(calls.member),
        ints(calls.expected),
        ints(calls.root),
    )


def _narrow(values: Ints, name: str, dtype: type) -> Ints:
    """Return a column in the type that the core reads; itself where it has it already."""
    if values.dtype != dtype and values.size:
        room = np.iinfo(dtype)
        if int(values.min()) < room.min or int(values.max()) > room.max:
            where = int(np.flatnonzero((values < room.min) | (values > room.max))[0])
            raise P3SError(f"simulation: {name} of step {where} is {values[where]}")
    return np.ascontiguousarray(values, dtype=dtype)


def _pointer(keep: list[Any], values: np.ndarray) -> int:
    keep.append(np.ascontiguousarray(values))
    return int(keep[-1].ctypes.data)


def _shared(network: Network) -> bool:
    """Tell whether any link between nodes is a limit."""
    return math.isfinite(network.rate) or network.wires is not None


def _ways(
    keep: list[Any], network: Network, nodes: int, steps: Steps, node_of: Ints
) -> tuple[int, ...]:
    """Return what the core is told of links between switches; nothing where none is a limit."""
    trunks, wires = network.trunks, network.wires
    if wires is not None:
        if len(wires.node) < nodes:
            raise P3SError(
                f"simulation: {len(wires.node)} nodes of the network are known, not {nodes}"
            )
        ways = wires.ways(nodes, *_pairs(steps, node_of))
    elif trunks is None or not trunks.limited:
        return (0,) * 7
    elif len(trunks.switch_of) < nodes:
        raise P3SError(
            f"simulation: links between switches are known for "
            f"{len(trunks.switch_of)} nodes, not {nodes}"
        )
    else:
        try:
            ways = routes(trunks)
        except ValueError as err:
            raise P3SError(f"simulation: {err}") from err
    columns = (ways.place_of, ways.start, ways.link, ways.rate, ways.burst)
    return ways.places, len(ways.rate), *(_pointer(keep, column) for column in columns)


def _pairs(steps: Steps, node_of: Ints) -> tuple[Ints, Ints]:
    """Return the nodes of ranks that exchange messages, each pair once."""
    sends = steps.peer >= 0
    first, second = node_of[steps.rank[sends]], node_of[steps.peer[sends]]
    code = np.unique(first * (int(node_of.max()) + 1) + second)
    return np.divmod(code, int(node_of.max()) + 1)


def _nearest(network: Network, distance: int) -> int:
    """Return the distance whose path Network.path takes."""
    return min(network.paths, key=lambda known: (abs(known - distance), known))


def _check(steps: Steps, node_of: Ints) -> None:
    """Raise P3SError where the columns do not fit together; the core looks at every step."""
    size, ranks = len(steps), len(steps.ranks)
    if len(node_of) < steps.n or (len(node_of) and int(np.min(node_of)) < 0):
        raise P3SError(f"simulation: nodes of {len(node_of)} ranks given, {steps.n} needed")
    if size >= 2**31:
        raise P3SError(f"simulation: {size:,} steps are too many; take fewer iterations")
    if ranks >= 2**24:
        raise P3SError(f"simulation: {ranks:,} ranks are too many")
    if (
        len(steps.start) != ranks + 1
        or steps.start[0] != 0
        or steps.start[-1] != size
        or (np.diff(steps.start) < 0).any()
    ):
        raise P3SError("simulation: the steps are not cut into ranks")
    if ranks and not (0 <= int(np.min(steps.ranks)) <= int(np.max(steps.ranks)) < steps.n):
        raise P3SError(f"simulation: a rank is not in 0..{steps.n - 1}")
    if (
        len(steps.done_start) != size + 1
        or steps.done_start[-1] != len(steps.done)
        or (np.diff(steps.done_start) < 0).any()
    ):
        raise P3SError("simulation: the lists of requests do not belong to the steps")
    for field in fields(steps):
        column = getattr(steps, field.name)
        if field.name not in _OTHER and len(column) != size:
            raise P3SError(f"simulation: {len(column)} entries of {field.name}, {size} steps")


#: Fields of Steps that do not have an entry per step.
_OTHER = ("n", "ranks", "start", "done_start", "done", "calls", "members")
