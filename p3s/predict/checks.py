"""The checks of a prediction, one for each reason not to trust it or to mind: a table of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from p3s.base.text import processes, seconds
from p3s.capture.other_calls import OtherCall
from p3s.predict import doubts
from p3s.predict.advice import again, another, narrower, narrower_by, smaller
from p3s.predict.case import Case
from p3s.predict.residual import BELOW_LIMIT, RESIDUAL_LIMIT, is_off, off_by
from p3s.predict.types import OTHER_CALLS, Count, PhaseAt, Reason, few
from p3s.program.types import MOST_RANKS

#: By which share smaller grids may miss communication that they stand for.
STAND_INS_LIMIT = 0.10
#: Efficiency that is not believed: caches give some more than 1, disturbed runs anything.
EFFICIENCY_LIMIT = 1.2
#: A process that computes this part, or more, of what it does at a count so many times smaller
#: does not share the work with the others.
SAME_WORK, _GROWN = 0.8, 4
#: Efficiency of weak scaling above which the input does not grow with the processes.
WEAK_LIMIT = 1.05
#: High over low end of an interval from which it says that the time is not known.
WIDE = 4.0
#: Half width of an interval, relative, above which its run time is known roughly only.
UNSURE, ROUNDING = 0.10, 1e-9
#: Share of a run time below which what is wrong with its messages does not matter: a fifth of what
#: a usable time may be off by.
SMALL = 0.02
#: How many times the largest traced count may be exceeded.
EXTRAPOLATION_LIMIT = 32.0
#: Phases below this share of the computation at a count are not looked at.
SHARE = 0.05
#: Ratio of work per turn to the nearest measured one from which it is noted.
NOTED = 1.5
#: The same, above which a prediction is not to be trusted: the working set may be in another
#: level of memory by then, which are 8 to 32 times smaller or larger than their neighbours.
OUTSIDE_LIMIT = 16.0


def stand_ins(case: Case) -> Iterator[Reason]:
    """Say where smaller process grids, simulated instead of all ranks, are far off, or may be."""
    talks = {row.n: row.stand_ins for row in case.rows if row.stand_ins is not None and _talks(row)}
    off = {n: one for n, one in talks.items() if one.most_missed > STAND_INS_LIMIT}
    unchecked = {n for n, one in talks.items() if one.checked_n is None and n not in off}
    if off:
        n = max(off, key=lambda n: off[n].most_missed)
        what = (
            f"miss communication by {100 * off[n].most_missed:.0f} % where that can be checked "
            f"(limit {100 * STAND_INS_LIMIT:.0f} %)"
        )
        yield _stand_ins_at(n, what, bool(case.estimated & off.keys()), case)
    if unchecked:
        what = "that could be checked at no smaller count, with every rank in few enough steps"
        yield _stand_ins_at(max(unchecked), what, bool(case.estimated & unchecked), case)


def _talks(row: Count) -> bool:
    """Tell whether communication is so much that its doubts are the time's."""
    return row.comm_s > doubts.UNSETTLED_LIMIT * row.model_s


def _weighed(
    reasons: Iterable[Reason], case: Case, ns: Iterable[int] = (), *, waits: bool = False
) -> list[Reason]:
    """Return reasons about messages with the weight of the time that these take, at most.

    ns: the counts that they are of, none: all that are not measured. waits: waiting counts, too;
    else not, as on cores that are shared it is mostly noise, whatever the messages.
    """
    rows = [row for row in case.rows if row.n in (set(ns) or case.estimated)]
    less = [0.0 if waits else row.waiting_s or 0.0 for row in rows]
    spent = [(r.comm_s - w) / max(r.model_s, 1e-300) for r, w in zip(rows, less, strict=True)]
    share = max(spent, default=0.0)
    if share > doubts.UNSETTLED_LIMIT:
        return list(reasons)
    return [
        replace(each, untrustworthy=False, rough=share > SMALL) if each.untrustworthy else each
        for each in reasons
    ]


def structure(case: Case) -> Iterable[Reason]:
    """Say where structures that explain the traces differ."""
    there = {row.n for row in case.rows}
    found = [
        reason
        for n, made in sorted(case.times.items())
        if n in there
        for reason in _weighed(doubts.of_structure(made.head, case.commands), case, [n])
    ]
    return sorted(found, key=_weight)[:1]


