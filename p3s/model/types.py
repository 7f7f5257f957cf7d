"""The model: what one file, model.json, holds of a program.

Keys of the file are the names of the fields; docs/formats.md says the same to people. Counts that
are keys are text there and here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from p3s.laws.expr import Expr
from p3s.laws.worklaws import WorkLaw
from p3s.model.amount import Amount
from p3s.model.grid.grid_rule import GridRule
from p3s.model.grid.guards import Guard
from p3s.model.grid.stated import Statement
from p3s.model.partners.communicator_laws import CommunicatorLaw
from p3s.model.partners.relation import Relation
from p3s.model.partners.totals import Total
from p3s.model.reasons import Reason, Verdict
from p3s.text import processes

Place = tuple[str, str]


# ---- laws --------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Rival:
    """Another law that meets all points: a whole equation, or another cut of one extent.

    cut: [extent symbol, kind, extent, other kind, other extent].
    """

    expr: Expr | None = None
    cut: tuple[str, str, int, str, int] | None = None

    def to_json(self) -> dict[str, Any] | list[Any]:
        """Return the rival as plain data."""
        return list(self.cut) if self.cut is not None else {"expr": self.expr}

    @staticmethod
    def from_json(data: Mapping[str, Any] | list[Any]) -> Rival:
        """Return the rival from :meth:`to_json` data."""
        if isinstance(data, Mapping):
            return Rival(expr=data["expr"])
        symbol, kind, extent, other, other_extent = data
        return Rival(cut=(str(symbol), str(kind), int(extent), str(other), int(other_extent)))


@dataclass(frozen=True)
class CountLaw:
    """How often: one of expr (per rank), total (shared out), stat (a mean), follows (requests).

    points, free: counts the equation was fitted to, constants in it; factor: as often as the items
    that it follows, times this fraction; per_turn: the law of one iteration of a loop whose number
    the user states.
    """

    expr: Expr | None = None
    points: int | None = None
    free: int | None = None
    rivals: tuple[Rival, ...] | None = None
    total: Expr | None = None
    stat: WorkLaw | None = None
    follows: tuple[int, ...] | None = None
    factor: tuple[int, int] | None = None
    per_turn: Expr | None = None
    stated: int | None = None
    holds_from: int | None = field(default=None, metadata={"key": "from"})


@dataclass(frozen=True)
class SampleSizes:
    """Sizes in an irregular neighbourhood: quantiles relative to the mean, law of their total."""

    quantiles: tuple[float, ...]
    total: Total


@dataclass(frozen=True)
class SizeLaw:
    """Elements of one message: one of expr, stat (a mean) and sample.

    even: every block divided evenly; open: other sizes might have led to another law; means: rows
    (count, mean, messages) of what has no equation.
    """

    expr: Expr | None = None
    points: int | None = None
    free: int | None = None
    even: bool | None = None
    rivals: tuple[Rival, ...] | None = None
    open: bool | None = None
    stat: Amount | None = None
    means: tuple[tuple[int, float, int], ...] | None = None
    sample: SampleSizes | None = None


@dataclass(frozen=True)
class IterationsLaw:
    """The iterations that a rank and stage has: number of them from the first on, by steps."""

    step: int
    first: Expr
    number: Expr


@dataclass(frozen=True)
class RootLaw:
    """A place in the communicator: index (-1: the last), the middle one, or an equation."""

    index: int | None = None
    half: bool | None = None
    expr: Expr | None = None


@dataclass(frozen=True)
class When:
    """Patterns, one per loop around (p3s.model.order.patterns), for ranks with certain items.

    items: None for all ranks; when: None where no pattern was found.
    """

    items: tuple[int, ...] | None
    when: tuple[list[Any], ...] | None


# ---- calls -------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Share:
    """Shares between 0 and 1 of the events, bytes and time of a run."""

    events: float
    bytes: float
    time: float


NO_SHARE = Share(0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Slot:
    """One communication as equations: who takes part, how often, how many elements, which root.

    guard: a conjunction of atoms (p3s.model.grid.guards), None when unknown; seen: traced counts;
    work, work_points: of one occurrence.
    """

    relation: Relation | None
    place: CommunicatorLaw | None
    seen: tuple[int, ...]
    guard: Guard | None
    count: CountLaw
    elements: SizeLaw
    elem_bytes: int
    root: RootLaw | None
    work: WorkLaw
    work_points: tuple[tuple[int, float], ...] = ()
    turns: IterationsLaw | None = None
    why: tuple[Reason, ...] = ()
    when: tuple[When, ...] | None = None


@dataclass(frozen=True)
class Agreement:
    """Calls and bytes of a call site in a run, by the model, and equal in both."""

    true: int
    predicted: int
    equal: int
    true_bytes: int
    predicted_bytes: int


@dataclass(frozen=True)
class Values:
    """What one rank does at a call site: calls, (bytes, calls) of each size, partners."""

    calls: int
    sizes: tuple[tuple[int, int], ...] = ()
    more_sizes: int = 0
    peers: tuple[int, ...] = ()
    more_peers: int = 0


@dataclass(frozen=True)
class RankClass:
    """Ranks of equal values: how many, the first of them; rule: where the rules say otherwise."""

    ranks: int
    rank: int
    traced: Values
    rule: Values | None = None


@dataclass(frozen=True)
class MoreClasses:
    """Classes that are not listed: how many, of how many ranks, on how many the rules differ."""

    classes: int
    ranks: int
    differ: int


@dataclass(frozen=True)
class Measured:
    """What was traced of a call at one count beside what the rules say; pairs: (traced, ruled)."""

    n: int
    ranks: tuple[int, int]
    calls: tuple[int, int]
    classes: tuple[RankClass, ...]
    more: MoreClasses | None = None


@dataclass(frozen=True)
class Item:
    """A call towards one relation or on one kind of communicator; a slot per size.

    node: number of the call site, operation and tag; tag: what tells it apart, None if nothing
    does; tag_value: the tag it carries, -1 if several; loop_start: position at which its loop over
    stages starts; loops, at: the loops around it, and its place in the program and in each of them.
    """

    node: int
    site: str
    op: str
    kind: str
    tag: int | None
    tag_value: int
    relation: Relation | None
    place: CommunicatorLaw | None
    notes: tuple[Reason, ...]
    slots: tuple[Slot, ...]
    phase: int = field(default=-1)
    order: int = field(default=-1)
    loop_start: int | None = None
    stages_of: int | None = None
    verdict: Verdict = field(default=Verdict.UNKNOWN, metadata={"always": True})
    why: tuple[Reason, ...] = ()
    loops: tuple[int, ...] | None = None
    at: tuple[int, ...] | None = None
    met_holdout: bool | None = None
    holdout: Agreement | None = None
    share: Share | None = None
    measured: tuple[Measured, ...] | None = None

    @property
    def key(self) -> tuple[str, str, int | None]:
        """Call site, operation and tag: what is the same in a fit of fewer counts."""
        return self.site, self.op, self.tag


# ---- phases ------------------------------------------------------------------------------------
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

    before: where they start, None at the start of the run; items, rows: of the calls there, the
    weights of their first and later stages; calls_at: count -> (calls of a rank that makes any, per
    iteration; share of ranks that do); size: bytes of a call.
    """

    place: Place
    before: tuple[Place | None, ...] = field(metadata={"key": "from"})
    segments: tuple[Segment, ...]
    cases: tuple[Case, ...]
    items: tuple[int, ...] = field()
    rows: tuple[tuple[float, float], ...] = field()
    calls_at: Mapping[str, tuple[float, float]] | None = None
    size: WorkLaw | None = None


