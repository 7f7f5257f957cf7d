"""A prediction that was saved: read checked, asked by count."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from p3s.base.artefacts import as_json, read_json, unusable, write_json
from p3s.base.errors import P3SError
from p3s.base.schemas import first_problem, load_schema
from p3s.base.serialise import ShapeError, from_data
from p3s.base.text import ends, plural, processes
from p3s.pipeline.commands import to_predict
from p3s.predict.rows import baseline
from p3s.predict.types import PREDICTION, Efficiencies, Grade, Prediction, Reason, filter_untrusted

#: Values of a row that a table of counts holds, in this order.
COUNT_COLUMNS = (
    "n",
    "time_s",
    "low_s",
    "high_s",
    "time_from",
    "speedup",
    "speedup_low",
    "speedup_high",
    "efficiency",
    "cost_core_h",
    "model_s",
    "model_low_s",
    "model_high_s",
    "compute_s",
    "comm_s",
    "transfer_s",
    "waiting_s",
    "software_s",
    "measured_s",
    "representative",
    "estimator",
)
#: Values of a phase that a table of phases holds, behind the count.
PHASE_COLUMNS = (
    "phase",
    "name",
    "kind",
    "weight",
    "time_s",
    "low_s",
    "high_s",
    "compute_s",
    "compute_low_s",
    "compute_high_s",
    "comm_s",
    "transfer_s",
    "waiting_s",
    "software_s",
)

#: Rounding of sums that ends of intervals may be off by.
_SLACK = 1e-9


@dataclass(frozen=True, repr=False)
class PredictionFile:
    """A prediction.json: what it holds, asked by count.

    ``data``: the file's content (docs/formats.md; p3s/base/schemas/prediction-4.json), ``content``:
    the same as a record; ``source``: the file, None when it was not read from one. Times are in
    seconds. ``from p3s import Prediction`` is the same class with what notebooks show.
    """

    data: Mapping[str, Any]
    source: Path | None = field(default=None, compare=False)

    @cached_property
    def content(self) -> Prediction:
        """The prediction; raises Damaged where the file makes no sense."""
        wrong, found = first_problem(self.data, load_schema(PREDICTION.file)), None
        try:
            found = None if wrong else from_data(Prediction, self.data, more=True)
        except ShapeError as err:
            wrong = str(err)
        if found is None or (wrong := _disorder(found)):
            raise unusable(self.source or Path("prediction"), wrong, PREDICTION.again)
        return found

    @classmethod
    def of(cls, data: Mapping[str, Any], source: Path | None = None) -> Self:
        """Return a prediction made of a file's content; raises Damaged where it makes no sense."""
        made = cls(data, source)
        _ = made.content
        return made

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Read the prediction of a study directory, or a prediction.json.

        Raises P3SError, in one line, when there is none, when it is damaged or of another version.
        """
        file = _file_of(Path(path))
        try:
            data = read_json(file, PREDICTION.schema, PREDICTION.version)
        except P3SError:
            _refuse_old(file)
            raise
        return cls.of(data, file)

    def save(self, path: Path | str) -> None:
        """Write the prediction as JSON, whole or not at all; raises P3SError when it cannot be."""
        write_json(Path(path), dict(self.data))

    @property
    def counts(self) -> tuple[int, ...]:
        """Process counts, ascending."""
        return tuple(row.n for row in self.content.counts)

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Why not to trust it, and what to mind of it."""
        return self.content.reasons

    @property
    def grade(self) -> Grade:
        """What its times are worth: "usable", "rough" (known less well) or "unusable"."""
        return self.content.grade

    @property
    def trustworthy(self) -> bool:
        """Whether no reason speaks against trusting it."""
        return not filter_untrusted(self.reasons)

    def at(self, n: int) -> Mapping[str, Any]:
        """Return the row of a process count; raises P3SError when it was not predicted."""
        found: Mapping[str, Any] = self.data["counts"][
            self.content.counts.index(self.content.at(n))
        ]
        return found

    def columns(self) -> dict[str, list[Any]]:
        """Return one list per value, an entry per count: ``pandas.DataFrame(p.columns())``."""
        rows = self.data["counts"]
        return {key: [row[key] for row in rows] for key in COUNT_COLUMNS}

    def phase_columns(self) -> dict[str, list[Any]]:
        """Return one list per value, an entry per count and phase."""
        pairs = [(row["n"], phase) for row in self.data["counts"] for phase in row["phases"]]
        return {
            "n": [n for n, _ in pairs],
            **{key: [phase[key] for _, phase in pairs] for key in PHASE_COLUMNS},
        }

    def efficiency_columns(self) -> dict[str, list[Any]]:
        """Return one list per efficiency of the POP project, an entry per count; None: not known.

        Those of the model (p3s.predict.rows); of runs: ``content.at(n).pop_measured``.
        """
        rows = self.content.counts
        return {
            "n": [row.n for row in rows],
            **{
                each.name: [
                    None if row.pop is None else getattr(row.pop, each.name) for row in rows
                ]
                for each in fields(Efficiencies)
            },
        }

    def to_json(self) -> str:
        """Return the prediction as the text of prediction.json."""
        return as_json(dict(self.data))

    def __repr__(self) -> str:
        """Return the counts and the last one's speedup, as one line."""
        first, last = self.content.counts[0], self.content.last
        sure = ""
        if last.speedup_low is not None and last.speedup_high is not None:
            sure = f" ({ends(last.speedup_low, last.speedup_high, '.3g')})"
        doubt = "" if self.trustworthy else ", not trustworthy"
        span = f"{first.n} to {last.n} processes" if first is not last else processes(first.n)
        return (
            f"Prediction({span}, {plural(len(self.counts), 'count')}, "
            f"{plural(len(last.phases), 'phase')}, speedup {last.speedup:.3g}{sure}, "
            f"estimator {self.content.estimator!r:.40}{doubt})"
        )


