"""The baseline's curve as a band, to be drawn beside a prediction that rests on traces."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from p3s.base.errors import P3SError
from p3s.base.text import percent, processes, seconds
from p3s.methods.baseline.families import text_of
from p3s.methods.baseline.model import TESTED_RATIO, Baseline, Said, fit_series
from p3s.methods.baseline.times import from_mapping


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
