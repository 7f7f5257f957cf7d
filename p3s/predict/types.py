"""The prediction: what one file, prediction.json, holds of a program's times, and its reasons."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from p3s.base.arrays import Floats
from p3s.base.errors import P3SError
from p3s.base.serialise import FileFormat
from p3s.base.text import join_words
from p3s.costs.types import FileUseAt
from p3s.laws.worklaws import WorkLaw
from p3s.predict.times import PARTS, Factors, Rival, draws
from p3s.simulate.totals import StandIns

#: What a prediction is worth: its times may be used, are known roughly, or have no grounds.
Grade = Literal["usable", "rough", "unusable"]
#: The program has other calls for what it did in the traced runs.
OTHER_CALLS = "other-calls"
#: How likely something is that a prediction need not heed: intervals hold as often.
CHANCE_LIMIT = 0.10
#: Efficiency below which more processes are not worth it.
KNEE_EFFICIENCY = 0.5
#: What a reason is of: the structure of the program, how far counts are from the traced ones, what
#: was measured, how well times are known.
Family = Literal["structure", "reach", "measurement", "width"]


@dataclass(frozen=True)
class Kind:
    """What a code is of and means, in words that may follow "do not rely on this prediction:".

    worst: what a prediction is worth with it at the least; p3s.predict.case weighs it.
    """

    family: Family
    words: str
    worst: Grade = "unusable"


CODES: dict[str, Kind] = {
    "unmatched": Kind("structure", "some messages of the model have no partner"),
    "deadlock": Kind("structure", "the model's order of calls would deadlock"),
    "holdout-missed": Kind(
        "structure", "the model missed messages or iterations of the run it was checked on"
    ),
    "order": Kind("structure", "the model's order of calls is not that of the traced runs"),
    "depends-on-timing": Kind(
        "structure", "communication depends on timing and differs between runs", "usable"
    ),
    "validate-missed": Kind(
        "structure", "the model missed messages or iterations of a validation run"
    ),
    "left-out": Kind("structure", "too much of the program is not modelled"),
    "threads-call": Kind("structure", "MPI is called inside parallel regions"),
    "threads-differ": Kind("structure", "the messages depend on the number of threads"),
    "no-rule": Kind("structure", "too much of the program follows no known rule"),
    "open": Kind("structure", "several structures explain the traced runs and differ there"),
    OTHER_CALLS: Kind(
        "structure", "the program has other calls for this, which no run reached", "rough"
    ),
    "copied-calls": Kind("structure", "some calls may be copies that the compiler made", "usable"),
    "emptied": Kind("structure", "there is less than one element per rank"),
    "not-held-out": Kind("structure", "the model could not be checked", "rough"),
    "stand-ins": Kind("reach", "smaller process grids do not tell what all ranks do"),
    "not-settled": Kind("reach", "the simulation did not reach a steady state"),
    "extrapolated": Kind("reach", "the largest count is too far beyond the traced ones", "rough"),
    "below-traced": Kind("reach", "computation below the traced counts does not follow theirs"),
    "outside": Kind(
        "reach", "each process has far less, or more, to compute than in any run", "rough"
    ),
    "outside-threads": Kind(
        "reach", "there are more threads per process or node than in any run", "rough"
    ),
    "idle-threads": Kind("reach", "loops may have fewer iterations than threads", "usable"),
    "outside-place": Kind("reach", "threads are placed as in no run", "usable"),
    "same-work": Kind("reach", "processes do not share the work", "usable"),
    "no-trend": Kind("reach", "computation has no clear trend", "usable"),
    "outdated": Kind("measurement", "it rests on runs that are no longer used"),
    "not-representative": Kind("measurement", "message costs were not measured as in a real run"),
    "model-off": Kind("measurement", "the model is far off at a traced count"),
    "superlinear": Kind("measurement", "an efficiency is implausibly high"),
    "holdout-work": Kind(
        "measurement", "the model missed the computation of the run it was checked on", "rough"
    ),
    "validate-work": Kind(
        "measurement", "the model missed the computation of a validation run", "rough"
    ),
    "learned-off": Kind("measurement", "the learned times of messages missed phases not seen"),
    "contradicts": Kind("measurement", "a traced run contradicts the others", "usable"),
    "shared-cores": Kind("measurement", "traced ranks shared cores", "usable"),
    "off-core": Kind(
        "measurement", "traced ranks were off their cores while they computed", "usable"
    ),
    "wide": Kind("width", "the run time is not known well enough"),
}


@dataclass(frozen=True)
class Reason:
    """One thing that is wrong with a prediction, or to be minded.

    code: one of CODES; text: what is wrong, with its figures; advice: what to do about it, or "";
    untrustworthy: whether the prediction is unusable because of it; rough: whether it is a rough
    one; else the reason is to be minded only. cost: at most which share of the run time it
    changes, None: not known. Both texts are clauses, without a capital and a full stop.
    """

    code: str
    text: str
    advice: str = field(default="", metadata={"always": True})
    untrustworthy: bool = field(default=True, metadata={"always": True})
    rough: bool = False
    cost: float | None = None

    @property
    def sentence(self) -> str:
        """What is wrong and what to do about it, as one clause."""
        return f"{self.text}; {self.advice}" if self.advice else self.text


def prefix_reasons(reasons: Iterable[Reason], of: str) -> list[Reason]:
    """Return reasons whose texts begin with what they are of."""
    return [replace(each, text=f"{of}: {each.text}") for each in reasons]


def with_allowed(reasons: Iterable[Reason], allowed: Collection[str]) -> list[Reason]:
    """Return reasons; those whose codes are allowed are to be minded only."""
    return [
        replace(each, untrustworthy=False, rough=False) if each.code in allowed else each
        for each in reasons
    ]


def filter_untrusted(reasons: Iterable[Reason], allowed: Collection[str] = ()) -> list[Reason]:
    """Return the reasons that make a prediction untrustworthy, but for codes that are allowed."""
    return [each for each in reasons if each.untrustworthy and each.code not in allowed]


def grade_of(reasons: Iterable[Reason]) -> Grade:
    """Return what a prediction with these reasons is worth."""
    reasons = list(reasons)
    if any(each.untrustworthy for each in reasons):
        return "unusable"
    return "rough" if any(each.rough for each in reasons) else "usable"


def in_short(reasons: Sequence[Reason]) -> str:
    """Return what is wrong in a few words, each code once; "" where nothing is."""
    known = (CODES.get(each.code) for each in reasons)
    words = dict.fromkeys(kind.words if kind else "another reason" for kind in known)
    return join_words(words, ", and" if len(words) > 1 else "").replace(" , and", ", and")


def few(names: Iterable[str], most: int = 5) -> str:
    """Return different names with commas, those beyond ``most`` counted."""
    names = list(dict.fromkeys(names))
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more if more else join_words(names)


#: Where the time at a count comes from.
TimeFrom = Literal["measured", "model"]
#: What of a run is compared with the model.
Compared = Literal["run time", "computation"]
#: Which part of a phase's time grows most.
Because = Literal["compute", "io", "transfer", "waiting", "software"]
#: Coefficient, numerator and denominator of the power of n, power of log2 n.
Term = tuple[float, int, int, int]


# ---- one process count -------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class PhaseAt:
    """One phase at one process count, over the whole run: seconds of one rank.

    phase: its number, -1 and -2 for the start and the end of the program; weight: how often it
    occurs; io_s: in files; waiting_s, transfer_s, software_s: parts of comm_s, None where not told
    apart; crm_i_s, crm_c_s: computation by the thesis's power laws. x: work per iteration; covered:
    what was measured of that; outside: how far x is outside of it, a ratio of at least 1; below: x
    is less.
    """

    phase: int
    name: str
    kind: str
    weight: float
    time_s: float
    low_s: float | None
    high_s: float | None
    compute_s: float
    compute_low_s: float | None
    compute_high_s: float | None
    crm_i_s: float | None
    crm_c_s: float | None
    comm_s: float
    waiting_s: float | None
    transfer_s: float | None
    software_s: float | None
    io_s: float = 0.0
    x: tuple[float, float] | None = None
    covered: tuple[float, float] | None = field(
        default=None, metadata={"always": lambda phase: phase.x is not None}
    )
    outside: float | None = None
    below: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The run time by one estimator of the communication; None where it gives none.

    why_not: why there is no time, or why it does not tell how fast the program is, "" if it does;
    notes: what was approximated.
    """

    time_s: float | None
    low_s: float | None
    high_s: float | None
    compute_s: float | None
    comm_s: float | None
    waiting_s: float | None
    transfer_s: float | None
    software_s: float | None
    io_s: float | None = field(default=0.0, metadata={"always": True})
    why_not: str
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Efficiencies:
    """What of the core time is useful computation, by the names of the POP project; 1: all of it.

    load_balance, communication: their product is parallel; serialisation, transfer: theirs is
    communication; computation_scalability is relative to the baseline, and global_efficiency the
    product of it and of parallel. None: not known (p3s.predict.rows).
    """

    load_balance: float | None
    communication: float | None
    serialisation: float | None
    transfer: float | None
    parallel: float | None
    computation_scalability: float | None
    global_efficiency: float | None


