"""Why a rule is no surer than its verdict says: codes with data; sentences are made at the end."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from p3s.base.text import processes


class Verdict(StrEnum):
    """How sure a rule is, the surest first."""

    EXACT = "exact"
    FITTED = "fitted"
    STATISTICAL = "statistical"
    AMBIGUOUS = "ambiguous"
    NOT_SEEN = "not seen"
    UNKNOWN = "unknown"
    #: Of numbers of iterations alone: the user says how many.
    STATED = "stated"


#: The verdicts that traces give, the surest first.
VERDICTS = tuple(each for each in Verdict if each != Verdict.STATED)


class Code(StrEnum):
    """What keeps a rule from being surer."""

    # no rule at all
    NOT_MODELLED = "not-modelled"
    NO_PARTNERS = "no-partners"
    NO_MEMBERS = "no-members"
    NO_RANKS = "no-ranks"
    # a law of the mean
    NO_COUNT = "no-count"
    COUNT_BY_RANK = "count-by-rank"
    COUNT_BY_REPEAT = "count-by-repeat"
    NO_SIZE = "no-size"
    SIZES_VARY = "sizes-vary"
    ROOT_VARIES = "root-varies"
    SAMPLE = "sample"
    # several rules agree at all traced counts
    DIRECTION = "direction"
    CUT_OPEN = "cut-open"
    REMAINDER_OPEN = "remainder-open"
    GRID_OPEN = "grid-open"
    PARTNERS_OPEN = "partners-open"
    RANKS_OPEN = "ranks-open"
    NUMBERS_OPEN = "numbers-open"
    ONE_EXTENT = "one-extent"
    CONSTANT_OPEN = "constant-open"
    DOMAIN_OPEN = "domain-open"
    SHARED_PARTNER = "shared-partner"
    # seldom seen, or not met again
    FIRST_SEEN = "first-seen"
    ONE_COUNT = "one-count"
    TWO_COUNTS = "two-counts"
    NOT_REPRODUCED = "not-reproduced"
    AS_MANY_NUMBERS = "as-many-numbers"
    MISSED_HOLDOUT = "missed-holdout"
    LIKE_REQUESTS = "like-requests"
    TOLERANCE = "tolerance"
    # over the input's parameters
    NO_PARAMETER_LAW = "no-parameter-law"
    PARAMETER_LAWS = "parameter-laws"
    PARAMETER_FRACTION = "parameter-fraction"
    PARAMETER_NUMBERS = "parameter-numbers"
    MISSED_SETTING = "missed-setting"


_SENTENCES = {
    Code.NOT_MODELLED: "this kind of operation is not modelled",
    Code.NO_PARTNERS: "no rule found for the partners",
    Code.NO_MEMBERS: "no rule found for the communicator's members",
    Code.NO_RANKS: "no rule found for which ranks take part",
    Code.NO_COUNT: "no exact law for the number of communications",
    Code.COUNT_BY_RANK: "the number of communications differs by rank without a rule found",
    Code.COUNT_BY_REPEAT: "the number of communications differs between repeats",
    Code.NO_SIZE: "no exact law for the message size",
    Code.SIZES_VARY: "message sizes vary inside the run",
    Code.ROOT_VARIES: "the root varies: rank 0 of the communicator stands in",
    Code.SAMPLE: "irregular neighbourhoods: the trace is a sample with the numbers and sizes that "
    "were seen",
    Code.DIRECTION: "direction open in dimension {dims}",
    Code.CUT_OPEN: "several ways to cut the data into blocks fit the traced counts",
    Code.REMAINDER_OPEN: "blocks were even at every traced count: how a remainder is dealt out is "
    "not known",
    Code.GRID_OPEN: "other rules for the process grid fit the traces too and differ here",
    Code.PARTNERS_OPEN: "other rules for the partners fit the traces too and differ here",
    Code.RANKS_OPEN: "other rules for who takes part fit the traces too and differ here",
    Code.NUMBERS_OPEN: "other rules for the number of communications fit the traces too and differ "
    "here",
    Code.CONSTANT_OPEN: "dimension {dims} had as many ranks at every traced count: part of an "
    "extent along it would have had one size, too",
    Code.ONE_EXTENT: "dimension {dims} had as many ranks at every traced count: other rules along "
    "it fit as well",
    Code.DOMAIN_OPEN: "messages are as long as an extent of the program: if the one cut along "
    "dimension {dims} is no longer, partners are further away beyond {at}",
    Code.SHARED_PARTNER: "never seen apart from another partner at the same rank",
    Code.FIRST_SEEN: "first seen at {at}",
    Code.ONE_COUNT: "seen at one count only",
    Code.TWO_COUNTS: "seen at two counts only",
    Code.NOT_REPRODUCED: "not reproduced at every traced count",
    Code.AS_MANY_NUMBERS: "the law has as many fitted numbers as there were different values",
    Code.MISSED_HOLDOUT: "the fit without the largest count missed it",
    Code.LIKE_REQUESTS: "no surer than the requests it completes",
    Code.TOLERANCE: "a tolerance may end its loop, and no argument says how often it runs",
    Code.NO_PARAMETER_LAW: "a number follows no exact law of the parameters",
    Code.PARAMETER_LAWS: "{name} is one of several laws that meet the traced values",
    Code.PARAMETER_FRACTION: "{name} is no whole number there: taken without its fraction",
    Code.PARAMETER_NUMBERS: "{name} has as many numbers as there are traced values",
    Code.MISSED_SETTING: "the rules without {name} missed it there",
}


@dataclass(frozen=True)
class Reason:
    """One thing that keeps a rule from being surer.

    at: the process count it is about, 0 for none; dims: dimensions of the grid; name: a law or a
    setting.
    """

    code: Code
    at: int = 0
    dims: tuple[int, ...] = ()
    name: str = ""

    @property
    def sentence(self) -> str:
        """The reason in words."""
        return _SENTENCES[self.code].format(
            at=processes(self.at), dims=", ".join(map(str, self.dims)), name=self.name
        )


def in_order(reasons: set[Reason]) -> tuple[Reason, ...]:
    """Return reasons in the order in which they are shown: by their words."""
    return tuple(sorted(reasons, key=lambda r: r.sentence))