@dataclass(frozen=True)
class PhaseWork:
    """Work of a phase: law and (count, mean) points of a rank over the run, and its segments."""

    law: WorkLaw
    points: tuple[tuple[int, float], ...]
    equal_ranks: bool
    measured: Mapping[str, tuple[Group, ...]]
    places: tuple[WorkPlace, ...]


@dataclass(frozen=True)
class Refusal:
    """Why a loop's iterations have no law of the process count.

    kind: repeats (they differ between runs at ``n`` processes), time (it takes about ``seconds`` at
    every count: it ends when a time is over) or data (no rule was found).
    """

    kind: Literal["repeats", "time", "data"]
    n: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Phase:
    """A loop of the program with the items in it; phase 0 is what is outside all loops.

    weight: iterations; weight_points: (count, iterations) as traced; fused_stages: its iterations
    are stages of a family of partners.
    """

    phase: int
    depth: int
    parent: int | None
    name: str
    items: tuple[int, ...]
    weight: CountLaw
    weight_points: tuple[tuple[int, int], ...]
    fused_stages: bool
    work: PhaseWork
    weight_verdict: str = ""
    trips: Refusal | None = None


# ---- order of events ---------------------------------------------------------------------------
@dataclass(frozen=True)
class Walk:
    """The order of a loop that goes from partner to partner: by stage, iteration, peer or rules.

    sign: of the partners' ranks, ascending or descending; order: items that come together, in
    order; then: what comes second.
    """

    by: str
    sign: int = 1
    order: tuple[tuple[int, ...], ...] = ()
    then: str = ""