def _stand_ins_at(n: int, what: str, against: bool, case: Case) -> Reason:

    return Reason(
        "stand-ins",
        f"at {processes(n)} smaller process grids were simulated instead of all ranks, and {what}",
        f"simulate every rank ({case.commands.predict([n], '--every-rank')})"
        if n <= MOST_RANKS
        else f"take it as a trend: of more than {MOST_RANKS:,} processes not every rank can be "
        "simulated",
        against,
    )


def model_off(case: Case) -> Iterator[Reason]:
    """Say where a run that tells took far longer, or far less, than the model says.

    Where the time of the base is measured, speedups compare it with the model: there any model
    counts.
    """
    time = {row.n: row.model_s for row in case.rows}
    found = []
    for entry in case.residuals:
        whole = time.get(entry.n, 0.0)
        base = entry.n == case.base.n and case.base.time_from == "measured"
        if not (entry.representative or base) or whole <= 0:
            continue
        ratio = off_by(entry, whole)
        if is_off(ratio):
            found.append((max(ratio, 1 / max(ratio, 1e-9)), entry))
    if not found:
        return
    _, worst = max(found, key=lambda pair: pair[0])
    n, took = worst.n, "the program took" if worst.what == "run time" else "computation took"
    yield Reason(
        "model-off",
        f"at {processes(n)} {took} {worst.measured_s / max(worst.model_s, 1e-12):.2g} "
        f"times as long as the model says (limit {RESIDUAL_LIMIT:g}): something is not "
        f"modelled, or the machine was busy with something else{_rests_on(case.base)}",
        "see the report's list of gaps for what is left out, and trace it again on idle "
        f"cores: {again(n, case.commands)}",
    )


def _rests_on(base: Count) -> str:
    """Say what speedups relate to where it is not the time of the model."""
    if base.time_from != "computation":
        return ""
    return (
        f"; speedups relate to the computation measured at {processes(base.n)}, with the "
        f"model's communication ({seconds(base.time_s)}; the model says {seconds(base.model_s)})"
    )


def superlinear(case: Case) -> Iterator[Reason]:
    """Say where the efficiency is above what can be believed."""
    found = [
        row
        for row in case.rows
        if row.efficiency > EFFICIENCY_LIMIT and not (row.contradicts or row.below_traced)
    ]
    if not found or case.facts.weak:
        return
    worst, base = max(found, key=lambda row: row.efficiency), case.base.n
    yield Reason(
        "superlinear",
        f"the efficiency is {100 * worst.efficiency:.0f} % at {processes(worst.n)} "
        f"(limit {100 * EFFICIENCY_LIMIT:.0f} %): the time at {processes(base)} is too long, "
        "or the others are too short",
        f"trace {base} again with repeats on quiet cores, what stays is the program's own: "
        f"{again(base, case.commands)}",
    )


def same_work(case: Case) -> Iterator[Reason]:
    """Say where a process computes as much at the largest count as at the base.

    Then the input may grow with the processes, and a speedup compares different problems. Only
    where the traced counts show it, which are a factor of 2 apart at least.
    """
    traced = [row for row in case.rows if row.n in case.traced]
    if case.facts.weak or not traced or traced[-1].n < 2 * traced[0].n:
        return
    base, last = case.base, case.last
    smallest, largest = traced[0].compute_s, traced[-1].compute_s
    first, there = base.compute_s, last.compute_s
    if (
        not SAME_WORK * smallest <= largest <= smallest / SAME_WORK
        or last.n < _GROWN * base.n
        or last.efficiency >= 0.5
        or there < SAME_WORK * first
        or first < 0.5 * base.model_s
        or base.time_s > WEAK_LIMIT * last.time_s
    ):
        return
    yield Reason(
        "same-work",
        f"each process computes {seconds(there)} at {processes(last.n)} and "
        f"{seconds(first)} at {base.n}: if the input grows with the processes, its "
        f"efficiency is that of weak scaling, {100 * base.time_s / last.time_s:.0f} % "
        f"(run times {base.n} over {last.n}), and the speedup says nothing",
        "trace the program with its size as a parameter (p3s characterize --param) to predict "
        "other sizes (p3s predict --weak)",
        False,
    )


