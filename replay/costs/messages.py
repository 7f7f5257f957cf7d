"""What messages cost: transfers of every message class, from trace programs and pair programs.

The transfer of a message is its completion minus the later of the two starts. It is kept only
where somebody waited for it, and where the completion waits for nothing else: a Waitall contains
all of its messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from p3s.replay.engine.results import ProgramResult
from p3s.replay.plan.classes import MessageClass
from p3s.replay.plan.program import Code, Program
from p3s.replay.plan.world import World
from p3s.replay.stats import NOTHING, Estimate, median_interval
from p3s.simulate.steps import Floats, Ints

TRACE = "measured in the trace"
TRACE_BOTH = "measured in the trace, both ways at once"
PAIR = "measured in a pair"
PAIR_BOTH = "measured in a pair, both ways at once"
NEAREST = "from the nearest sizes"
USUAL = "not measured: usual costs"
NONE = "none"

#: Best origin first: in a pair the link has come to rest before each message, in the trace it may
#: still have to send what a rank sent to others.
_PREFERRED = (PAIR, PAIR_BOTH, TRACE, TRACE_BOTH)

#: A completion that takes less than this share of the transfer was not held up by it.
_HELD = 0.1
#: Messages that are waited for in fewer passes than this share are no good samples: something
#: unusual made somebody wait.
_OFTEN = 0.2

Key = tuple[int, int]


@dataclass(frozen=True)
class Observed:
    """Samples of messages of one size over one distance in one program.

    ``key``: (distance, bytes). ``cls``: message class, -1: a size that no message of the run has.
    ``message``: positions in the program's pairing; ``ns``: (passes, messages), NaN: none.
    """

    key: Key
    cls: int
    how: str
    program: int
    message: Ints
    ns: Floats

    @property
    def number(self) -> int:
        """Number of samples."""
        return int((~np.isnan(self.ns)).sum())


@dataclass(frozen=True)
class MessageCost:
    """Transfer of a class as it was measured, queueing included; where it comes from."""

    estimate: Estimate
    how: str
    observed: tuple[Observed, ...] = ()


def message_costs(
    classes: Sequence[MessageClass], observed: Sequence[Observed]
) -> tuple[MessageCost, ...]:
    """Return the measured transfer of every class; NONE where no program has a sample of it."""
    found: dict[tuple[int, str], list[Observed]] = {}
    for one in observed:
        found.setdefault((one.cls, one.how), []).append(one)
    costs = []
    for cls in range(len(classes)):
        for how in _PREFERRED:
            these = tuple(found.get((cls, how), ()))
            if these:
                costs.append(MessageCost(level(these), how, these))
                break
        else:
            costs.append(MessageCost(NOTHING, NONE))
    return tuple(costs)


def level(observed: Sequence[Observed]) -> Estimate:
    """Return the cost: median of the class's messages in a pass, median over passes, programs.

    Waiting for a core now and then makes single transfers very long: that is in the spread.
    """
    middles = [pass_medians(o.ns) for o in observed]
    return median_interval(
        np.concatenate(middles) if middles else [], sum(o.number for o in observed)
    )


def pass_medians(ns: Floats) -> Floats:
    """Return the median of every pass that has a sample; ``ns``: (passes, messages), NaN: none."""
    has = (~np.isnan(ns)).any(axis=1)
    return np.asarray(np.nanmedian(ns[has], axis=1) if has.any() else [], dtype=np.float64)


def typical(ns: Floats) -> Floats:
    """Return the median over the passes of every message; NaN where nobody ever waited."""
    found = np.full(ns.shape[1], np.nan)
    has = (~np.isnan(ns)).any(axis=0)
    if has.any():
        found[has] = np.nanmedian(ns[:, has], axis=0)
    return found


def observations(
    classes: Sequence[MessageClass],
    programs: Sequence[Program],
    results: Mapping[int, ProgramResult],
    world: World,
) -> list[Observed]:
    """Return all usable samples of trace and pair programs.

    Of messages that complete alone, and of calls that send and receive at once; what the own
    send adds there is known to the simulation. Not of completions of several messages.
    """
    found = []
    nodes = np.array([process.node for process in world.processes])
    for number, result in sorted(results.items()):
        program = programs[number]
        pairing = program.pairing
        if pairing is None or program.what not in ("trace", "pair") or not result.passes:
            continue
        if result.transfer_ns.shape[1:] != pairing.cls.shape:
            continue
        got = program.start[pairing.receiver] + pairing.received
        transfer = _held_up(result, got)
        has = (~np.isnan(transfer)).mean(axis=0) >= _OFTEN
        alone = pairing.alone.astype(bool)
        both = ~alone & (program.events["code"][got] == Code.SENDRECV)
        away = nodes[pairing.sender] != nodes[pairing.receiver]
        hops = max(
            (classes[c].distance for c in np.unique(pairing.cls).tolist() if c >= 0), default=1
        )
        nbytes = program.events["bytes"][program.start[pairing.sender] + pairing.sent]
        origins = (TRACE, TRACE_BOTH) if program.what == "trace" else (PAIR, PAIR_BOTH)
        for mask, how in zip((alone, both), origins, strict=True):
            keys = np.stack([pairing.cls, np.where(away, max(hops, 1), 0), nbytes])
            usable = mask & has
            for cls, distance, size in np.unique(keys[:, usable], axis=1).T.tolist():
                same = (keys == np.array([[cls], [distance], [size]])).all(axis=0)
                message = np.flatnonzero(usable & same)
                key = (classes[cls].distance, classes[cls].bytes) if cls >= 0 else (distance, size)
                found.append(Observed(key, cls, how, number, message, transfer[:, message]))
    return found


def _held_up(result: ProgramResult, got: Ints) -> Floats:
    """Return the transfers, NaN where the completing call was short beside them.

    The message had come before then, and nobody asked for it. ``got``: completing events.
    """
    column = np.full(int(got.max(initial=-1)) + 1, -1, dtype=np.int64)
    known = result.event < len(column)
    column[result.event[known]] = np.flatnonzero(known)
    where = column[got]
    took = (
        np.where(where >= 0, result.event_ns[:, np.maximum(where, 0)], np.inf)
        if result.event_ns.size
        else np.full(result.transfer_ns.shape, np.inf)
    )
    return np.where(took >= _HELD * result.transfer_ns, result.transfer_ns, np.nan)


def chosen(
    classes: Sequence[MessageClass], costs: Sequence[MessageCost], observed: Sequence[Observed]
) -> list[Observed]:
    """Return the samples that curves rest on, of each size and distance the best there are.

    Those of messages with nothing beside them on the link; else those of the classes.
    """
    alone = [
        o
        for o in observed
        if o.how == PAIR and (o.cls < 0 or o.key[0] == 0 or classes[o.cls].load <= 1)
    ]
    known = {o.key for o in alone}
    return [*alone, *(o for cost in costs for o in cost.observed if o.key not in known)]


def in_trace(observed: Sequence[Observed]) -> list[Observed]:
    """Return the samples of messages among all others that the ranks exchange."""
    return [o for o in observed if o.cls >= 0 and o.how in (TRACE, TRACE_BOTH)]
