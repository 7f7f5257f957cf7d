"""``p3s model``: equations per phase from the small counts."""

from __future__ import annotations

from pathlib import Path

from p3s.base.errors import UsageError
from p3s.cli import options
from p3s.cli.helptext import option
from p3s.cli.progress import progress
from p3s.cli.values import parse_counts

EPILOG = """\b
Example:
  p3s model study
  p3s model study --latex > equations.tex
  p3s model study --python > equations.py
  p3s model study --scic --csv > instructions.csv
  p3s model study --compute -n 64,256
  p3s model study --without 2     (for all later commands; --with 2 takes it back)
  p3s model study --grid 3
  p3s model study --grid 4x2x2@16 --fastest first
Next:
  p3s explain study 1        (what the equations of phase 1 rest on)
  p3s scale study -n 64      (the trace at 64 processes)
  p3s predict study -n 64    (its run time)"""


def model(
    study_dir: Path = options.STUDY,
    holdout: bool = option(
        True, "--holdout/--no-holdout", "Check the model on the largest count before fitting all."
    ),
    everything: bool = option(False, "--all", "All phases and all rules."),
    latex: bool = option(False, "--latex", "Print tables for LaTeX."),
    python: bool = option(False, "--python", "Print a Python module of functions."),
    trips: list[str] = option(
        [],
        "--trips SITE=COUNT",
        "State a loop's iterations, by phase number, call site or function; SITE= undoes it.",
    ),
    without: str = option("", "--without COUNTS", "Leave these traced counts out; the runs stay."),
    with_: str = option("", "--with COUNTS", "Take left-out counts back."),
    grid: list[str] = option(
        [],
        "--grid GRID",
        "State the process grid: its dimensions, as 3, or its extents at a count, as 4x2x2@16; "
        "none takes it back.",
    ),
    fastest: str = option(
        "",
        "--fastest DIMENSION",
        "State the dimension in which the next rank is: first, last, or 0, 1, ...; none.",
    ),
    scic: bool = option(
        False, "--scic", "Print the instruction table: work per process, weight, total."
    ),
    compute: bool = option(
        False, "--compute", "Print times of one process in one iteration, and what they rest on."
    ),
    counts: str = option("", "-n --counts COUNTS", "With --scic, --compute: where to predict."),
    csv: bool = option(False, "--csv", "With --scic, --compute: as CSV."),
    modules: list[Path] = options.MODULES,
    param: list[str] = options.VALUE,
    json_: bool = options.JSON_OPTION,
) -> int:
    """Fit equations per phase, say how sure each one is, and check them on the largest count.

    Prints them per phase, largest share first: destination, volume, work, weight. Exit code 3
    when the model, fitted without the largest count, misses anything there, or its work is off by
    more than 25 %, when ranks of the traced runs make its calls in another order, and when calls
    that are not modelled are more than 10 % of the time or events.
    """
    from p3s.base.study import Study
    from p3s.cli import modelled as then
    from p3s.pipeline.stages import ensure_compute, ensure_model
    from p3s.pipeline.statements import stated
    from p3s.pipeline.weak import at_value, has_parameters

    wanted = parse_counts(counts) if counts else []
    if param:
        with progress(2) as bar:
            study_dir = at_value(study_dir, param, bar)
    elif has_parameters(study_dir):
        if latex or python or scic or compute or trips or without or with_:
            raise UsageError(
                f"{study_dir}: holds a study for every value of its parameters; name "
                "one of them: STUDY/at/NAME=VALUE"
            )
        with stated(Study.open(study_dir), [], grid, fastest):
            return then.family(study_dir, json_)
    study = Study.open(study_dir)
    gone = parse_counts(without, "--without") if without else []
    back = parse_counts(with_, "--with") if with_ else []
    with stated(study, trips, grid, fastest, gone, back), progress(1) as bar:
        # Asked for by name: fit again even when the model is newer than its signatures.
        ensure_model(study, bar, holdout=holdout, again=not compute)
    if scic:
        then.instructions(study, wanted, csv)
    elif not compute:
        how = "json" if json_ else "latex" if latex else "python" if python else "page"
        then.equations(study, how, everything, modules)
    with progress(1) as bar:  # the equations stand, whatever is wrong with times
        ensure_compute(study, bar, again=not compute)
    if compute:
        then.costs(study, wanted, csv, json_)
    return then.verdict(study)
