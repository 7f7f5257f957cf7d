"""``p3s model``: equations per phase from the small counts."""

from __future__ import annotations

from pathlib import Path

from p3s.base.errors import UsageError
from p3s.cli.progress import progress
from p3s.cli.values import parse_counts


def model(
    study_dir: Path,
    holdout: bool,
    everything: bool,
    latex: bool,
    python: bool,
    trips: list[str],
    without: str,
    with_: str,
    grid: list[str],
    fastest: str,
    scic: bool,
    compute: bool,
    counts: str,
    csv: bool,
    modules: list[Path],
    param: list[str],
    json_: bool,
) -> int:
    """Fit equations per phase, say how sure each one is, and check them on the largest count.

    Prints them per phase, largest share first: destination, volume, work, weight. Exit code 3
    when the model, fitted without the largest count, misses anything there, or its work is off by
    more than 25 %, when ranks of the traced runs make its calls in another order, and when calls
    that are not modelled are more than 10 % of the time or events.
    """
    from p3s.cli import modelled as then
    from p3s.pipeline.parameters import at_value
    from p3s.pipeline.records import has_parameters, keep_statements, load_study
    from p3s.pipeline.stages import ensure_compute, ensure_model

    counts_asked = parse_counts(counts) if counts else []
    if param:
        with progress(2) as bar:
            study_dir = at_value(study_dir, param, bar)
    elif has_parameters(study_dir):
        if latex or python or scic or compute or trips or without or with_:
            raise UsageError(
                f"{study_dir}: holds a study for every value of its parameters; name "
                "one of them: STUDY/at/NAME=VALUE"
            )
        with keep_statements(load_study(study_dir), [], grid, fastest):
            return then.family(study_dir, json_)
    study = load_study(study_dir)
    left_out = parse_counts(without, "--without") if without else []
    back = parse_counts(with_, "--with") if with_ else []
    with keep_statements(study, trips, grid, fastest, left_out, back), progress(1) as bar:
        # Asked for by name: fit again even when the model is newer than its signatures.
        ensure_model(study, bar, holdout=holdout, again=not compute)
    if scic:
        then.instructions(study.root, counts_asked, csv)
    elif not compute:
        how = "json" if json_ else "latex" if latex else "python" if python else "page"
        then.equations(study.root, how, everything, modules)
    with progress(1) as bar:  # the equations stand, whatever is wrong with times
        ensure_compute(study, bar, again=not compute)
    if compute:
        then.costs(study.root, counts_asked, csv, json_)
    return then.verdict(study.root)
