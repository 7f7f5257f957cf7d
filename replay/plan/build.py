"""The program of one iteration: what measured ranks, their black holes and the noise pair execute.

A measured rank makes the calls of its steps in their order, persistent ones as nonblocking ones.
Messages between loaded ranks are real; those with absent partners go to the rank's black hole,
with a tag of its own per partner.
"trace": the rank asks its black hole for every message that an absent partner would send, ahead
of a blocking receive and after a nonblocking one, and the black hole answers at once. "timed": no
questions; the black hole posts and sends at the times at which the absent partners would.
Source: thesis ch. 7.
"""

from __future__ import annotations

import numpy as np

from p3s.base.arrays import Bools, Ints, starts
from p3s.program.order.pairs import codes_of
from p3s.replay.plan.build_holes import Noise, add_holes, add_noise
from p3s.replay.plan.build_traffic import Blocks, SkipReason, Table, Traffic, offsets, traffic_of
from p3s.replay.plan.executed import CODES, collective_numbers, completers, expand_ranges
from p3s.replay.plan.loaded import Loaded
from p3s.replay.plan.program import WAITING, Code, Pairing, Program, World, among
from p3s.simulate.steps import REQUESTS, Op

_BLOCKING = (Op.SEND, Op.SSEND, Op.BSEND, Op.RECV, Op.SENDRECV)


def pairing_of(table: Table, loaded: Loaded, traffic: Traffic) -> Pairing:
    """Return the messages both of whose ends are loaded.

    A request that no call completes is complete at the END. ``alone``: a receive or a wait that
    waits for this one message and nothing else (not a SENDRECV).
    """
    steps = loaded.steps
    sends = np.flatnonzero(traffic.send.loaded)
    receives = steps.to[sends]
    waiter = completers(steps)  # the last one that lists it
    times = np.bincount(steps.done, minlength=len(steps))
    end = (table.start[1:] - table.start[:-1] - 1)[traffic.process]

    def completed(at: Ints) -> Ints:
        """Return the events that complete the requests or calls of these steps."""
        by_wait = np.where(waiter[at] >= 0, table.main_at[waiter[at]], -1)
        by_wait = np.where(by_wait >= 0, by_wait, end[at])
        return np.where(np.isin(steps.op[at], _BLOCKING), table.main_at[at], by_wait)

    wait = waiter[receives]
    number = np.where(
        table.main_at[wait] >= 0,
        table.events["number"][table.start[traffic.process[wait]] + table.main_at[wait]],
        0,
    )
    single = (wait >= 0) & (steps.op[wait] == Op.WAIT) & (number == 1) & (times[receives] == 1)
    only = (steps.op[receives] == Op.SENDRECV) & ~traffic.send.there[receives]
    alone = single | only | (steps.op[receives] == Op.RECV)
    return Pairing(
        cls=loaded.message_class[sends],
        sender=traffic.process[sends],
        receiver=traffic.process[receives],
        sent=table.main_at[sends],
        sent_end=completed(sends),
        posted=table.main_at[receives],
        received=completed(receives),
        alone=alone.astype(np.int64),
    )


_CODE_OF = np.zeros(max(Op) + 1, dtype=np.int64)
_CODE_OF[[int(op) for op, _ in CODES]] = [int(code) for _, code in CODES]


def build_program(
    loaded: Loaded,
    world: World,
    *,
    kind: str = "trace",
    noise: Noise | None = None,
    buffered_bytes: int = -1,
    excluded: tuple[Bools, Bools] | None = None,
) -> tuple[Program, Traffic]:
    """Return the program of two loaded ranges and what runs of their steps.

    ``kind``: "trace" or "timed" (needs the schedule in ``loaded``). Blocking sends between
    loaded ranks of up to ``buffered_bytes`` become sends that return at once; ``excluded`` halves
    of steps (send, receive) are left out. The program is not proven yet: replay/plan/check.py.
    """
    traffic = traffic_of(loaded, world, excluded)
    request_runs, counts = _requests(loaded, traffic)
    runs = traffic.runs | (counts > 0)
    blocks = Blocks(world.size)
    comms = _add_measured(blocks, loaded, traffic, runs, request_runs, counts, kind, buffered_bytes)
    add_holes(blocks, loaded, traffic, timed=kind == "timed")
    has_noise = add_noise(blocks, world, noise)
    table = blocks.finish(loaded.step)
    lists, list_start = _lists(table, loaded, request_runs, counts)
    pairing = pairing_of(table, loaded, traffic)
    program = Program(
        kind,
        f"section {loaded.section}, nodes {' and '.join(map(str, dict.fromkeys(loaded.pair)))}",
        loaded.section,
        table.events,
        table.start,
        table.step,
        lists,
        list_start,
        table.slots,
        comms,
        pairing,
        timed=kind == "timed",
        noise=has_noise,
    )
    return program, traffic


