"""What scaled.json says of a scaled trace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from p3s.base.serialise import MOST_PROCESSES, Natural, NotNegative, Positive, ProcessCount, to_data
from p3s.base.tables import TableFacts
from p3s.costs.files.types import FileUseAt
from p3s.costs.types import PhaseTime
from p3s.model.types import Buffers, NotModelled, Share, Tracing

#: Largest count all of whose ranks are written: more can be had in parts. Largest whose ranks'
#: places on the process grid are to fit into memory.
MOST_RANKS, MOST_PREDICTED = 1 << 22, 1 << 23


@dataclass(frozen=True)
class NoTrend:
    """Laws that fit a phase's traced work differ here: why, their ends as multiples of its work."""

    why: str
    low: float
    high: float


@dataclass(frozen=True)
class ScaledPhase:
    """A phase at one count: weight: its iterations; work: of all ranks in the run, with the half
    width of its 90 % interval, relative; time: where the cost of computation is known.
    """

    phase: int
    name: str
    depth: int
    parent: int | None
    weight: float
    events_per_iteration: float
    work: float
    work_rel_half_width: float
    no_trend: NoTrend | None = None
    time: PhaseTime | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the phase as plain data, its time beside the rest."""
        known = {k: to_data(v) for k, v in vars(self).items()}
        time = known.pop("time") or {}
        if known["no_trend"] is None:
            del known["no_trend"]
        return {**known, **time}


@dataclass(frozen=True)
class RowShare:
    """Shares between 0 and 1 of the events, bytes and work of a trace."""

    events: float
    bytes: float
    work: float


@dataclass(frozen=True)
class UnknownCall:
    """A call that no rule says the messages of, and why, in sentences."""

    op: str
    site: str
    why: tuple[str, ...]


@dataclass(frozen=True)
class PackedCall:
    """Rows whose messages are of datatypes that are not contiguous.

    slots: first and last of the column slot; share: of their bytes; block: bytes in a row: least,
    usual, largest.
    """

    op: str
    site: str
    slots: tuple[int, int]
    share: float
    block: tuple[float, float, float]


@dataclass(frozen=True)
class Emptied:
    """A call whose messages fall below one element on some ranks, as at no traced count."""

    op: str
    site: str
    ranks: int


@dataclass(frozen=True)
class ScaledHead:
    """A scaled trace without its rows.

    extrapolation: times the largest traced count; share: by verdict, of the rows; traced_share: of
    the largest traced run. files: what call sites do to files, and whose costs that has. ranks:
    (first, last) of those that the rows are of, None for all.
    """

    n: int
    work_unit: str
    work_units: Mapping[str, str]
    grid: tuple[int, ...]
    grid_rule: str
    rows: int
    counts: tuple[int, ...]
    extrapolation: float
    first_seen: Mapping[str, int]
    unmodelled_ops: Mapping[str, int]
    not_modelled: tuple[NotModelled, ...]
    tracing: Mapping[str, Tracing]
    phases: tuple[ScaledPhase, ...]
    share: Mapping[str, RowShare]
    traced_share: Mapping[str, Share]
    unknown: tuple[UnknownCall, ...]
    emptied: tuple[Emptied, ...] = ()
    ranks: tuple[tuple[int, int], ...] | None = None
    buffers: Mapping[str, Buffers] = field(default_factory=dict)
    packed: tuple[PackedCall, ...] = ()
    files: tuple[FileUseAt, ...] = ()
    files_from: str = ""
    tables: Mapping[str, TableFacts] = field(default_factory=dict)


# ---- as it is read: what files of earlier versions may lack is absent -------------------------
@dataclass(frozen=True)
class PhaseRead:
    """A phase as scaled.json has it, its time beside the rest."""

    phase: int
    weight: NotNegative
    name: str = ""
    depth: Natural = 0
    parent: int | None = None
    events_per_iteration: NotNegative = 0.0
    work: NotNegative = 0.0
    work_rel_half_width: NotNegative | None = None
    no_trend: NoTrend | None = None
    compute_ns: NotNegative | None = None
    compute_low: NotNegative | None = None
    compute_high: NotNegative | None = None
    work_error: NotNegative | None = None
    x: tuple[float, float] | None = None
    covered: tuple[float, float] | None = None
    outside: float | None = None
    below: bool | None = None
    crm_i_ns: float | None = None
    crm_c_ns: float | None = None


@dataclass(frozen=True)
class HeadRead:
    """A scaled trace's head as scaled.json has it."""

    n: ProcessCount
    phases: tuple[PhaseRead, ...]
    work_unit: str = ""
    work_units: Mapping[str, str] = field(default_factory=dict)
    grid: tuple[Natural, ...] = ()
    grid_rule: str = ""
    rows: Natural = 0
    counts: tuple[ProcessCount, ...] = ()
    extrapolation: NotNegative = 1.0
    first_seen: Mapping[str, int] = field(default_factory=dict)
    unmodelled_ops: Mapping[str, int] = field(default_factory=dict)
    not_modelled: tuple[NotModelled, ...] = ()
    tracing: Mapping[str, Tracing] = field(default_factory=dict)
    share: Mapping[str, RowShare] = field(default_factory=dict)
    traced_share: Mapping[str, Share] = field(default_factory=dict)
    unknown: tuple[UnknownCall, ...] = ()
    emptied: tuple[Emptied, ...] = ()
    ranks: tuple[tuple[int, int], ...] | None = None
    buffers: Mapping[str, Buffers] = field(default_factory=dict)
    packed: tuple[PackedCall, ...] = ()
    files: tuple[FileUseAt, ...] = ()
    files_from: str = ""
    tables: Mapping[str, TableFacts] | None = None

    def valid(self) -> None:
        """Raise ValueError where phases are there twice, or are around themselves."""
        numbers = [phase.phase for phase in self.phases]
        if len(set(numbers)) != len(numbers):
            raise ValueError("a phase is listed twice")
        for phase in self.phases:
            if phase.parent is not None and phase.parent >= phase.phase:
                raise ValueError(f"phase {phase.phase} is inside phase {phase.parent}")
        if not all(low >= 0 and high >= low for low, high in self.ranks or ()):
            raise ValueError("ranks are not first and last")


