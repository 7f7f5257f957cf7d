"""What is known of a program beside the times of its phases, and what checks look at."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from p3s.capture.other_calls import OtherCall
from p3s.model.comparison import Comparison, HoldOut
from p3s.model.law_types import Order
from p3s.model.order.kinds import Kinds
from p3s.predict.commands import NO_STUDY, Commands
from p3s.predict.estimates import Estimates
from p3s.predict.residual import Measured
from p3s.predict.scaling import KNEE_EFFICIENCY
from p3s.predict.times import PhaseTimes
from p3s.predict.types import OTHER_CALLS, Count, Network, Residual
from p3s.simulate.totals import Followed


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
    commands: Commands = NO_STUDY
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

    @property
    def open(self) -> bool:
        """Whether other calls may take over above the traced counts, so that times are open."""
        return OTHER_CALLS not in self.allowed and not all(each.copied for each in self.other)


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
    runs: Mapping[int, Measured]
    traced: Sequence[int]
    residuals: Sequence[Residual]
    contradicting: Mapping[int, tuple[str, float]]
    below: Mapping[int, tuple[float, float]]
    facts: Facts

    @property
    def commands(self) -> Commands:
        """The commands that are proposed."""
        return self.facts.commands

    @property
    def why_not(self) -> dict[int, str]:
        """Why communication does not tell how fast the program is, "" if it does, by count."""
        return {n: made.why_not for n, made in self.times.items() if n > 1}

    @property
    def followed(self) -> dict[int, Followed]:
        """How far a simulation got with the messages of each count."""
        return {n: made.followed for n, made in sorted(self.times.items())}

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
