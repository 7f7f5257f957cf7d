"""Commands that P3S proposes: complete, so that they run as they are printed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from p3s.base.command_lines import (
    arguments,
    elsewhere,
    join_counts,
    render_from_here,
    study_root,
    without_arguments,
)
from p3s.base.errors import P3SError
from p3s.base.extents import extents_at, extents_in, shape
from p3s.base.host.cores import cores
from p3s.base.records import Traces, work_of
from p3s.base.settings import MIN_COUNTS, setting_name, settings_in, traces_of
from p3s.base.study import Study
from p3s.base.text import command_line
from p3s.predict.commands import Proposals

if TYPE_CHECKING:
    from p3s.model.types import Admissible, Model

#: Limit of one run where the user gives none.
TIMEOUT_S = 3600.0
#: So many times the largest count is predicted where nothing else is known of a program.
_TIMES = 16


class Commands(Proposals):
    """The commands for a study.

    ``at``: the studies of counts that have their own, where a parameter grows with the count;
    ``predicting``: the words that such a prediction begins with, and its options.
    """

    def __init__(
        self, study: Study, at: Mapping[int, Study] | None = None, predicting: Sequence[str] = ()
    ) -> None:
        """Take a study."""
        super().__init__(str(study.root))
        self._study, self._at, self._predicting = study, at or {}, predicting
        self._inputs: dict[int, dict[str, Any] | None] = {}

    def validate(self, n: int) -> str:
        """Return the command that compares the model with a run at ``n``."""
        commands = Commands(self._at[n]) if n in self._at else self
        return commands.of("validate", "-n", str(n))

    def predict(self, counts: int | Sequence[int], *words: str) -> str:
        """Return the command that predicts counts."""
        if not self._predicting:
            return super().predict(counts, *words)
        return command_line(["p3s", *self._predicting, "-n", join_counts(counts), *words])

    def larger(self, n: int) -> int | None:
        """Return a count above ``n``, by what the program took and refused."""
        from p3s.model.grid.admissible import larger

        return larger(self._admissible) if self._admissible else super().larger(n)

    def ahead(self) -> list[int]:
        """Return counts of about 2 and 4 times the largest that ran, which the program may take."""
        from p3s.model.grid.admissible import candidates

        known = self._admissible
        largest = max(self._study.counts(), default=1)
        if known is None:
            return [2 * largest, 4 * largest]
        taken = [n for n in candidates(known, 4 * largest + 1) if n > largest]
        about = min((n for n in taken if n >= 2 * largest), default=largest)
        return sorted({about, max(taken, default=largest)})

    def names_counts(self) -> bool:
        """Tell whether :meth:`next` names a count that has not run, or failed, since.

        True where there is no model to tell.
        """
        from p3s.model.grid.admissible import candidates

        known, model = self._admissible, self._model
        if known is None or model is None:
            return True
        wanted = [each.n for each in model.next]
        return any(n not in known.counts and n in candidates(known, n + 1) for n in wanted)

    def traced(self) -> list[int]:
        """Return the counts that the model rests on."""
        return list(self._model.counts) if self._model is not None else []

    def smaller_input(self, n: int) -> dict[str, Any] | None:
        """Return the smaller workload that :meth:`next` names for ``n``, and ``arguments``.

        As :func:`p3s.costs.small_runs.lookup.propose`; None where there is no model to tell.
        """
        from p3s.costs.small_runs.lookup import propose
        from p3s.costs.types import load, measured_range

        if n not in self._inputs:
            self._inputs[n] = None
            with suppress(P3SError, KeyError):
                if self._model is not None:
                    found = propose(self._model, n, *measured_range(load(self._study.root)))
                    self._inputs[n] = {**found, "arguments": arguments(traces_of(self._study))}
        return self._inputs[n]

    def take_back(self, without: Sequence[int]) -> str:
        """Return the command that takes counts back that were left out of the model."""
        return self.of("model", "--with", join_counts(without))

    def trace(self, counts: int | Sequence[int], repeats: int = 1, work: str = "") -> str:
        """Return the command that traces counts as the study's others were.

        A study without runs is traced at all counts of its model.
        """
        wanted = [counts] if isinstance(counts, int) else list(counts)
        study = self._at.get(wanted[0], self._study) if wanted else self._study
        if len({*study.complete_counts(), *wanted}) < MIN_COUNTS:
            # Derived from other values of its parameters: refused with fewer than a model needs.
            wanted = sorted({*wanted, *self.traced()})
        traces = traces_of(study)
        return render_from_here(traces, tracing(traces, self._model, wanted, repeats, work))

    @cached_property
    def _model(self) -> Model | None:
        from p3s.model.stage import read

        with suppress(P3SError):
            return read(self._study.model_path)
        return None

    @cached_property
    def _admissible(self) -> Admissible | None:
        """What is known of the counts the program takes, later runs included."""
        from p3s.model.grid.admissible import relearn

        if self._model is None:
            return None
        ran, failed = self._study.complete_counts(), self._study.failed_counts()
        return relearn(self._model.admissible, ran, failed, self._model.grid.cart)


def of_traces(study: Study) -> Commands:
    """Return the commands for the study that has the traces of one that was moved."""
    manifest = study.manifest() if study.manifest_path.exists() else {}
    if manifest.get("traces"):  # moved to other threads
        return Commands(Study(Path(os.path.normpath(study.root / str(manifest["traces"])))))
    return Commands(Study(study.root.parents[1]) if manifest.get("moved_from") else study)


# ---- counts ------------------------------------------------------------------------------------
def count_to_predict(study: Study) -> int:
    """Return a count to predict: far above the traced ones, and one that the program takes."""
    from p3s.costs.small_runs.lookup import default_target
    from p3s.model.stage import read

    with suppress(P3SError):
        return default_target(read(study.model_path))
    return _TIMES * max(study.counts(), default=4)


def to_predict(root: Path, *, there: bool = True) -> str:
    """Return the command that predicts a study; there: raises P3SError where there is none."""
    study = Study.open(root) if there else Study(root)
    return Commands(study).predict(count_to_predict(study))


def count_to_validate(study: Study, predicted: Sequence[int]) -> int | None:
    """Return the smallest predicted count that was not traced, else a larger one if any."""
    traced = study.complete_counts()
    found = min((n for n in predicted if n not in traced), default=None)
    return found or Commands(study).larger(max([*traced, *predicted], default=1))


def counts_to_add(study: Study, needed: int) -> list[int]:
    """Return counts to trace beside those that ran, so that there are ``needed`` at least."""
    from p3s.model.grid.admissible import ENOUGH, choose

    ran, failed, stopped = study.counts(), study.failed_counts(), study.stopped_counts()
    if stopped and len({*ran, *stopped}) >= needed:
        return stopped
    found: list[int] = []
    for times in (2, 4, 8):
        found = choose(times * max([*ran, 4]), ran, failed)
        if len({*ran, *found}) >= max(needed, ENOUGH):
            break
    return found


# ---- tracing ------------------------------------------------------------------------------------
def tracing(
    traces: Traces, model: Model | None, counts: Sequence[int], repeats: int = 1, work: str = ""
) -> list[str]:
    """Return the command that traces ``counts`` as others were, as words.

    Where they would share cores and the study's work is wall time, all counts are traced again.
    """
    every, how = (sorted(set(counts)), ["--work", work]) if work else units(traces, model, counts)
    repeats = 1 if "--no-times" in how else repeats
    return [
        "p3s",
        "characterize",
        "-n",
        join_counts(every),
        *how,
        *_options(traces, repeats),
        *_dims(traces, model, every),
        "-o",
        study_root(traces),
        "--",
        *traces.launcher,
    ]


def units(
    traces: Traces, model: Model | None, counts: Sequence[int]
) -> tuple[list[int], list[str]]:
    """Return the counts to trace and the option that says how work is measured."""
    runs = [run for run in traces.runs if run.info]
    wanted = sorted(set(counts))
    if model is not None and model.work_unit == "instructions":
        untimed = bool(runs) and not traces.timed
        return wanted, ["--work", "instructions", *["--no-times"] * untimed]
    if list(work_of(runs)) == ["wall"]:
        if any(run.info.get("oversubscribed") for run in runs):
            return wanted, ["--work", "wall"]  # the user wanted it so
        if wanted[-1] > cores():
            return sorted({*wanted, *(run.np for run in runs)}), ["--work", "cpu"]
    return wanted, []


def most_repeats(traces: Traces) -> int:
    """Return how many timed runs there are at the count with most of them."""
    runs = traces.timed or traces.runs
    counts = [run.np for run in runs if run.status == "complete"]
    return max((counts.count(np) for np in set(counts)), default=1)


def _options(traces: Traces, repeats: int) -> list[str]:
    """Return the other options that the study's latest runs were made with."""
    infos = [run.info for run in (*traces.runs, *traces.timed)]
    limit = max((int(info.get("limit_bytes") or 0) for info in infos), default=0)
    counters: list[str] = next((info["counters"] for info in infos if info.get("counters")), [])
    repeats = max(repeats, most_repeats(traces))
    return [
        *(["-r", str(repeats)] if repeats > 1 else []),
        *(["--counters", ",".join(counters)] if counters else []),
        *(["--limit", str(limit)] if limit else []),
        *_timeout(infos),
    ]


