"""Two predictions side by side: who is faster from where on, how sure that is, and which phases."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from p3s.base.errors import P3SError
from p3s.base.text import (
    NOT_KNOWN,
    differing,
    ends,
    factor,
    percent,
    plural,
    processes,
    seconds,
    visible,
)
from p3s.predict.types import Count, PhaseAt, Prediction, Reason, filter_untrusted, in_short, part_s
from p3s.report.counts import DOUBTFUL
from p3s.report.show import Columns, Page, Part, PartTable, show_page, table_of
from p3s.report.sure import reasons_of

#: Phases listed one by one, on a terminal and a page; the rest is summed up and said so.
MAX_PHASES, MAX_PAGE_PHASES = 12, 60
#: Parts of a phase's time, as they are told apart.
PARTS = ("compute", "transfer", "waiting", "software")
#: Ratios closer to 1 than this are no difference.
EQUAL = 0.005


@dataclass(frozen=True)
class CountPair:
    """A count of both predictions; times in s.

    ``ratio`` is B over A, ``low`` and ``high`` its ends: each time independently anywhere in its
    interval; None where that is not known. ``apart``: whether 1 is outside of them.
    """

    n: int
    a_s: float
    b_s: float
    ratio: float | None
    low: float | None
    high: float | None
    apart: bool | None
    a_efficiency: float
    b_efficiency: float
    a_interval: tuple[float | None, float | None]
    b_interval: tuple[float | None, float | None]
    doubtful: bool


@dataclass(frozen=True)
class PhasePair:
    """A phase of both, or of one of them (None in the other); times in s.

    ``mostly``: the part of the time that changed most, "" if it did not.
    """

    name: str
    kind: str
    a_s: float | None
    b_s: float | None
    change_s: float
    mostly: str
    a_law: str
    b_law: str


@dataclass(frozen=True)
class Comparison:
    """Two predictions side by side; ``n`` is the count of the phases, largest change first.

    ``reasons``: of both; ``warning``: that one of them is not to be trusted, "" if both are.
    """

    a: str
    b: str
    verdict: list[str]
    counts: list[CountPair]
    only_a: list[int]
    only_b: list[int]
    n: int
    phases: list[PhasePair]
    differences: list[tuple[str, str, str]]
    notes: list[str]
    reasons: list[Reason]
    warning: str


def compare(
    a: Prediction,
    b: Prediction,
    *,
    names: tuple[str, str] = ("A", "B"),
    commands: tuple[Sequence[str], Sequence[str]] = ((), ()),
    n: int | None = None,
) -> Comparison:
    """Compare two predictions at the counts they share, and their phases at ``n``.

    ``n`` is the largest common count if it is not given. Raises P3SError when no count is common,
    or ``n`` is not.
    """
    counts = [[row.n for row in one.counts] for one in (a, b)]
    common = [n for n in counts[0] if n in counts[1]]
    if not common:
        raise P3SError(
            f"no common process count: A has {_join(counts[0])}, B has {_join(counts[1])}; "
            "predict one for both with p3s predict"
        )
    if n is not None and n not in common:
        raise P3SError(f"{n} is not among the common process counts, which are {_join(common)}")
    at = common[-1] if n is None else n
    pairs = [pair_of(a.at(count), b.at(count)) for count in common]
    phases = list(_phases(a, b, at))
    against = filter_untrusted([*a.reasons, *b.reasons])
    warning = f"Do not rely on this comparison: {in_short(against)}." if against else ""
    return Comparison(
        a=visible(names[0]),
        b=visible(names[1]),
        verdict=[*filter(None, [warning]), *_verdict(pairs, at, phases, bool(warning))],
        warning=warning,
        counts=pairs,
        only_a=[n for n in counts[0] if n not in common],
        only_b=[n for n in counts[1] if n not in common],
        n=at,
        phases=phases,
        differences=_differences(a, b, commands),
        notes=_notes(a, b),
        reasons=[*reasons_of(a, "A"), *reasons_of(b, "B")],
    )


def pair_of(a: Count, b: Count) -> CountPair:
    """Return a count of two predictions side by side."""
    low = _over(b.low_s, a.high_s)
    high = _over(b.high_s, a.low_s)
    known = low is not None and high is not None
    return CountPair(
        a.n,
        a.time_s,
        b.time_s,
        _over(b.time_s, a.time_s),
        low,
        high,
        bool(low > 1.0 or high < 1.0) if known and low is not None and high is not None else None,
        a.efficiency,
        b.efficiency,
        (a.low_s, a.high_s),
        (b.low_s, b.high_s),
        a.doubtful or b.doubtful,
    )


def _over(top: float | None, bottom: float | None) -> float | None:
    """Return a ratio; of two times of nothing it is 1, of something to nothing not known."""
    if top is None or bottom is None:
        return None
    if bottom <= 0:
        return 1.0 if top <= 0 else None
    return top / bottom if math.isfinite(top / bottom) else None


def _by_place(row: Count) -> dict[tuple[str, str, int], PhaseAt]:
    """Return the phases by kind, name, and how many of that name come before."""
    found: dict[tuple[str, str, int], PhaseAt] = {}
    for phase in row.phases:
        before = 0
        while (phase.kind, phase.name, before) in found:
            before += 1
        found[phase.kind, phase.name, before] = phase
    return found


def _phases(a: Prediction, b: Prediction, n: int) -> list[PhasePair]:
    """Return the phases of both at a count, largest change first."""
    before, after = _by_place(a.at(n)), _by_place(b.at(n))
    laws = [_laws(a), _laws(b)]
    pairs = []
    for place in dict.fromkeys([*before, *after]):
        one, other = before.get(place), after.get(place)
        pairs.append(
            PhasePair(
                visible(place[1], 60),
                place[0],
                None if one is None else one.time_s,
                None if other is None else other.time_s,
                (other.time_s if other else 0.0) - (one.time_s if one else 0.0),
                _mostly(one, other),
                laws[0].get(one.phase, "") if one else "",
                laws[1].get(other.phase, "") if other else "",
            )
        )
    return sorted(pairs, key=lambda pair: -abs(pair.change_s))


def _laws(prediction: Prediction) -> dict[int, str]:
    """Return the law of each phase's time, as text, by the phase's number."""
    return {
        entry.phase: visible(entry.parts["time"].text, 100)
        for entry in prediction.phase_laws
        if "time" in entry.parts
    }


def _mostly(a: PhaseAt | None, b: PhaseAt | None) -> str:
    """Return the part that changed most; communication as one where its parts are not known."""
    split = all(part_s(one, part) is not None for one in (a, b) if one for part in PARTS)
    parts = {p: p for p in PARTS} if split else {"compute": "compute", "communication": "comm"}

    def of(one: PhaseAt | None, part: str) -> float:
        return (part_s(one, part) if one else None) or 0.0

    changes = {name: abs(of(b, part) - of(a, part)) for name, part in parts.items()}
    most = max(changes, key=lambda part: changes[part])
    return most if changes[most] > 0 else ""


def _verdict(
    pairs: Sequence[CountPair], n: int, phases: Sequence[PhasePair], untrusted: bool
) -> list[str]:
    """Return who is faster at the count, how sure that is, where it turns, and by which phase."""
    pair = next(each for each in pairs if each.n == n)
    times = f"({seconds(pair.b_s)} against {seconds(pair.a_s)})"
    sign = _sign(pair)
    if not sign:
        said = [f"At {processes(n)} B takes as long as A {times}."]
    else:
        said = [f"At {processes(n)} B {_change(pair.ratio, sign)} {times}, {_SURE[pair.apart]}."]
    said += _turning(pairs)
    worst = phases[0] if phases else None
    if worst is not None and sign and worst.change_s:
        more = "more" if worst.change_s > 0 else "less"
        mostly = f", mostly {worst.mostly}" if worst.mostly else ""
        change = f"{seconds(abs(worst.change_s))} {more}"
        said.append(f"Phase {worst.name} changes most: {change}{mostly}.")
    if untrusted:
        said[0] = f"Taken at face value: {said[0][0].lower()}{said[0][1:]}"
    return said


def _change(ratio: float | None, sign: int) -> str:
    """Return how much faster B is, or slower: a percentage where it is less than twice."""
    if not ratio:  # one of them takes no time
        return f"is {'faster' if sign > 0 else 'slower'} than A"
    if sign > 0:
        return f"is {factor(1 / ratio)} as fast as A"
    if ratio < 2:
        return f"is slower than A by {percent(ratio - 1)}"
    return f"takes {factor(ratio)} as long as A"


def _sign(pair: CountPair) -> int:
    """Return 1 where B is faster, -1 where A is, 0 where they take as long."""
    if abs(pair.b_s - pair.a_s) <= EQUAL * pair.a_s:
        return 0
    return 1 if pair.b_s < pair.a_s else -1


#: What is said of the intervals, by whether they are apart.
_SURE = {
    None: "and how sure that is is not known: an interval is missing",
    True: "and the intervals do not overlap",
    False: "but the intervals overlap: what is predicted leaves it open",
}


def _turning(pairs: Sequence[CountPair]) -> list[str]:
    """Return from which count on the faster one is another, if it changes once."""
    told = [(pair.n, sign) for pair in pairs if (sign := _sign(pair))]
    if len(pairs) < 2 or not told:
        return []
    turns = [after for before, after in zip(told, told[1:], strict=False) if before[1] != after[1]]
    faster = {1: "B", -1: "A"}
    if not turns:
        where = "all" if len(told) == len(pairs) else f"{len(told)} of {len(pairs)}"
        return [f"{faster[told[0][1]]} is faster at {where} common counts."]
    if len(turns) == 1:
        return [
            f"{faster[turns[0][1]]} is faster from {processes(turns[0][0])} on, "
            f"{faster[-turns[0][1]]} below."
        ]
    return ["Which one is faster changes several times."]


_DIFFERENCES = (
    "estimator",
    "traced counts",
    "baseline",
    "knee",
    "efficiency at the knee",
    "recommended",
    "without a rule",
    "machine",
)


def _differences(
    a: Prediction, b: Prediction, commands: tuple[Sequence[str], Sequence[str]]
) -> list[tuple[str, str, str]]:
    """Return what is not the same about the two predictions, in words."""

    def told(one: Prediction) -> list[str]:
        best, target = one.recommended, (one.machine or {}).get("target")
        name = target.get("name") if isinstance(target, Mapping) else None
        return [
            visible(one.estimator, 60),
            _join(one.traced_counts),
            processes(one.baseline_n),
            "none" if one.knee is None else processes(one.knee),
            percent(one.knee_efficiency),
            NOT_KNOWN if best is None else processes(best.n),
            percent(one.unknown_share),
            visible(str(name), 80) if name else "that of the runs",
        ]

    rows = list(zip(_DIFFERENCES, told(a), told(b), strict=True))
    if commands[0] and commands[1] and list(commands[0]) != list(commands[1]):
        one, other = map(visible, differing(*commands))
        rows.insert(0, ("command", one, other))
    return [(what, one, other) for what, one, other in rows if one != other]


def _notes(a: Prediction, b: Prediction) -> list[str]:
    notes = []
    if a.baseline_n != b.baseline_n:
        notes.append(
            f"efficiencies relate to {processes(a.baseline_n)} in A, to "
            f"{b.baseline_n} in B: compare times"
        )
    if a.estimator != b.estimator:
        notes.append("the communication is from different estimators, which may be the difference")
    return notes


def _join(counts: Sequence[int]) -> str:
    return ", ".join(map(str, counts)) or "none"


def as_text(found: Comparison) -> str:
    """Return a comparison as text: the verdict first, then counts, phases and what else differs."""
    return show_page(page_of(found))


def page_of(found: Comparison, chart: Callable[[], str] | None = None) -> Page:
    """Return a comparison as a page; chart: returns the SVG of both, None: for a terminal."""
    most = MAX_PAGE_PHASES if chart else MAX_PHASES
    shown, rest = found.phases[:most], found.phases[most:]
    notes = [*_list_unshared(found), *found.notes]
    if any(pair.doubtful for pair in found.counts):
        notes.append(DOUBTFUL)
    columns = _PHASES | (_PAGE_PHASES if chart else {})
    phases = table_of("Phases", columns, shown, (0, 4, 6, 7))
    change = sum(pair.change_s for pair in rest)
    cut = f"{plural(len(rest), 'more phase')} change by {format_change_s(change)} together"
    laws = [pair for pair in shown[:3] if pair.a_law and pair.b_law and pair.a_law != pair.b_law]
    told = [f"{pair.name}: time in s is {pair.a_law} in A, {pair.b_law} in B" for pair in laws]
    what = (
        f"of A (circles), {found.a}, and B (squares), {found.b}; both axes logarithmic, the bands "
        "are the intervals"
    )
    parts = [
        Part("curves", "Run times", charts=[("Run times", what, chart)]) if chart else None,
        Part(
            "counts",
            "Process counts",
            tables=[table_of("Process counts", _COUNTS, found.counts, ())],
            notes=notes,
            lines=[f"A: {found.a}", f"B: {found.b}"],
        ),
        Part(
            "phases",
            f"Phases at {processes(found.n)}, largest change first",
            tables=[replace(phases, kind="beside")],
            notes=[*[cut] * bool(rest), *([] if chart else told)],
        ),
        _differing(found),
    ]
    return Page(
        f"{visible(Path(found.a).name)} and {visible(Path(found.b).name)}",
        "",
        found.verdict[bool(found.warning) :],
        found.warning,
        filter_untrusted(found.reasons),
        [each for each in found.reasons if not each.untrustworthy],
        [part for part in parts if part is not None],
    )


def _differing(found: Comparison) -> Part | None:
    head = ["differs", "A", "B"]
    table = PartTable("Differences", head, found.differences, left=(0, 1, 2), kind="facts")
    return Part("differences", "What else differs", tables=[table]) if found.differences else None


def _list_unshared(found: Comparison) -> list[str]:
    """Return the counts that are in one of the predictions alone."""
    alone = {"A": found.only_a, "B": found.only_b}
    return [f"only in {which}: {processes(counts)}" for which, counts in alone.items() if counts]


def _ends(pair: CountPair) -> str:
    if pair.low is None or pair.high is None:
        return NOT_KNOWN
    return ends(pair.low, pair.high, ".2f")


def _ratio(pair: CountPair) -> str:
    ratio = NOT_KNOWN if pair.ratio is None else f"{pair.ratio:.2f}"
    return f"{ratio}{'*' if pair.doubtful else ' '}"


_COUNTS: Columns[CountPair] = {
    "processes": lambda pair: pair.n,
    "A": lambda pair: seconds(pair.a_s),
    "B": lambda pair: seconds(pair.b_s),
    "B/A": _ratio,
    "interval": _ends,
    "efficiency A": lambda pair: percent(pair.a_efficiency),
    "efficiency B": lambda pair: percent(pair.b_efficiency),
}
_PHASES: dict[str, Callable[[PhasePair], object]] = {
    "phase": lambda pair: pair.name,
    "A": lambda pair: seconds(pair.a_s),
    "B": lambda pair: seconds(pair.b_s),
    "change": lambda pair: format_change_s(pair.change_s),
    "mostly": lambda pair: pair.mostly,
}
_PAGE_PHASES: dict[str, Callable[[PhasePair], object]] = {
    "B/A": lambda pair: factor(pair.b_s / pair.a_s) if pair.a_s and pair.b_s else NOT_KNOWN,
    "law of A": lambda pair: pair.a_law,
    "law of B": lambda pair: pair.b_law,
}


def format_change_s(change: float) -> str:
    """Return a change in seconds as text, with a plus where it is more."""
    return f"{'+' if change > 0 else ''}{seconds(change)}"


def as_json(found: Comparison) -> dict[str, Any]:
    """Return a comparison as an object for JSON; times in s, null where not known."""
    whole = asdict(found)
    whole["differences"] = [
        {"what": what, "a": one, "b": other} for what, one, other in found.differences
    ]
    return whole


def as_columns(found: Comparison) -> dict[str, list[Any]]:
    """Return the counts as columns, for CSV."""
    keys = ("n", "a_s", "b_s", "ratio", "low", "high", "a_efficiency", "b_efficiency")
    return {key: [getattr(pair, key) for pair in found.counts] for key in keys}
