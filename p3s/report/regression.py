"""The regression of run times that stands beside a prediction, for its charts."""

from __future__ import annotations

from dataclasses import dataclass

from p3s.base.text import visible
from p3s.predict.types import Prediction


@dataclass(frozen=True)
class Regression:
    """What a regression of run times alone says, above the counts it was fitted to.

    counts with low, mid and high, in seconds; empty where there is none. ``sentences`` say what it
    is, or why there is none, and where it disagrees with the prediction.
    """

    counts: tuple[int, ...]
    low: tuple[float, ...]
    mid: tuple[float, ...]
    high: tuple[float, ...]
    sentences: tuple[str, ...]


def regression_of(prediction: Prediction) -> Regression:
    """Return the regression beside a prediction; an empty one where there is none."""
    from p3s.methods.baseline import beside

    found = beside(prediction)
    said = tuple(visible(sentence, 600) for sentence in found.sentences)
    band = found.band
    if band is None:
        return Regression((), (), (), (), said)
    last = max(band.trained)
    keep = [k for k, n in enumerate(band.counts) if n >= last and band.low[k] > 0]
    if len(keep) < 2:
        return Regression((), (), (), (), said)
    return Regression(
        tuple(band.counts[k] for k in keep),
        tuple(band.low[k] for k in keep),
        tuple(band.mid[k] for k in keep),
        tuple(band.high[k] for k in keep),
        said,
    )
