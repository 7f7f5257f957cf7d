"""The checks of a prediction, one for each code of a reason: a table of them.

First those of reach: whether counts are too far from what was traced, too little, without a trend.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from p3s.base.text import figures, plural, processes, seconds
from p3s.capture.other_calls import OtherCall
from p3s.model.comparison import Comparison
from p3s.predict import doubts
from p3s.predict.case import SMALL, Case, Doubt, Doubts, grade_doubt
from p3s.predict.doubts import again, another, measure, narrower, narrower_by, smaller
from p3s.predict.residual import BELOW_LIMIT, RESIDUAL_LIMIT, is_off, off_by
from p3s.predict.rows import row_of
from p3s.predict.times import PhaseTimes
from p3s.predict.types import OTHER_CALLS, Count, PhaseAt, Reason, few, with_allowed
from p3s.program.types import MOST_RANKS

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


#: What smaller grids may miss where they were checked nowhere: nine of ten programs of
#: docs/simulation.md miss less.
UNCHECKED = 0.2
#: How likely calls that no run reached take over beyond the traced counts: they did in none of the
#: 12 programs of benchmarks/results/public-run-times.csv that have some (1 / (12 + 2), Laplace).
TAKES_OVER = 0.07
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


# ---- messages ----------------------------------------------------------------------------------
def communication(case: Case) -> Iterator[Doubt]:
    """Say where communication does not tell how fast the program is.

    Waiting does not count: on cores that are shared it is mostly noise, whatever the messages.
    """
    counts: dict[str, list[int]] = {}
    for n, why in sorted(case.why_not.items()):
        if why:
            counts.setdefault(why, []).append(n)
    for why, where in counts.items():
        text = f"communication at {processes(where)} was not measured as in a real run: {why}"
        costs = {n: case.messages(n) for n in where}
        yield Doubt("not-representative", text, measure(where, case.commands), costs)


def simulation(case: Case) -> Iterator[Doubt]:
    """Say where the simulation could not follow the messages of the model, or did not settle."""
    followed = case.followed

    def worst(code: str, costs: Mapping[int, float], text: Callable[[int], str]) -> Doubts:
        if costs:
            n = max(costs, key=lambda n: costs[n])
            said = f"at {processes(n)} {text(n)}"
            yield Doubt(code, said, another(case.commands), costs)

    lost = {n: one.lost for n, one in followed.items() if one.lost > 0}
    yield from worst(
        "unmatched",
        # whoever waits for one that is left out may wait for any time
        {n: share * case.messages(n) + case.waiting(n) for n, share in lost.items()},
        lambda n: (
            f"{followed[n].unmatched:,.0f} of {plural(round(followed[n].messages), 'message')} "
            f"({few(followed[n].calls)}) have no partner in the model: its rules contradict each "
            "other there, so the simulation leaves these messages out"
        ),
    )
    yield from worst(
        "deadlock",
        {n: case.talk(n) for n, one in followed.items() if one.reordered},
        lambda n: (
            f"the model's order of calls deadlocks: {plural(followed[n].reordered, 'call')} had to "
            "be taken out of turn, so the times are not those of the program"
        ),
    )
    moving = {n: one.unsettled * case.talk(n) for n, one in followed.items()}
    yield from worst(
        "not-settled",
        {n: part for n, part in moving.items() if part > SMALL},
        lambda n: (
            f"{100 * moving[n]:.0f} % of the time rests on loops whose iterations still changed "
            f"by up to {figures(100 * followed[n].change)} % at the end of the simulation"
        ),
    )


def stand_ins(case: Case) -> Iterator[Doubt]:
    """Say where smaller process grids, simulated instead of all ranks, are far off, or may be.

    By how much is in the ends of the communication.
    """
    told = {row.n: row.stand_ins for row in case.rows if row.stand_ins is not None}
    unchecked = {n for n, one in told.items() if one.checked_n is None}
    off = {n: max(one.most_missed, UNCHECKED * (n in unchecked)) for n, one in told.items()}
    costs = {n: share * case.talk(n) for n, share in off.items() if share * case.talk(n) > SMALL}
    if not costs:
        return
    n = max(costs, key=lambda n: costs[n])
    what = (
        "that could be checked at no smaller count, with every rank in few enough steps"
        if n in unchecked
        else f"miss communication by {100 * off[n]:.0f} % where that can be checked"
    )
    text = (
        f"at {processes(n)} smaller process grids were simulated instead of all ranks, and {what}"
    )
    advice = (
        f"simulate every rank ({case.commands.predict([n], '--every-rank')})"
        if n <= MOST_RANKS
        else f"take it as a trend: of more than {MOST_RANKS:,} processes not every rank can be "
        "simulated"
    )
    yield Doubt("stand-ins", text, advice, costs, drawn=False)


# ---- the model ---------------------------------------------------------------------------------
def structure(case: Case) -> Doubts:
    """Say where structures that explain the traces differ: the most that one count costs."""
    costs, said = {}, {}
    for n, made in sorted(case.times.items()):
        for reason in doubts.of_structure(made.head, case.commands):
            said[n] = reason, float(made.head["open"].get("chance", 1.0))
            costs[n] = doubts.open_share(made.head) * case.messages(n)
    if costs:
        reason, chance = said[max(costs, key=lambda n: costs[n])]
        yield Doubt.of(reason, costs, chance)


def rules(case: Case) -> Iterator[Doubt]:
    """Say when too much is left out, or has no rule."""
    first: dict[str, Reason] = {}
    costs: dict[str, dict[int, float]] = {}
    for n, made in case.times.items():
        for reason, cost in doubts.of_rules(made.head, case.commands):
            first.setdefault(reason.code, reason)
            costs.setdefault(reason.code, {})[n] = cost
    for code, reason in first.items():
        yield Doubt.of(reason, costs[code])


def check_comparisons(case: Case) -> Doubts:
    """Say what the model missed of runs that it was not made from; of each code the first.

    Of the largest traced count, which was held out, and of validations.
    """
    facts, held = case.facts, case.facts.holdout
    pairs = [
        (held.comparison if held else None, doubts.judge_holdout(held, commands=case.commands)),
        *((run, doubts.of_validation(run, case.commands)) for run in facts.validations),
    ]
    found: dict[str, Doubt] = {}
    for run, reasons in pairs:
        for reason in reasons:
            found.setdefault(reason.code, _of_comparison(reason, run, case))
    return found.values()


def _of_comparison(reason: Reason, run: Comparison | None, case: Case) -> Doubt:
    """Return a doubt with what its misses cost: messages their own time, iterations that of all."""
    if run is None:
        return Doubt.of(reason)
    if reason.code in ("holdout-work", "validate-work"):
        costs = {row.n: run.work.off * case.computes(row.n) for row in case.rows}
        return Doubt.of(reason, costs, drawn=False)  # what no part knows holds it
    if reason.code == "left-out":
        return Doubt.of(reason, {row.n: run.unmodelled.share_of_time for row in case.rows})
    share = max((1.0 - min(right, 1.0) for _, right in doubts.measure_agreement(run)), default=0.0)
    turns = {each.phase: abs(each.predicted / max(each.true, 1) - 1.0) for each in run.weights.each}
    costs = {}
    for row in case.rows:
        moved = sum(turns.get(phase.phase, 0.0) * phase.time_s for phase in row.phases)
        costs[row.n] = share * case.messages(row.n) + min(moved / max(row.model_s, 1e-300), 1.0)
    return Doubt.of(reason, costs)


def order(case: Case) -> Doubts:
    """Say where the order of calls is not that of the program: it is what ranks wait for."""
    facts, counts = case.facts, [row.n for row in case.rows]
    found = doubts.of_order(
        facts.order, facts.holdout, commands=facts.commands, kinds=facts.kinds, counts=counts
    )
    return [
        Doubt.of(each, {n: case.talk(n) for n in counts} if each.untrustworthy else {})
        for each in found
    ]


def other_calls(case: Case) -> Iterator[Doubt]:
    """Say which calls may take over at counts above the traced ones.

    Compilers copy calls, so that one in a function whose like ran counts only where its line shows
    it to be another.
    """
    if not case.beyond:
        return
    if others := [each for each in case.facts.other if not each.copied]:
        text = (
            f"at {processes(case.beyond)} the program may exchange its data in another way: no "
            f"traced run reached its {_calls(others)}"
        )
        advice = (
            f"{another(case.commands, case.traced)}; if it depends on an option of the program, "
            "not on the count: --allow other-calls"
        )
        costs = {n: case.talk(n) for n in case.beyond}
        yield Doubt(OTHER_CALLS, text, advice, costs, TAKES_OVER)
    if copies := [each for each in case.facts.other if each.copied]:
        text = (
            f"no traced run reached some {_calls(copies)}: copies that the compiler made, or "
            "another way for larger counts"
        )
        yield Doubt("copied-calls", text, "compile the program with -g to tell which")


# ---- times -------------------------------------------------------------------------------------
def _calls(found: Sequence[OtherCall]) -> str:
    names = few(each.function for each in found)
    return f"calls of {few(each.call for each in found)} in {names}"


def model_off(case: Case) -> Iterator[Doubt]:
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
    yield Doubt(
        "model-off",
        f"at {processes(n)} {took} {worst.measured_s / max(worst.model_s, 1e-12):.2g} "
        f"times as long as the model says (limit {RESIDUAL_LIMIT:g}): something is not "
        "modelled, or the machine was busy with something else",
        "see the report's list of gaps for what is left out, and trace it again on idle "
        f"cores: {again(n, case.commands)}",
    )


def superlinear(case: Case) -> Iterator[Doubt]:
    """Say where the efficiency is above what can be believed."""
    found = [
        row
        for row in case.rows
        if row.efficiency > EFFICIENCY_LIMIT and not (row.contradicts or row.below_traced)
    ]
    if not found or case.facts.weak:
        return
    worst, base = max(found, key=lambda row: row.efficiency), case.base.n
    yield Doubt(
        "superlinear",
        f"the efficiency is {100 * worst.efficiency:.0f} % at {processes(worst.n)} "
        f"(limit {100 * EFFICIENCY_LIMIT:.0f} %): the time at {processes(base)} is too long, "
        "or the others are too short",
        f"trace {base} again with repeats on quiet cores, what stays is the program's own: "
        f"{again(base, case.commands)}",
    )


def same_work(case: Case) -> Iterator[Doubt]:
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
    yield Doubt(
        "same-work",
        f"each process computes {seconds(there)} at {processes(last.n)} and "
        f"{seconds(first)} at {base.n}: if the input grows with the processes, its "
        f"efficiency is that of weak scaling, {100 * base.time_s / last.time_s:.0f} % "
        f"(run times {base.n} over {last.n}), and the speedup says nothing",
        "trace the program with its size as a parameter (p3s characterize --param) to predict "
        "other sizes (p3s predict --weak)",
    )


def wide(case: Case) -> Iterator[Doubt]:
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
    yield Doubt(
        "wide",
        f"the run time at {processes([row.n for row in found])} is uncertain by more than "
        f"{100 * limit:.3g} %: {where} lies between {seconds(worst.low_s)} and "
        f"{seconds(worst.high_s)}{f' ({less})' if less else ''}",
        narrower(widest, worst, runs, case.commands, case.contradicting),
        grade="unusable" if unknown or case.facts.within is not None else "rough",
    )


def half_width(row: Count) -> float:
    """Return the half width of a row's interval, relative to its time; 0 if not known."""
    low, high = row.low_s, row.high_s
    if low is None or high is None or row.time_s <= 0:
        return 0.0
    return (high - low) / 2.0 / row.time_s


