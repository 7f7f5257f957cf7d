"""The model beside a run: what is equal, what is not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from p3s.base.artefacts import read_json
from p3s.base.errors import P3SError
from p3s.base.serialise import from_data
from p3s.base.text import processes

#: Schema of the files in validate/.
VALIDATION = "p3s.validation"


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
    """Ranks whose events are all in order, and those equal but for sizes; events that are equal.

    shuffled: ranks that do the same as in the model, only with their partners in another order;
    by_chance: how many of these receive from MPI_ANY_SOURCE, so that no order is truer.
    moved: ranks whose calls that they make as often as in the model come in another order.
    """

    ranks: int
    equal: int
    equal_but_bytes: int
    events: Mapping[str, int]
    first: Difference | None
    shuffled: tuple[int, ...] = ()
    by_chance: int = 0
    moved: tuple[int, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether all ranks are in order, but for what is left to chance."""
        return self.equal + self.by_chance == self.ranks


@dataclass(frozen=True)
class Moved:
    """Ranks of a run of ``n`` whose calls come in another order than in the model; of how many."""

    n: int
    moved: tuple[int, ...]
    ranks: int


@dataclass(frozen=True)
class Unmodelled:
    """Events that the model leaves out, and their share of the time."""

    events: int
    share_of_time: float


@dataclass(frozen=True)
class CallAgreement:
    """The agreement of a call site, operation and tag.

    open: the model said that several rules fit there, of which the one used need not be right.
    """

    site: str
    op: str
    tag: int | None
    true: int
    predicted: int
    equal: int
    true_bytes: int
    predicted_bytes: int
    open: bool = False

    @property
    def calls_left_open(self) -> float:
        """Of the calls that differ, those that the model left open, but for what they are off by.

        A size that was open and is a hundredth off costs a hundredth of a call.
        """
        if not self.open:
            return 0.0
        whole, size = max(self.true, self.predicted), max(self.true_bytes, self.predicted_bytes)
        off = abs(self.true - self.predicted) / max(whole, 1)
        off += abs(self.true_bytes - self.predicted_bytes) / max(size, 1)
        return (whole - self.equal) * max(1.0 - off, 0.0)


NO_CALLS = Overlap(0, 0, 0)


def name_overlaps(
    messages: Overlap, collectives: Overlap, files: Overlap
) -> tuple[tuple[str, Overlap], ...]:
    """Return what is compared with its noun; calls on files where there are some."""
    both = (("message", messages), ("collective", collectives))
    return (*both, ("file call", files)) if files != NO_CALLS else both


@dataclass(frozen=True)
class Comparison:
    """How the model's trace agrees with a captured run at one count.

    files: calls on files; order: None without the sequences of all ranks; items_wrong: items whose
    calls differ; unseen_sites: call sites that the model does not have.
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
    files: Overlap = NO_CALLS

    @property
    def told(self) -> tuple[tuple[str, Overlap], ...]:
        """Messages, collectives and calls on files, each with its noun."""
        return name_overlaps(self.p2p_triples, self.collectives, self.files)

    @property
    def all_equal(self) -> bool:
        """Whether calls, weights and orders are equal, or left to chance."""
        return (
            all(pair.all_equal for _, pair in self.told)
            and self.weights.phases == self.weights.exact
            and (self.order is None or self.order.holds)
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
    files: Overlap = NO_CALLS

    @property
    def told(self) -> tuple[tuple[str, Overlap], ...]:
        """Messages, collectives and calls on files, each with its noun."""
        return name_overlaps(self.p2p_triples, self.collectives, self.files)

    @property
    def all_equal(self) -> bool:
        """Whether every call and weight is as predicted."""
        equal = all(pair.all_equal for _, pair in self.told)
        return equal and self.weights.phases == self.weights.exact


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


def read_comparison(path: Path) -> tuple[int, Comparison]:
    """Return what a file of validate/ holds: the checksum of its model, and the comparison.

    Raises P3SError for one that is damaged.
    """
    data = read_json(path, VALIDATION)
    own = {f.name for f in fields(Comparison)}
    try:
        found = from_data(Comparison, {k: v for k, v in data.items() if k in own})
        return int(data["model_crc"]), found
    except (P3SError, KeyError, TypeError, ValueError) as err:
        raise P3SError(f"{path}: damaged ({err}); run `p3s validate` again") from err