@dataclass(frozen=True)
class TripLaw:
    """Iterations each time a loop is entered: an equation, changed by the index of a loop around.

    level: of that loop; step: added per index; shift: halved per index; listed: one by one.
    """

    expr: Expr | None = None
    listed: tuple[int, ...] | None = field(default=None, metadata={"key": "list"})
    level: int | None = None
    step: int | None = None
    shift: int | None = None


@dataclass(frozen=True)
class Trips:
    """How often a loop goes round, for ranks with certain items, and when it is entered.

    items: None for all ranks; law: None where none was found.
    """

    items: tuple[int, ...] | None
    when: tuple[list[Any], ...] | None
    law: TripLaw | None


@dataclass(frozen=True)
class LoopRule:
    """A loop: the one around it (0: the program), its place at every level, its iterations."""

    loop: int
    parent: int
    at: tuple[int, ...]
    walk: Walk | None
    trips: tuple[Trips, ...]


@dataclass(frozen=True)
class Order:
    """The order of events: all loops, outer ones first."""

    loops: tuple[LoopRule, ...]


@dataclass(frozen=True)
class OrderedSlot:
    """In which iterations a slot is carried out."""

    when: tuple[When, ...] | None


@dataclass(frozen=True)
class OrderedItem:
    """What of an item the order of events needs."""

    op: str
    kind: str
    loops: tuple[int, ...] | None
    at: tuple[int, ...] | None
    slots: tuple[OrderedSlot, ...]


@dataclass(frozen=True)
class TraceOrder:
    """What unfolds the rows of a scaled trace into events, order.json; loops: None if not known."""

    n: int
    grid: tuple[int, ...]
    loops: tuple[LoopRule, ...] | None
    items: tuple[OrderedItem, ...]


# ---- beside a run ------------------------------------------------------------------------------
@dataclass(frozen=True)
class Overlap:
    """How many a run had, how many the model says, and how many are equal in both."""

    true: int
    predicted: int
    equal: int

    @property
    def all_equal(self) -> bool:
        """Whether the model says them all, and no other."""
        return self.true == self.predicted == self.equal


@dataclass(frozen=True)
class WeightAt:
    """The iterations of a phase at one count, in the run and by the model."""

    phase: int
    true: int
    predicted: int


@dataclass(frozen=True)
class Weights:
    """The iterations of all phases, and how many of them are exact."""

    phases: int
    exact: int
    each: tuple[WeightAt, ...] = ()


@dataclass(frozen=True)
class WorkAt:
    """The work of a phase (None: what no item explains) in the run and by the model."""

    phase: int | None
    share: float
    true: float
    predicted: float
    error: float


