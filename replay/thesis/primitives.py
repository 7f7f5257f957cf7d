"""The point-to-point primitives that collectives are put together from, and how to time them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from replay.scaled import COLLECTIVE, ScaledTrace
from replay.thesis.calls import Code
from replay.thesis.classes import INTER, INTRA, Classified
from replay.thesis.collectives import EXCHANGE, MESSAGE, Composition, compose
from replay.thesis.match import Matches, Reason
from replay.thesis.program import FIRST_TAG, Event, Program, Script, pack
from replay.thesis.world import MEASURED, World

#: Pseudo-phase of the program that measures primitives.
PRIMITIVE_PHASE = -1
#: Distinct sizes of a primitive that are measured; sizes between them are interpolated.
MAX_SIZES = 10
TIMES_PER_PASS = 4


@dataclass(frozen=True)
class Primitive:
    """A message one way, or an exchange both ways, of some bytes over some distance."""

    name: str
    bytes: int
    distance: str


def compositions(
    trace: ScaledTrace, matches: Matches, classified: Classified, cores_per_node: int
) -> dict[int, Composition]:
    """Return the rounds of each class of collectives, from the first row of the class."""
    found: dict[int, Composition] = {}
    rows = np.flatnonzero(
        trace.is_kind(COLLECTIVE) & (matches.reason == Reason.COMPOSED) & (classified.of_row >= 0))
    classes, first = np.unique(classified.of_row[rows], return_index=True)
    for cls, row in zip(classes.tolist(), rows[first].tolist(), strict=True):
        members = trace.members.get(int(trace.comm[row]))
        if members is None:
            members = np.arange(trace.n)
        place = np.flatnonzero(members == trace.root[row])
        rounds = compose(trace.ops[trace.op[row]], int(trace.bytes[row]),
                         members // cores_per_node, int(place[0]) if len(place) else 0)
        if rounds is not None:
            found[cls] = rounds
    return found


def needed(composed: Sequence[Composition], largest: dict[str, int],
           limit_bytes: int) -> tuple[Primitive, ...]:
    """Return the primitives to measure: every size of the rounds, or a choice of sizes.

    ``largest`` adds messages of 8 bytes and of this many bytes per distance, from which point
    to point calls that no pair of ranges can measure are estimated.
    """
    sizes: dict[tuple[str, str], set[int]] = {}
    for composition in composed:
        for part in composition.rounds:
            distance = INTER if part.inter else INTRA
            sizes.setdefault((part.primitive, distance), set()).add(min(part.bytes, limit_bytes))
    for distance, nbytes in largest.items():
        sizes.setdefault((MESSAGE, distance), set()).update({8, min(nbytes, limit_bytes)})
    found = []
    for (name, distance), values in sorted(sizes.items()):
        found += [Primitive(name, nbytes, distance) for nbytes in _thin(sorted(values))]
    return tuple(found)


def _thin(values: list[int]) -> list[int]:
    """Keep at most MAX_SIZES of the values: the ends, and the rest evenly by size order."""
    if len(values) <= MAX_SIZES:
        return values
    picks = np.unique(np.linspace(0, len(values) - 1, MAX_SIZES).round().astype(int))
    return [values[i] for i in picks.tolist()]


def build(primitives: Sequence[Primitive], first_sample: int, world: World) -> Program:
    """Return the program in which all pairs of measured processes time each primitive at once.

    Between nodes slot i of one side talks to slot i of the other; inside a node slots 2i and
    2i + 1 talk. A message is timed as a ping-pong: the mean of its send and its receive is half
    a round trip.
    """
    scripts = [Script() for _ in world.processes]
    measured = world.rank_of(MEASURED)
    for index, primitive in enumerate(primitives):
        sample = first_sample + index
        for (side, slot), first in measured.items():
            if primitive.distance == INTER:
                partner = measured.get((1, slot)) if side == 0 else None
            else:
                partner = measured.get((side, slot + 1)) if slot % 2 == 0 else None
            if partner is not None:
                _time(scripts, first, partner, primitive, sample)
    for script in scripts:
        script.events.append(Event(Code.END))
    return pack(PRIMITIVE_PHASE, scripts)


def _time(scripts: Sequence[Script], first: int, second: int, primitive: Primitive,
          sample: int) -> None:
    """Add the calls of one pair of processes."""
    nbytes = primitive.bytes
    for me, other, leads in ((first, second, True), (second, first, False)):
        script = scripts[me]
        script.out_bytes = max(script.out_bytes, nbytes)
        script.in_bytes = max(script.in_bytes, nbytes)
        send = Event(Code.SEND, other, FIRST_TAG, nbytes)
        receive = Event(Code.RECV, other, FIRST_TAG, nbytes)
        if primitive.name == EXCHANGE:
            script.events += [
                Event(Code.SENDRECV, other, FIRST_TAG, nbytes, sample=sample),
                Event(Code.SECOND, other, FIRST_TAG, nbytes),
            ] * TIMES_PER_PASS
        elif leads:
            script.events += [
                Event(Code.SEND, other, FIRST_TAG, nbytes, sample=sample),
                Event(Code.RECV, other, FIRST_TAG, nbytes, sample=sample),
            ] * TIMES_PER_PASS
        else:
            script.events += [receive, send] * TIMES_PER_PASS
