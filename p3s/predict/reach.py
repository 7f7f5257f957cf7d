"""Whether counts are within reach of what was traced: too far, too little, or without a trend."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from p3s.base.text import processes, seconds
from p3s.predict.advice import another, smaller
from p3s.predict.case import Case, Doubt
from p3s.predict.residual import BELOW_LIMIT
from p3s.predict.types import Count, PhaseAt, few

#: How many times the largest traced count may be exceeded.
EXTRAPOLATION_LIMIT = 32.0
#: Phases below this share of the computation at a count are not looked at.
SHARE = 0.05
#: Ratio of work per turn to the nearest measured one from which it is noted.
NOTED = 1.5
#: The same, above which a time is known roughly: the working set may be in another level of memory
#: by then, which are 8 to 32 times smaller or larger than their neighbours.
OUTSIDE_LIMIT = 16.0


def doubt_short_messages(case: Case) -> Iterator[Doubt]:
    """Say at which counts messages fall below one element.

    Programs take another way there than the one that was traced.
    """
    heads = {n: made.head for n, made in sorted(case.times.items())}
    found = {n: head["emptied"] for n, head in heads.items() if head.get("emptied")}
    if not found:
        return
    first, calls = next(iter(found.items()))
    names = [str(call["op"]) for call in calls]
    ranks = max(int(call["ranks"]) for call in calls)
    yield Doubt(
        "emptied",
        f"at {processes(list(found))} the model leaves less than one element per rank "
        f"({few(names)} on {ranks:,} of {processes(first)}), as at no traced count: what the "
        "program does then is not known, so the interval is open",
        another(case.commands, case.traced),
    )


def doubt_extrapolation(case: Case) -> Iterator[Doubt]:
    """Say when the largest count is too far from the traced ones."""
    most = max(case.traced, default=0)
    if most and case.last.n <= EXTRAPOLATION_LIMIT * most:
        return
    ratio = case.last.n / most if most else float("inf")
    larger = case.commands.larger(most or 1)
    yield Doubt(
        "extrapolated",
        f"the largest count is {ratio:.0f} times the largest traced count (limit "
        f"{EXTRAPOLATION_LIMIT:.0f})",
        f"trace a larger count: {case.commands.trace(larger)}"
        if larger
        else "try a larger input, which may run at a larger count",
    )


def below_traced(case: Case) -> Iterator[Doubt]:
    """Say at which counts the computation does not go on from the traced ones."""
    base = case.base.n
    for n, (total, expected) in sorted(case.below.items()):
        yield Doubt(
            "below-traced",
            f"at {processes(n)} all ranks together compute {seconds(total)}, where the traced "
            f"counts suggest {seconds(expected)} (limit a factor of {BELOW_LIMIT:g}): the model "
            f"is wrong below the traced counts"
            + ("" if base == n else f"; speedups relate to {processes(base)}"),
            f"trace it ({case.commands.trace(n)})",
        )


def far_outside(case: Case) -> Iterator[Doubt]:
    """Say where computation is so far outside of what was measured that the time means little."""
    for row in case.untraced:
        if not (found := outside(row, OUTSIDE_LIMIT)):
            continue
        less = any(phase.below in (None, True) for phase in found)  # no smaller workload has more
        yield Doubt(
            "outside",
            f"at {processes(row.n)} each process has {ratios(found)} (limit {OUTSIDE_LIMIT:.0f})",
            smaller(row.n, case.commands) if less else another(case.commands),
        )


def outside(row: Count, limit: float) -> list[PhaseAt]:
    """Return the phases of a row of prediction.json that are outside by more than a ratio."""
    total = sum(phase.compute_s for phase in row.phases)
    return [
        phase
        for phase in row.phases
        if phase.compute_s > SHARE * total and (phase.outside or 1.0) > limit
    ]


def ratio_text(phase: PhaseAt) -> str:
    """Return how far a phase is outside, for example "1/6 of the least work per iteration"."""
    ratio = phase.outside or 1.0
    number = f"{ratio:.0f}" if ratio >= 9.5 else f"{ratio:.2g}"
    if phase.below in (None, True):
        return f"1/{number} of the least work per iteration"
    return f"{number} times the most work per iteration"


def ratios(phases: Sequence[PhaseAt], most: int = 3) -> str:
    """Return the ratios of some phases, the same ratio once."""
    found: dict[str, list[str]] = {}
    for phase in sorted(phases, key=lambda p: -p.compute_s):
        name = str(phase.phase if phase.phase >= 0 else phase.name)
        found.setdefault(ratio_text(phase), []).append(name)
    parts = [
        f"{text} that was measured (phase {', '.join(names[:most])}"
        f"{', ...' if len(names) > most else ''})"
        for text, names in list(found.items())[:most]
    ]
    return ", ".join(parts) + (", ..." if len(found) > most else "")


def no_trend(case: Case) -> Iterator[Doubt]:
    """Say which phases' computation shows no clear trend at the largest count."""
    found: dict[str, list[str]] = {}
    row = case.last
    large = {p.phase for p in row.phases if p.compute_s > SHARE * row.compute_s}
    for phase in case.times[row.n].phases:
        about = phase.get("no_trend")
        if about and phase["phase"] in large:
            number = phase["phase"]  # the start and the end of a program have names instead
            found.setdefault(about["why"], []).append(
                str(number if number >= 0 else f'"{phase.get("name")}"')
            )
    for why, names in found.items():
        yield Doubt(
            "no-trend",
            f"the computation of phase{'s' * (len(names) > 1)} {few(names)} has no clear trend "
            f"({why}): the interval covers the laws that fit",
            another(case.commands, case.traced),
        )