@dataclass(frozen=True)
class WorkErrors:
    """Relative errors of the work of phases, and of all work."""

    mean_abs_error: float
    median_abs_error: float
    max_abs_error: float
    total_error: float
    each: tuple[WorkAt, ...]

    @property
    def off(self) -> float:
        """By which share the work is off.

        The mean of the phases' errors, signs left out, weighted by their shares of the work, or the
        error of the total where that is larger (work of phases that the run does not have).
        """
        total, whole = abs(self.total_error), sum(each.share for each in self.each)
        if whole > 0:
            mean = sum(each.share * abs(each.error) for each in self.each) / whole
            return max(mean, total)
        return max(self.mean_abs_error, total)


@dataclass(frozen=True)
class Difference:
    """The first event at which the order of a rank differs; None where a rank has ended."""

    rank: int
    position: int
    expected: str | None
    found: str | None


@dataclass(frozen=True)
class OrderAgreement:
    """Ranks whose events are all in order, and those equal but for sizes; events that are equal."""

    ranks: int
    equal: int
    equal_but_bytes: int
    events: Mapping[str, int]
    first: Difference | None


@dataclass(frozen=True)
class Unmodelled:
    """Events that the model leaves out, and their share of the time."""

    events: int
    share_of_time: float


@dataclass(frozen=True)
class CallAgreement:
    """The agreement of a call site, operation and tag."""

    site: str
    op: str
    tag: int | None
    true: int
    predicted: int
    equal: int
    true_bytes: int
    predicted_bytes: int


@dataclass(frozen=True)
class Comparison:
    """How the model's trace agrees with a captured run at one count.

    order: None without the sequences of all ranks; items_wrong: items whose calls differ;
    unseen_sites: call sites that the model does not have.
    """

    n: int
    p2p_triples: Overlap
    collectives: Overlap
    weights: Weights
    order: OrderAgreement | None
    work: WorkErrors
    unmodelled: Unmodelled
    slots: tuple[CallAgreement, ...]
    items_wrong: tuple[int, ...]
    unseen_sites: tuple[str, ...]

    @property
    def all_equal(self) -> bool:
        """Whether every message, collective, weight and rank's order is equal."""
        return (
            self.p2p_triples.all_equal
            and self.collectives.all_equal
            and self.weights.phases == self.weights.exact
            and (self.order is None or self.order.equal == self.order.ranks)
        )


@dataclass(frozen=True)
class Summary:
    """The numbers of a comparison, without its lists."""

    n: int
    p2p_triples: Overlap
    collectives: Overlap
    weights: Weights
    order: Mapping[str, int] | None
    work: Mapping[str, float]

    @property
    def all_equal(self) -> bool:
        """Whether every message, collective and weight is as predicted."""
        return (
            self.p2p_triples.all_equal
            and self.collectives.all_equal
            and self.weights.phases == self.weights.exact
        )


@dataclass(frozen=True)
class HoldOut:
    """A fit without one count, or without one setting of the parameters, compared there.

    possible: if not, ``problem`` says why and the rest is empty; weights_missed, phases_seen: calls
    of phases whose iterations were missed, and of all; setting, each: of the parameters.
    """

    n: int
    possible: bool
    problem: str = field(default="", metadata={"key": "why"})
    comparison: Comparison | None = None
    weights_missed: tuple[tuple[str, ...], ...] = ()
    phases_seen: tuple[tuple[str, ...], ...] = ()
    setting: str = ""
    each: tuple[Summary, ...] = ()

    @property
    def without(self) -> str:
        """What it was fitted without: a process count, or a value of a parameter."""
        return f"{self.setting} ({processes(self.n)})" if self.setting else processes(self.n)


# ---- what is open ------------------------------------------------------------------------------
@dataclass(frozen=True)
class Decision:
    """A question that a count's trace settles, and the share of the program that hangs on it."""

    question: str
    share: float


