"""What is known of a program beside the times of its phases, and what checks look at."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from p3s.capture.other_calls import OtherCall
from p3s.model.comparison import Comparison, HoldOut
from p3s.model.law_types import Order
from p3s.model.order.kinds import Kinds
from p3s.predict.commands import NO_STUDY, Proposals
from p3s.predict.estimates import Estimates
from p3s.predict.residual import RunMeasurement
from p3s.predict.times import PhaseTimes, Rival
from p3s.predict.types import (
    CHANCE_LIMIT,
    CODES,
    KNEE_EFFICIENCY,
    Count,
    Grade,
    Network,
    Reason,
    Residual,
    part_s,
)
from p3s.simulate.totals import SimulationGaps


@dataclass(frozen=True, eq=False, kw_only=True)
class Facts:
    """What is known of a program, and how its prediction is judged.

    threshold: efficiency of the knee. others: what all estimators say, why: why one was chosen.
    admits: whether the program takes a count. settings: values of the input's parameters by count,
    where they grow with it (weak scaling). validations: comparisons with other runs. network: whose
    costs of messages the times rest on. commands: those of the study, which are proposed. totals:
    computation of all ranks together at traced counts that are not predicted, in s. other: calls
    that may take over at larger counts. calls: the operations that the program calls. allowed:
    codes of reasons that do not make a prediction untrustworthy. requested: counts that the user
    wants to know, None: all. within: half width, relative to the time, that intervals must have,
    None: any.
    """

    threshold: float = KNEE_EFFICIENCY
    holdout: HoldOut | None = None
    order: Order | None = None
    kinds: Kinds | None = None
    others: Estimates = field(default_factory=dict)
    why: str = "it is the only one that was asked"
    admits: Callable[[int], bool] | None = None
    settings: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    validations: Sequence[Comparison] = ()
    network: Network | None = None
    commands: Proposals = NO_STUDY
    totals: Mapping[int, float] = field(default_factory=dict)
    other: Sequence[OtherCall] = ()
    calls: Collection[str] = ()
    allowed: Collection[str] = ()
    requested: Collection[int] | None = None
    within: float | None = None

    @property
    def weak(self) -> bool:
        """Whether the input grows with the count."""
        return bool(self.settings)


@dataclass(frozen=True, eq=False, kw_only=True)
class Case:
    """The rows of a prediction before its reasons, and what they were made from.

    base: the row that speedups relate to. contradicting: traced counts whose runs contradict the
    others: what is off, and how many times as long it takes. below: counts below the traced ones
    whose computation does not follow theirs: that of all ranks together, and what the traced ones
    suggest, in s.
    """

    rows: Sequence[Count]
    base: Count
    times: Mapping[int, PhaseTimes]
    runs: Mapping[int, RunMeasurement] = field(default_factory=dict)
    traced: Sequence[int] = ()
    residuals: Sequence[Residual] = ()
    contradicting: Mapping[int, tuple[str, float]] = field(default_factory=dict)
    below: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    facts: Facts = field(default_factory=Facts)

    def talk(self, n: int) -> float:
        """Return the share of the run time in calls of MPI at a count."""
        return self._share(n, "comm")

    def waiting(self, n: int) -> float:
        """Return the share of waiting; 0 where it is not told apart."""
        return self._share(n, "waiting")

    def messages(self, n: int) -> float:
        """Return the share in calls without waiting."""
        return self.talk(n) - self.waiting(n)

    def computes(self, n: int) -> float:
        """Return the share of computation."""
        return self._share(n, "compute")

    @property
    def work_missed(self) -> float:
        """By which share all computation was off where the model was checked, the largest."""
        held = self.facts.holdout
        runs = [*self.facts.validations, *([held.comparison] if held and held.comparison else [])]
        return max((abs(run.work.total_error) for run in runs), default=0.0)

    def _share(self, n: int, part: str) -> float:
        row = next((row for row in self.rows if row.n == n), None)
        if row is None or row.model_s <= 0:
            return 0.0
        return min((part_s(row, part) or 0.0) / row.model_s, 1.0)

    @property
    def commands(self) -> Proposals:
        """The commands that are proposed."""
        return self.facts.commands

    @property
    def why_not(self) -> dict[int, str]:
        """Why communication does not tell how fast the program is, "" if it does, by count."""
        return {n: made.mpi.why_not for n, made in self.times.items() if n > 1}

    @property
    def followed(self) -> dict[int, SimulationGaps]:
        """How far a simulation got with the messages of each count."""
        return {n: made.mpi.followed for n, made in sorted(self.times.items())}

    @property
    def last(self) -> Count:
        """The largest count."""
        return self.rows[-1]

    @property
    def estimated(self) -> set[int]:
        """The counts whose time is not a measured one."""
        return {row.n for row in self.rows if row.time_from != "measured"}

    @property
    def beyond(self) -> list[int]:
        """The counts above the traced ones."""
        return [row.n for row in self.rows if row.n > max(self.traced, default=0)]

    @property
    def untraced(self) -> list[Count]:
        """The rows of counts that were not traced."""
        return [row for row in self.rows if row.n not in self.traced]


# ---- what speaks against a prediction ----------------------------------------------------------
#: Share of a run time below which what is wrong with it does not matter, and above which a
#: prediction has no grounds: computation may be off by as much where it is checked.
SMALL, MUCH = 0.02, 0.25


Costs = Mapping[int, float] | None


@dataclass(frozen=True)
class Doubt:
    """A reason before it is weighed: its code, text and advice, and what it can cost.

    costs: by count at most which share of the run time it changes, None: there is no bound.
    chance: that it is right. drawn: it is a rival in the draws, as no part of the interval holds
    it. grade: what the prediction is worth because of it, None: by what it costs.
    """

    code: str
    text: str
    advice: str
    costs: Costs = None
    chance: float = 1.0
    drawn: bool = field(default=True, kw_only=True)
    grade: Grade | None = field(default=None, kw_only=True)

    @classmethod
    def of(
        cls, reason: Reason, costs: Costs = None, chance: float = 1.0, drawn: bool = True
    ) -> Doubt:
        """Return a reason's doubt."""
        return cls(reason.code, reason.text, reason.advice, costs, chance, drawn=drawn)


Doubts = Iterable[Doubt]


def grade_doubt(doubt: Doubt, estimated: Collection[int]) -> Reason:
    """Return a reason with its grade, by the most that it costs at counts that are estimated.

    Below SMALL it is to be minded; up to MUCH the prediction is rough; beyond that, or without a
    bound, it is unusable. No reason makes it worse than the table of codes says. Another structure
    that is as unlikely as that intervals do not hold is to be minded.
    """
    costs, worst = doubt.costs, CODES[doubt.code].worst
    cost = None if costs is None else max((costs.get(n, 0.0) for n in estimated), default=0.0)
    size, unlikely = 1.0 if cost is None else cost, doubt.chance <= CHANCE_LIMIT
    if doubt.grade is not None:
        grade = doubt.grade
    elif size < SMALL or (worst == "unusable" and unlikely):
        grade = "usable"
    else:
        grade = "rough" if worst == "unusable" and size <= MUCH else worst
    unusable, rough = grade == "unusable", grade == "rough"
    return Reason(doubt.code, doubt.text, doubt.advice, unusable, rough, cost)


def rivals_at(found: Doubts, n: int) -> list[Rival]:
    """Return the rivals in the draws of a count."""
    return [
        Rival(each.code, each.chance, min(each.costs[n], 1.0))
        for each in found
        if each.drawn and each.costs and each.costs.get(n, 0.0) > 0.0
    ]
