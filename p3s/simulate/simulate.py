"""When every call begins and ends: program order, matching, eager and rendezvous, node links."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from p3s.base.arrays import Bools, Floats, Ints
from p3s.base.errors import P3SError
from p3s.base.ops import is_answer
from p3s.simulate.core import DEADLOCK, FLAWS, LIVE, Input, Output, pointer
from p3s.simulate.network import Network
from p3s.simulate.packed import MANY, PackedSteps, Tally, Weighed, pack
from p3s.simulate.steps import Steps, rough_costs
from p3s.simulate.switch_links import routes
from p3s.simulate.totals import PARTS, Room, StepDraws, Totals


@dataclass(frozen=True)
class StepTimes:
    """Times of every step in ns, from the begin of the section on; one entry per step.

    A call lasts from ``begin_ns`` to ``end_ns`` and that is ``waiting_ns + software_ns +
    transfer_ns``. *Waiting*: by how much it would have ended earlier had every partner begun when
    the call began at the latest (the message then takes what it took, in queues too). *Software*:
    what the call takes for itself: an eager send its ``send``, a receive or the completion of
    receives their ``receive``, others ``post``. *Transfer*: the rest, data on its way, queues.

    ``began_ns``, ``arrival_ns``: of what a step sends, when its transfer began and when the
    receiver had it; of a collective, when the last that it waits for began and its end; NaN where
    there is nothing. ``queued``: how many messages found their node's link busy.
    ``cut``: how many calls were taken as not waiting, ``notes``: which calls those were, one line
    each, where ranks would wait for each other for ever and are simulated ``anyway``.
    """

    begin_ns: Floats
    end_ns: Floats
    waiting_ns: Floats
    software_ns: Floats
    began_ns: Floats
    arrival_ns: Floats
    queued: int
    cut: int = 0
    notes: tuple[str, ...] = ()

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
    anyway: bool = False,
) -> StepTimes:
    """Return when each step begins and ends on a network.

    ``node_of``: the node of every world rank (``steps.n`` of them). ``distance``: nodes x nodes,
    by default 0 inside a node and 1 between nodes. ``collective_ns``: what each collective step
    costs when everybody has begun, by default a rough guess. ``first_ns``: when each of
    ``steps.ranks`` starts, by default 0. ``extra_ns``: added to what the transfer of the message
    that each step sends takes, or to the cost of a collective step (less than 0: taken off, but
    nothing takes less than 0): noise, drawn by who calls. ``anyway``: also where ranks wait for
    each other for ever: where none can go on, all sends that are waited for go on as if they were
    buffered; where there is none, the rank that has been in its call for the longest time waits no
    more.

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
    keep: list[Any] = []  # as long as the core reads it
    packed = pack(steps, node_of, distance, network)
    inputs = _inputs(keep, steps, packed, network, collective_ns, extra_ns)
    result, state = _run(steps, packed, inputs, first_ns, anyway)
    number, notes = _list_changes(steps, state)
    return replace(result, cut=number, notes=notes)


def totals(
    steps: Steps,
    node_of: Ints,
    network: Network,
    tally: Tally,
    *,
    distance: Ints | None = None,
    first_ns: Floats | None = None,
    slower: float = 1.0,
    only: Bools | None = None,
    drawn: StepDraws | None = None,
    room: Room | None = None,
) -> Totals:
    """Return the times of ``simulate`` (``anyway``), added up.

    ``slower``: so many times as long as the steps say takes everything but their computation, in
    another unit of time: what is returned is to be multiplied by it. ``only``: which of the steps
    are made; nothing joins them to the others. ``drawn``: what some steps compute instead.
    ``room``: of simulations before, whose results nobody needs any more.
    """
    room = room or Room()
    packed = room.packs.of(steps, node_of, distance, network, tally.cell)
    core_input = packed.known_on(network)
    if core_input is None:
        keep: list[Any] = []
        core_input = packed.keep_on(
            network, _inputs(keep, steps, packed, network, None, None), keep
        )
    inputs = Input.from_buffer_copy(core_input.inputs)
    inputs.slower = slower
    result, state = _run(steps, packed, inputs, first_ns, True, tally, room, only, drawn)
    longs = room.column("longs", tally.groups * len(steps.ranks), np.float64)
    sums = room.column("sums", tally.cells * PARTS, np.float64)
    return Totals(
        sums.reshape(-1, PARTS).T.copy(),
        longs.reshape(-1, len(steps.ranks)).copy(),
        result.end_ns,
        None if packed.order is None else packed.place,
        *_list_changes(steps, state),
    )


