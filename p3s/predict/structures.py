"""Programs of a structure whose times the traced schedule does not tell, known to extensions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from p3s.base.extensions import provided
from p3s.base.study import Study
from p3s.model.comparison import Comparison
from p3s.predict.estimates import Estimates
from p3s.predict.estimators.settings import Setting
from p3s.predict.residual import Measured
from p3s.predict.types import Prediction, Reason


@dataclass(frozen=True)
class Dealt:
    """Tasks that a server handed out in a run to whoever asked, and how many the model says.

    least, most: of a worker, which depends on timing; same: whether the totals are equal and all
    else that differs may be how the tasks were dealt.
    """

    tasks: int
    predicted: float
    least: int
    most: int
    same: bool


class Structure:
    """What is known of a program; this one is of no structure, so that nothing changes.

    ``checked`` are comparisons with runs by the code of the reason that they may be.
    """

    #: Why changes (--what-if) cannot be simulated; empty: they can.
    fixed = ""

    def in_place(
        self, made: Estimates, _machine: Path | None, _setting: Setting | None
    ) -> Estimates:
        """Return estimates with its own times in place of the traced schedule's."""
        return made

    def even(self, run: Measured) -> Measured:
        """Return a traced run without what depends on timing."""
        return run

    def told(
        self, made: Prediction, _name: str, _checked: Mapping[str, Sequence[Comparison]]
    ) -> Prediction:
        """Return a prediction, by the estimator of a name, that says what of it is special."""
        return made

    def minded(
        self, reasons: Sequence[Reason], _checked: Mapping[str, Sequence[Comparison]]
    ) -> tuple[Reason, ...]:
        """Return reasons, those that timing explains as something to be minded."""
        return tuple(reasons)

    def dealt(self, _run_dir: Path, _compared: Comparison) -> Dealt | None:
        """Return the tasks that were handed out in a run; None where none were."""
        return None


def structure_of(study: Study) -> Structure:
    """Return what the first extension that recognises a study's program knows of it."""
    ways: Iterator[Callable[[Study], Structure | None]] = provided("structures")
    return next((it for way in ways if (it := way(study)) is not None), Structure())