@dataclass(frozen=True)
class IntervalParts:
    """What the draws of a time by the model are made of; None: does not enter or not known.

    residual: what no other part knows; rivals: other structures that explain the traced runs.
    """

    work: Factors | None
    cost: Factors | None
    replay: Factors | None
    residual: Factors | None
    files: Factors | None = None
    rivals: tuple[Rival, ...] = ()

    def known(self) -> dict[str, Factors]:
        """Return the parts that enter, by name."""
        parts = {name: getattr(self, name) for name in PARTS}
        return {name: part for name, part in parts.items() if part is not None}

    def draws(self) -> Floats:
        """Return joint draws of the time as multiples of it; see p3s.predict.times."""
        return draws(self.known(), self.rivals)


@dataclass(frozen=True, kw_only=True)
class Count:
    """One process count: time, its interval and speedup, and the phases that it is made of.

    time_s: measured where that tells how fast the program is, else by the model; io_s: in files;
    comm_s: of the slowest rank, comm_low_s and comm_high_s: of all that may be it. work_s:
    computation of the busiest rank; representative: whether the measured run, or else the model,
    tells; contradicts: the run contradicts those of others; below_traced: the computation
    does not go on from that of the traced counts; setting: parameters of the input there (weak
    scaling). pop: efficiencies of the model, pop_measured: of the run, as far as that tells.
    stand_ins: what was simulated instead of all ranks, null: all were.
    """

    n: int
    time_s: float
    low_s: float | None
    high_s: float | None
    time_from: TimeFrom
    model_s: float
    model_low_s: float | None
    model_high_s: float | None
    compute_s: float
    comm_s: float
    waiting_s: float | None
    transfer_s: float | None
    software_s: float | None
    io_s: float = 0.0
    work_s: float
    measured: bool
    measured_s: float | None
    measured_work_s: float | None
    representative: bool
    model_representative: bool
    contradicts: bool
    below_traced: bool = field(default=False, metadata={"always": True})
    estimator: str
    estimators: Mapping[str, Estimate]
    phases: tuple[PhaseAt, ...]
    interval_parts: IntervalParts
    cost_core_h: float
    speedup: float
    speedup_low: float | None
    speedup_high: float | None
    efficiency: float
    setting: Mapping[str, str] | None = None
    pop: Efficiencies | None = None
    pop_measured: Efficiencies | None = None
    stand_ins: StandIns | None = None
    comm_low_s: float | None = None
    comm_high_s: float | None = None

    @property
    def doubtful(self) -> bool:
        """Whether the time rests on communication that is not representative."""
        return self.time_from != "measured" and not self.model_representative


