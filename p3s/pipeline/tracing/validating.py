"""Run a program at one more count, traced, and compare it with the model."""

from __future__ import annotations

from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING

from p3s.base.errors import UsageError
from p3s.base.progress import Progress
from p3s.base.settings import traces_of
from p3s.base.study import Study
from p3s.base.text import differing
from p3s.model.evaluate import model_grid
from p3s.model.stage import load
from p3s.pipeline.stages import ensure_model
from p3s.signature_runner.traced_run import Launch, check_template, program_of, trace_once
from p3s.signature_runner.work_unit import of_study

if TYPE_CHECKING:
    from p3s.predict.validate import Validation


def command_of(study: Study, given: list[str], force: bool) -> list[str]:
    """Return the launcher command to run; raises UsageError for one that is not the study's."""
    words = given or study.command()
    check_template(words)
    commands = study.manifest()["commands"]
    if commands and words not in commands and not force:
        there, here = differing(commands[-1], words)
        raise UsageError(
            f"{study.root}: was made with another command ({there}, not {here}); leave the command "
            "out to run the study's, or add --force"
        )
    return words


def compared(
    study: Study, n: int, launch: Launch | None, there: Path | None, bar: Progress
) -> Validation:
    """Compare the model with a run at ``n``, made now by ``launch`` or there already.

    there: the directory that the study's own command is for, None: this one.
    """
    from p3s.predict.validate import validate

    if launch is not None:
        with chdir(there or "."):
            program_of(list(launch.command), n)
    ensure_model(study, bar)
    model_grid(load(study.root), n)  # what cannot be compared need not run
    if launch is not None:
        _run(study, n, launch, there, bar)
    return validate(study.root, study.validate_run_dir(n), n)


def _run(study: Study, n: int, launch: Launch, there: Path | None, bar: Progress) -> None:
    if there is not None:
        bar.say(f"np={n}: running in {there}, as the study's runs")
    bar.start(f"np={n}: running")
    recording = of_study(traces_of(study))
    whole = Study(study.root.resolve())
    with chdir(there or "."):
        row = trace_once(traces_of(whole), launch, n, whole.validate_run_dir(n), recording, bar)
    for problem in row.problems:
        bar.say(f"np={n}: {problem}")
    bar.done(f"np={n}: {row.wall_s:.1f} s, comparing")