def _width(ends: Sequence[float]) -> float:
    return ends[1] / max(ends[0], 1e-300)


def contradicts(case: Case) -> Iterator[Doubt]:
    """Say which traced count contradicts the others, by what and how much."""
    for n, (what, ratio) in sorted(case.contradicting.items()):
        without = case.commands.of("model", "--without", str(n))
        yield Doubt(
            "contradicts",
            f"the run at {processes(n)} contradicts the others: its {what} is {ratio:.2g} times "
            "what they suggest, as if it had been disturbed; it is left out of the baseline, and "
            f"speedups relate to {processes(case.base.n)}",
            f"leave it out ({without}), or trace it again, as repeats that agree are believed: "
            f"{again(n, case.commands)}",
        )


def off_core(case: Case) -> Iterator[Doubt]:
    """Say at which counts measured times do not tell how fast the program is."""
    instead = "CPU time and estimated communication stand in for the run time"
    runs = {n: run for n, run in sorted(case.runs.items()) if not run.elsewhere}
    if shared := [n for n, run in runs.items() if run.shared_cores]:
        yield Doubt(
            "shared-cores",
            f"at {processes(shared)} the traced ranks shared cores: {instead}",
            "give each rank a core of its own to compare run times",
        )
    for n, run in runs.items():
        if not (run.shared_cores or run.on_core):
            yield Doubt(
                "off-core",
                f"at {processes(n)} the traced ranks computed without a core for "
                f"{100 * run.off_core:.0f} % of the run (other load on the machine, sleeping, "
                f"input or output): {instead}",
                f"trace it again on idle cores: {again(n, case.commands)}",
            )