def _list_changes(steps: Steps, state: np.ndarray | None) -> tuple[int, tuple[str, ...]]:
    """Return how many calls were taken as not waiting, and what was changed so that all end."""
    from p3s.simulate.core import count_cut_waits, describe_changes

    return (0, ()) if state is None else (count_cut_waits(state), describe_changes(steps, state))


def _run(
    steps: Steps,
    packed: PackedSteps,
    inputs: Input,
    first_ns: Floats | None,
    anyway: bool,
    tally: Tally | None = None,
    room: Room | None = None,
    only: Bools | None = None,
    drawn: StepDraws | None = None,
) -> tuple[StepTimes, np.ndarray | None]:
    """Call the core; return times, and the state of every step where any had to be changed.

    With a ``tally`` times are added up in ``room``, and only ends are in the result, by place.
    """
    from p3s.simulate.core import library

    room = room or Room()
    size, ranks = len(steps), len(steps.ranks)
    first = np.zeros(ranks) if first_ns is None else _times(first_ns, "a start time")
    if len(first) != ranks:
        raise P3SError(f"simulation: {len(first)} start times, {ranks} ranks")
    work = room.work(steps, packed, drawn)
    _check_work(
        steps, packed, work if drawn is None else drawn.ns, None if drawn is None else drawn.at
    )
    inputs.work, inputs.first_ns, inputs.anyway = work.ctypes.data, first.ctypes.data, int(anyway)
    each = size if tally is None else 0
    live = room.column("live", size, LIVE)
    state, end = room.column("state", size, np.uint8), room.column("end", size, np.float64)
    waiting, software = (room.column(name, each, np.float64) for name in ("waiting", "software"))
    weighed = None if tally is None else packed.weighed(tally, only)
    added = _request_sums(inputs, packed, tally, weighed, room)
    at = np.empty(ranks, dtype=np.int64)
    logs = tally is not None and packed.begun is None and only is None and size >= MANY
    order = np.empty(size if logs else 0, dtype=np.int32)
    columns = (live, state, end, waiting, software, *added, at)
    out = Output(*(column.ctypes.data for column in columns), order.ctypes.data if logs else 0)
    result = library().p3s_simulate(ctypes.byref(inputs), ctypes.byref(out))
    if result == DEADLOCK:
        from p3s.simulate.core import stuck

        where = np.where(at >= 0, packed.number_of(np.maximum(at, 0)), steps.start[1:])
        raise P3SError(stuck(steps, where))
    if result:
        raise P3SError(f"not enough memory to simulate {len(steps):,} steps; take fewer iterations")
    if logs and out.begun == size:
        packed.begun = order
    times = StepTimes(
        live["begin"], end, waiting, software, live["began"], live["arrival"], int(out.queued)
    )
    return times, packed.by_number(state) if out.loosened else None


def _times(values: Any, quantity: str) -> Floats:
    """Return times as the core reads them, if they are times."""
    array = np.ascontiguousarray(values, dtype=np.float64)
    if array.size and not (np.isfinite(array).all() and array.min() >= 0):
        raise P3SError(f"simulation: {quantity} is negative or no number")
    return array


def _check_work(steps: Steps, packed: PackedSteps, work: Floats, at: Ints | None) -> None:
    """Raise P3SError where computation is no time; ``at``: the steps it belongs to, None: all."""
    if not work.size or (np.isfinite(work.min()) and work.min() >= 0 and np.isfinite(work.max())):
        return
    flawed = np.flatnonzero(~(np.isfinite(work) & (work >= 0)))
    numbers = packed.number_of(flawed) if at is None else np.asarray(at)[flawed]
    where = int(np.min(numbers))
    rank = steps.ranks[int(np.searchsorted(steps.start, where, side="right")) - 1]
    raise P3SError(f"simulation: step {where} of rank {rank}: {FLAWS[4]}")


def _asked_for(
    steps: Steps, packed: PackedSteps, network: Network, extra_ns: Floats | None
) -> Floats | None:
    """Return ``extra_ns`` with the way of the request that the target of a one-sided call answers.

    That is the latency: of a message without bytes.
    """
    names = [number for number, name in enumerate(steps.calls) if is_answer(name)]
    if not names:
        return extra_ns
    answers = np.flatnonzero(np.isin(steps.call, names) & (steps.peer >= 0))
    if not len(answers) or not network.paths:
        return extra_ns
    node_of = np.asarray(packed.node_of)
    sender_node, target_node = node_of[steps.rank[answers]], node_of[steps.peer[answers]]
    far = np.asarray(sender_node != target_node, dtype=np.int64)
    if packed.distance is not None:
        far = np.asarray(packed.distance)[sender_node, target_node]
    values, index = np.unique(far, return_inverse=True)
    latency = [network.path(int(value)).transfer.at(0.0) for value in values]
    out = np.zeros(len(steps)) if extra_ns is None else extra_ns.copy()
    out[answers] += np.array(latency)[index.reshape(-1)]
    return out