# ---- all of them -------------------------------------------------------------------------------
@dataclass(frozen=True)
class Network:
    """The network that the times are for; source: typical, file, measured or one machine."""

    name: str
    label: str
    source: str

    @property
    def published(self) -> bool:
        """Whether its costs are of a file, of P3S or of the user, and not measured here."""
        return self.source in ("typical", "file")


@dataclass(frozen=True)
class Recommended:
    """The largest count that is efficient enough."""

    n: int
    efficiency: float
    why: str


@dataclass(frozen=True)
class Residual:
    """What was measured at a traced count beside what the model says there; ratio: over it."""

    n: int
    what: Compared
    measured_s: float
    model_s: float
    ratio: float | None
    representative: bool


@dataclass(frozen=True, kw_only=True)
class Law:
    """A law of n; text is empty where there is none; error: the largest relative miss at counts."""

    text: str
    latex: str
    terms: tuple[Term, ...] = field(default=(), metadata={"always": True})
    error: float | None
    counts: tuple[int, ...]

    def mathml(self) -> str:
        """Return it in MathML; empty for one of a file that has its text alone."""
        if not self.terms:
            return ""
        terms = [list(term) for term in self.terms]
        return WorkLaw.from_json({"terms": terms, "rel_half_width": 0, "max_n": 1}).mathml()


@dataclass(frozen=True)
class PhaseLaw:
    """How the parts of a phase's time go with n."""

    phase: int
    name: str
    parts: Mapping[str, Law]


@dataclass(frozen=True)
class Limit:
    """A phase that limits scaling: its share of the lost core time, by which part.

    n: count from which it keeps the efficiency below the threshold by itself, None if nowhere.
    """

    phase: int
    name: str
    n: int | None
    share: float
    because: Because
    text: str


