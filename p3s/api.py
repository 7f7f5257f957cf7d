"""What ``import p3s`` offers: a study with its runs, phases, model, traces and predictions.

    study = p3s.open("study")
    study.runs                     # what was traced
    study.model.equations          # who talks to whom, how many bytes, how often
    study.predict([64, 128])       # run times with intervals; shown as a curve in a notebook
    study.plot.phases()            # where the time goes, and other plots

What is missing or out of date is made when it is asked for, as the commands do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from html import escape
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any

from p3s.base.errors import P3SError, UsageError
from p3s.base.extensions import extensions
from p3s.base.extensions import load as loaded
from p3s.base.progress import Progress
from p3s.base.text import plural, processes
from p3s.pipeline.predicting import PredictArguments, ensure_prediction, predicted_weak, what_ifs_of
from p3s.pipeline.prediction import AUTO, Request, request_of
from p3s.pipeline.records import Directory, load_study, model_record, open_traces
from p3s.pipeline.stages import (
    ensure_compute,
    ensure_model,
    ensure_phases,
    ensure_scaled,
    ensure_signatures,
)
from p3s.predict.types import KNEE_EFFICIENCY, PREDICTION, WhatIfAt
from p3s.replay.settings import ReplaySettings
from p3s.report.notebook import Prediction, Table, brought, progress_here
from p3s.report.pictures import Picture, Plots

if TYPE_CHECKING:
    import pandas
    import xarray
    from scipy.sparse import coo_array

    from p3s.predict.gate import Finding
    from p3s.predict.types import WeakPrediction
    from p3s.report.compare import Comparison
    from p3s.signature.matrix import CommMatrix

__all__ = [
    "Matrix",
    "Model",
    "Picture",
    "Plots",
    "Prediction",
    "ScaledTrace",
    "Studies",
    "Study",
    "Table",
    "open_many",
    "open_study",
    "trace",
]


def open_study(path: Path | str) -> Study:
    """Return the study in a directory; raises P3SError where there is none."""
    return Study(load_study(Path(path)))


def open_many(paths: Iterable[Path | str]) -> Studies:
    """Return the studies in several directories; raises P3SError where there is none."""
    return Studies(tuple(open_study(path) for path in paths))


def trace(
    command: Sequence[str] | str, counts: Iterable[int], *, study: Path | str, **settings: Any
) -> Study:
    """Trace a program at ``counts`` into the directory ``study``; return the study.

    ``command``: the launcher command with {np}, as "mpiexec -n {np} ./program input".
    ``settings``: ``progress``, and those of p3s.pipeline.tracing.study.trace_command, as repeats=3.
    Counts that failed are told and left out; raises P3SError, in one line, where too few are left.
    Ctrl-C ends the runs; finished ones stay.
    """
    from p3s.pipeline.tracing.study import trace_command

    told = settings.pop("progress", None) or progress_here()
    return Study(
        trace_command(Path(study), command, _check_counts(counts, "trace"), told, **settings), told
    )


@dataclass(frozen=True)
class Model:
    """The laws of a program.

    counts: process counts that it was fitted to. rules: call, call site, destination, bytes, work
    and verdict of each. equations: all of it as text.
    """

    counts: tuple[int, ...]
    grid: str
    rules: Table
    equations: str

    def __repr__(self) -> str:
        """Return counts and grid as one line."""
        return f"Model({processes(self.counts)}, {self.grid}, {plural(len(self.rules), 'rule')})"

    def _repr_html_(self) -> str:
        """Return the equations as static HTML."""
        return f"<pre>{escape(self.equations)}</pre>"


@dataclass(frozen=True)
class ScaledTrace:
    """What the model says that n processes do: one row per call and rank, as Parquet files.

    grid: extents of the process grid, empty where there is none.
    """

    n: int
    path: Path
    grid: tuple[int, ...]
    rows: int

    def to_frame(self) -> pandas.DataFrame:
        """Return all rows as a data frame; needs pandas. Raises P3SError where they are damaged."""
        from p3s.program.scaled import whole_table

        with brought():
            return whole_table(self.path).to_pandas()


@dataclass(frozen=True)
class Matrix:
    """Who sends how much to whom, point to point; traced where the count was traced.

    source, destination, messages and bytes (int64, equal length) are the pairs that occur.
    """

    n: int
    traced: bool
    pairs: CommMatrix

    def array(self, what: str = "bytes") -> coo_array:
        """Return "messages" or "bytes" as a sparse matrix of shape (n, n), rows send."""
        from scipy.sparse import coo_array

        if what not in ("messages", "bytes"):
            raise UsageError(f"matrix: {what!r} is neither messages nor bytes")
        at = (self.pairs.source, self.pairs.destination)
        return coo_array((self.pairs.values(what), at), shape=(self.n, self.n))

    def to_frame(self) -> pandas.DataFrame:
        """Return the pairs as a data frame; needs pandas."""
        return self._table().to_frame()

    def to_xarray(self, what: str = "bytes") -> xarray.DataArray:
        """Return "messages" or "bytes" by source and destination, all n x n; needs xarray."""
        with brought():
            import xarray

        dense = self.array(what).toarray()
        return xarray.DataArray(dense, dims=("source", "destination"), name=what)

    def __repr__(self) -> str:
        """Return what it holds as one line."""
        origin = "traced" if self.traced else "predicted"
        return f"Matrix({processes(self.n)}, {origin}, {plural(len(self.pairs.source), 'pair')})"

    def _table(self) -> Table:
        found = self.pairs
        return Table(
            {
                "source": found.source.tolist(),
                "destination": found.destination.tolist(),
                "messages": found.messages.tolist(),
                "bytes": found.bytes.tolist(),
            }
        )

    def _repr_html_(self) -> str:
        """Return the first pairs as static HTML."""
        return f"<p>{escape(repr(self))}</p>{self._table()._repr_html_()}"


class Study:
    """All that is known of one program and input, in one directory."""

    def __init__(self, directory: Directory, progress: Progress | None = None) -> None:
        """Take a directory; ``progress`` is told what is being done: a notebook shows it."""
        self._directory = directory
        self._progress = progress or progress_here()

    @staticmethod
    def trace(
        path: Path | str, command: Sequence[str] | str, counts: Iterable[int], **settings: Any
    ) -> Study:
        """Trace a program into the study in a directory, as p3s.trace does."""
        return trace(command, counts, study=path, **settings)

    @property
    def plot(self) -> Plots:
        """Plots of the study: ``plot.speedup()``, ``plot.phases()``, ``plot.matrix(64)``."""
        return Plots(self.path, lambda n: self.matrix(n).pairs)

    @property
    def path(self) -> Path:
        """The directory."""
        return self._directory.root

    @property
    def counts(self) -> tuple[int, ...]:
        """Process counts that were traced completely, ascending."""
        return tuple(self._directory.counts())

    @property
    def runs(self) -> Table:
        """The traced runs: count, repeat, status, unit of work, directory."""
        runs = self._directory.runs()
        return Table(
            {
                "processes": [run.np for run in runs],
                "repeat": [run.rep for run in runs],
                "status": [run.status for run in runs],
                "work": [str(run.info.get("work_unit", "")) for run in runs],
                "path": [str(run.path) for run in runs],
            }
        )

    @property
    def phases(self) -> Table:
        """The phases at the traced counts: how often, events, bytes, share of the time."""
        found = ensure_phases(self._directory, self._progress)
        each = [
            (p, n, p.per_count[n]) for p in found.phases for n in found.counts if n in p.per_count
        ]
        return Table(
            {
                "phase": [phase.phase for phase, _, _ in each],
                "name": [phase.name for phase, _, _ in each],
                "processes": [n for _, n, _ in each],
                "iterations": [cost.weight for _, _, cost in each],
                "events": [cost.events for _, _, cost in each],
                "bytes": [cost.bytes for _, _, cost in each],
                "share": [cost.share for _, _, cost in each],
            }
        )

    @property
    def model(self) -> Model:
        """The laws, fitted where they are missing or older than the runs."""
        from p3s.report.equations import render
        from p3s.report.rules import phase_rules

        ensure_model(self._directory, self._progress)
        record = model_record(self._directory)
        model, places = record.model, record.places
        rules = [rule for phase in phase_rules(model, places) for rule in phase.rules]
        table = Table(
            {
                "call": [rule.call for rule in rules],
                "site": [rule.place for rule in rules],
                "destination": [rule.destination.text for rule in rules],
                "bytes": [rule.volume.text for rule in rules],
                "work": [rule.work.text for rule in rules],
                "verdict": [rule.verdict for rule in rules],
            }
        )
        text = render(model, places)
        return Model(tuple(model.counts), str(model.grid.text), table, text)

    def matrix(self, n: int) -> Matrix:
        """Return who sends how much to whom with ``n`` processes."""
        from p3s.pipeline.content import matrix_of

        known = n in ensure_signatures(self._directory, self._progress)
        if not known:
            self.scale(n)
        found = matrix_of(open_traces(self.path), n)
        if found is None or isinstance(found, str):
            raise P3SError(f"{self.path}: no matrix of {processes(n)}: {found or 'damaged'}")
        return Matrix(n, known, found)

    def scale(self, n: int) -> ScaledTrace:
        """Return the trace of ``n`` processes, written where it is missing or out of date."""
        from p3s.program.scaled import scaled_head

        ensure_model(self._directory, self._progress)
        ensure_compute(self._directory, self._progress)
        ensure_scaled(self._directory, n, self._progress)
        head = scaled_head(self._directory.scaled_dir(n))
        grid = tuple(head.get("grid") or ())
        return ScaledTrace(n, self._directory.scaled_dir(n), grid, int(head["rows"]))

    def predict(
        self,
        counts: Iterable[int] | int,
        *,
        network: str = "",
        estimator: str = AUTO,
        knee: float = KNEE_EFFICIENCY,
        machine: Path | str | None = None,
        only: bool = False,
        allowed: Collection[str] = (),
        within: float | None = None,
        settings: ReplaySettings | None = None,
        what_if: Iterable[str] = (),
    ) -> Prediction:
        """Predict run times at ``counts``; nothing is replayed unless ``settings`` say how.

        ``network``: a cluster of p3s machine list or a file. ``knee``: efficiency below which more
        processes are not worth it. ``machine``: file of another machine to predict for. Counts that
        were predicted before stay, unless ``only``. ``allowed``: codes of reasons that do not
        speak against it. ``within``: relative half width that intervals must have, or the
        prediction is unusable. ``what_if``: changes such as latency/2, as of --what-if. Raises
        P3SError, in one line.
        """
        wanted = _check_counts(counts)
        file = None if machine is None else Path(machine)
        arguments = PredictArguments(
            tuple(wanted),
            self._request(estimator, network, settings),
            machine=file,
            knee=knee,
            only=only,
            allowed=frozenset(allowed),
            within=within,
            what_if=what_ifs_of(list(what_if)),
        )
        study, result = ensure_prediction(self._directory, arguments, self._progress)
        return Prediction.of(PREDICTION.data(result), study.prediction_path)

    def predict_weak(
        self,
        counts: Iterable[int] | int,
        law: str,
        *,
        params: Iterable[str] = (),
        network: str = "",
        estimator: str = AUTO,
        knee: float = KNEE_EFFICIENCY,
        only: bool = False,
        settings: ReplaySettings | None = None,
    ) -> WeakPrediction:
        """Predict run times at ``counts`` with an input that grows with them, as --weak does.

        ``law``: such as size~n or size~2*n^(1/3). ``params``: values at the smallest count, such as
        size=4000, by default the smallest traced ones. Other arguments as of :meth:`predict`.
        Raises P3SError, in one line.
        """
        from p3s.pipeline.parameters import with_parameters

        request = self._request(estimator, network, settings)
        arguments = PredictArguments(tuple(_check_counts(counts)), request, knee=knee, only=only)
        study = with_parameters(self.path)
        found, _ = predicted_weak(study, arguments, law, list(params), self._progress)
        return found

    def what_if(
        self,
        changes: Iterable[str] | str,
        counts: Iterable[int] | int,
        *,
        network: str = "",
        estimator: str = AUTO,
    ) -> Table:
        """Return what each change would save at ``counts``: a row per change and count.

        ``changes``: such as latency/2 or "phase 3 * 0.7, balanced" (docs/what-if.md); "table" for
        the usual ones. Times in s; the prediction is written as by ``predict``. Raises P3SError, in
        one line.
        """
        texts = [changes] if isinstance(changes, str) else list(changes)
        found = self.predict(counts, network=network, estimator=estimator, what_if=texts)
        rows = [(each, at) for each in found.content.what_if for at in each.counts]
        columns: dict[str, list[Any]] = {
            "what if": [each.text for each, _ in rows],
            "estimator": [each.estimator for each, _ in rows],
        }
        for name in (field.name for field in fields(WhatIfAt)):
            columns["processes" if name == "n" else name] = [getattr(at, name) for _, at in rows]
        return Table(columns)

    def next(self) -> Table:
        """Return the counts whose traces would decide most, the most telling first, and why."""
        from p3s.pipeline.records import model_of

        ensure_model(self._directory, self._progress)
        found = model_of(self._directory).next
        return Table({"processes": [each.n for each in found], "why": [each.why for each in found]})

    def explain(self, phase: int) -> str:
        """Return what the equations of a phase rest on: the values behind each rule, its rivals."""
        from p3s.report.explain import render

        ensure_model(self._directory, self._progress)
        record = model_record(self._directory)
        return render(record.model, record.places, phase)

    def gate(self, *conditions: str, base: Study | None = None) -> tuple[Finding, ...]:
        """Return what conditions on the saved prediction come to, as "efficiency@64 < 60%".

        base: study whose prediction "base." means. Raises P3SError where nothing is predicted.
        """
        from p3s.pipeline.records import as_of_now
        from p3s.pipeline.saved import PredictionFile
        from p3s.predict.gate import check, parse

        other = None if base is None else as_of_now(PredictionFile.load(base.path))
        mine = as_of_now(PredictionFile.load(self.path))
        return tuple(check(parse(text), mine, other) for text in conditions)

    def compare(self, other: Study, n: int | None = None) -> Comparison:
        """Return the saved predictions of this study and another, side by side.

        n: count at which phases are compared, by default the largest common one.
        """
        from p3s.pipeline.records import command_of
        from p3s.pipeline.saved import read_prediction
        from p3s.report.compare import compare

        paths = (self.path, other.path)
        first, second = (read_prediction(path) for path in paths)
        names = (str(paths[0]), str(paths[1]))
        commands = (command_of(paths[0]), command_of(paths[1]))
        return compare(first, second, names=names, commands=commands, n=n)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return what an extension adds, such as ``place``, for this study."""
        for where in (each for one in extensions() for each in one.studies):
            if where.endswith(f":{name}"):
                return partial(loaded(where), self.path, self._progress)
        raise AttributeError(f"a study has no {name}")

    def _request(self, estimator: str, network: str, settings: ReplaySettings | None) -> Request:
        return request_of(estimator, network, settings is None, settings or ReplaySettings())

    def __repr__(self) -> str:
        """Return path and counts as one line."""
        traced = processes(self.counts) if self.counts else "nothing traced"
        return f"Study({str(self.path)!r}, {traced})"

    def _repr_html_(self) -> str:
        """Return the traced runs as static HTML."""
        return f"<p>{escape(repr(self))}</p>{self.runs._repr_html_()}"


