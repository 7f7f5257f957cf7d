"""signature/phases.json as it is read: loops, calls, phases, and where all events are."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from p3s.base.errors import UsageError
from p3s.base.serialise import (
    MOST_PROCESSES,
    FileFormat,
    Key,
    Natural,
    NotNegative,
    ProcessCount,
    Range,
)

#: Deepest nesting of loops.
DEEPEST = 100
#: A process count that is a key.
Count = Annotated[ProcessCount, Key()]
#: A sum over ranks of numbers that captures hold in 64 bits.
Total = Annotated[int, Range(0, MOST_PROCESSES << 64)]
#: Share of a time: sums of rounded ones may be a little more than all of it.
TimeShare = Annotated[float, Range(0, 1.0001)]


@dataclass(frozen=True)
class Trips:
    """How often a loop turns and is entered at a count."""

    turns: Natural
    turns_min: Natural
    entries: Natural
    per_entry: tuple[Natural, Natural]


@dataclass(frozen=True)
class Call:
    """A call in a loop; its values by count."""

    call: Natural
    site: str
    op: str
    when: str
    ranks: Mapping[Count, Natural]
    count: Mapping[Count, Natural]
    bytes: Mapping[Count, tuple[Natural, Natural]]
    time_ns: Mapping[Count, int]


@dataclass(frozen=True)
class Loop:
    """A loop: what it walks along, how often it turns by count, calls and loops in it."""

    loop: Natural
    walk: Literal["partners", "requests"] | None
    trips: Mapping[Count, Trips]
    body: tuple[Loop | Call, ...]

    def depth(self) -> int:
        """Return how deep loops are nested in it."""
        return 1 + max((each.depth() for each in self.body if isinstance(each, Loop)), default=0)

    def calls(self) -> Iterator[Call]:
        """Yield all calls inside, however deep."""
        for item in self.body:
            if isinstance(item, Loop):
                yield from item.calls()
            else:
                yield item

    def loops(self) -> Iterator[Loop]:
        """Yield this loop and all inside."""
        yield self
        for item in self.body:
            if isinstance(item, Loop):
                yield from item.loops()


@dataclass(frozen=True)
class PhaseCost:
    """A phase at one count; sums are over all ranks."""

    weight: Natural
    weight_min: Natural
    ranks: Natural
    events: Total
    bytes: Total
    work: int
    elapsed_ns: int
    share: TimeShare
    relevant: bool
    operations: Mapping[str, Natural]


@dataclass(frozen=True)
class Phase:
    """A phase, and what it is at each count."""

    phase: Natural
    loop: Natural
    parent: Natural | None
    depth: Natural
    name: str
    calls: tuple[Natural, ...]
    per_count: Mapping[Count, PhaseCost]
    total_work_spread: NotNegative | None
    constant_work: bool | None
    varying: bool

    @property
    def relevant(self) -> bool:
        """Whether it is relevant at any of the counts."""
        return any(cost.relevant for cost in self.per_count.values())


@dataclass(frozen=True)
class SomeEvents:
    """Events, and the time in them."""

    events: Total
    time_ns: int


@dataclass(frozen=True)
class Account:
    """Where the events and the time of a count are."""

    events: Total
    null_events: Total
    failed_polls: Total
    time_ns: int
    start: SomeEvents
    end: SomeEvents
    relevant: SomeEvents
    rest: SomeEvents

    @property
    def parts(self) -> dict[str, SomeEvents]:
        """The parts of a run in the order they are shown; together they are all of it."""
        return {name: getattr(self, name) for name in ("start", "relevant", "rest", "end")}


@dataclass(frozen=True)
class Matched:
    """How many of a run's calls were matched with those of other counts by what they do."""

    alike: Total
    calls: Total


@dataclass(frozen=True)
class Recorded:
    """Of a signature: events recorded in full, all events, and iterations of its last loop after
    which the program was ended (0: it went to its end)."""

    detail: Total
    events: Total
    ended: Natural = 0


def recorded_text(recorded: Mapping[int, Recorded], counts: Sequence[int]) -> list[str]:
    """Return a line per count of which a signature was traced, of these counts."""
    full = ", ".join(str(n) for n in counts if n not in recorded or not recorded[n].ended)
    return [
        f"{n} processes: a signature, {100 * r.detail / max(r.events, 1):.2g} % of its calls"
        " recorded in full, the others counted"
        + (
            f"; ended after {r.ended:,} iterations of its last loop: how many there are in all, and"
            f" the calls after them, is as at {full} processes and not evidence"
        )
        * bool(r.ended)
        for n, r in sorted(recorded.items())
    ]


@dataclass(frozen=True)
class Phases:
    """What phases.json holds."""

    counts: tuple[ProcessCount, ...]
    work_unit: str
    sites: Mapping[str, tuple[str, ...]]
    tree: Loop
    phases: tuple[Phase, ...]
    accounting: Mapping[Count, Account]
    same: Mapping[str, str] = field(default_factory=dict, metadata={"always": True})
    waits: Mapping[str, str] = field(default_factory=dict, metadata={"always": True})
    matched: Mapping[Count, Matched] = field(default_factory=dict)
    recorded: Mapping[Count, Recorded] = field(default_factory=dict)

    def valid(self) -> None:
        """Raise ValueError where counts or nesting cannot be, or values are of other counts."""
        if not self.counts or list(self.counts) != sorted(set(self.counts)):
            raise ValueError("counts are not ascending")
        counts = set(self.counts)
        if set(self.accounting) != counts:
            raise ValueError("accounting is not of the counts")
        if any(not set(phase.per_count) <= counts for phase in self.phases):
            raise ValueError("a phase is at a count that is not there")
        if self.tree.depth() > DEEPEST:
            raise ValueError(f"loops are nested deeper than {DEEPEST}")
        if [phase.phase for phase in self.phases] != list(range(len(self.phases))):
            raise ValueError("phases are not numbered")
        if not self.phases or self.phases[0].loop != self.tree.loop:
            raise ValueError("the whole program is no phase")
        calls = {call.call for call in self.tree.calls()}
        loops = {loop.loop for loop in self.tree.loops()}
        for phase in self.phases:
            if phase.loop not in loops or not calls.issuperset(phase.calls):
                raise ValueError(f"phase {phase.phase} is not in the tree")

    def only(self, counts: Sequence[int], path: Path | str) -> Phases:
        """Return this at some of its counts; raises UsageError for one that is not there."""
        for count in counts:
            if count not in self.counts:
                raise UsageError(
                    f"-n {count}: {path} has no such count; it has "
                    f"{', '.join(map(str, self.counts))}"
                )
        restricted: Phases = _keep_counts(replace(self, counts=tuple(counts)), frozenset(counts))
        return restricted


def _keep_counts(value: Any, counts: Container[int]) -> Any:
    """Return a record with the entries of some counts in all that it holds by count."""
    if is_dataclass(value) and not isinstance(value, type):
        named = {each.name: getattr(value, each.name) for each in fields(value)}
        return replace(value, **{name: _keep_counts(each, counts) for name, each in named.items()})
    if isinstance(value, Mapping):
        return {key: each for key, each in value.items() if isinstance(key, str) or key in counts}
    if isinstance(value, tuple) and any(map(is_dataclass, value)):
        return tuple(_keep_counts(each, counts) for each in value)
    return value


#: signature/phases.json.
PHASES = FileFormat(
    "p3s.phases", 1, Phases, more=True, again="delete it and run p3s characterize again"
)
load = PHASES.read
