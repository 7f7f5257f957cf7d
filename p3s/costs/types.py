"""The compute model: what one file, compute.json, holds of a program's computation.

Times are of one process in one iteration, in ns; "own" is the source of the study's own runs.
Counts that are keys are text there and here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from p3s.base.artefacts import LastRead
from p3s.base.serialise import FileFormat, to_data
from p3s.costs.laws import CostLaw
from p3s.costs.points import Place, Point
from p3s.costs.spread import Spread
from p3s.costs.thesis import FarPoint, PowerLaw
from p3s.machine.factor import Factor


# ---- laws --------------------------------------------------------------------------------------
@dataclass(frozen=True)
class LawEntry:
    """A law of cost, what it is for and its points; share: of the program's computation.

    kind: place, small (the small places of a phase) or phase (all of it). points: rows of
    p3s.costs.points. factor: what moved it to another machine.
    """

    kind: Literal["place", "small", "phase"]
    phase: int
    places: tuple[Place, ...]
    share: float
    points: tuple[Point, ...]
    law: CostLaw
    factor: Factor | None = None


@dataclass(frozen=True)
class Laws:
    """All laws of cost of a program: of its phases and places, and one for what was never measured.

    Laws have numbers: those of the entries, and after these that of the rest.
    """

    entries: tuple[LawEntry, ...]
    rest: CostLaw

    @cached_property
    def of_phase(self) -> Mapping[int, int]:
        """The numbers of the laws of phases as a whole."""
        return {e.phase: k for k, e in enumerate(self.entries) if e.kind == "phase"}

    @cached_property
    def _of_place(self) -> Mapping[tuple[int, Place], int]:
        return {
            (e.phase, place): k
            for k, e in enumerate(self.entries)
            if e.kind != "phase"
            for place in e.places
        }

    def number(self, phase: int, place: Place | None = None) -> int:
        """Return the number of a place's law: its own or its pool's, its phase's, the rest's."""
        whole = self.of_phase.get(phase, len(self.entries))
        return whole if place is None else self._of_place.get((phase, place), whole)

    def law(self, number: int) -> CostLaw:
        """Return the law with a number."""
        return self.entries[number].law if number < len(self.entries) else self.rest


# ---- phases ------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Row:
    """One phase at one count: the time of one process in one iteration, mean over its ranks, in ns.

    source: "own", the name of another workload, or "predicted"; traced: count of the run itself.
    n: count of the original workload, None where none has as much work per iteration (x). measured:
    typical (median) of the repeats; predicted, low, high: by the laws with the 90 % interval;
    outside: how far x is outside of what was measured, as a ratio. crm_i, crm_c: by the power laws
    of the thesis.
    """

    phase: int
    source: str
    n: float | None
    traced: int
    x: float
    measured: float | None
    predicted: float | None
    low: float | None = None
    high: float | None = None
    outside: float = 1.0
    crm_i: float | None = None
    crm_c: float | None = None


#: Why nothing is known of the cost of a phase's computation: the model says no work there, no time
#: was measured, or (held out) nothing of it was measured at the counts that are left.
NO_WORK, NO_TIME, NOT_LEFT = "no work", "no time", "not at the counts left"


@dataclass(frozen=True)
class Unknown:
    """Why a phase that computes has no law of cost, and its largest share of the computation."""

    code: str
    share: float


@dataclass(frozen=True)
class PhaseCosts:
    """What a phase's time rests on: ranges of work x and counts n, iterations, power laws, spread.

    x_times_n: x at one process, where work is time.
    """

    phase: int
    name: str
    x: tuple[float, float] | None
    n: tuple[float, float] | None
    turns: tuple[Row, ...]
    crm_i: PowerLaw | None
    crm_c: PowerLaw | None
    far: FarPoint | None
    crm_why: str | None
    spread: Spread
    unknown: Unknown | None
    x_times_n: float | None


# ---- at one count ------------------------------------------------------------------------------
@dataclass(frozen=True)
class WorkSpan:
    """The work per iteration of the ranks that decide: x from least to most, what was measured.

    outside: the ratio by which x lies outside, 1 inside; below: on which side, None where nothing
    was measured.
    """

    x: tuple[float, float]
    covered: tuple[float, float] | None
    outside: float = field(default=1.0, metadata={"always": True})
    below: bool | None = None


@dataclass(frozen=True)
class PhaseTime:
    """The computation of a phase over the run, all ranks: ns, ends of its 90 % interval relative.

    work_error: the part of the interval that comes from the work, relative. crm_i_ns, crm_c_ns: of
    one process, by the power laws.
    """

    compute_ns: float
    compute_low: float
    compute_high: float
    work_error: float
    span: WorkSpan | None
    crm_i_ns: float | None
    crm_c_ns: float | None

    def to_json(self) -> dict[str, Any]:
        """Return the computation as plain data, its span beside the rest."""
        return {
            "compute_ns": self.compute_ns,
            "compute_low": self.compute_low,
            "compute_high": self.compute_high,
            "work_error": self.work_error,
            **(to_data(self.span) if self.span is not None else {}),
            "crm_i_ns": self.crm_i_ns,
            "crm_c_ns": self.crm_c_ns,
        }


# ---- how good it is ----------------------------------------------------------------------------
@dataclass(frozen=True)
class PhaseError:
    """One iteration at the count left out; unknown: code, where nothing can be said of it."""

    phase: int
    share: float
    measured_ns: float
    predicted_ns: float | None
    error: float | None
    unknown: str | None


@dataclass(frozen=True)
class CostHoldOut:
    """A fit without the largest count, compared there."""

    n: int
    mean_abs_error: float | None
    max_abs_error: float | None
    each: tuple[PhaseError, ...]

    @property
    def error(self) -> float:
        """The error of the time of all phases together, relative; what is unknown is all wrong."""
        return sum(e.share * abs(1.0 if e.error is None else e.error) for e in self.each)


# ---- what it was made from ---------------------------------------------------------------------
@dataclass(frozen=True)
class TimedRun:
    """A run that times are from; disturbed: how it shows that other load disturbed it.

    own_cores: whether each rank had a core of its own.
    """

    np: int
    dir: str
    disturbed: tuple[str, ...]
    own_cores: bool = False


@dataclass(frozen=True)
class NotUsed:
    """Runs of another workload that could not be used, and why."""

    name: str
    why: str


@dataclass(frozen=True)
class About:
    """A machine, as its file says."""

    name: str
    processor: str
    architecture: str
    created: str
    cores: int | None


@dataclass(frozen=True)
class MovedPlace:
    """The factor of places at the ends of what was measured, its interval, and what it rests on."""

    phase: int
    places: tuple[Place, ...]
    share: float
    factor: tuple[float, ...]
    low: float
    high: float
    bound: str
    why: str
    misfit: float


@dataclass(frozen=True)
class Moved:
    """From which machine to which the laws were moved, and what is doubtful about it.

    resident_bytes: memory that a rank has filled, by count.
    """

    base: About
    target: About
    resident_bytes: Mapping[str, float]
    notes: tuple[str, ...]
    places: tuple[MovedPlace, ...]


@dataclass(frozen=True)
class TeamFactor:
    """What computation of a phase takes, as a multiple of that with the threads of the runs.

    at counts ``n``, ascending: typical value and the ends of its 90 % interval.
    """

    phase: int
    n: tuple[float, ...]
    value: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]

    def of(self, n: int) -> tuple[float, float, float]:
        """Return value, low and high at a count, straight between counts in the logarithms."""
        at = np.log([max(n, 1), *self.n])
        value, low, high = (
            float(np.exp(np.interp(at[0], at[1:], np.log(part))))
            for part in (self.value, self.low, self.high)
        )
        return value, low, high


@dataclass(frozen=True)
class Teams:
    """Threads of a process that the laws were moved to, from those of the runs.

    per_node: processes of a node; far: whether a process's threads are spread over the node.
    """

    threads: int
    measured: int
    per_node: int
    far: bool
    factors: tuple[TeamFactor, ...]

    def of(self, phase: int, n: int) -> tuple[float, float, float]:
        """Return the factor of a phase at a count, 1 where nothing is known of it."""
        for factor in self.factors:
            if factor.phase == phase:
                return factor.of(n)
        return 1.0, 1.0, 1.0


@dataclass(frozen=True)
class ComputeModel:
    """The laws of cost of a program: of its places and phases, and of the rest.

    shared: (site, operation, n times the work per iteration), see p3s.costs.gather; unmatched:
    share of the time that the signature lacks, by count. machine: where the laws were moved to
    another one. teams: where they were moved to other numbers of threads.
    """

    work_unit: str
    counts: tuple[int, ...]
    laws: tuple[LawEntry, ...]
    rest: CostLaw
    phases: tuple[PhaseCosts, ...]
    holdout: CostHoldOut | None
    shared: tuple[tuple[str, str, float], ...]
    runs: tuple[TimedRun, ...]
    refused: tuple[NotUsed, ...]
    unmatched: Mapping[str, float]
    machine: Moved | None = None
    teams: Teams | None = None

    def valid(self) -> None:
        """Raise ValueError where a value is one that its type has and it cannot be."""
        if any(entry.phase < 0 for entry in self.laws):
            raise ValueError("a law is of no phase")
        if not all(work > 0 for _, _, work in self.shared):
            raise ValueError("shared work is none")
        if not all(0 < p.x[0] <= p.x[1] for p in self.phases if p.x is not None):
            raise ValueError("a range of work is none")


# ---- the file ----------------------------------------------------------------------------------
COMPUTE = FileFormat("p3s.compute", 2, ComputeModel, more=True, again="run p3s model again")
_last_read = LastRead(COMPUTE.read)


def own_cores(runs: Sequence[TimedRun]) -> set[int]:
    """Return the counts above one that a run tells of in which each rank had a core of its own.

    How computation varies between ranks and iterations is known from these: ranks that share
    cores take each other's caches away.
    """
    return {run.np for run in runs if run.np > 1 and run.own_cores and not run.disturbed}


def load(root: Path) -> ComputeModel | None:
    """Return the compute.json in a study's directory, its laws checked; None where there is none.

    Raises P3SError in one line when it is damaged or of another version.
    """
    path = Path(root) / "compute.json"
    return read(path) if path.exists() else None


def measured_range(
    found: ComputeModel | None,
) -> tuple[dict[int, tuple[float, float]], dict[int, float]]:
    """Return what is known of each phase: the work per iteration from least to most that
    was measured, or, where work is time, the largest count that was."""
    if found is None:
        return {}, {}
    if found.work_unit != "instructions":
        return {}, {p.phase: p.n[1] for p in found.phases if p.n}
    return {p.phase: p.x for p in found.phases if p.x}, {}


def read(path: Path) -> ComputeModel:
    """Return the compute model in a file, checked; P3SError in one line as of :func:`load`."""
    return _last_read(path)