def wide(case: Case) -> Iterator[Reason]:
    """Say where a run time is known roughly only, or less well than was asked for."""
    limit = UNSURE if case.facts.within is None else case.facts.within
    found = [
        row
        for row in case.rows
        if (case.facts.requested is None or row.n in case.facts.requested)
        and row.time_from != "measured"
        and half_width(row) > limit + ROUNDING
    ]
    if not found:
        return
    worst, runs = max(found, key=half_width), sorted(case.runs)
    unknown = max((row.high_s or 0.0) / max(row.low_s or 0.0, 1e-300) for row in found) > WIDE
    parts = worst.interval_parts.known()
    widest = max(parts, key=lambda name: _width(parts[name]), default="work")
    where = f"at {worst.n} it" if len(found) > 1 else "it"
    less = narrower_by(worst, runs, case.commands)
    yield Reason(
        "wide",
        f"the run time at {processes([row.n for row in found])} is uncertain by more than "
        f"{100 * limit:.3g} %: {where} lies between {seconds(worst.low_s)} and "
        f"{seconds(worst.high_s)}{f' ({less})' if less else ''}",
        narrower(widest, worst, runs, case.commands, case.contradicting),
        unknown or case.facts.within is not None,
        rough=True,
    )


def half_width(row: Count) -> float:
    """Return the half width of a row's interval, relative to its time; 0 if not known."""
    low, high = row.low_s, row.high_s
    if low is None or high is None or row.time_s <= 0:
        return 0.0
    return (high - low) / 2.0 / row.time_s


def _width(ends: Sequence[float]) -> float:
    return ends[1] / max(ends[0], 1e-300)


def model(case: Case) -> list[Reason]:
    """Say what speaks against the model; of each code of a validation only what is new."""
    heads = [made.head for made in case.times.values()]
    found = doubts.of_rules(heads, case.commands)
    held = case.facts.holdout
    there = None if held is None else held.comparison
    for reason in doubts.missed(held, commands=case.commands):
        # iterations that were missed are computation, too
        counted = there is not None and there.weights.exact == there.weights.phases
        small = counted and reason.code == "holdout-missed"
        found += _weighed([reason], case) if small else [reason]
    codes = {reason.code for reason in found}
    more = [
        reason
        for result in case.facts.validations
        for reason in doubts.of_validation(result, case.commands)
    ]
    return found + [reason for reason in more if reason.code not in codes]


def other_calls(case: Case) -> Iterator[Reason]:
    """Say which calls may take over at counts above the traced ones.

    Compilers copy calls, so that one in a function whose like ran counts only where its line shows
    it to be another.
    """
    if not case.beyond:
        return
    if others := [each for each in case.facts.other if not each.copied]:
        end = "; the interval is open" if case.facts.open else ""
        yield Reason(
            OTHER_CALLS,
            f"at {processes(case.beyond)} the program may exchange its data in another way: no "
            f"traced run reached its {_calls(others)}{end}",
            f"{another(case.commands, case.traced)}; if it depends on an option of the program, "
            "not on the count: --allow other-calls",
        )
    if copies := [each for each in case.facts.other if each.copied]:
        yield Reason(
            "copied-calls",
            f"no traced run reached some {_calls(copies)}: copies that the compiler made, or "
            "another way for larger counts",
            "compile the program with -g to tell which",
            False,
        )


def _calls(found: Sequence[OtherCall]) -> str:
    names = few(each.function for each in found)
    return f"calls of {few(each.call for each in found)} in {names}"


def emptied(case: Case) -> Iterator[Reason]:
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
    yield Reason(
        "emptied",
        f"at {processes(list(found))} the model leaves less than one element per rank "
        f"({few(names)} on {ranks:,} of {processes(first)}), as at no traced count: what the "
        "program does then is not known, so the interval is open",
        another(case.commands, case.traced),
    )


def extrapolated(case: Case) -> Iterator[Reason]:
    """Say when the largest count is too far from the traced ones."""
    most = max(case.traced, default=0)
    if most and case.last.n <= EXTRAPOLATION_LIMIT * most:
        return
    ratio = case.last.n / most if most else float("inf")
    larger = case.commands.larger(most or 1)
    yield Reason(
        "extrapolated",
        f"the largest count is {ratio:.0f} times the largest traced count (limit "
        f"{EXTRAPOLATION_LIMIT:.0f})",
        f"trace a larger count: {case.commands.trace(larger)}"
        if larger
        else "try a larger input, which may run at a larger count",
        False,
        rough=True,
    )


