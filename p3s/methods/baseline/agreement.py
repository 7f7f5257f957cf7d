"""The baseline as a band beside a prediction from traces, and where they disagree."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from p3s.base.errors import P3SError
from p3s.base.text import ends, join_words, percent, processes, seconds, visible
from p3s.methods.baseline.fromstudy import measured_of
from p3s.methods.baseline.model import TESTED_RATIO, Baseline, BaselineEstimate, fit_series
from p3s.methods.baseline.times import from_mapping
from p3s.pipeline.content import StudyContent
from p3s.predict.types import Prediction
from p3s.report.show import Curve, Part


@dataclass(frozen=True)
class Band:
    """What run times alone say of other counts.

    ``said``: of each count, ascending; ``sentence`` says what it rests on. ``trained``: counts of
    the run times; ``held_error``: relative error at the held-out counts (None: none held out);
    ``measured``: whether the times were measured (False: a model's, in want of such).
    """

    said: tuple[BaselineEstimate, ...]
    sentence: str
    trained: tuple[int, ...]
    held_error: float | None
    measured: bool = True

    def at(self, n: int) -> BaselineEstimate | None:
        """Return what is said of a count, None where nothing is."""
        return next((each for each in self.said if each.n == n), None)


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
    what = _sentence(made, said[-1], measured)
    return Band(tuple(said), what, tuple(trained), made.choice.held_error, measured)


def _doublings(trained: Sequence[int]) -> list[int]:
    found, n = list(trained), max(trained)
    for _ in range(int(math.log2(TESTED_RATIO))):
        n *= 2
        found.append(n)
    return found


def _sentence(made: Baseline, said: BaselineEstimate, measured: bool) -> str:
    low, high = said.ends
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
        f"{seconds(said.seconds)} ({ends(seconds(low), seconds(high))}) at {processes(said.n)}, "
        f"{said.ratio:.3g} times the largest of them."
    )


def join(counts: Sequence[int]) -> str:
    """Return counts as words, "4, 8 and 16"; of many the first and the last ones."""
    texts = [f"{n:,}" for n in counts]
    if len(texts) > 8:
        return f"{texts[0]}, {texts[1]}, ... {texts[-1]}"
    return join_words(texts)


#: Relative difference from which the two disagree.
DISAGREE = 0.25
#: Held-out error of a regression that is worth a word.
_OFF = 0.05


@dataclass(frozen=True)
class Disagreement:
    """One count at which the two differ by more than 25 %.

    Seconds of both, ``ratio`` of the prediction's to the baseline's, ``overlap``: whether their
    intervals have something in common, ``why``: what of the regression makes it doubtful.
    """

    n: int
    baseline_s: float
    predicted_s: float
    ratio: float
    overlap: bool
    why: str

    @property
    def sentence(self) -> str:
        """All of it as one sentence."""
        more = "longer" if self.ratio > 1 else "shorter"
        by = percent(abs(self.ratio - 1))
        held = "" if self.overlap else ", and their intervals have nothing in common"
        return (
            f"At {processes(self.n)} the prediction is {by} {more} than the regression "
            f"({seconds(self.predicted_s)} against {seconds(self.baseline_s)}){held}: "
            f"{self.why}."
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
            return Beside(None, _format_sentence(why_not))
    try:
        found = band(times, counts, measured=measured)
    except P3SError as error:
        return Beside(None, _format_sentence(f"no regression of run times: {error}"))
    return Beside(found, found.sentence, tuple(disagreements(prediction, found)))


def _format_sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "."


def disagreements(prediction: Prediction, found: Band) -> list[Disagreement]:
    """Return where prediction and band differ by more than 25 %, by count.

    Only counts above the fitted ones that both have.
    """
    last = max(found.trained)
    out = []
    for row in sorted(prediction.counts, key=lambda row: row.n):
        n, told, said = row.n, row.time_s, found.at(row.n)
        if n <= last or said is None or not told:
            continue
        (low, high), mid = said.ends, said.seconds
        if abs(told / mid - 1) > DISAGREE:
            overlap = (row.low_s or told) <= high and (row.high_s or told) >= low
            out.append(Disagreement(n, mid, told, told / mid, overlap, _reach(found, n)))
    return out


def _reach(found: Band, n: int) -> str:
    """Say what of the regression makes it doubtful."""
    ratio = n / max(found.trained)
    beyond = f", such regressions were tried up to {TESTED_RATIO:g}" if ratio > TESTED_RATIO else ""
    off = (
        ""
        if found.held_error is None or found.held_error < _OFF
        else f" and was off by {percent(found.held_error)} already at the largest run, held out"
    )
    return f"the regression reaches {ratio:.3g} times beyond its largest run{off}{beyond}"


_LEGEND = "a regression of the run times alone, with its interval"


def section(content: StudyContent) -> Part:
    """Return what a regression of the run times says, above the counts it was fitted to."""
    return Part("regression", curve=curve_of(content.prediction))


def curve_of(prediction: Prediction) -> Curve:
    """Return the curve; an empty one, its sentences saying why, where there is none."""
    found = beside(prediction)
    sentences = [visible(sentence, 600) for sentence in found.sentences]
    rows: list[tuple[int, float, float, float]] = []
    if (band := found.band) is not None:
        kept = [each for each in band.said if each.n >= max(band.trained) and each.ends[0] > 0]
        rows = [(each.n, each.ends[0], each.seconds, each.ends[1]) for each in kept]
    counts, low, mid, high = zip(*rows, strict=True) if len(rows) > 1 else ((),) * 4
    return Curve(_LEGEND, counts, low, mid, high, sentences)