def read_prediction(path: Path | str) -> Prediction:
    """Return a study's prediction, or that of a file, checked; raises P3SError in one line."""
    return PredictionFile.load(path).content


def _file_of(path: Path) -> Path:
    """Return the prediction.json that a path means."""
    if not path.is_dir():
        if not path.exists():
            raise P3SError(f"{path}: not there; name a study directory or a prediction.json")
        return path
    file = path / "prediction.json"
    if not file.exists():
        raise P3SError(f"{path}: no prediction yet; make one first: {to_predict(path)}")
    return file


def _refuse_old(file: Path) -> None:
    """Raise P3SError for a prediction of an earlier version, which lacks some of what is read."""
    for version in range(1, PREDICTION.version):
        with suppress(P3SError):
            read_json(file, PREDICTION.schema, version)
            break
    else:
        return
    make = to_predict(file.parent, there=False)
    raise P3SError(f"{file}: made by an older P3S; make it again: {make}")


def _disorder(found: Prediction) -> str:
    """Return what in a prediction contradicts itself, "" when nothing does.

    Counts ascend, the baseline is the smallest that nothing speaks against, and no interval is
    beside its value.
    """
    counts = [row.n for row in found.counts]
    for before, after in zip(counts, counts[1:], strict=False):
        if after <= before:
            return f"counts: {after} follows {before}"
    base = baseline(found.counts).n
    if found.baseline_n != base:
        return f"baseline_n is {found.baseline_n}, not the smallest count, {base}"
    if found.knee is not None and found.knee not in counts:
        return f"knee is {found.knee}, not one of the counts"
    for row in found.counts:
        values = [
            ("time_s", row.low_s, row.time_s, row.high_s),
            ("model_s", row.model_low_s, row.model_s, row.model_high_s),
            ("speedup", row.speedup_low, row.speedup, row.speedup_high),
            *((f"time_s of phase {p.phase}", p.low_s, p.time_s, p.high_s) for p in row.phases),
            *(
                ("saved_s", at.saved_low_s, at.saved_s, at.saved_high_s)
                for each in found.what_if
                for at in each.counts
                if at.n == row.n
            ),
        ]
        for name, low, value, high in values:
            if not _between(low, value, high):
                return f"at {processes(row.n)} {name} is outside of its interval"
    for each in found.what_if:
        at = [change.n for change in each.counts]
        if at != sorted(set(at) & set(counts)):
            return f"what_if: counts {at} are not some of the prediction's, ascending"
    return ""


def _between(low: float | None, value: float, high: float | None) -> bool:
    slack = _SLACK * max(abs(value), math.ulp(1.0))
    return (low is None or low <= value + slack) and (high is None or value - slack <= high)
