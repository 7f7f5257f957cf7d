"""The regression of run times that stands beside a prediction in reports."""

from __future__ import annotations

from p3s.base.study import Study
from p3s.base.text import visible
from p3s.methods.baseline.agreement import beside
from p3s.predict.types import Prediction
from p3s.report.parts import Curve, Part

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
