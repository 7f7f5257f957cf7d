"""What is to be run of a signature: the plan for the tracer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

from p3s.base.errors import P3SError
from p3s.base.ops import name_phase_op, of_one_call
from p3s.capture.parts import OF_MANY
from p3s.capture.recording_plan import Enough, KnownCall, Plan, Row
from p3s.signature.parse import WAITS
from p3s.signature.phase_file import Loop, PhaseCost, Phases

if TYPE_CHECKING:
    pass

#: What the tracer knows a call by.
_ADDRESS, _NAME = re.compile(r"[0-9a-fA-F]+"), re.compile(r"[!-~]+")


def calls_of(phases: Phases) -> list[KnownCall]:
    """Return the calls of all phases, in the order of the program, as the program makes them."""
    rows = list(_walk(phases))
    calls = [row for row in rows if isinstance(row, KnownCall)]
    if all(name_phase_op(call.op) == call.op for call in calls):
        return calls
    return list(_as_called(calls, [row for row in rows if isinstance(row, Row)]))


def _as_called(calls: Sequence[KnownCall], loops: Sequence[Row]) -> Iterator[KnownCall]:
    """Yield calls that are read as messages where the first of these is, outside of the loops
    that only go from message to message."""
    inside: dict[int, set[bool]] = {}
    for call in calls:
        inside.setdefault(call.loop, set()).add(of_one_call(call.op))
    yielded = set()
    for call in calls:
        placed_call = call
        if inside[call.loop] == {True}:
            row = loops[call.loop]
            placed_call = replace(call, loop=row.parent, place=row.place)
        for op in _names(call.op):
            if (call.site, op) not in yielded:
                yielded.add((call.site, op))
                yield replace(placed_call, op=op)


def _names(op: str) -> tuple[str, ...]:
    """Return what the program calls; a wait for one request may be for several messages."""
    one = {many_op: one for one, many_op in OF_MANY.items()}.get(op)
    return (name_phase_op(op),) if one is None else (name_phase_op(op), one)


def _walk(phases: Phases) -> Iterator[Row | KnownCall]:
    """Yield the loops, each before what is in it, and the calls.

    Raises P3SError where the tracer could not find a call.
    """
    phase_of = {phase.loop: phase.phase for phase in phases.phases}
    numbers = count()

    def inside(loop: Loop, parent: int, place: int, phase: int) -> Iterator[Row | KnownCall]:
        own_phase = -1 if loop.walk else phase_of.get(loop.loop, -1)
        number = next(numbers)
        yield Row(parent, place, own_phase)
        around = phase if own_phase < 0 else own_phase
        for at, child in enumerate(loop.body):
            if isinstance(child, Loop):
                yield from inside(child, number, at, around)
                continue
            op, site = child.op, child.site or "0"
            if not _ADDRESS.fullmatch(site) or not _NAME.fullmatch(op):
                raise P3SError(f"phases.json: the tracer cannot find {op!r:.40} at {site!r:.40}")
            for name in (site, *_keys(phases.same, site)):
                yield KnownCall(name, op, number, at, around)
            for test in (test for test, wait in WAITS.items() if wait == op):
                for name in _keys(phases.waits, site):
                    yield KnownCall(name, test, number, at, around)

    yield from inside(phases.tree, -1, 0, 0)


def _keys(mapping: Mapping[str, str], value: str) -> list[str]:
    return [key for key, each in mapping.items() if each == value]


def plan_of(phases: Phases, np: int, enough: Enough, stop: bool = False) -> Plan:
    """Return the plan for a run at ``np`` processes; stop: the program is ended early.

    A phase is relevant if it was at that count, or at any where that was not traced. Of a program
    that is ended, so are those around: the calls in each of their iterations must have been seen.
    What is begun once ends with the program.
    """
    loops = [row for row in _walk(phases) if isinstance(row, Row)]
    relevant, ranks, shares, weights = [], {}, [], []
    traced = np in phases.counts
    for phase in phases.phases:
        rows = phase.per_count
        phase_rows = [rows[np]] if np in rows else list(rows.values())
        used = any(row.relevant for row in phase_rows) and (not traced or np in rows)
        relevant.append(phase.phase != 0 and used)
        shares.append(max((row.share for row in phase_rows), default=0.0))
        weights.append(min((row.weight for row in phase_rows), default=0))
    for phase in reversed(phases.phases):
        if stop and relevant[phase.phase] and phase.parent:
            relevant[phase.parent] = True
    for phase, weight in zip(phases.phases, weights, strict=True):
        relevant[phase.phase] &= weight > 1 or not stop
        if relevant[phase.phase]:
            ranks[phase.phase] = _ranks(phase.per_count, np, enough.most(weight, stop))
    return Plan(loops, calls_of(phases), relevant, enough, ranks, shares, weights, stop)


def _ranks(rows: Mapping[int, PhaseCost], np: int, most: int) -> int:
    """Return how many ranks must have seen a phase often enough.

    All that take part; one, where some of them do not begin it so often in a whole run.
    """
    if np in rows:
        return rows[np].ranks if rows[np].weight_min > most else 1
    return np if all(row.ranks == n for n, row in rows.items()) else 1