def _requests(loaded: Loaded, traffic: Traffic) -> tuple[Bools, Ints]:
    """Return which entries of ``done`` are requests that run, and how many each step has."""
    steps = loaded.steps
    leaves = steps.is_op(*REQUESTS) & traffic.runs
    request_runs = leaves[steps.done]
    return request_runs, np.diff(starts(request_runs)[steps.done_start])


def _work(loaded: Loaded, runs: Bools) -> tuple[Ints, Ints]:
    """Return the computation before each kept step and what is left at the end of each rank."""
    steps = loaded.steps
    total = np.concatenate(([0.0], np.cumsum(steps.work_ns)))
    at = np.flatnonzero(runs)
    behind = np.append(0, at + 1)
    start = steps.start[np.searchsorted(steps.start, at, side="right") - 1]
    work = np.zeros(len(steps), dtype=np.int64)
    work[at] = np.rint(total[at + 1] - total[np.maximum(behind[:-1], start)]).astype(np.int64)
    behind_last = np.maximum(behind[np.searchsorted(at, steps.start[1:])], steps.start[:-1])
    return work, np.rint(total[steps.start[1:]] - total[behind_last]).astype(np.int64)


def _samples(
    loaded: Loaded, traffic: Traffic, request_runs: Bools, counts: Ints, kind: str
) -> Ints:
    """Return the class of each call that gets a sample, else -1.

    With immediate black holes a call counts only if all its messages are between loaded ranks.
    """
    steps = loaded.steps
    if kind == "timed":
        return np.maximum(loaded.call_class, 0)
    whole = ~(traffic.send.away | traffic.receive.away) & (traffic.why == SkipReason.RUNS)
    waits = steps.is_op(Op.WAIT, Op.WAITANY, Op.WAITSOME)
    inside = np.diff(starts(request_runs & whole[steps.done])[steps.done_start])
    whole &= ~waits | (inside == np.diff(steps.done_start))
    return np.where(whole, loaded.call_class, -1)