@dataclass(frozen=True)
class StartAndEnd:
    """What a launch took beyond the run at a traced count: launcher, MPI_Init, MPI_Finalize; in s.

    time_s: the median of the repeats; low_s, high_s: the least and the most of them.
    """

    n: int
    time_s: float
    low_s: float
    high_s: float


@dataclass(frozen=True, kw_only=True)
class WhatIfAt:
    """What changes do at one count: the time with them, and how much less that is.

    saved_s: less than 0 where they make it slower. Its interval is narrower than the difference of
    two intervals: what both times are off by together is in none. speedup: over the program as it
    is at the baseline. None: not known.
    """

    n: int
    time_s: float
    low_s: float | None
    high_s: float | None
    saved_s: float
    saved_low_s: float | None
    saved_high_s: float | None
    speedup: float
    speedup_low: float | None
    speedup_high: float | None


@dataclass(frozen=True, kw_only=True)
class WhatIf:
    """Changes made at the same time, and what they do at each count, ascending.

    text: as they are told; asked: whether the user named them, else they are of the usual ones and
    at the largest count only. estimator: which simulation answers; why: why it is not that of the
    prediction, "" where it is; notes: what explains the result at the largest count.
    """

    text: str
    asked: bool
    estimator: str
    why: str
    counts: tuple[WhatIfAt, ...]
    notes: tuple[str, ...] = ()

    @property
    def last(self) -> WhatIfAt:
        """What they do at the largest count."""
        return self.counts[-1]


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """Run time, speedup and efficiency at several process counts, and how sure they are.

    counts: ascending; baseline_n: count that speedups relate to; knee: the smallest from which the
    efficiency stays below knee_efficiency; files: what call sites do to files at the largest count,
    files_from: whose costs that has; grade: what its times are worth, by its reasons; machine: how
    the computation was moved, in predictions for another machine. start_and_end: what is no part
    of the times, where launches were timed. what_if: what changes would save, at the largest count
    most first.
    """

    counts: tuple[Count, ...]
    baseline_n: int
    baseline_measured: bool
    knee: int | None
    knee_efficiency: float
    recommended: Recommended | None
    network: Network | None = field(default=None, metadata={"always": True})
    estimator: str
    estimator_why: str
    residuals: tuple[Residual, ...]
    phase_laws: tuple[PhaseLaw, ...]
    limits: tuple[Limit, ...]
    unknown_share: float
    verdict_share: Mapping[str, Mapping[str, float]]
    traced_counts: tuple[int, ...]
    extrapolation_ratio: float | None
    grade: Grade = field(default="usable", metadata={"always": True})
    reasons: tuple[Reason, ...]
    not_modelled: tuple[str, ...]
    notes: tuple[str, ...]
    files: tuple[FileUseAt, ...] = ()
    files_from: str = ""
    machine: Mapping[str, Any] | None = None
    start_and_end: tuple[StartAndEnd, ...] = ()
    what_if: tuple[WhatIf, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "grade", grade_of(self.reasons))  # whatever a file says

    @property
    def base(self) -> Count:
        """The count that speedups relate to."""
        return self.at(self.baseline_n)

    @property
    def last(self) -> Count:
        """The largest count."""
        return self.counts[-1]

    @property
    def starts_only(self) -> bool:
        """Whether no loop takes time, and each run is shorter than its launch: nothing scales."""
        launch = {each.n: each.time_s for each in self.start_and_end}
        longest = max(launch.values(), default=0.0)
        return all(
            row.time_s < launch.get(row.n, longest)
            and not any(phase.kind == "loop" and phase.time_s > 0 for phase in row.phases)
            for row in self.counts
        )

    def at(self, n: int) -> Count:
        """Return the row of a process count; raises P3SError when it was not predicted."""
        for row in self.counts:
            if row.n == n:
                return row
        there = ", ".join(str(row.n) for row in self.counts)
        raise P3SError(f"{n} is not among the counts of the prediction, which are {there}")


@dataclass(frozen=True, kw_only=True)
class WeakPrediction(Prediction):
    """A prediction of weak scaling: weak is what grows with the processes, base_n where from."""

    weak: str
    base_n: int


PREDICTION = FileFormat("p3s.prediction", 4, Prediction, True, "run p3s predict again")
WEAK = FileFormat("p3s.weak", 4, WeakPrediction, again="run p3s predict --weak again")


def part_s(of: Count | PhaseAt | Estimate, part: str) -> float | None:
    """Return seconds of a part: time, compute, io, comm, waiting, transfer, software."""
    value: float | None = getattr(of, f"{part}_s")
    return value
