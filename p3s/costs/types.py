"""The compute model: what one file, compute.json, holds of a program's computation.

Times are of one process in one iteration, in ns; "own" is the source of the study's own runs.
Counts that are keys are text there and here. The power laws are those of the thesis, chapter 6: in
n, calibrated with a far point.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from p3s.base.artefacts import LastRead
from p3s.base.serialise import FileFormat, NotNegative
from p3s.base.text import percent, visible
from p3s.costs.laws import CostLaw
from p3s.costs.points import OWN, Place, Point
from p3s.costs.spread import Spread
from p3s.machine.factor import Factor


# ---- laws --------------------------------------------------------------------------------------
@dataclass(frozen=True)
class LawEntry:
    """A law of cost, what it is for and its points; share: of the program's computation.

    kind: place, small (the small places of a phase) or phase (all of it). points: rows of
    p3s.costs.gather. factor: what moved it to another machine.
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
def _computes(phase: PhaseTime) -> bool:
    """Tell whether a rank computes in a phase."""
    return phase.x is not None


@dataclass(frozen=True, kw_only=True)
class PhaseTime:
    """The computation of a phase over the run, all ranks: ns, ends of its 90 % interval relative.

    work_error: the part of the interval that comes from the work, relative. x: work per iteration,
    from least to most, of the ranks that decide; covered: what was measured of it; outside: the
    ratio by which x lies outside of that, 1 inside; below: on which side, None where nothing was
    measured. crm_i_ns, crm_c_ns: of one process, by the power laws.
    """

    compute_ns: float
    compute_low: float
    compute_high: float
    work_error: float
    x: tuple[float, float] | None = None
    covered: tuple[float, float] | None = field(default=None, metadata={"always": _computes})
    outside: float = field(default=1.0, metadata={"always": _computes})
    below: bool | None = None
    crm_i_ns: float | None = field(default=None, metadata={"always": True})
    crm_c_ns: float | None = field(default=None, metadata={"always": True})


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


#: Phases below this share of the computation are listed in the end, in one line.
SHOWN = 0.01
#: Why no cost of a phase's computation is known.
_WHY = {
    NO_WORK: "nothing says how its computation grows, so predictions leave it out",
    NO_TIME: "no run measured how long its computation takes, so that of the rest stands in",
}


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

    def unknown_costs(self) -> list[str]:
        """Return the phases of whose computation no cost is known, and why, a sentence each."""
        return [
            f"phase {p.phase} ({visible(str(p.name))}): {_WHY[p.unknown.code]} "
            f"({percent(p.unknown.share)} of all computation)"
            for p in self.phases
            if p.unknown and p.unknown.share >= SHOWN
        ]

    @property
    def shares(self) -> dict[int, float]:
        """The share of the computation of each phase at the largest traced count."""
        return {entry.phase: entry.share for entry in self.laws if entry.kind == "phase"}

    def laws_of(self, phase: int) -> Sequence[LawEntry]:
        """Return the entries of ``laws`` of a phase, the phase as a whole first."""
        mine = [e for e in self.laws if e.phase == phase]
        return sorted(mine, key=lambda e: (e.kind != "phase", -e.share))


# ---- files ---------------------------------------------------------------------------------------
@dataclass(frozen=True)
class FileUseAt:
    """What a call site does to files at one count, for people and for reports.

    ``nbytes``, ``calls``: of all processes in the run; ``seconds``: of the process that takes
    longest, with its ends.
    """

    op: str
    site: str
    what: str
    way: str
    files: str
    pattern: str
    follows: float
    processes: int
    nbytes: float
    calls: float
    seconds: float
    low_s: float
    high_s: float


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


#: Cost that falls by no more than this, relative, has stopped falling.
FALLS = 0.02
#: A cost has fallen where it is lower than it was by more than this.
FLAT = 0.05
REACHED, FALLING, STEADY, UNKNOWN = "reached", "falling", "steady", "unknown"


@dataclass(frozen=True)
class PowerLaw:
    """y = a * n**b (thesis, Table 6.5: y in ns, of one process in one iteration of the phase)."""

    a: NotNegative
    b: float

    def value(self, n: Any) -> Any:
        """Return y at ``n`` (array or scalar)."""
        n = np.asarray(n, dtype=float)
        return np.exp(np.log(self.a) + self.b * np.log(n)) if self.a > 0 else np.zeros_like(n)