def _dims(traces: Traces, model: Model | None, counts: Sequence[int]) -> list[str]:
    """Return --dims for a program that gets its grid, where MPI_Dims_create deals another one."""
    words = traces.launcher
    grids = model.grid.dims if model is not None else {}
    given = [(run.np, tuple(run.info["dims"])) for run in traces.runs if run.info.get("dims")]
    if not extents_in(words) or any(grids.get(str(n)) != dims for n, dims in given):
        return []  # none is asked for, or in another order than the model has them
    proposed = model.next if model is not None else ()
    dims = {each.n: each.dims for each in proposed if each.n in counts}
    other = [
        f"{n}={shape(grid)}" for n, grid in dims.items() if tuple(grid) != extents_at(words, n, {})
    ]
    return ["--dims", ",".join(other)] if other else []


def _timeout(infos: Sequence[Mapping[str, Any]]) -> list[str]:
    longest = max((float(info.get("timeout_s") or TIMEOUT_S) for info in infos), default=TIMEOUT_S)
    return ["--timeout", f"{longest:g}"] if longest > TIMEOUT_S else []


def build_smaller_run(traces: Traces, counts: Sequence[int]) -> list[str]:
    """Return the command that records a smaller workload, up to its program: without arguments.

    Those of the study make its own input, others are not known. Empty where the study's command
    has none: the input is in a file then, or in the program.
    """
    if not arguments(traces):
        return []
    infos = [run.info for run in (*traces.runs, *traces.timed)]
    return [
        "p3s",
        "characterize",
        "--far",
        "-n",
        join_counts(counts),
        *_timeout(infos),
        "-o",
        study_root(traces),
        "--",
        *without_arguments(traces.launcher),
    ]


def another_value(study: Study) -> str:
    """Return the command that traces another value of a study's parameters, as a line.

    A value with too few counts comes first; else one that is twice the largest.
    """
    found = settings_in(study)
    counts = sorted({n for _, at in found for n in at.complete_counts()}) or [2]
    while len(counts) < MIN_COUNTS:
        counts.append(2 * counts[-1])
    few = [s for s, at in found if len(at.signature_counts()) < MIN_COUNTS]
    largest = {name: 2 * max(s[name] for s, _ in found) for name in found[0][0]} if found else {}
    return of_value(study, join_counts(counts), setting_name(few[0] if few else largest))


def of_value(study: Study, counts: str, values: str, *options: str) -> str:
    """Return the command that traces a value of a study's parameters, as a line.

    options: further ones of p3s characterize.
    """
    found, whole = settings_in(study), traces_of(study)
    ran = traces_of(found[-1][1]) if found else whole
    root = study.root if elsewhere(ran) is None else study.root.resolve()
    values_of = [word for each in values.split(",") if each for word in ("--param", each)]
    words = ["p3s", "characterize", "-n", counts, *options, *values_of]
    return render_from_here(ran, [*words, "-o", str(root), "--", *whole.launcher])
