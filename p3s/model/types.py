"""The model: what one file, model.json, holds of a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from p3s.laws.worklaws import WorkLaw
from p3s.model.comparison import HoldOut
from p3s.model.grid.at import GridRule, Guard
from p3s.model.grid.stated import Statement
from p3s.model.law_types import CountLaw, IterationsLaw, Order, RootLaw, SizeLaw, When
from p3s.model.partners.communicator_laws import CommunicatorLaw
from p3s.model.partners.relation import Relation
from p3s.model.reasons import Reason, Verdict
from p3s.model.work_types import PhaseWork, WorkLevel
from p3s.signature.phase_file import Recorded

if TYPE_CHECKING:
    from p3s.signature.tables import PointTable


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

    guard: a conjunction of atoms (p3s.model.grid.guardfit), None when unknown; seen: traced counts;
    work, work_points: of one occurrence; guard_rivals: other guards with the traced ranks.
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
    guard_rivals: tuple[Guard, ...] = ()


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
    settled: the verdict at counts at which all rules that explain the traces agree
    (p3s.model.verdicts). rivals: other relations with the traced partners; dearer: bits that each
    of them costs more.
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
    settled: Verdict = Verdict.UNKNOWN
    why: tuple[Reason, ...] = ()
    loops: tuple[int, ...] | None = None
    at: tuple[int, ...] | None = None
    met_holdout: bool | None = None
    holdout: Agreement | None = None
    share: Share | None = None
    measured: tuple[Measured, ...] | None = None
    rivals: tuple[Relation, ...] = ()
    dearer: tuple[float, ...] = ()

    @property
    def key(self) -> tuple[str, str, int | None]:
        """Call site, operation and tag: what is the same in a fit of fewer counts."""
        return self.site, self.op, self.tag


# ---- phases ------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Refusal:
    """Why a loop's iterations have no law of the process count, or none that is sure.

    kind: repeats (they differ between runs at ``n`` processes), time (it takes about ``seconds`` at
    every count: it ends when a time is over), data (no rule was found) or tolerance (``n``
    iterations whenever it is entered, 0 where they hardly differ, which no argument says, each with
    a reduction of one number).
    """

    kind: Literal["repeats", "time", "data", "tolerance"]
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
    weight_verdict: Verdict = Verdict.UNKNOWN
    trips: Refusal | None = None


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
class OtherGrid:
    """Another grid on which all partners that were traced have rules.

    partners: the relations of every node (``Item.node``) there; more: what these cost more than
    those on the grid that was chosen, in relations.
    """

    rule: GridRule
    partners: tuple[tuple[int, tuple[Relation, ...]], ...]
    more: float = 0.0


@dataclass(frozen=True)
class ProcessGrid:
    """The rule of the process grid, its extents at the traced counts, and what was considered.

    cart: the program made it with MPI_Cart_create; considered: other rules with their cost; stated:
    what was known of it beside the traces; rivals: rules with the same grids at all traced counts;
    others: other grids there that explain the partners hardly worse.
    """

    family: GridRule
    text: str
    dims: Mapping[str, tuple[int, ...]]
    cart: bool
    considered: tuple[tuple[str, float], ...]
    stated: Statement | None = None
    dropped: Dropped | None = None
    rivals: tuple[GridRule, ...] = ()
    others: tuple[OtherGrid, ...] = ()


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
class Buffers:
    """Sends and collectives at one count, and of these: from or into device memory, with datatypes
    that are not contiguous (scattered), each with their bytes."""

    messages: int = 0
    device: int = 0
    device_bytes: int = 0
    scattered: int = 0
    scattered_bytes: int = 0


@dataclass(frozen=True)
class Packed:
    """A call with datatypes that are not contiguous.

    block: bytes that they have in a row, on the average, by count; share: of the call's bytes that
    are of such datatypes, at the largest count.
    """

    op: str
    site: str
    block: Mapping[str, float]
    share: float


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
    stack; holdout: None where nothing was held out; shares: per verdict, at the largest count;
    recorded: of the counts that are signatures.
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
    level: WorkLevel | None = None
    buffers: Mapping[str, Buffers] = field(default_factory=dict)
    packed: tuple[Packed, ...] = ()
    recorded: Mapping[str, Recorded] = field(default_factory=dict)

    @property
    def splits(self) -> dict[tuple[str, str], bool]:
        """(site, operation) -> whether tags tell communications apart there."""
        return {(site, op): tagged for site, op, tagged in self.tag_splits}


#: Averages that are closer than this share are one.
_EVEN = 1e-3


def packed_of(tables: Sequence[PointTable]) -> tuple[Packed, ...]:
    """Return the calls some of whose datatypes have gaps; tables: by count, ascending."""
    keys = dict.fromkeys(key for t in tables for key, found in t.pieces.items() if found[2] > 0)
    return tuple(_measure_packing(key, tables) for key in keys)


def _measure_packing(key: str, tables: Sequence[PointTable]) -> Packed:
    op, site = key.split(" ", 1)
    found = {t.np: t.pieces[key] for t in tables if key in t.pieces}
    block = {str(n): gaps / pieces for n, (_, gaps, pieces) in found.items() if pieces > 0}
    whole, gaps, _ = found[max(found)]
    return Packed(op, site, block, gaps / whole if whole > 0 else 0.0)


def block_at(block: Mapping[int, float], n: int) -> tuple[float, float, float]:
    """Return the bytes in a row at a count: least, usual, largest; ``block``: by traced count.

    A power of the count from its first to its last value; beyond the traced counts between the
    last value and that. Never below one byte.
    """
    import numpy as np

    counts = sorted(block)
    values = [block[c] for c in counts]
    if max(values) - min(values) <= _EVEN * max(values):
        return (values[-1],) * 3
    logs = np.log(counts), np.log(values)
    if n <= counts[-1]:
        inside = float(np.exp(np.interp(np.log(n), *logs)))
        return (inside,) * 3
    slope = (logs[1][-1] - logs[1][0]) / (logs[0][-1] - logs[0][0])
    trend = max(float(values[-1] * (n / counts[-1]) ** slope), 1.0)
    return min(trend, values[-1]), trend, max(trend, values[-1])
