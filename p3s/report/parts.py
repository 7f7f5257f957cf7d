"""Parts of a report that extensions add: what makes one, what it may hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from p3s.base.extensions import provided
from p3s.base.study import Study
from p3s.predict.types import Prediction


@dataclass(frozen=True)
class Curve:
    """Run times by another method, drawn behind the predicted curve; empty: nothing to draw.

    counts: ascending, with low, mid, high in seconds at each. ``sentences``: below the chart.
    """

    legend: str
    counts: Sequence[int]
    low: Sequence[float]
    mid: Sequence[float]
    high: Sequence[float]
    sentences: Sequence[str]


@dataclass(frozen=True)
class PartTable:
    """A table of texts; ``lead``: a sentence above it."""

    label: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    lead: str = ""


@dataclass(frozen=True)
class Part:
    """A part of the page, and ``lines`` of the terminal; without a heading it has a curve alone.

    ``charts``: caption, what is drawn, SVG of each.
    """

    name: str
    heading: str = ""
    lead: str = ""
    tables: Sequence[PartTable] = ()
    charts: Sequence[tuple[str, str, str]] = ()
    notes: Sequence[str] = ()
    curve: Curve | None = None
    lines: Sequence[str] = ()


class Section(Protocol):
    """What an extension registers to add a part to reports; None where it has nothing to say."""

    def __call__(self, study: Study, prediction: Prediction) -> Part | None:
        """Return the part of a study's report of a prediction."""


def parts_of(study: Study, prediction: Prediction) -> list[Part]:
    """Return the parts that extensions add to a report, in their order."""
    sections: list[Section] = list(provided("sections"))
    made = (section(study, prediction) for section in sections)
    return [part for part in made if part is not None]
