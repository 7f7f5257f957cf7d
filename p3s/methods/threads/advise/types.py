"""What advice is made of: objectives, chosen configurations, runs that would tell more."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from p3s.methods.threads.advise.configurations import Configuration
from p3s.predict.types import Reason


class Objective(StrEnum):
    """What is to be least.

    TIME: of the run. INDEX: the efficiency index, time over efficiency, n t^2 / T_c with T_c the
    computation of all ranks (thesis, eq. 4.9 and 4.10). CORE_INDEX: the same over cores, with the
    busy time of all threads. CORE_HOURS: of the nodes that are taken.
    """

    TIME = "time"
    INDEX = "efficiency-index"
    CORE_INDEX = "core-index"
    CORE_HOURS = "core-hours"


class Interval(NamedTuple):
    """A value and the ends of its 90 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Choice:
    """A configuration with what is expected of it.

    objective, seconds: with intervals; computing, messages: seconds of the parts; efficiency: T_c /
    (n t), index: t / efficiency; core_hours: of whole nodes; regret: by how much the objective is
    expected to be above the best one's, relative; chance: that it is the best of all. reasons:
    what is doubtful of it.
    """

    configuration: Configuration
    objective: Interval
    seconds: Interval
    computing: float
    messages: float
    efficiency: float
    index: float
    core_hours: float
    regret: float
    chance: float
    reasons: tuple[Reason, ...] = ()

    @property
    def trusted(self) -> bool:
        """Whether nothing speaks against it."""
        return not any(each.untrustworthy for each in self.reasons)


@dataclass(frozen=True)
class Advice:
    """The best configurations by an objective, the best first, of so many that were considered."""

    objective: Objective
    choices: tuple[Choice, ...]
    considered: int

    @property
    def best(self) -> Choice:
        """The configuration that is advised."""
        return self.choices[0]


@dataclass(frozen=True)
class NextRun:
    """A run that would narrow the decision: regret expected now, and after it; spread: of the best
    few configurations' objectives, relative (standard deviation); core_hours: what it costs."""

    configuration: Configuration
    workload: float | None
    regret: float
    regret_after: float
    spread: float
    spread_after: float
    core_hours: float

    @property
    def gain(self) -> float:
        """By how much the expected regret falls."""
        return self.regret - self.regret_after


class Cell(NamedTuple):
    """A field of the heat map: the best configuration with so many processes and threads."""

    processes: int
    threads: int
    configuration: Configuration
    value: float
    regret: float