def below_traced(case: Case) -> Iterator[Reason]:
    """Say at which counts the computation does not go on from the traced ones."""
    base = case.base.n
    for n, (total, expected) in sorted(case.below.items()):
        yield Reason(
            "below-traced",
            f"at {processes(n)} all ranks together compute {seconds(total)}, where the traced "
            f"counts suggest {seconds(expected)} (limit a factor of {BELOW_LIMIT:g}): the model "
            f"is wrong below the traced counts"
            + ("" if base == n else f"; speedups relate to {processes(base)}"),
            f"trace it ({case.commands.trace(n)})",
        )


def far_outside(case: Case) -> Iterator[Reason]:
    """Say where computation is so far outside of what was measured that the time means little."""
    for row in case.untraced:
        if not (found := outside(row, OUTSIDE_LIMIT)):
            continue
        less = any(phase.below in (None, True) for phase in found)  # no smaller workload has more
        yield Reason(
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


def contradicts(case: Case) -> Iterator[Reason]:
    """Say which traced count contradicts the others, by what and how much."""
    for n, (what, ratio) in sorted(case.contradicting.items()):
        without = case.commands.of("model", "--without", str(n))
        yield Reason(
            "contradicts",
            f"the run at {processes(n)} contradicts the others: its {what} is {ratio:.2g} times "
            "what they suggest, as if it had been disturbed; it is left out of the baseline, and "
            f"speedups relate to {processes(case.base.n)}",
            f"leave it out ({without}), or trace it again, as repeats that agree are believed: "
            f"{again(n, case.commands)}",
            False,
        )


def no_trend(case: Case) -> Iterator[Reason]:
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
        yield Reason(
            "no-trend",
            f"the computation of phase{'s' * (len(names) > 1)} {few(names)} has no clear trend "
            f"({why}): the interval covers the laws that fit",
            another(case.commands, case.traced),
            False,
        )


def off_core(case: Case) -> Iterator[Reason]:
    """Say at which counts measured times do not tell how fast the program is."""
    instead = "CPU time and estimated communication stand in for the run time"
    runs = {n: run for n, run in sorted(case.runs.items()) if not run.elsewhere}
    if shared := [n for n, run in runs.items() if run.shared_cores]:
        yield Reason(
            "shared-cores",
            f"at {processes(shared)} the traced ranks shared cores: {instead}",
            "give each rank a core of its own to compare run times",
            False,
        )
    for n, run in runs.items():
        if not (run.shared_cores or run.on_core):
            yield Reason(
                "off-core",
                f"at {processes(n)} the traced ranks computed without a core for "
                f"{100 * run.off_core:.0f} % of the run (other load on the machine, sleeping, "
                f"input or output): {instead}",
                f"trace it again on idle cores: {again(n, case.commands)}",
                False,
            )


def order(case: Case) -> list[Reason]:
    """Say where the order of calls is not that of the program."""
    facts, counts = case.facts, [row.n for row in case.rows]
    found = doubts.of_order(
        facts.order, facts.holdout, commands=facts.commands, kinds=facts.kinds, counts=counts
    )
    return _weighed(found, case, waits=True)  # the order is what ranks wait for


def _weight(reason: Reason) -> tuple[bool, bool]:
    """Return a key that sorts reasons by what they make of a prediction, the worst first."""
    return (not reason.untrustworthy, not reason.rough)


#: In the order in which reasons of the same weight are told.
CHECKS: tuple[Callable[[Case], Iterable[Reason]], ...] = (
    lambda case: _weighed(doubts.of_communication(case.why_not, case.rows, case.commands), case),
    lambda case: doubts.of_simulation(case.followed, case.rows, case.commands),
    stand_ins,
    model_off,
    superlinear,
    same_work,
    wide,
    structure,
    model,
    order,
    other_calls,
    emptied,
    extrapolated,
    below_traced,
    far_outside,
    contradicts,
    no_trend,
    off_core,
)


def reasons_of(case: Case) -> list[Reason]:
    """Return the reasons, those that make the prediction untrustworthy first, none twice."""
    found = dict.fromkeys(reason for check in CHECKS for reason in check(case))
    return sorted(found, key=_weight)
