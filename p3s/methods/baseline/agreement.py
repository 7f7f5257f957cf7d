"""A regression of run times beside a prediction from traces, and where they disagree."""

from __future__ import annotations

from collections.abc import Sequence

from p3s.base.errors import P3SError
from p3s.base.text import ends, join_words, percent, processes, seconds, visible
from p3s.methods.baseline.fromstudy import measured_of
from p3s.methods.baseline.model import TESTED_RATIO, Baseline, BaselineEstimate, fit_series
from p3s.methods.baseline.times import from_mapping
from p3s.pipeline.content import StudyContent
from p3s.predict.types import Count, Prediction
from p3s.report.show import Curve, Part

#: Relative difference from which the two disagree.
DISAGREE = 0.25
#: Held-out error of a regression that is worth a word.
_OFF = 0.05
_LEGEND = "a regression of the run times alone, with its interval"


def section(content: StudyContent) -> Part:
    """Return what a regression of the run times says, above the counts it was fitted to."""
    return Part("regression", curve=curve_of(content.prediction))


def curve_of(prediction: Prediction) -> Curve:
    """Return the curve; an empty one, its sentences saying why, where there is none.

    It is fitted to the measured times of the traced counts. Where those do not tell how fast the
    program is (ranks shared cores), it is fitted to the predicted times at the traced counts, and
    the first sentence says so: it then shows what a regression would make of such small runs. The
    second one is of the count above these where the two differ most.
    """
    times, why_not = measured_of(prediction)
    measured = bool(times)
    if not measured:
        times = {
            row.n: [row.model_s]
            for row in prediction.counts
            if row.n in prediction.traced_counts and row.model_s > 0
        }
    if len(times) < 2:
        return _none(why_not)
    try:
        baseline = fit_series(from_mapping(times))
        estimates = baseline.say(sorted({row.n for row in prediction.counts}))
    except P3SError as error:
        return _none(f"no regression of run times: {error}")
    sentences = [
        _describe_regression(baseline, estimates[-1], measured),
        _where_apart(prediction, baseline, estimates),
    ]
    rows = [each for each in estimates if each.n >= max(baseline.counts) and each.ends[0] > 0]
    rows = rows if len(rows) > 1 else []
    return Curve(
        _LEGEND,
        tuple(each.n for each in rows),
        [each.ends[0] for each in rows],
        [each.seconds for each in rows],
        [each.ends[1] for each in rows],
        [visible(sentence, 600) for sentence in sentences],
    )


def _none(why: str) -> Curve:
    text = why[:1].upper() + why[1:].rstrip(".") + "."
    return Curve(_LEGEND, (), (), (), (), [visible(text, 600)])


def _describe_regression(baseline: Baseline, estimate: BaselineEstimate, measured: bool) -> str:
    """Return what the regression rests on, and what it says of a count."""
    low, high = estimate.ends
    times_name = "the run times" if measured else "the predicted times"
    error = baseline.choice.held_error
    how = (
        "its form could not be tested"
        if error is None
        else f"off by {percent(error)} at {join(baseline.held_out)} when fitted without "
        + ("them" if len(baseline.held_out) > 1 else "it")
    )
    return (
        f"A regression of {times_name} at {join(baseline.counts)} processes ({baseline.family},"
        f" {how}) says {seconds(estimate.seconds)} ({ends(seconds(low), seconds(high))})"
        f" at {processes(estimate.n)}, {estimate.ratio:.3g} times the largest of them."
    )


def join(counts: Sequence[int]) -> str:
    """Return counts as words, "4, 8 and 16"; of many the first and the last ones."""
    texts = [f"{n:,}" for n in counts]
    if len(texts) > 8:
        return f"{texts[0]}, {texts[1]}, ... {texts[-1]}"
    return join_words(texts)


def _where_apart(
    prediction: Prediction, baseline: Baseline, estimates: Sequence[BaselineEstimate]
) -> str:
    """Return where prediction and regression differ most, above the counts that it rests on."""
    estimate_at = {each.n: each for each in estimates if each.n > max(baseline.counts)}
    apart: list[tuple[float, Count, BaselineEstimate]] = [
        (row.time_s / estimate_at[row.n].seconds, row, estimate_at[row.n])
        for row in prediction.counts
        if row.n in estimate_at and row.time_s
    ]
    ratio, row, each = max(apart, key=lambda one: abs(one[0] - 1), default=(1.0, None, None))
    if row is None or each is None or abs(ratio - 1) <= DISAGREE:
        return f"The two differ by at most {percent(DISAGREE)} at all predicted counts."
    low, high = each.ends
    overlap = (row.low_s or row.time_s) <= high and (row.high_s or row.time_s) >= low
    overlap_text = "" if overlap else ", and their intervals have nothing in common"
    more = "longer" if ratio > 1 else "shorter"
    return (
        f"At {processes(row.n)} the prediction is {percent(abs(ratio - 1))} {more} than the "
        f"regression ({seconds(row.time_s)} against {seconds(each.seconds)}){overlap_text}: "
        f"{_reach(baseline, each)}."
    )


def _reach(baseline: Baseline, estimate: BaselineEstimate) -> str:
    """Say what of the regression makes it doubtful."""
    far = estimate.ratio > TESTED_RATIO
    beyond = f", such regressions were tried up to {TESTED_RATIO:g}" if far else ""
    error = baseline.choice.held_error
    off = (
        ""
        if error is None or error < _OFF
        else f" and was off by {percent(error)} already at the largest run, held out"
    )
    return f"the regression reaches {estimate.ratio:.3g} times beyond its largest run{off}{beyond}"
