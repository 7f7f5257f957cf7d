"""``p3s model``: equations per phase from the small counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from p3s.base.errors import P3SError, UsageError
from p3s.base.text import plural, processes
from p3s.cli.common import (
    JSON_OPTION,
    MODULES,
    STUDY,
    ReaderGone,
    emit_json,
    out,
    parse_counts,
    progress,
    say,
    say_reasons,
)
from p3s.cli.grid import FASTEST, GRID
from p3s.cli.helptext import option
from p3s.cli.params import VALUE

if TYPE_CHECKING:
    from p3s.base.study import Study
    from p3s.model.comparison import HoldOut
    from p3s.model.types import Model
    from p3s.predict.types import Reason

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
    study_dir: Path = STUDY,
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
    grid: list[str] = GRID,
    fastest: str = FASTEST,
    scic: bool = option(
        False, "--scic", "Print the instruction table: work per process, weight, total."
    ),
    compute: bool = option(
        False, "--compute", "Print times of one process in one iteration, and what they rest on."
    ),
    counts: str = option("", "-n --counts COUNTS", "With --scic, --compute: where to predict."),
    csv: bool = option(False, "--csv", "With --scic, --compute: as CSV."),
    modules: list[Path] = MODULES,
    param: list[str] = VALUE,
    json_: bool = JSON_OPTION,
) -> int:
    """Fit equations per phase, say how sure each one is, and check them on the largest count.

    Prints them per phase, largest share first: destination, volume, work, weight. Exit code 3
    when the model, fitted without the largest count, misses anything there, or its work is off by
    more than 25 %, when ranks of the traced runs make its calls in another order, and when calls
    that are not modelled are more than 10 % of the time or events.
    """
    from p3s.base.serialise import to_data
    from p3s.base.study import Study
    from p3s.cli.params import at_value
    from p3s.cli.params import model as of_parameters
    from p3s.model.order.kinds import Kinds
    from p3s.model.stage import as_file, read
    from p3s.pipeline.stages import ensure_compute, ensure_model
    from p3s.pipeline.weak import has_parameters
    from p3s.predict.commands import Commands, count_to_predict
    from p3s.predict.doubts import missed, of_calls, of_order

    wanted = parse_counts(counts) if counts else []
    if param:
        study_dir = at_value(study_dir, param)
    elif has_parameters(study_dir):
        if latex or python or scic or compute or trips or without or with_:
            raise UsageError(
                f"{study_dir}: holds a study for every value of its parameters; name "
                "one of them: STUDY/at/NAME=VALUE"
            )
        with _stated(Study.open(study_dir), [], grid, fastest):
            return of_parameters(study_dir, again=True, json_=json_)
    study = Study.open(study_dir)
    with _stated(study, trips, grid, fastest, without, with_), progress(1) as bar:
        # Asked for by name: fit again even when the model is newer than its signatures.
        ensure_model(study, bar, holdout=holdout, again=not compute)
    fitted = read(study.model_path)
    if json_ and not compute:
        emit_json(as_file(fitted))
    elif scic:
        from p3s.model.work.scic import instruction_table, larger_counts
        from p3s.report import sections as instructions

        found = instruction_table(fitted, wanted or larger_counts(fitted))
        out((instructions.csv if csv else instructions.table)(found).rstrip("\n"))
    elif not compute:
        _show(study, fitted, everything, latex, python, modules)
    with progress(1) as bar:  # the equations stand, whatever is wrong with times
        ensure_compute(study, bar, again=not compute)
    if compute:
        _show_compute(study, fitted, wanted, csv, json_)
    commands = Commands(study)
    if stopped := study.stopped_counts():
        say(
            f"note: tracing at {processes(stopped)} was stopped before its end, so that the model "
            f"does not rest on it; to go on, run {commands.trace(stopped)}"
        )
    say(f"next: {commands.predict(count_to_predict(study))}")
    reasons, held = of_calls({"not_modelled": to_data(fitted.not_modelled)}), fitted.holdout
    reasons += of_order(fitted.order, held, limit=1.0, commands=commands, kinds=Kinds(fitted))
    if held is not None and held.possible:
        reasons += missed(held, limit=1.0, commands=commands)
        reasons = _by_timing(study, held, reasons)
    return say_reasons(reasons, "model")


def _by_timing(study: Study, held: HoldOut, reasons: Sequence[Reason]) -> list[Reason]:
    """Return the reasons, what was missed as one to be minded where tasks are handed out."""
    from p3s.predict.estimates import structure_of

    if held.comparison is None or all(each.code != "holdout-missed" for each in reasons):
        return list(reasons)
    changed = structure_of(study).minded(reasons, {"holdout-missed": [held.comparison]})
    for reason in changed:
        if reason not in reasons:
            say(f"mind: {reason.sentence}")
    return list(changed)


@contextmanager
def _stated(
    study: Study,
    trips: list[str],
    grid: list[str],
    fastest: str,
    without: str = "",
    with_: str = "",
) -> Iterator[None]:
    """Keep what the user states with the study, unless it cannot be meant."""
    from p3s.cli.grid import refuse_derived, stated
    from p3s.model.grid.stated import Contradiction, Statement

    was = {**study.manifest(), "without": study.left_out()}
    said: dict[str, Any] = {}
    if trips:
        said["trips"] = stated_trips(trips, was.get("trips", {}))
    if grid or fastest:
        refuse_derived(study)
        said["grid"] = stated(grid, fastest, Statement.from_json(was.get("grid", {}))).to_json()
    if without or with_:
        said["without"] = stated_without(study, without, with_)
    if said:
        study.update(**said)
    try:
        yield
    except ReaderGone:
        raise
    except BaseException as err:
        if said:
            study.update(**{name: was.get(name, {}) for name in said})
        if isinstance(err, Contradiction) and (grid or fastest):
            raise UsageError(str(err)) from err
        raise


def stated_trips(words: list[str], before: dict[str, int]) -> dict[str, int]:
    """Return the iterations of loops that are stated, those of ``before`` included."""
    from p3s.model.tripcounts import MAX_TRIPS

    out = dict(before)
    for word in words:
        where, equals, count = word.rpartition("=")
        if not equals or not where:
            raise UsageError(f"--trips {word}: write SITE=COUNT, as in --trips solve=250")
        if not count:
            out.pop(where, None)
        elif not (count.isascii() and count.isdigit()) or not 0 < int(count[:20]) <= MAX_TRIPS:
            raise UsageError(f"--trips {word}: {count!r} is not a number of iterations")
        else:
            out[where] = int(count)
    return out


def stated_without(study: Study, without: str, back: str) -> list[int]:
    """Return the counts that are left out once --without and --with are obeyed."""
    from p3s.pipeline.stages import MIN_COUNTS

    have, before = study.complete_counts(), study.left_out()
    gone = parse_counts(without, "--without") if without else []
    taken = parse_counts(back, "--with") if back else []
    for n in gone:
        if n not in have:
            raise UsageError(f"--without {n}: no run at {processes(n)}; there are {_listed(have)}")
        if n in taken:
            raise UsageError(f"--without {n} --with {n}: give one of them")
    for n in taken:
        if n not in before:
            raise UsageError(f"--with {n}: is not left out; left out: {_listed(before)}")
    left = sorted({*before, *gone} - set(taken))
    stay = [n for n in have if n not in left]
    if len(stay) < MIN_COUNTS:
        raise UsageError(
            f"--without {without}: {len(stay)} process counts would stay "
            f"({_listed(stay)}), the model needs {MIN_COUNTS}; trace another first"
        )
    return left


def _listed(counts: list[int]) -> str:
    return ", ".join(map(str, counts)) or "none"


def _show_compute(study: Any, fitted: Model, counts: list[int], csv: bool, json_: bool) -> None:
    """Print the compute model as a page, as CSV or as it is."""
    from p3s.costs.table import compute_table
    from p3s.costs.types import COMPUTE, load
    from p3s.pipeline.stages import check_times
    from p3s.report import compute as page

    found = load(study.root)
    if found is None:
        check_times(study)
        raise P3SError(f"{study.root}: no times were taken of its runs; run p3s characterize again")
    if json_:
        emit_json(COMPUTE.data(found))
    else:
        rows = compute_table(fitted, found, counts)
        out((page.csv if csv else page.table)(found, rows).rstrip("\n"))


def _show(
    study: Study,
    fitted: Model,
    everything: bool,
    latex: bool,
    python: bool,
    modules: Sequence[Path],
) -> None:
    """Print the model as a page, as LaTeX or as Python."""
    from p3s.capture.sites import resolve_sites
    from p3s.model.algorithms import other_algorithms

    places, notes = resolve_sites(study, fitted.sites, modules)
    notes = [*notes, *(found.sentence for found in other_algorithms(fitted))]
    if latex:
        from p3s.report.latex import render as tables

        out(tables(fitted, places, everything).rstrip("\n"))
    elif python:
        from p3s.report.python_module import render as functions

        source, left_out = functions(fitted, places)
        out(source.rstrip("\n"))
        if left_out:
            calls = plural(len(left_out), "call follows", "calls follow")
            notes = [*notes, f"{calls} no rule on some ranks: LEFT_OUT of the module says why"]
    else:
        from p3s.predict.commands import Commands
        from p3s.report.equations import render

        back = Commands(study).take_back(fitted.without)
        out(render(fitted, places, everything, back))
    for note in notes:
        say(f"note: {note}")