def _request_sums(
    inputs: Input, packed: PackedSteps, tally: Tally | None, weighed: Weighed | None, room: Room
) -> tuple[Floats, Floats]:
    """Tell the core what to add times up to; return where the sums will be."""
    if tally is None or weighed is None:
        return np.zeros(0), np.zeros(0)
    weight, group = weighed
    inputs.weight = weight.ctypes.data
    inputs.group = 0 if group is None else group.ctypes.data
    sums = room.column("sums", tally.cells * PARTS, np.float64)
    longs = room.column("longs", tally.groups * len(packed.first), np.float64)
    sums[:], longs[:] = 0.0, 0.0
    return sums, longs


def _inputs(
    keep: list[Any],
    steps: Steps,
    packed: PackedSteps,
    network: Network,
    collective_ns: Floats | None,
    extra_ns: Floats | None,
) -> Input:
    """Return what the core is told of steps on a network; ``keep`` holds what it points into."""

    def column(values: Any, dtype: type = np.int64) -> int:
        return pointer(keep, values, dtype)

    def times(values: Any, quantity: str) -> int:
        return pointer(keep, _times(values, quantity))

    calls, node_of = packed.calls, np.asarray(packed.node_of)
    nodes = int(node_of.max(initial=0)) + 1
    if packed.distance is not None:
        nodes = len(packed.distance)
    paths = [network.paths[distance] for distance in packed.distances]
    curves = [
        curve for path in paths for curve in (path.transfer, path.send, path.receive, path.busy)
    ]
    if collective_ns is None and len(calls.call_step):
        collective_ns = rough_costs(steps, network, node_of)
    if collective_ns is not None and len(collective_ns) != len(steps):
        raise P3SError(f"simulation: {len(collective_ns)} costs of collectives, {len(steps)} steps")
    call_ns = np.zeros(0) if collective_ns is None else collective_ns[calls.call_step]
    if extra_ns is not None:
        if len(extra_ns) != len(steps) or not np.isfinite(extra_ns).all():
            raise P3SError(f"simulation: extra_ns is not a time for each of {len(steps)} steps")
        call_ns = np.maximum(call_ns + extra_ns[calls.call_step], 0.0)
    extra_ns = _asked_for(steps, packed, network, extra_ns)
    _times([network.post, network.burst, network.sender_buffer], "post, burst or sender_buffer")
    if not network.rate > 0:
        raise P3SError(f"simulation: the rate of links is {network.rate} bytes per ns")
    return Input(
        len(packed),
        len(packed.first),
        nodes,
        len(calls.kind),
        len(packed.size),
        packed.longest,
        column(steps.ranks),
        *(each.ctypes.data for each in (packed.step, packed.done, packed.first)),
        0 if packed.order is None else packed.order.ctypes.data,
        packed.size.ctypes.data,
        *(0, 0),
        0 if extra_ns is None else column(packed.moved(extra_ns), np.float64),
        1.0,
        *(0, 0),
        column(node_of),
        column(np.cumsum([0, *(len(curve.nbytes) for curve in curves)])),
        column([path.linked for path in paths]),
        times([x for curve in curves for x in curve.nbytes], "the bytes of a cost"),
        times([y for curve in curves for y in curve.ns], "the cost of a message"),
        column([path.eager_bytes for path in paths], np.float64),
        network.rate,
        network.burst,
        network.post,
        network.sender_buffer / network.rate,
        *_ways(keep, network, nodes, steps, node_of),
        int(network.background),
        0,
        int(network.handshake),
        int(network.fair and _has_link_limit(network)),
        network.back,
        column(packed.place_of(calls.call_step)),
        column(calls.call_instance),
        times(call_ns, "the cost of a collective"),
        column(calls.kind),
        column(calls.member_start),
        column(calls.member),
        column(calls.expected),
        column(calls.root),
    )


def _has_link_limit(network: Network) -> bool:
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
        ways = routes(trunks)
    columns = (ways.place_of, ways.start, ways.link, ways.rate, ways.burst)
    return ways.places, len(ways.rate), *(pointer(keep, column) for column in columns)


def _pairs(steps: Steps, node_of: Ints) -> tuple[Ints, Ints]:
    """Return the nodes of ranks that exchange messages, each pair once."""
    sends = steps.peer >= 0
    first, second = node_of[steps.rank[sends]], node_of[steps.peer[sends]]
    code = np.unique(first * (int(node_of.max()) + 1) + second)
    return np.divmod(code, int(node_of.max()) + 1)
