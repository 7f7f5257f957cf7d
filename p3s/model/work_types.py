"""What model.json holds of the work of a phase: laws of segments, of a rank's mean, of balance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from p3s.laws.expr import Expr
from p3s.laws.worklaws import WorkLaw
from p3s.model.grid.at import Guard

Place = tuple[str, str]
#: Whose laws say the mean work of a rank.
Level = Literal["segments", "phases", "total"]


@dataclass(frozen=True)
class Group:
    """Ranks, as (first, last) ranges, that work alike, and the work of one in the run."""

    ranks: tuple[tuple[int, int], ...]
    work: float


@dataclass(frozen=True)
class Segment:
    """The law of one occurrence of the code between two call sites.

    terms: (coefficient, feature, what of the messages it goes with); error: relative; rivals:
    terms of laws that did as well; counts: at which it was seen.
    """

    terms: tuple[tuple[float, Expr, str], ...]
    error: float
    rivals: tuple[tuple[tuple[float, Expr, str], ...], ...]
    counts: tuple[int, ...]


@dataclass(frozen=True)
class Occurs:
    """How often a segment occurs: one of a constant, as the call it starts at (its number), an
    equation, a share of the calls it ends at, or the rest of these.
    """

    const: float | None = None
    like: int | None = field(default=None, metadata={"key": "as"})
    expr: Expr | None = None
    share: float | None = None
    rest: int | None = None


@dataclass(frozen=True)
class Case:
    """Ranks that make just these of the calls before, and how often each segment occurs there."""

    present: tuple[int, ...]
    guard: Guard | None
    counts: tuple[Occurs, ...]


@dataclass(frozen=True)
class WorkPlace:
    """The segments that end at one call site and operation.

    before: where they start, None at the start of the run; items: of the calls there; through: the
    shares of calls of their first and later stages that come through each segment, none where all
    are alike; calls_at: count -> (calls of a rank that makes any, per iteration; share of ranks
    that do); size: bytes of a call. In older files alone: rows, the work of stages; gain not 1.
    """

    place: Place
    before: tuple[Place | None, ...] = field(metadata={"key": "from"})
    segments: tuple[Segment, ...]
    cases: tuple[Case, ...]
    items: tuple[int, ...] = field()
    through: tuple[tuple[tuple[float, ...], tuple[float, ...]], ...] = ()
    rows: tuple[tuple[float, float], ...] = ()
    calls_at: Mapping[str, tuple[float, float]] | None = None
    size: WorkLaw | None = None
    gain: float = 1.0


@dataclass(frozen=True)
class MeanLaw:
    """The mean work of a rank: laws (weight, terms as (coefficient, feature)) averaged in the
    logarithm; error: of the largest count, predicted from the others, as a logarithm (None: too
    few counts); each: of one iteration, not of the run.
    """

    laws: tuple[tuple[float, tuple[tuple[float, Expr], ...]], ...]
    error: float | None
    each: bool = False


@dataclass(frozen=True)
class Profile:
    """How the work of a phase differs between its ranks, relative to their mean.

    kind: see p3s.model.work.balance; error: of the ratios at the largest count, predicted from the
    others (rms). coefficients: of "faces", the ratio of each rank of "rank", the ratios at the
    largest count of "drawn"; ends: of "segments" in older files, the least and the largest ratio.
    largest: (count, largest ratio less one) of "rank" and "drawn"; order: of the ranks of "drawn",
    the same number where phases have the same busy ranks. along: of "position", the ratios of the
    blocks along each dimension at the largest count.
    """

    kind: Literal["even", "faces", "segments", "rank", "position", "drawn"]
    error: float
    coefficients: tuple[float, ...] = ()
    ends: tuple[float, float] | None = None
    largest: tuple[tuple[int, float], ...] = ()
    order: int = 0
    along: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True)
class WorkLevel:
    """Which laws say the mean work of a rank: those of segments, of phases, or of the program.

    weights: of each, in the mean of the logarithms; errors: of each, at the largest count, fitted
    without it, and at all counts; total: the law of the program; phases: the same errors of each
    phase, by number, each with that of the program as a mean of squares (none in older files).
    """

    weights: Mapping[Level, float]
    errors: Mapping[Level, float]
    total: MeanLaw | None = None
    phases: tuple[Mapping[Level, float], ...] = ()


@dataclass(frozen=True)
class PhaseWork:
    """Work of a phase: law and (count, mean) points of a rank over the run, and its segments.

    mean, profile: of the ranks that take part; share: of ranks that do, at the largest count.
    """

    law: WorkLaw
    points: tuple[tuple[int, float], ...]
    equal_ranks: bool
    measured: Mapping[str, tuple[Group, ...]]
    places: tuple[WorkPlace, ...]
    mean: MeanLaw | None = None
    profile: Profile | None = None
    share: float = 1.0
