"""Predictions and tables as HTML for notebooks: static, without script, style sheet or request."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any

from p3s.base.errors import P3SError
from p3s.base.progress import Progress
from p3s.base.text import plural
from p3s.pipeline import saved
from p3s.pipeline.records import load_study, model_record, read_or_none
from p3s.predict import types
from p3s.predict.types import filter_untrusted
from p3s.report.counts import count_table
from p3s.report.pictures import picture_of
from p3s.report.places import phase_places
from p3s.report.sure import figure_sentences, reasons_of, warning_of

if TYPE_CHECKING:
    import pandas
    import xarray

#: Size of the curve in inches.
_SIZE = (6.0, 3.9)
#: Rows of the table of counts, and of any other table, that are shown.
MAX_COUNTS, _SHOWN = 24, 20


def _frame(columns: Mapping[str, Sequence[Any]]) -> pandas.DataFrame:
    """Return columns as a data frame; needs pandas."""
    with brought():
        import pandas

    return pandas.DataFrame({name: list(values) for name, values in columns.items()})


@contextmanager
def brought() -> Iterator[None]:
    """Raise P3SError that says what to install, instead of ImportError, for data frames."""
    try:
        yield
    except ModuleNotFoundError as err:
        raise P3SError(
            f"the Python package {err.name} is not installed; run: pip install 'p3s[frames]'"
        ) from err


@dataclass(frozen=True)
class Table:
    """Columns of equal length; a notebook shows the first rows.

    columns: name -> values, in the order they are shown in.
    """

    columns: Mapping[str, Sequence[Any]]

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(next(iter(self.columns.values()), ()))

    def __getitem__(self, name: str) -> Sequence[Any]:
        """Return a column; raises KeyError."""
        return self.columns[name]

    def to_frame(self) -> pandas.DataFrame:
        """Return it as a data frame; needs pandas."""
        return _frame(self.columns)

    def _repr_html_(self) -> str:
        """Return the first rows as static HTML."""
        rows = list(zip(*self.columns.values(), strict=True))
        more = f"<p>{_SHOWN} of {plural(len(rows), 'row')}.</p>" if len(rows) > _SHOWN else ""
        return _table(self.columns, rows[:_SHOWN]) + more


def _table(head: Iterable[str], rows: Iterable[Sequence[Any]]) -> str:
    names = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(str(cell).strip())}</td>' for cell in row)}</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>"


class Prediction(saved.PredictionFile):
    """A saved prediction that a notebook shows as verdict, curve and table."""

    def to_frame(self) -> pandas.DataFrame:
        """Return a row per count as a data frame; needs pandas."""
        return _frame(self.columns())

    def phase_frame(self) -> pandas.DataFrame:
        """Return a row per count and phase as a data frame; needs pandas."""
        return _frame(self.phase_columns())

    def to_xarray(self) -> xarray.Dataset:
        """Return it with the dimensions n and phase; needs xarray.

        Variables of a count: as in ``to_frame``; of a count and phase, with ``phase_`` before their
        name: as in ``phase_frame``, NaN where a phase does not occur. Times in s.
        """
        with brought():
            import_module("xarray")  # pandas makes data sets by it
            rows, parts = self.to_frame().set_index("n"), self.phase_frame()
        names = parts.drop_duplicates("phase").set_index("phase")["name"].sort_index()
        parts = parts.drop(columns=["name", "kind"]).set_index(["n", "phase"]).astype(float)
        found = rows.where(rows.notna(), math.nan).infer_objects().to_xarray()
        whole: xarray.Dataset = found.merge(parts.add_prefix("phase_").to_xarray())
        return whole.assign_coords(phase_name=("phase", names.to_numpy()))

    def _repr_html_(self) -> str:
        """Return it as static HTML."""
        root = None if self.source is None else self.source.parent
        record = None if root is None else read_or_none(lambda: model_record(load_study(root)))
        return fragment(self.content, phase_places(record.model, record.places) if record else {})


class NotebookProgress(Progress):
    """Steps of a longer job in a notebook: a line below its cell that changes."""

    def __init__(self, shell: Any) -> None:
        """Take the shell of IPython that cells run in."""
        self._shell, self._cell, self._line = shell, None, None
        self._steps = self._ended = 0

    def expect(self, steps: int) -> None:
        """Say how many steps there are, where that was not known before."""
        self._steps, self._ended = steps, 0

    def start(self, text: str) -> None:
        """Say which step is being done."""
        self._show(text)

    def step(self) -> None:
        """Count a step that has ended, one of many."""
        self._ended += 1

    def done(self, text: str) -> None:
        """Say that a step has ended."""
        self._ended += 1
        self._show(text)

    def say(self, text: str) -> None:
        """Say something that the user should know, in one line."""
        print(text)

    def _show(self, text: str) -> None:
        from IPython.display import HTML, display

        ended = min(self._ended, self._steps)
        bar = f'<progress value="{ended}" max="{self._steps}"></progress> ' if self._steps else ""
        shown = HTML(f"{bar}{escape(text)}")
        if self._line is None or self._cell != self._shell.execution_count:
            self._cell, self._line = self._shell.execution_count, display(shown, display_id=True)
        else:
            self._line.update(shown)


def progress_here() -> Progress:
    """Return what shows progress in a notebook; elsewhere one that says nothing."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return Progress() if getattr(shell, "kernel", None) is None else NotebookProgress(shell)


def fragment(prediction: types.Prediction, places: Mapping[str, str] | None = None) -> str:
    """Return verdict, curve and table; every text escaped, looks by attributes of the drawing.

    places: where the calls of a phase are in the program, by its number.
    """
    said = [f"<p>{line}</p>" for line in _verdict(prediction, places)]
    table, number = count_table(prediction, MAX_COUNTS, wide=False), len(prediction.counts)
    more = f"<p>{MAX_COUNTS} of {plural(number, 'count')}.</p>" * (number > MAX_COUNTS)
    curve, shown = picture_of(prediction, "speedup", _SIZE), _table(table.head, table.rows)
    return f"<div>{''.join(said)}{curve._repr_svg_()}{shown}{more}</div>"


def _verdict(prediction: types.Prediction, places: Mapping[str, str] | None) -> Iterator[str]:
    """Return the verdict; where it is not to be trusted, why and what to do comes before it."""
    warning, (first, *rest) = warning_of(prediction), figure_sentences(prediction, places)
    reasons = reasons_of(prediction)
    if warning:
        yield f"<b>{escape(warning)}</b>"
        for reason in filter_untrusted(reasons):
            yield escape(f"{reason.code}: {reason.sentence}")
    yield (
        f"{escape(first)} {escape(' '.join(rest))}"
        if warning
        else f"<b>{escape(first)}</b> {escape(' '.join(rest))}"
    )
    for reason in reasons:
        if not reason.untrustworthy:
            yield escape(f"caution: {reason.sentence}")