def _add_measured(
    blocks: Blocks,
    loaded: Loaded,
    traffic: Traffic,
    runs: Bools,
    request_runs: Bools,
    counts: Ints,
    kind: str,
    buffered_bytes: int,
) -> tuple[tuple[int, ...], ...]:
    """Add the events of the measured ranks; return the communicators of their collectives."""
    steps = loaded.steps
    work, rest = _work(loaded, runs)
    sample = _samples(loaded, traffic, request_runs, counts, kind)
    asks = traffic.receive.away
    ask_first = asks & steps.is_op(Op.RECV, Op.SENDRECV)
    if kind == "timed":
        asks = ask_first = np.zeros(len(steps), dtype=bool)
    for chosen, sub in ((ask_first, 0), (asks & ~ask_first, 3)):
        i = np.flatnonzero(chosen)
        blocks.add(
            traffic.process[i],
            i * 8 + sub,
            i,
            code=Code.ASK,
            peer=traffic.receive.process[i],
            tag=traffic.receive.tag[i],
            bytes=loaded.arrives[i],
            arg=steps.call[i],
            work_ns=np.where(ask_first, work, 0)[i],
        )

    i = np.flatnonzero(runs)
    send, receive = traffic.send.there[i], traffic.receive.there[i]
    both = send & receive
    code = _CODE_OF[steps.op[i]]
    double = steps.op[i] == Op.SENDRECV
    code = np.where(double & ~send, Code.RECV, np.where(double & ~receive, Code.SEND, code))
    code = np.where(
        (code == Code.SEND) & (steps.bytes[i] <= buffered_bytes) & traffic.send.loaded[i],
        Code.BUFFERED,
        code,
    )
    sized = np.where(traffic.receive.there, loaded.arrives, 0)
    offset = offsets(
        traffic.process,
        codes_of((traffic.receive.process, traffic.receive.tag)),
        np.where(traffic.direct, steps.bytes, sized),
    )
    collective = traffic.direct[i]
    number, comm, root, comms = _collectives(loaded, traffic)
    blocks.add(
        traffic.process[i],
        i * 8 + 1,
        i,
        main=True,
        code=code,
        peer=np.where(
            collective,
            root[i],
            np.where(
                send, traffic.send.process[i], np.where(receive, traffic.receive.process[i], -1)
            ),
        ),
        tag=np.where(send, traffic.send.tag[i], np.where(receive, traffic.receive.tag[i], 0)),
        bytes=np.where(send | collective, steps.bytes[i], np.where(receive, loaded.arrives[i], 0)),
        offset=np.where(receive & ~send | collective, offset[i], 0),
        work_ns=np.where(ask_first, 0, work)[i],
        arg=np.where(
            collective,
            number[i],
            np.where(
                steps.op[i] == Op.WAITSOME, np.minimum(np.maximum(steps.number[i], 1), counts[i]), 0
            ),
        ),
        comm=comm[i],
        number=counts[i],
        sample=sample[i],
    )
    i = i[both]
    blocks.add(
        traffic.process[i],
        i * 8 + 2,
        i,
        code=Code.SECOND,
        peer=traffic.receive.process[i],
        tag=traffic.receive.tag[i],
        bytes=loaded.arrives[i],
        offset=offset[i],
    )
    unfinished = np.flatnonzero(rest > 0)
    last = steps.start[unfinished + 1] - 1
    blocks.add(
        traffic.process[last],
        last * 8 + 7,
        np.full(len(last), -1),
        code=Code.NOTHING,
        work_ns=rest[unfinished],
    )
    return comms


def _collectives(
    loaded: Loaded, traffic: Traffic
) -> tuple[Ints, Ints, Ints, tuple[tuple[int, ...], ...]]:
    """Return number, communicator and root's process per step, and the communicators."""
    steps = loaded.steps
    number = collective_numbers(steps.calls)[steps.call] if steps.calls else steps.call
    process = np.full(steps.n + 1, -1, dtype=np.int64)  # the last one: no root
    process[steps.rank] = traffic.process
    used = np.unique(steps.comm[traffic.direct])
    comm = np.full(len(steps), -1, dtype=np.int64)
    comm[traffic.direct] = np.searchsorted(used, steps.comm[traffic.direct])
    comms = tuple(tuple(process[steps.members[int(c)]].tolist()) for c in used)
    return number, comm, process[steps.peer], comms


def _lists(table: Table, loaded: Loaded, request_runs: Bools, counts: Ints) -> tuple[Ints, Ints]:
    """Fill in where the request list of each wait begins; return the lists and their starts."""
    steps = loaded.steps
    events = table.events
    slot_of = np.full(len(steps), -1, dtype=np.int64)
    has_slot = table.main & (events["slot"] >= 0)
    slot_of[table.local[has_slot]] = events["slot"][has_slot]
    slots = slot_of[steps.done[request_runs]]
    first = starts(counts)
    waits = np.flatnonzero(among(events["code"], *WAITING))
    by_step = table.local[waits] >= 0
    number = events["number"][waits]
    begin = np.where(by_step, first[table.local[waits]], 0)
    entries = expand_ranges(begin, number)
    is_listed = np.repeat(by_step, number)
    lists = np.where(
        is_listed,
        slots[np.where(is_listed, entries, 0)] if len(slots) else 0,
        entries + np.repeat(table.open_before[waits] - number, number),
    )
    process = table.process[waits]
    position = starts(number)
    per_process = np.bincount(process, weights=number, minlength=len(table.start) - 1)
    list_start = starts(per_process)
    events["first"][waits] = position[:-1] - list_start[process]
    return lists.astype(np.int64), list_start
