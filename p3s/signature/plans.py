"""What is to be run of a signature: the plan for the tracer, and the weights of its phases."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from p3s.base.errors import P3SError
from p3s.base.ops import named, of_one_call
from p3s.base.text import processes
from p3s.capture.parts import OF_MANY
from p3s.capture.recording_plan import Enough, KnownCall, Plan, Row
from p3s.signature.completions import WAITS

if TYPE_CHECKING:
    import numpy as np

#: What the tracer knows a call by.
_ADDRESS, _NAME = re.compile(r"[0-9a-fA-F]+"), re.compile(r"[!-~]+")


@dataclass(frozen=True)
class Weights:
    """How often each phase is begun in a whole run: the most and the fewest over the ranks."""

    source: str
    most: tuple[float, ...]
    fewest: tuple[float, ...]

    def of_rank(self, turns: np.ndarray, most: np.ndarray) -> np.ndarray:
        """Return one rank's weights, from its iterations so far and those of the busiest rank.

        Where the ranks differ, they are taken to keep the proportion they have.
        """
        import numpy

        same = numpy.array(self.most) == numpy.array(self.fewest)
        share = numpy.divide(turns, most, out=numpy.zeros(len(turns)), where=most > 0)
        return numpy.array(self.most) * numpy.where(same, turns > 0, share)


def calls_of(phases: Mapping[str, Any]) -> list[KnownCall]:
    """Return the calls of all phases, in the order of the program, as the program makes them."""
    rows = list(_walk(phases["tree"], -1, 0, -1, phases, [0]))
    calls = [row for row in rows if isinstance(row, KnownCall)]
    if all(named(call.op) == call.op for call in calls):
        return calls
    return list(_as_called(calls, [row for row in rows if isinstance(row, Row)]))


def _as_called(calls: Sequence[KnownCall], loops: Sequence[Row]) -> Iterator[KnownCall]:
    """Yield calls that are read as messages where the first of these is, outside of the loops
    that only go from message to message."""
    inside: dict[int, set[bool]] = {}
    for call in calls:
        inside.setdefault(call.loop, set()).add(of_one_call(call.op))
    seen = set()
    for call in calls:
        found = call
        if inside[call.loop] == {True}:
            row = loops[call.loop]
            found = replace(call, loop=row.parent, place=row.place)
        for op in _names(call.op):
            if (call.site, op) not in seen:
                seen.add((call.site, op))
                yield replace(found, op=op)


def _names(op: str) -> tuple[str, ...]:
    """Return what the program calls; a wait for one request may be for several messages."""
    one = {many: one for one, many in OF_MANY.items()}.get(op)
    return (named(op),) if one is None else (named(op), one)


def _walk(
    loop: Mapping[str, Any],
    parent: int,
    place: int,
    phase: int,
    data: Mapping[str, Any],
    numbers: list[int],
) -> Iterator[Row | KnownCall]:
    """Yield the loops, each before what is in it, and the calls."""
    own = {int(p["loop"]): int(p["phase"]) for p in data["phases"]}.get(int(loop["loop"]), -1)
    own = -1 if loop.get("walk") else own
    number = numbers[0]
    numbers[0] += 1
    yield Row(parent, place, own)
    inside = phase if own < 0 else own
    for at, child in enumerate(loop["body"]):
        if "body" in child:
            yield from _walk(child, number, at, inside, data, numbers)
        else:
            op, site = str(child["op"]), child["site"] or "0"
            if not _ADDRESS.fullmatch(site) or not _NAME.fullmatch(op):
                raise P3SError(f"phases.json: the tracer cannot find {op!r:.40} at {site!r:.40}")
            for name in (site, *_keys(data.get("same", {}), site)):
                yield KnownCall(name, op, number, at, inside)
            for test in (test for test, wait in WAITS.items() if wait == op):
                for name in _keys(data.get("waits", {}), site):
                    yield KnownCall(name, test, number, at, inside)


def _keys(mapping: Mapping[str, str], value: str) -> list[str]:
    return [key for key, each in mapping.items() if each == value]


def plan_of(phases: Mapping[str, Any], np: int, enough: Enough) -> Plan:
    """Return the plan for a run at ``np`` processes.

    A phase is relevant if it was at that count, or at any where that was not traced.
    """
    loops = [row for row in _walk(phases["tree"], -1, 0, -1, phases, [0]) if isinstance(row, Row)]
    relevant, ranks, shares = [], {}, []
    for phase in phases["phases"]:
        rows = phase["per_count"]
        here = [rows[str(np)]] if str(np) in rows else list(rows.values())
        traced = str(np) in map(str, phases["counts"])
        wanted = (
            bool(phase["phase"])
            and any(row["relevant"] for row in here)
            and (not traced or str(np) in rows)
        )
        relevant.append(wanted)
        shares.append(max((float(row["share"]) for row in here), default=0.0))
        if wanted:
            ranks[int(phase["phase"])] = _ranks(rows, np, enough)
    return Plan(loops, calls_of(phases), relevant, enough, ranks, shares)


def _ranks(rows: Mapping[str, Any], np: int, enough: Enough) -> int:
    """Return how many ranks must have seen a phase often enough.

    All that take part; one, where some of them do not begin it often enough in a whole run.
    """
    if str(np) in rows:
        row = rows[str(np)]
        return int(row["ranks"]) if row["weight_min"] > enough.turns else 1
    return np if all(int(row["ranks"]) == int(count) for count, row in rows.items()) else 1


def too_rare(phases: Mapping[str, Any], np: int, plan: Plan) -> list[str]:
    """Return the names of relevant phases that no run at ``np`` begins often enough."""
    found = []
    for phase, relevant in zip(phases["phases"], plan.relevant, strict=True):
        row = phase["per_count"].get(str(np))
        if relevant and row is not None and row["weight"] <= plan.enough.turns:
            found.append(str(phase["name"]))
    return found


def traced_weights(phases: Mapping[str, Any], np: int) -> Weights | None:
    """Return the weights of the earlier runs at that count, None if it was not traced."""
    if str(np) not in map(str, phases["counts"]):
        return None
    rows = [phase["per_count"].get(str(np)) for phase in phases["phases"]]
    most = tuple(float(row["weight"]) if row else 0.0 for row in rows)
    fewest = tuple(float(row["weight_min"]) if row else 0.0 for row in rows)
    return Weights(f"the earlier signature of {processes(np)}", most, fewest)