@dataclass(frozen=True)
class Communicator:
    """A communicator in comms.json: ranks in a row, each of them, or several that are shifts of
    each other (firsts and offsets as runs: start, step, number).
    """

    id: Natural
    first: Natural | None = None
    size: Natural | None = None
    members: tuple[Natural, ...] | None = None
    number: Positive | None = None
    firsts: tuple[tuple[int, int, Natural], ...] | None = None
    offsets: tuple[tuple[int, int, Natural], ...] | None = None

    def valid(self) -> None:
        """Raise ValueError unless it is one of the three."""
        row = self.first is not None and self.size is not None
        shifted = None not in (self.number, self.firsts, self.offsets)
        if row + shifted + (self.members is not None) != 1:
            raise ValueError("members are neither in a row, nor listed, nor shifts")
        if shifted and _length(self.firsts) != self.number:
            raise ValueError(f"{_length(self.firsts)} first members of {self.number} communicators")

    @property
    def ids(self) -> range:
        """The numbers of the communicators that it stands for."""
        return range(self.id, self.id + (self.number or 1))

    @property
    def entries(self) -> int:
        """How many members these have together."""
        if self.members is not None:
            return len(self.members)
        return (self.number or 1) * _length(self.offsets) if self.number else self.size or 0


def _length(runs: tuple[tuple[int, int, int], ...] | None) -> int:
    return sum(number for _, _, number in runs or ())


@dataclass(frozen=True)
class Communicators:
    """The content of comms.json."""

    comms: tuple[Communicator, ...]

    def valid(self) -> None:
        """Raise ValueError where two have one number."""
        used: set[int] = set()
        for one in self.comms:
            if one.ids.stop > MOST_PROCESSES or not used.isdisjoint(one.ids):
                raise ValueError(f"communicator {one.id} is there twice, or its number too large")
            used.update(one.ids)
