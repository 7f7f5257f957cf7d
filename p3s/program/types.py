"""What scaled.json says of a scaled trace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from p3s.base.serialise import (
    MOST_PROCESSES,
    FileFormat,
    Natural,
    NotNegative,
    Positive,
    ProcessCount,
)
from p3s.base.tables import TableFacts
from p3s.costs.types import FileUseAt
from p3s.model.law_types import TraceOrder
from p3s.model.types import Buffers, NotModelled, Share, Tracing

#: Of fields that are written with their default, too; those of a time, where there is one.
ALWAYS = {"always": True}
TIMED = {"always": lambda phase: phase.compute_ns is not None}
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
    width of its 90 % interval, relative. From ``compute_ns`` on: its time, as p3s.costs.types has
    it, where the cost of computation is known.
    """

    phase: int
    name: str = field(default="", metadata=ALWAYS)
    depth: Natural = field(default=0, metadata=ALWAYS)
    parent: int | None = field(default=None, metadata=ALWAYS)
    weight: NotNegative = field(kw_only=True)
    events_per_iteration: NotNegative = field(default=0.0, metadata=ALWAYS)
    work: NotNegative = field(default=0.0, metadata=ALWAYS)
    work_rel_half_width: NotNegative | None = field(default=None, metadata=ALWAYS)
    no_trend: NoTrend | None = None
    compute_ns: NotNegative | None = None
    compute_low: NotNegative | None = None
    compute_high: NotNegative | None = None
    work_error: NotNegative | None = None
    x: tuple[float, float] | None = None
    covered: tuple[float, float] | None = None
    outside: float | None = None
    below: bool | None = None
    crm_i_ns: float | None = field(default=None, metadata=TIMED)
    crm_c_ns: float | None = field(default=None, metadata=TIMED)


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
class OpenStructure:
    """Calls whose process grid or partners several rules that explain the traces disagree on.

    calls: number of calls; events, bytes: their shares of the trace, between 0 and 1; grids:
    extents of the other process grids; chance: that the program's structure is another, between 0
    and 1.
    """

    calls: Natural
    events: float
    bytes: float
    grids: tuple[tuple[Natural, ...], ...] = field(default=(), metadata=ALWAYS)
    chance: float = 1.0


@dataclass(frozen=True)
class Emptied:
    """A call whose messages fall below one element on some ranks, as at no traced count."""

    op: str
    site: str
    ranks: int


@dataclass(frozen=True)
class ScaledHead:
    """A scaled trace without its rows; what files of earlier versions may lack has a default.

    extrapolation: times the largest traced count; share: by verdict, of the rows; traced_share: of
    the largest traced run. files: what call sites do to files, and whose costs that has. ranks:
    (first, last) of those that the rows are of, None for all.
    """

    n: ProcessCount
    work_unit: str = field(default="", metadata=ALWAYS)
    work_units: Mapping[str, str] = field(default_factory=dict, metadata=ALWAYS)
    grid: tuple[Natural, ...] = field(default=(), metadata=ALWAYS)
    grid_rule: str = field(default="", metadata=ALWAYS)
    rows: Natural = field(default=0, metadata=ALWAYS)
    counts: tuple[ProcessCount, ...] = field(default=(), metadata=ALWAYS)
    extrapolation: NotNegative = field(default=1.0, metadata=ALWAYS)
    first_seen: Mapping[str, int] = field(default_factory=dict, metadata=ALWAYS)
    unmodelled_ops: Mapping[str, int] = field(default_factory=dict, metadata=ALWAYS)
    not_modelled: tuple[NotModelled, ...] = field(default=(), metadata=ALWAYS)
    tracing: Mapping[str, Tracing] = field(default_factory=dict, metadata=ALWAYS)
    phases: tuple[ScaledPhase, ...] = field(kw_only=True)
    share: Mapping[str, RowShare] = field(default_factory=dict, metadata=ALWAYS)
    traced_share: Mapping[str, Share] = field(default_factory=dict, metadata=ALWAYS)
    unknown: tuple[UnknownCall, ...] = field(default=(), metadata=ALWAYS)
    open: OpenStructure | None = None
    emptied: tuple[Emptied, ...] = ()
    ranks: tuple[tuple[int, int], ...] | None = None
    buffers: Mapping[str, Buffers] = field(default_factory=dict)
    packed: tuple[PackedCall, ...] = ()
    files: tuple[FileUseAt, ...] = ()
    files_from: str = ""
    tables: Mapping[str, TableFacts] = field(default_factory=dict)

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


_AGAIN = "run p3s scale again"
#: The formats of the files beside the tables of a scaled trace.
SCALED = FileFormat("p3s.scaled", 1, ScaledHead, True, _AGAIN)
COMMS = FileFormat("p3s.comms", 1, Communicators, True, _AGAIN)
ORDER = FileFormat("p3s.order", 1, TraceOrder, again=_AGAIN)