@dataclass(frozen=True)
class NextCount:
    """A count worth tracing next, with the grid it has and the questions it settles."""

    n: int
    dims: tuple[int, ...]
    score: float
    decides: tuple[Decision, ...]

    @property
    def why(self) -> str:
        """What its trace tells."""
        return "; ".join(dict.fromkeys(d.question for d in self.decides))


@dataclass(frozen=True)
class NewCall:
    """A call first made at some count: its site, operation and innermost frame."""

    site: str
    op: str
    frame: str


@dataclass(frozen=True)
class GrowthStep:
    """Calls first made at a count; ruled: those with a rule that says why not before.

    named: some of them; share: of events, bytes and time there, of those without such a rule.
    """

    n: int
    calls: int
    ruled: int
    named: tuple[NewCall, ...]
    share: Share


@dataclass(frozen=True)
class Growth:
    """Whether the set of calls still grows, and the largest shares that a step brought."""

    still: bool
    steps: tuple[GrowthStep, ...]
    bound: Share


@dataclass(frozen=True)
class Admissible:
    """Which counts a program takes: their kind (k: of multiples), and whether failures show it."""

    kind: str
    k: int
    sure: bool
    counts: tuple[int, ...]
    failed: tuple[int, ...]


# ---- the whole ---------------------------------------------------------------------------------
@dataclass(frozen=True)
class Dropped:
    """What arguments or the user said of the grid, and why it was not taken."""

    said: Statement
    why: str


@dataclass(frozen=True)
class ProcessGrid:
    """The rule of the process grid, its extents at the traced counts, and what was considered.

    cart: the program made it with MPI_Cart_create; considered: other rules with their cost; stated:
    what was known of it beside the traces.
    """

    family: GridRule
    text: str
    dims: Mapping[str, tuple[int, ...]]
    cart: bool
    considered: tuple[tuple[str, float], ...]
    stated: Statement | None = None
    dropped: Dropped | None = None


@dataclass(frozen=True)
class NotModelled:
    """An operation that was seen and is not modelled, with its share at ``np`` processes."""

    op: str
    kind: str
    np: int
    events: int
    share_of_events: float
    share_of_time: float


@dataclass(frozen=True)
class Tracing:
    """What tracing cost at one count: calls, time in the tracer, largest share of a rank's time."""

    calls: int
    tracer_ns: int
    largest_share: float


@dataclass(frozen=True)
class Derived:
    """The setting a model was made for without a run, and the settings it was made from.

    outside: the ratio by which it lies outside those, 1 inside; left_out: settings whose structure
    is another.
    """

    setting: Mapping[str, str]
    settings: tuple[str, ...] = field(metadata={"key": "from"})
    outside: float
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class Model:
    """The laws of a program: grid, items (calls), phases (loops), the order of events.

    counts: those it was fitted to, ascending; without: traced ones left out; sites: site -> call
    stack; holdout: None where nothing was held out; shares: per verdict, at the largest count.
    """

    counts: tuple[int, ...]
    grid: ProcessGrid
    tag_splits: tuple[tuple[str, str, bool], ...]
    items: tuple[Item, ...]
    phases: tuple[Phase, ...]
    work_unit: str
    work_units: Mapping[str, str]
    tracing: Mapping[str, Tracing]
    sites: Mapping[str, tuple[str, ...]]
    unmodelled_ops: Mapping[str, int]
    not_modelled: tuple[NotModelled, ...]
    first_seen: Mapping[str, int]
    growth: Growth
    admissible: Admissible
    order: Order | None
    holdout: HoldOut | None
    shares: Mapping[str, Share]
    next: tuple[NextCount, ...]
    derived: Derived | None = None
    without: tuple[int, ...] = ()

    @property
    def splits(self) -> dict[tuple[str, str], bool]:
        """(site, operation) -> whether tags tell communications apart there."""
        return {(site, op): tagged for site, op, tagged in self.tag_splits}
