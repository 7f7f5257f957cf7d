"""signature/phases.json as it is read: loops, calls, phases, and where all events are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from p3s.base.artefacts import read_json, unusable
from p3s.base.serialise import (
    MOST_PROCESSES,
    Natural,
    NotNegative,
    ProcessCount,
    Range,
    ShapeError,
    from_data,
)

SCHEMA = "p3s.phases"
VERSION = 1
#: Deepest nesting of loops.
DEEPEST = 100
#: A sum over ranks of numbers that captures hold in 64 bits.
Total = Annotated[int, Range(0, MOST_PROCESSES << 64)]
#: Share of a time: sums of rounded ones may be a little more than all of it.
TimeShare = Annotated[float, Range(0, 1.0001)]


@dataclass(frozen=True)
class TripsRead:
    """How often a loop turns and is entered at a count."""

    turns: Natural
    turns_min: Natural
    entries: Natural
    per_entry: tuple[Natural, Natural]


@dataclass(frozen=True)
class CallRead:
    """A call in a loop; its values by count."""

    call: Natural
    site: str
    op: str
    when: str
    ranks: Mapping[str, Natural]
    count: Mapping[str, Natural]
    bytes: Mapping[str, tuple[Natural, Natural]]
    time_ns: Mapping[str, int]


@dataclass(frozen=True)
class LoopRead:
    """A loop: what it walks along, how often it turns by count, calls and loops in it."""

    loop: Natural
    walk: Literal["partners", "requests"] | None
    trips: Mapping[str, TripsRead]
    body: tuple[LoopRead | CallRead, ...]

    def depth(self) -> int:
        """Return how deep loops are nested in it."""
        return 1 + max(
            (each.depth() for each in self.body if isinstance(each, LoopRead)), default=0
        )


@dataclass(frozen=True)
class PhaseAt:
    """A phase at one count."""

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
class PhaseRead:
    """A phase, and what it is at each count."""

    phase: Natural
    loop: Natural
    parent: Natural | None
    depth: Natural
    name: str
    calls: tuple[Natural, ...]
    per_count: Mapping[str, PhaseAt]
    total_work_spread: NotNegative | None
    constant_work: bool | None
    varying: bool


@dataclass(frozen=True)
class SomeEvents:
    """Events, and the time in them."""

    events: Total
    time_ns: int


@dataclass(frozen=True)
class AccountRead:
    """Where the events and the time of a count are."""

    events: Total
    null_events: Total
    failed_polls: Total
    time_ns: int
    start: SomeEvents
    end: SomeEvents
    relevant: SomeEvents
    rest: SomeEvents


@dataclass(frozen=True)
class PhasesRead:
    """What phases.json holds."""

    counts: tuple[ProcessCount, ...]
    work_unit: str
    sites: Mapping[str, tuple[str, ...]]
    tree: LoopRead
    phases: tuple[PhaseRead, ...]
    accounting: Mapping[str, AccountRead]
    same: Mapping[str, str] = field(default_factory=dict)
    waits: Mapping[str, str] = field(default_factory=dict)

    def valid(self) -> None:
        """Raise ValueError where counts or nesting cannot be, or values are of other counts."""
        if not self.counts or list(self.counts) != sorted(set(self.counts)):
            raise ValueError("counts are not ascending")
        known = {str(n) for n in self.counts}
        if set(self.accounting) != known:
            raise ValueError("accounting is not of the counts")
        if any(not set(phase.per_count) <= known for phase in self.phases):
            raise ValueError("a phase is at a count that is not there")
        if self.tree.depth() > DEEPEST:
            raise ValueError(f"loops are nested deeper than {DEEPEST}")
        if [phase.phase for phase in self.phases] != list(range(len(self.phases))):
            raise ValueError("phases are not numbered")
        if not self.phases or self.phases[0].loop != self.tree.loop:
            raise ValueError("the whole program is no phase")


def read_phases(path: Path) -> dict[str, Any]:
    """Return phases.json, checked; raises P3SError in one line."""
    raw = read_json(path, SCHEMA, VERSION)
    try:
        from_data(PhasesRead, raw, more=True)
    except ShapeError as err:
        raise unusable(path, err, "delete it and run p3s characterize again") from err
    return raw
