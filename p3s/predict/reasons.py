"""Why a prediction is not to be trusted, or what to mind of it: each reason has a code.

Exit codes and gates follow from codes; texts are for people and are read by nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from p3s.text import joined

#: The program has other calls for what it did in the traced runs.
OTHER_CALLS = "other-calls"
#: What a code means, in words that may follow "there is no trustworthy prediction:".
CODES: dict[str, str] = {
    "outdated": "runs that it rests on are no longer used",
    "not-representative": "communication was not measured as in a run",
    "unmatched": "messages of the model have no partner",
    "not-settled": "the simulation did not settle",
    "model-off": "the model is far off at a traced count",
    "deadlock": "the model's order of calls cannot be executed",
    "superlinear": "an efficiency is above what can be believed",
    "same-work": "processes do not share the work",
    "wide": "the interval is too wide to rely upon the time",
    "holdout-missed": "the model missed messages or weights where it was checked",
    "depends-on-timing": "what differs between runs depends on their timing",
    "holdout-work": "computation was far off where the model was checked",
    "not-held-out": "the model could not be checked",
    "validate-missed": "the model missed messages or weights in a validation",
    "validate-work": "computation was far off in a validation",
    "left-out": "too much of the program is not modelled",
    "threads-call": "MPI calls are made inside of parallel regions",
    "threads-differ": "messages depend on the number of threads",
    "no-rule": "too much of the program follows no rule",
    OTHER_CALLS: "the program has calls for this that no run came to",
    "copied-calls": "the program has calls that may be copies of others",
    "emptied": "the ranks have less than one element each",
    "extrapolated": "the largest count is too far from the traced ones",
    "below-traced": "computation below the traced counts does not go on from theirs",
    "outside": "each process computes far less, or more, than was measured",
    "outside-threads": "more threads than runs have shown, of a process or on a node",
    "idle-threads": "loops may have fewer iterations than there are threads",
    "outside-place": "threads lie otherwise than in any run",
    "contradicts": "a traced run contradicts the others",
    "no-trend": "computation has no clear trend",
    "shared-cores": "traced ranks shared cores",
    "off-core": "traced ranks computed without a core",
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
