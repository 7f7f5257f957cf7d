"""Why a prediction is not to be trusted, or what to mind of it: each reason has a code.

Exit codes and gates follow from codes; texts are for people and are read by nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from p3s.base.text import joined

#: The program has other calls for what it did in the traced runs.
OTHER_CALLS = "other-calls"
#: What a code means, in words that may follow "do not rely on this prediction:".
CODES: dict[str, str] = {
    "outdated": "it rests on runs that are no longer used",
    "not-representative": "message costs were not measured as in a real run",
    "unmatched": "some messages of the model have no partner",
    "not-settled": "the simulation did not reach a steady state",
    "stand-ins": "smaller process grids do not tell what all ranks do",
    "model-off": "the model is far off at a traced count",
    "deadlock": "the model's order of calls would deadlock",
    "superlinear": "an efficiency is implausibly high",
    "same-work": "processes do not share the work",
    "wide": "the interval is too wide",
    "holdout-missed": "the model missed messages or iterations of the run it was checked on",
    "order": "the model's order of calls is not that of the traced runs",
    "depends-on-timing": "communication depends on timing and differs between runs",
    "holdout-work": "the model missed the computation of the run it was checked on",
    "not-held-out": "the model could not be checked",
    "validate-missed": "the model missed messages or iterations of a validation run",
    "validate-work": "the model missed the computation of a validation run",
    "left-out": "too much of the program is not modelled",
    "threads-call": "MPI is called inside parallel regions",
    "threads-differ": "the messages depend on the number of threads",
    "no-rule": "too much of the program follows no known rule",
    "open": "several structures explain the traced runs and differ there",
    OTHER_CALLS: "the program has other calls for this, which no run reached",
    "copied-calls": "some calls may be copies that the compiler made",
    "emptied": "there is less than one element per rank",
    "extrapolated": "the largest count is too far beyond the traced ones",
    "below-traced": "computation below the traced counts does not follow theirs",
    "outside": "each process has far less, or more, to compute than in any run",
    "outside-threads": "there are more threads per process or node than in any run",
    "idle-threads": "loops may have fewer iterations than threads",
    "outside-place": "threads are placed as in no run",
    "contradicts": "a traced run contradicts the others",
    "no-trend": "computation has no clear trend",
    "shared-cores": "traced ranks shared cores",
    "off-core": "traced ranks were off their cores while they computed",
}


@dataclass(frozen=True)
class Reason:
    """One thing that is wrong with a prediction, or to be minded.

    code: one of CODES; text: what is wrong, with its figures; advice: what to do about it, or "";
    untrustworthy: whether the prediction is not to be trusted because of it. Both texts are
    clauses, without a capital and a full stop.
    """

    code: str
    text: str
    advice: str = field(default="", metadata={"always": True})
    untrustworthy: bool = field(default=True, metadata={"always": True})

    @property
    def sentence(self) -> str:
        """What is wrong and what to do about it, as one clause."""
        return f"{self.text}; {self.advice}" if self.advice else self.text


def named(reasons: Iterable[Reason], of: str) -> list[Reason]:
    """Return reasons whose texts begin with what they are of."""
    return [replace(each, text=f"{of}: {each.text}") for each in reasons]


def with_allowed(reasons: Iterable[Reason], allowed: Collection[str]) -> list[Reason]:
    """Return reasons; those whose codes are allowed are to be minded only."""
    return [
        replace(each, untrustworthy=False) if each.code in allowed else each for each in reasons
    ]


def untrusted(reasons: Iterable[Reason], allowed: Collection[str] = ()) -> list[Reason]:
    """Return the reasons that make a prediction untrustworthy, but for codes that are allowed."""
    return [each for each in reasons if each.untrustworthy and each.code not in allowed]


def in_short(reasons: Sequence[Reason]) -> str:
    """Return what is wrong in a few words, each code once; "" where nothing is."""
    words = dict.fromkeys(CODES.get(each.code, "another reason") for each in reasons)
    return joined(words, ", and" if len(words) > 1 else "").replace(" , and", ", and")
