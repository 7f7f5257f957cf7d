"""Workload parameters on the command line: --param of characterize, model and predict, --weak."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from p3s.base.errors import P3SError, UsageError
from p3s.base.study import Study
from p3s.base.text import table
from p3s.cli.common import Progress, emit_json, header, out, progress, quoted, say, say_reasons

if TYPE_CHECKING:
    from p3s.pipeline.basis import Request
    from p3s.pipeline.tracing.runs import TraceRequest

VALUES = typer.Option(
    [],
    "--param",
    metavar="NAME=VALUES",
    help="Values of a workload parameter, {NAME} in the command, as size=1000,2000.",
)
VALUE = typer.Option(
    [], "--param", metavar="NAME=VALUE", help="The value of a workload parameter, as size=4000."
)
WEAK = typer.Option(
    "", "--weak", metavar="LAW", help="Let a parameter grow with n, as size~n or size~2*n^(1/3)."
)


# ---- characterize ----------------------------------------------------------------------------
def characterize(request: TraceRequest, params: list[str], json_: bool) -> int:
    """Trace every combination of counts and values, each value in a study inside the study.

    Up to a maximum, the first value decides on the counts.
    """
    from dataclasses import replace
    from functools import partial

    from p3s.base.settings import (
        THREADS,
        check_command,
        filled,
        parse_params,
        setting_name,
        settings_of,
        value_study,
    )
    from p3s.model.grid.stated import keep_dims
    from p3s.pipeline.tracing.counts import Asked, chosen, grids_of, trace_asked, warn
    from p3s.pipeline.tracing.results import reasons
    from p3s.pipeline.tracing.runs import trace_counts
    from p3s.pipeline.weak import Named
    from p3s.signature_runner.traced_run import check_template, program_of

    class Told(Named):
        """Also tells what the user should know, without the name."""

        def say(self, text: str) -> None:
            say(text)

    words, root, asked = list(request.command), request.root, request.asked
    values = parse_params(params)
    check_template(words)
    check_command(words, list(values))
    settings = settings_of(values)
    program_of(filled(words, settings[0]), max(asked.counts, default=asked.top))
    made = not root.exists()
    study = _root(root, words, values)
    keep_dims(study, request.extents)
    grids = grids_of(study, words, request.extents)
    counts = chosen(asked, None, grids, Progress())
    warn(asked, counts, None, grids, Progress())
    say(f"tracing into {study.root}")
    rows: list[dict[str, Any]] = []
    failed: list[str] = []
    try:
        with progress(len(counts) * request.repeats * len(settings)) as bar:
            for setting in settings:
                name = setting_name(setting)
                at = value_study(study, setting)
                new = not at.root.exists()
                command = filled(words, setting)
                try:
                    if at.root.joinpath("study.json").exists():
                        _own_model(at)
                    at = Study.create(at.root, command)
                    threads = int(setting.get(THREADS, 0))
                    here = replace(
                        request,
                        command=tuple(command),
                        recording=replace(request.recording, threads=threads),
                    )

                    some = partial(trace_counts, at, here, bar=Told(bar, name), made=new)
                    done = trace_asked(asked, counts, at, grids, some, bar)
                except P3SError as err:
                    if isinstance(err, UsageError) or not rows:
                        raise
                    failed.append(f"{name}: {err}")
                    continue
                if asked.top:
                    counts = [row.np for row in done.counts]
                    asked = Asked(tuple(counts))
                if done.failed:
                    failed.append(f"{name}: {reasons(done.failed)}")
                failed += [f"{name}: {problem}" for problem in done.problems]
                rows.append(
                    {
                        "name": name,
                        "study": str(at.root),
                        **done.to_json(),
                        "characterized": at.signature_counts(),
                    }
                )
    finally:
        _tidy(study, made)
    _remember(study)
    return _told(study, rows, failed, json_)


def _root(root: Path, words: list[str], values: Mapping[str, Sequence[Fraction]]) -> Study:
    """Return the study with parameters, made or as it is; nothing in it is changed yet."""
    from p3s.base.settings import parameters

    existing = Study.find(root)
    if existing is not None:
        names = parameters(existing)
        if not names and existing.runs():
            raise UsageError(
                f"{root}: holds runs without parameters; choose another directory with -o"
            )
        if not names and existing.manifest()["commands"]:
            raise UsageError(
                f"{root}: is a study without parameters; choose another directory with -o"
            )
        if names and names != list(values):
            raise UsageError(
                f"{root}: its parameters are {', '.join(names)}, not {', '.join(values)}; give "
                "these, or choose another directory with -o"
            )
        if names and existing.command() != words:
            from p3s.base.text import differing

            there, here = differing(existing.command(), words)
            raise UsageError(
                f"{root}: holds runs of another command ({there}, not {here}); choose another "
                "directory with -o"
            )
        _check_number(existing, values)
        return existing
    study = Study.create(root, words)
    study.update(parameters={name: [] for name in values})
    return study


def _check_number(study: Study, values: Mapping[str, Sequence[Fraction]]) -> None:
    from p3s.base.settings import MOST_SETTINGS, setting_name, settings_in, settings_of

    names = {setting_name(s) for s, _ in settings_in(study)}
    names |= {setting_name(s) for s in settings_of(values)}
    if len(names) > MOST_SETTINGS:
        raise UsageError(
            f"{study.root}: would hold {len(names)} values, at most {MOST_SETTINGS}; "
            "use another study"
        )


def _own_model(at: Study) -> None:
    """Let a study that was derived become one that is traced; its derived model stays till then."""
    if at.manifest().get("derived") and not at.runs():
        say(f"{at.root.name}: was derived from other values, is traced now")


def _remember(study: Study) -> None:
    """Write the values that have runs into study.json."""
    from p3s.base.settings import parameters, settings_in, value_text

    found = settings_in(study)
    study.update(
        parameters={
            name: [value_text(v) for v in sorted({s[name] for s, _ in found})]
            for name in parameters(study)
        }
    )


def _tidy(study: Study, made: bool) -> None:
    """Remove a study that was made for nothing."""
    at = study.root / "at"
    if not made or (at.is_dir() and any(at.iterdir())):
        return
    shutil.rmtree(at, ignore_errors=True)
    study.remove_if_empty()


def _told(study: Study, rows: list[dict[str, Any]], failed: list[str], json_: bool) -> int:
    from p3s.base.command_lines import another_value
    from p3s.base.settings import MIN_COUNTS, MIN_SETTINGS, THREADS, parameters, settings_in

    able = [s for s, at in settings_in(study) if len(at.signature_counts()) >= MIN_COUNTS]
    needed = 1 if parameters(study) == [THREADS] else MIN_SETTINGS
    enough = len(able) >= needed
    next_command = f"p3s model {quoted(study.root)}"
    if json_:
        emit_json(
            {
                **header("characterize"),
                "study": str(study.root),
                "parameters": study.manifest()["parameters"],
                "values": rows,
                "next": next_command if enough else None,
            }
        )
    else:
        cells = [
            [
                row["name"],
                ", ".join(str(c["np"]) for c in row["counts"]) or "none",
                ", ".join(map(str, row["characterized"])) or "none",
            ]
            for row in rows
        ]
        out(table(cells, ["value", "traced now", "in the study"], left=1))
    if not enough:
        say(
            f"p3s: {'; '.join([*failed, ''])}{len(able)} of at least {needed} values have "
            f"{MIN_COUNTS} process counts; add another value: {another_value(study)}"
        )
        return 1
    if failed:
        say("p3s: " + "; ".join(failed))
    say(f"next: {next_command}")
    return 3 if failed else 0


# ---- model -----------------------------------------------------------------------------------
def has_parameters(root: Path) -> bool:
    """Tell whether a study has parameters."""
    from p3s.base.settings import parameters

    return (Path(root) / "study.json").exists() and bool(parameters(Study(root)))


def model(study_dir: Path, again: bool, json_: bool) -> int:
    """Fit the models of all values and the laws between them; print these."""
    from p3s.base.command_lines import another_value
    from p3s.base.settings import has_threads
    from p3s.costs.parameters.stage import FAMILY
    from p3s.pipeline.teams import over_threads
    from p3s.pipeline.weak import ensure_family
    from p3s.report.parameters import doubts, render

    study = Study.open(study_dir)
    with progress(2) as bar:
        family = ensure_family(study, bar, again=again)
        threads = over_threads().laws(study, bar, again) if has_threads(study) else None
    if json_:
        emit_json(
            {
                **(FAMILY.data(family) if family is not None else header("model")),
                **({"threads": threads.data} if threads is not None else {}),
            }
        )
    else:
        told = [render(family)] if family is not None else []
        out("\n\n".join([*told, *([threads.text] if threads is not None else [])]))
    say(f"next: {_prediction(study)}")
    reasons = doubts(family, another_value(study)) if family is not None else []
    reasons += threads.reasons if threads is not None else []
    return say_reasons(reasons, "model")


def _prediction(study: Study) -> str:
    """Return the command that predicts with the largest values that were traced."""
    from p3s.base.settings import THREADS, setting_name, settings_in, threads_in, without_threads
    from p3s.predict.commands import Commands, count_to_predict

    setting, at = max(settings_in(study), key=lambda pair: tuple(pair[0].values()))
    rest = setting_name(without_threads(setting))
    words = [word for each in rest.split(",") if each for word in ("--param", each)]
    if THREADS in setting:
        words += ["--threads", ",".join(map(str, threads_in(study)))]
    return Commands(study).predict(count_to_predict(at), *words)


# ---- predict ---------------------------------------------------------------------------------
def at_value(study_dir: Path, params: list[str]) -> Path:
    """Return the study at one value of every parameter, derived if it was not traced."""
    from p3s.base.settings import THREADS, one_setting, parameters, setting_name
    from p3s.costs.parameters.stage import instantiate
    from p3s.pipeline.teams import over_threads
    from p3s.pipeline.weak import ensure_family, with_parameters

    study = with_parameters(study_dir)
    setting = one_setting(params, parameters(study))
    with progress(2) as bar:
        ensure_family(study, bar)
        if THREADS in setting:
            return over_threads().at(study, setting, bar).root
    path = instantiate(study.root, setting)
    _say_origin(Study(path), setting_name(setting))
    return path


def _say_origin(at: Study, name: str) -> None:
    """Say where the model of a value comes from and what speaks against it."""
    from p3s.model.stage import read

    derived = read(at.model_path).derived
    if derived is None:
        say(f"{name}: traced, {quoted(at.root)}")
        return
    text = f"{name}: derived from {', '.join(derived.settings)}, {quoted(at.root)}"
    if derived.outside > 1:
        text += f"; {derived.outside:.3g} times outside the traced values"
    if derived.left_out:
        text += f"; without {', '.join(derived.left_out)}, whose structure is another"
    say(text)


def weak(
    study_dir: Path,
    counts: list[int],
    law: str,
    params: list[str],
    knee: float,
    request: Request,
    json_: bool,
    only: bool = False,
) -> int:
    """Predict times at counts with a value of the parameters that grows with them."""
    from p3s.pipeline.weak import as_file, predicted, with_parameters
    from p3s.report.weak import render

    study = with_parameters(study_dir)
    with progress(2 * len(counts) + 2) as bar:
        found = predicted(study, counts, law, params, request, bar, knee=knee, only=only)
    if json_:
        emit_json(as_file(found))
    else:
        out(render(found.prediction, found.law))
    say(f"written: {quoted(found.path)}")
    return say_reasons(found.prediction.reasons, told=not json_)