@dataclass(frozen=True)
class Studies:
    """Studies to be looked at together: versions of a program, inputs, machines."""

    studies: tuple[Study, ...]

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.studies)

    def __getitem__(self, number: int) -> Study:
        """Return one of them."""
        return self.studies[number]

    def to_frame(self) -> pandas.DataFrame:
        """Return the saved predictions as one data frame; needs pandas.

        A row per study and count: ``study`` (its path), ``command``, and the columns of
        ``Prediction.to_frame``. Raises P3SError where one has none.
        """
        from p3s.pipeline.records import command_of

        with brought():
            import pandas

        frames = []
        for study in self.studies:
            frame = Prediction.load(study.path).to_frame()
            frame.insert(0, "study", str(study.path))
            frame.insert(1, "command", " ".join(command_of(study.path)))
            frames.append(frame)
        return pandas.concat(frames, ignore_index=True)

    def history(self, n: int | None = None) -> Table:
        """Return the predicted time of each study at a count, and its ratio to the one before.

        n: by default the largest count that all have. Raises P3SError where there is none.
        """
        from p3s.pipeline.saved import read_prediction
        from p3s.report.history import as_columns, history_of

        paths = [study.path for study in self.studies]
        names = [str(path) for path in paths]
        return Table(as_columns(history_of([read_prediction(path) for path in paths], names, n)))


def _check_counts(counts: Iterable[int] | int, what: str = "predict") -> list[int]:
    """Return process counts, ascending; raises UsageError where there is none."""
    try:
        wanted = sorted({index(n) for n in ([counts] if isinstance(counts, int) else counts)})
    except TypeError:
        wanted = []
    if not wanted or wanted[0] < 1:
        raise UsageError(f"{what}: give process counts of at least 1")
    return wanted
