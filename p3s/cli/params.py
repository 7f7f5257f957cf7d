"""Workload parameters on the command line: --param of characterize, model and predict, --weak."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from p3s.base.study import Study
from p3s.base.text import table
from p3s.cli.common import emit, emit_json, header, out, progress, quoted, say, say_reasons
from p3s.cli.helptext import option

if TYPE_CHECKING:
    from p3s.pipeline.basis import Request
    from p3s.pipeline.tracing.runs import TraceRequest

VALUES = option(
    [],
    "--param NAME=VALUES",
    "Values of a workload parameter, {NAME} in the command, as size=1000,2000.",
)
VALUE = option([], "--param NAME=VALUE", "The value of a workload parameter, as size=4000.")
WEAK = option("", "--weak LAW", "Let a parameter grow with n, as size~n or size~2*n^(1/3).")


# ---- characterize ----------------------------------------------------------------------------
def characterize(request: TraceRequest, params: list[str], json_: bool) -> int:
    """Trace every combination of counts and values, each value in a study inside the study."""
    from p3s.base.command_lines import another_value
    from p3s.base.settings import MIN_COUNTS, MIN_SETTINGS, THREADS, parameters, settings_in
    from p3s.pipeline.tracing.values import trace_values

    with progress(0) as bar:
        done = trace_values(request, params, bar)
    study = done.study
    able = [s for s, at in settings_in(study) if len(at.signature_counts()) >= MIN_COUNTS]
    needed = 1 if parameters(study) == [THREADS] else MIN_SETTINGS
    enough = len(able) >= needed
    next_command = f"p3s model {quoted(study.root)}"
    if json_:
        emit(
            "characterize",
            study=str(study.root),
            parameters=study.manifest()["parameters"],
            values=[each.to_json() for each in done.values],
            next=next_command if enough else None,
        )
    else:
        cells = [
            [
                each.name,
                ", ".join(str(count.np) for count in each.done.counts) or "none",
                ", ".join(map(str, each.characterized)) or "none",
            ]
            for each in done.values
        ]
        out(table(cells, ["value", "traced now", "in the study"], left=1))
    if not enough:
        say(
            f"p3s: {'; '.join([*done.failed, ''])}{len(able)} of at least {needed} values have "
            f"{MIN_COUNTS} process counts; add another value: {another_value(study)}"
        )
        return 1
    if done.failed:
        say("p3s: " + "; ".join(done.failed))
    say(f"next: {next_command}")
    return 3 if done.failed else 0


# ---- model -----------------------------------------------------------------------------------
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
    from p3s.pipeline.weak import predicted, with_parameters
    from p3s.predict.types import WEAK
    from p3s.report.weak import render

    study = with_parameters(study_dir)
    with progress(2 * len(counts) + 2) as bar:
        found, path = predicted(study, counts, law, params, request, bar, knee=knee, only=only)
    if json_:
        emit_json(WEAK.data(found))
    else:
        out(render(found, found.weak))
    say(f"written: {quoted(path)}")
    return say_reasons(found.reasons, told=not json_)