def fit_power(n: Sequence[float], y: Sequence[float]) -> PowerLaw | None:
    """Fit y = a n**b by least squares in logarithms; None with fewer than two counts.

    Points with n or y not above zero are left out: they have no logarithm.
    """
    x, v = np.asarray(n, dtype=float), np.asarray(y, dtype=float)
    good = (x > 0) & (v > 0) & np.isfinite(x) & np.isfinite(v)
    x, v = np.log(x[good]), np.log(v[good])
    if len(x) < 2 or np.ptp(x) < 1e-9:
        return None
    centre = x - x.mean()
    b = float(centre @ v / (centre @ centre))
    return PowerLaw(float(np.exp(v.mean() - b * x.mean())), b)


def least_cost(
    counts: Sequence[int], cost: Sequence[float], before: float = 0.0
) -> tuple[str, int | None]:
    """Return whether the cost per unit of work has stopped falling, and where it is least.

    counts: ascending, of the walk upwards of the thesis (section 6.2, step 3). before: the largest
    cost seen elsewhere (the study's own), 0 if none. Of the counts that cost as little as the least
    the largest is taken: the thesis takes 100 processes where 81 cost the same (Table 6.4). Cost
    that is even before it has fallen at all has not reached its least: the working set may not fit
    the cache yet. None without a cost.
    """
    if not cost or min(cost) <= 0:
        return UNKNOWN, None
    least = int(np.argmin(cost))
    at = max(n for n, c in zip(counts, cost, strict=True) if c <= (1 + FALLS) * cost[least])
    if len(cost) < 2:
        return UNKNOWN, at
    if cost[-1] < (1 - FALLS) * cost[-2]:
        return FALLING, at
    if min(cost) > (1 - FLAT) * max(*cost[: least + 1], before):
        return STEADY, at
    return REACHED, at


@dataclass(frozen=True)
class FarPoint:
    """The run of another input that CRM_c goes through: its count, and the one it stands for.

    typical_ns: of one process in one iteration. reached: whether the cost had stopped to fall
    there. That the total work of the phase is constant is not asked for: the count was looked up
    in it.
    """

    source: str
    traced: int
    n: float
    typical_ns: float
    reached: bool


@dataclass(frozen=True)
class Crm:
    """Power laws of one phase: CRM_i, CRM_c (None: why says why not), and the far point used."""

    initial: PowerLaw | None
    calibrated: PowerLaw | None
    far: FarPoint | None
    why: str | None


def crm(points: Sequence[Point]) -> Crm:
    """Return CRM_i and CRM_c of a phase from its points: work and time of one process in one turn.

    points: own runs, and runs of other inputs with the count ``n`` they were matched to.
    Typical times are used (medians of repeats). The far point is, of each other input, the run
    that costs least; of several inputs the one that is farthest.
    """
    own = [p for p in points if p.source == OWN and p.n is not None]
    initial = fit_power([p.n or 0.0 for p in own], [p.typical_ns for p in own])
    if initial is None:
        return Crm(None, None, None, "fewer than two counts have compute time")
    far = max(_far_points(points), key=lambda far: (far.n, far.source), default=None)
    if far is None:
        return Crm(initial, None, None, "no run of a smaller workload was matched")
    counts, times = [p.n or 0.0 for p in own], [p.typical_ns for p in own]
    return Crm(initial, fit_power([*counts, far.n], [*times, far.typical_ns]), far, None)


def _far_points(points: Sequence[Point]) -> list[FarPoint]:
    """Return the run of each other input that costs least."""
    runs: dict[str, dict[int, Point]] = {}
    for p in sorted(points, key=lambda p: (p.traced, p.n or 0.0)):
        if p.source != OWN and p.n is not None and p.work > 0 and p.typical_ns > 0:
            mine = runs.setdefault(p.source, {})
            # of several groups of ranks the one with most ranks
            if p.traced not in mine or p.ranks > mine[p.traced].ranks:
                mine[p.traced] = p
    out = []
    for source, mine in runs.items():
        status, at = least_cost(list(mine), [p.typical_ns / p.work for p in mine.values()])
        if at is not None:
            far = mine[at]
            reached = status in (REACHED, STEADY)
            out.append(FarPoint(source, at, float(far.n or 0.0), far.typical_ns, reached))
    return out