#: Checks of the estimates, before their intervals are known, which hold what these cost.
BEFORE: tuple[Callable[[Case], Doubts], ...] = (
    communication,
    simulation,
    stand_ins,
    structure,
    rules,
    check_comparisons,
    order,
    other_calls,
    doubt_short_messages,
    doubt_extrapolation,
    below_traced,
    far_outside,
    contradicts,
    no_trend,
    off_core,
)
#: Checks of intervals and speedups.
AFTER: tuple[Callable[[Case], Doubts], ...] = (model_off, superlinear, same_work, wide)


def doubts_of(case: Case) -> list[Doubt]:
    """Return what speaks against the estimates."""
    return [doubt for check in BEFORE for doubt in check(case)]


def reasons_of(case: Case, found: Doubts) -> list[Reason]:
    """Return the reasons of a prediction, the worst and dearest first, none twice.

    found: what speaks against the estimates.
    """
    after = (doubt for check in AFTER for doubt in check(case))
    reasons = dict.fromkeys(grade_doubt(each, case.estimated) for each in (*found, *after))
    return sorted(with_allowed(reasons, case.facts.allowed), key=_rank)


def of_estimate(times: PhaseTimes) -> list[Reason]:
    """Return what speaks against one estimate by itself."""
    row = row_of(times, None, {})
    case = Case(rows=[row], base=row, times={row.n: times})
    checks = (rules, structure, communication, simulation)
    return [grade_doubt(each, case.estimated) for check in checks for each in check(case)]


def _rank(reason: Reason) -> tuple[bool, bool, float]:
    cost = -1.0 if reason.cost is None else -reason.cost
    return not reason.untrustworthy, not reason.rough, cost
