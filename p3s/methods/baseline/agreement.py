"""The baseline as a band beside a prediction from traces: where they disagree, and why."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from p3s.base.errors import P3SError
from p3s.base.study import Study
from p3s.base.text import percent, processes, seconds, visible
from p3s.methods.baseline.families import text_of
from p3s.methods.baseline.fromstudy import measured_of
from p3s.methods.baseline.model import TESTED_RATIO, Baseline, Said, fit_series
from p3s.methods.baseline.times import from_mapping
from p3s.predict.types import Count, Prediction, part_s
from p3s.report.sections import Curve, Part


@dataclass(frozen=True)
class Band:
    """What run times alone say of other counts.

    ``low``, ``mid`` and ``high`` in seconds at ``counts``; ``sentence`` says what it rests on.
    ``trained``: counts of the run times; ``held_error``: relative error at the held-out counts
    (None: none held out); ``turnover``: count from which ``mid`` rises (None: it never does);
    ``measured``: whether the times were measured (False: a model's, in want of such).
    """

    counts: tuple[int, ...]
    low: tuple[float, ...]
    mid: tuple[float, ...]
    high: tuple[float, ...]
    sentence: str
    family: str
    formula: str
    trained: tuple[int, ...]
    held_error: float | None
    turnover: float | None
    measured: bool = True

    @property
    def ratio(self) -> float:
        """How many times the largest fitted count the largest one of the band is."""
        return max(self.counts) / max(self.trained)

    def at(self, n: int) -> tuple[float, float, float]:
        """Return low, mid and high in seconds at one of ``counts``; KeyError for another."""
        if n not in self.counts:
            raise KeyError(n)
        i = self.counts.index(n)
        return self.low[i], self.mid[i], self.high[i]


def band(
    times: Mapping[int, Sequence[float] | float],
    counts: Sequence[int] | None = None,
    *,
    families: Sequence[str] = (),
    measured: bool = True,
) -> Band:
    """Return the band of ``{count: run times in seconds}`` at ``counts``.

    ``counts`` default to those of the times and doublings up to eight times the largest. The least
    time of every count is fitted, with relative weights, by the family that does best at the
    largest counts when it is fitted without them. The band is its 90 % bootstrap interval, made
    wide enough for the curves of all families that do about as well. Errors: P3SError, one line,
    for fewer than two counts or times that are not positive.
    """
    series = from_mapping(times)
    made = fit_series(series, families)
    trained = made.counts
    wanted = sorted(set(counts)) if counts is not None else _doublings(trained)
    if not wanted:
        raise P3SError("no process count to say anything of")
    said = made.say(wanted)
    ends = [
        (
            each.seconds if each.low is None else each.low,
            each.seconds if each.high is None else each.high,
        )
        for each in said
    ]
    return Band(
        tuple(wanted),
        tuple(low for low, _ in ends),
        tuple(each.seconds for each in said),
        tuple(high for _, high in ends),
        _sentence(made, said[-1], *ends[-1], measured),
        made.fitted.family,
        text_of(made.fitted),
        tuple(trained),
        made.choice.held_error,
        made.turnover,
        measured,
    )


def _doublings(trained: Sequence[int]) -> list[int]:
    found, n = list(trained), max(trained)
    for _ in range(int(math.log2(TESTED_RATIO))):
        n *= 2
        found.append(n)
    return found


def _sentence(made: Baseline, said: Said, low: float, high: float, measured: bool) -> str:
    counts = join(made.counts)
    what = "the run times" if measured else "the predicted times"
    error = made.choice.held_error
    how = (
        "its form could not be tested"
        if error is None
        else f"off by {percent(error)} at {join(made.choice.held)} when fitted without "
        + ("them" if len(made.choice.held) > 1 else "it")
    )
    return (
        f"A regression of {what} at {counts} processes ({made.fitted.family}, {how}) says "
        f"{seconds(said.seconds)} ({seconds(low)} to {seconds(high)}) at {processes(said.n)}, "
        f"{said.ratio:.3g} times the largest of them."
    )


def join(counts: Sequence[int]) -> str:
    """Return counts as words, "4, 8 and 16"; of many the first and the last ones."""
    texts = [f"{n:,}" for n in counts]
    if len(texts) > 8:
        return f"{texts[0]}, {texts[1]}, ... {texts[-1]}"
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


#: Relative difference from which the two disagree.
DISAGREE = 0.25
#: By how much a share of the time must change to be named as a reason.
_CHANGE = 0.10
#: Held-out error of a regression that is worth a word.
_OFF = 0.05
#: By how much core time of the computation must change, relative.
_WORK = 0.15


@dataclass(frozen=True)
class Disagreement:
    """One count at which the two differ by more than 25 %.

    Seconds of both, ``ratio`` of the prediction's to the baseline's, ``overlap``: whether their
    intervals have something in common, ``why``: reasons, the clearest first (never empty).
    """

    n: int
    baseline_s: float
    predicted_s: float
    ratio: float
    overlap: bool
    why: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """All of it as one sentence."""
        more = "longer" if self.ratio > 1 else "shorter"
        by = percent(abs(self.ratio - 1))
        held = "" if self.overlap else ", and their intervals have nothing in common"
        return (
            f"At {processes(self.n)} the prediction is {by} {more} than the regression "
            f"({seconds(self.predicted_s)} against {seconds(self.baseline_s)}){held}: "
            f"{'; '.join(self.why)}."
        )


@dataclass(frozen=True)
class Beside:
    """A band for a prediction and where the two disagree; None with a reason in ``sentence``."""

    band: Band | None
    sentence: str
    disagreements: tuple[Disagreement, ...] = ()

    @property
    def sentences(self) -> list[str]:
        """What to print below a picture: what the band is, then the widest disagreement."""
        if not self.disagreements:
            agree = (
                ""
                if self.band is None
                else (f"The two differ by at most {percent(DISAGREE)} at all predicted counts.")
            )
            return [text for text in (self.sentence, agree) if text]
        worst = max(self.disagreements, key=lambda d: abs(d.ratio - 1))
        return [self.sentence, worst.sentence]


def beside(prediction: Prediction) -> Beside:
    """Return the band beside a prediction, and disagreements.

    It is fitted to the measured times of the traced counts. Where those do not tell how fast the
    program is (ranks shared cores), it is fitted to the predicted times at the traced counts, and
    the sentence says so: it then shows what a regression would make of such small runs.
    """
    counts = [row.n for row in prediction.counts]
    times, why_not = measured_of(prediction)
    measured = bool(times)
    if not measured:
        times = {
            row.n: [row.model_s]
            for row in prediction.counts
            if row.n in prediction.traced_counts and row.model_s > 0
        }
        if len(times) < 2:
            return Beside(None, _closed(why_not))
    try:
        found = band(times, counts, measured=measured)
    except P3SError as error:
        return Beside(None, _closed(f"no regression of run times: {error}"))
    return Beside(found, found.sentence, tuple(disagreements(prediction, found)))


def _closed(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "."


def disagreements(prediction: Prediction, found: Band) -> list[Disagreement]:
    """Return where prediction and band differ by more than 25 %, by count, and why.

    Only counts above the fitted ones that both have. Reasons are read from the prediction: phases
    whose share of the time changes, waiting, an iteration that the form cannot make or makes by
    itself, computation whose core time changes; if none of them, how far the regression reaches
    out."""
    rows = {row.n: row for row in prediction.counts}
    last = max(found.trained)
    base = max((n for n in rows if n <= last), default=None)
    out = []
    for n, row in sorted(rows.items()):
        told = row.time_s
        if n <= last or n not in found.counts or not told:
            continue
        low, mid, high = found.at(n)
        ratio = told / mid
        if abs(ratio - 1) <= DISAGREE:
            continue
        ends = (row.low_s or told, row.high_s or told)
        why = _why(rows, base, n, found, longer=ratio > 1)
        out.append(
            Disagreement(n, mid, told, ratio, ends[0] <= high and ends[1] >= low, tuple(why))
        )
    return out


def _why(
    rows: Mapping[int, Count], base: int | None, n: int, found: Band, *, longer: bool
) -> list[str]:
    """Return reasons that work in the right direction; what grows makes no run shorter."""
    why = [*_turn(rows, found, n, longer)]
    if base is not None:
        if longer:
            why += [*_phases(rows, base, n), *_waiting(rows, base, n)]
        why += _work(rows, base, n, longer)
        why = why or _phases(rows, base, n)
    return why or [_reach(found, n)]


def _phases(rows: Mapping[int, Count], base: int, n: int) -> list[str]:
    """Name the phase whose share of the time grows most: the total followed another one."""
    before, after = _shares(rows[base]), _shares(rows[n])
    grown = sorted(
        ((share - before.get(key, (0.0, ""))[0], key) for key, (share, _) in after.items()),
        reverse=True,
    )
    if not grown or grown[0][0] < _CHANGE:
        return []
    key = grown[0][1]
    was, (now, name) = before.get(key, (0.0, ""))[0], after[key]
    return [
        f"{name} grows from {percent(was)} of the time at {processes(base)} to "
        f"{percent(now)}, which one form for the whole run does not follow"
    ]


def _shares(row: Count) -> dict[int, tuple[float, str]]:
    """Return every phase's share of the time, and what it is called."""
    times: dict[int, tuple[float, str]] = {}
    for phase in row.phases:
        called = f"phase {phase.phase}" + (f" ({phase.name})" if phase.name else "")
        times[phase.phase] = (phase.time_s, called)
    total = sum(time for time, _ in times.values())
    return {key: (time / total, name) for key, (time, name) in times.items()} if total > 0 else {}


def _waiting(rows: Mapping[int, Count], base: int, n: int) -> list[str]:
    """Say that waiting grows, or communication where waiting is not known or does not."""
    for key, name in (("waiting", "waiting"), ("comm", "communication")):
        was, now = _share(rows[base], key), _share(rows[n], key)
        if was is not None and now is not None and now - was >= _CHANGE:
            return [f"{name} grows from {percent(was)} to {percent(now)} of the time"]
    return []


def _share(row: Count, key: str) -> float | None:
    part, whole = part_s(row, key), row.model_s or row.time_s
    return None if part is None or not whole else part / whole


def _turn(rows: Mapping[int, Count], found: Band, n: int, longer: bool) -> list[str]:
    """Say that one of the two has its least time before ``n`` and the other has not."""
    timed: Sequence[tuple[int, float]] = [
        (m, row.time_s) for m, row in sorted(rows.items()) if m <= n and row.time_s
    ]
    best = min(timed, key=lambda pair: pair[1])[0]
    turns = best < n and timed[-1][1] > 1.02 * min(time for _, time in timed)
    own = found.turnover is not None and found.turnover < n
    if longer and turns and not own:
        form = "only falls" if found.turnover is None else f"falls up to {found.turnover:,.0f}"
        return [
            f"the prediction is shortest at {processes(best)}, outside the regression's form, "
            f"which {form}"
        ]
    if not longer and own and not turns:
        assert found.turnover is not None
        return [
            f"the regression turns at {found.turnover:,.0f} processes, where its growing term "
            "takes over, and the prediction still falls"
        ]
    return []


def _work(rows: Mapping[int, Count], base: int, n: int, longer: bool) -> list[str]:
    """Say that the computation takes more or less core time than in the small runs."""
    was, now = rows[base].compute_s, rows[n].compute_s
    if not was or not now:
        return []
    change = n * now / (base * was) - 1
    if abs(change) < _WORK or (change > 0) != longer:
        return []
    return [
        f"the computation takes {percent(abs(change))} {'more' if change > 0 else 'less'} core "
        f"time than at {processes(base)}, as its laws have it from the trace"
    ]


def _reach(found: Band, n: int) -> str:
    """Say what of the regression itself makes it doubtful: no reason is in the prediction."""
    ratio = n / max(found.trained)
    beyond = f", such regressions were tried up to {TESTED_RATIO:g}" if ratio > TESTED_RATIO else ""
    off = (
        ""
        if found.held_error is None or found.held_error < _OFF
        else f" and was off by {percent(found.held_error)} already at the largest run, held out"
    )
    return (
        f"the regression reaches {ratio:.3g} times beyond its largest run{off}{beyond}; shares "
        "of phases, waiting and core time give no reason"
    )


_LEGEND = "a regression of the run times alone, with its interval"


def section(_study: Study, prediction: Prediction) -> Part:
    """Return what a regression of the run times says, above the counts it was fitted to."""
    return Part("regression", curve=curve_of(prediction))


def curve_of(prediction: Prediction) -> Curve:
    """Return the curve; an empty one, its sentences saying why, where there is none."""
    found = beside(prediction)
    sentences = [visible(sentence, 600) for sentence in found.sentences]
    rows: list[tuple[int, float, float, float]] = []
    if (band := found.band) is not None:
        every = zip(band.counts, band.low, band.mid, band.high, strict=True)
        rows = [row for row in every if row[0] >= max(band.trained) and row[1] > 0]
    if len(rows) < 2:
        return Curve(_LEGEND, (), (), (), (), sentences)
    counts, low, mid, high = zip(*rows, strict=True)
    return Curve(_LEGEND, counts, low, mid, high, sentences)
