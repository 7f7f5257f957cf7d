"""The phases of a study as text: the tree of loops and calls, with table and account around it.

Everything fits 100 columns. What is left out says so, and that ``--all`` shows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from p3s.base.ops import COMPLETION, kind_of
from p3s.base.text import percent, processes, visible
from p3s.capture.callpath import CallPath, Where, call_path, stack
from p3s.report.phase_table import WIDTH, accounting, cut, of_ranks, span, table, volume
from p3s.report.places import Places, lines_of
from p3s.signature.phase_file import Call, Loop, Phase, Phases, Trips

#: Without --all: lines of the tree, calls in a row.
MAX_LINES, MAX_CALLS = 120, 12


def tree(found: Phases, places: Places, everything: bool = False) -> list[str]:
    """Return the loops and calls of the program, indented, in program order."""
    lines = _Lines(found, places, everything)
    lines.body(found.tree, 0)
    text = lines.text
    if not everything and len(text) > MAX_LINES:
        lines.hidden += len(text) - MAX_LINES
        text = text[:MAX_LINES]
    if lines.hidden:
        one = lines.hidden == 1
        what = "1 line of the tree is" if one else f"{lines.hidden} lines of the tree are"
        text.append(f"{what} hidden: --all shows {'it' if one else 'them'}")
    return text


class _Lines:
    """The lines of a tree as they are made; ``hidden`` counts those that are not."""

    def __init__(self, found: Phases, places: Places, everything: bool) -> None:
        self.found = found
        self.places = places
        self.everything = everything
        self.count = found.counts[-1]
        self.phase_of = {phase.loop: phase for phase in found.phases}
        self.text: list[str] = []
        self.hidden = 0

    def add(self, depth: int, left: str, right: str = "") -> None:
        left = "  " * min(depth, 20) + left
        if right:
            left = cut(left, max(WIDTH - len(right) - 2, 40))
            left = f"{left.ljust(min(62, WIDTH - 2 - len(right)))}  {right}"
        self.text.append(cut(left, WIDTH))

    def body(self, loop: Loop, depth: int) -> None:
        calls: list[Call] = []
        for item in loop.body:
            if isinstance(item, Call):
                calls.append(item)
                continue
            self.calls(calls, depth)
            calls = []
            self.loop(item, depth)
        self.calls(calls, depth)

    def loop(self, loop: Loop, depth: int) -> None:
        own = self.phase_of.get(loop.loop)
        self.add(depth, self.head(loop, depth), self.about(own))
        inside = [self.phase_of[each.loop] for each in loop.loops() if each.loop in self.phase_of]
        if not self.everything and inside and not any(phase.relevant for phase in inside):
            self.hidden += _size(loop)
        else:
            self.body(loop, depth + 1)

    def head(self, loop: Loop, depth: int) -> str:
        walk = f"walk over {loop.walk} " if loop.walk else ""
        trips = loop.trips.get(self.count)
        if trips is None:
            return f"{walk}not at {self.count}"
        text = f"{walk}× {turns(trips, depth > 0)}"
        each = {n: loop.trips.get(n) for n in self.found.counts}
        if len({None if t is None else t.per_entry for t in each.values()}) > 1:
            listed = [f"{n}: {span(*t.per_entry) if t else 'none'}" for n, t in each.items()]
            text += f" ({', '.join(listed)})"
        return text

    def about(self, phase: Phase | None) -> str:
        cost = phase.per_count.get(self.count) if phase is not None else None
        if phase is None or cost is None:
            return ""
        return f"phase {phase.phase}, {percent(cost.share)} of the time"

    def calls(self, calls: Sequence[Call], depth: int) -> None:
        """Add calls that follow one another; those of one function are packed into one line."""
        rows = [_Row.of(call, self.found.sites.get(call.site, ()), self.places) for call in calls]
        packed = [list(alike) for _, alike in groupby(rows, key=lambda row: row.kind)]
        if self.everything:
            packed = [[row] for row in rows]
        shown = packed
        if not self.everything and len(packed) > MAX_CALLS:
            shown = packed[: MAX_CALLS - 2]
        for alike in shown:
            facts = self.facts([row.call for row in alike])
            room = max(62, WIDTH - 2 - len(facts)) - 2 * min(depth, 20)
            self.add(depth, _place_of(alike, room), facts)
        if len(shown) < len(packed):
            self.hidden += len(packed) - len(shown)
            more = sum(map(len, packed[len(shown) :]))
            self.add(depth, f"… {more} more calls")

    def facts(self, calls: Sequence[Call]) -> str:
        """Return what is to be said of calls: how many, when, on which ranks, how large."""
        facts = [f"{len(calls)} calls"] if len(calls) > 1 else []
        if calls[0].when != "always":
            facts.append(visible(calls[0].when))
        ranks = [call.ranks.get(self.count, 0) for call in calls]
        if not any(ranks):
            return ", ".join([*facts, f"not at {self.count}"])
        low, high = min(ranks), max(ranks)
        some = of_ranks(high, self.count)
        facts.append(some if low == high else f"{low}..{high} of {self.count}")
        sizes = [call.bytes[self.count] for call in calls if self.count in call.bytes]
        least, most = min((a for a, _ in sizes), default=0), max((b for _, b in sizes), default=0)
        if kind_of(calls[0].op) == COMPLETION:  # its "bytes" are requests
            if most > 1:
                facts.append(f"{span(least, most)} requests")
        elif most:
            small, large = volume(least), volume(most)
            facts.append(large if small == large else f"{small}..{large}")
        return ", ".join(facts)


@dataclass(frozen=True)
class _Row:
    """A call and where it is."""

    call: Call
    path: CallPath

    @classmethod
    def of(cls, call: Call, frames: Sequence[str], places: Places) -> _Row:
        return cls(call, call_path(stack(frames, places)) or CallPath(Where("?"), "?"))

    @property
    def kind(self) -> tuple[object, ...]:
        """What calls on one line have in common; one without a line is on a line of its own."""
        at = self.path.at
        where = (at.function, at.file) if at.line else (at.frame,)
        return (self.call.op, self.call.when, where, *(w.frame for w in self.path.around()))


def _place_of(alike: Sequence[_Row], room: int) -> str:
    """Return operation and place, and what calls it where there is room."""
    first = alike[0]
    path = replace(first.path, place=lines_of([row.path.at for row in alike]) or first.path.place)
    return visible(f"{first.call.op}  {path.within(room - len(first.call.op) - 2)}", 200)


def turns(trips: Trips, nested: bool) -> str:
    """Return how often the body of a loop runs: per entry, or in the run."""
    text = span(*trips.per_entry)
    if trips.per_entry[0] != trips.per_entry[1]:
        return text + (" by rank" if trips.turns_min != trips.turns else " from entry to entry")
    return text + (" per iteration" if nested else "")


def _size(loop: Loop) -> int:
    return sum(1 + _size(item) if isinstance(item, Loop) else 1 for item in loop.body)


def render(
    found: Phases, places: Places, *, everything: bool = False, only_tree: bool = False
) -> str:
    """Return table, tree and account as text, or the tree alone."""
    if only_tree:
        return "\n".join(tree(found, places, everything))
    last = found.counts[-1]
    unit = {"cpu_ns": "CPU time", "wall_ns": "wall time"}.get(found.work_unit, found.work_unit)
    title = f"Phases at {processes(last)} (times and work are sums over ranks; work in {unit})"
    return "\n".join(
        [
            title,
            "",
            *table(found, places, everything),
            "",
            f"Loops and calls at {processes(last)}",
            "",
            *tree(found, places, everything),
            "",
            "All events and all the time",
            "",
            *accounting(found),
        ]
    )
