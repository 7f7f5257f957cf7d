"""What scaled.json says of a scaled trace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from p3s.costs.types import PhaseTime
from p3s.files.stage import FileUseAt
from p3s.model.types import Buffers, NotModelled, Share, Tracing
from p3s.serialise import to_data


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
