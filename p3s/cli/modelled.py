"""What ``p3s model`` prints: equations, tables of work and time, and how sure they are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from p3s.base.errors import P3SError
from p3s.base.text import plural, processes
from p3s.cli.common import emit_json, header, out, quote_word, say, say_reasons
from p3s.cli.progress import progress
from p3s.model.stage import read
from p3s.pipeline.commands import Commands, count_to_predict
from p3s.pipeline.records import load_study, model_record

if TYPE_CHECKING:
    from p3s.base.study import Study
    from p3s.costs.counted import Counted
    from p3s.model.types import Model


def instructions(root: Path, counts: Sequence[int], csv: bool) -> None:
    """Print the instruction table of a model, and what hardware counters counted."""
    from p3s.model.work.scic import instruction_table, larger_counts
    from p3s.report.compute import counted_text, instruction_csv, instruction_text

    study = load_study(root)
    fitted = model_record(study).model
    instructions_of = instruction_table(fitted, counts or larger_counts(fitted))
    out((instruction_csv if csv else instruction_text)(instructions_of).rstrip("\n"))
    if not csv and (rows := _list_counted(study, fitted)):
        out("\n" + counted_text(rows))


def _list_counted(study: Study, fitted: Model) -> list[Counted]:
    """Return what hardware counters counted at the counts of a model."""
    from p3s.costs.counted import counted_at
    from p3s.signature.times import load_times

    each = [load_times(study.root, n) for n in fitted.counts]
    return [row for times in each if times for row in counted_at(fitted, times)]


def costs(root: Path, counts: Sequence[int], csv: bool, json_: bool) -> None:
    """Print the compute model as a page, as CSV or as it is."""
    from p3s.costs.apply import compute_table
    from p3s.costs.types import COMPUTE, load
    from p3s.pipeline.stages import check_times
    from p3s.report import compute as page

    study = load_study(root)
    compute_model = load(study.root)
    if compute_model is None:
        check_times(study)
        raise P3SError(f"{study.root}: no times were taken of its runs; run p3s characterize again")
    if json_:
        emit_json(COMPUTE.data(compute_model))
    else:
        rows = compute_table(read(study.model_path), compute_model, counts)
        out((page.csv if csv else page.table)(compute_model, rows).rstrip("\n"))


def equations(root: Path, how: str, everything: bool, modules: Sequence[Path]) -> None:
    """Print a model as JSON, as a page, as LaTeX or as Python."""
    from p3s.model.algorithms import other_algorithms
    from p3s.model.stage import as_file

    study = load_study(root)
    fitted = read(study.model_path)
    if how == "json":
        emit_json(as_file(fitted))
        return
    record = model_record(study, modules)
    places, notes = record.places, [*record.notes]
    notes += [*(alternative.sentence for alternative in other_algorithms(fitted))]
    if how == "latex":
        from p3s.report.latex import render as tables

        out(tables(fitted, places, everything).rstrip("\n"))
    elif how == "python":
        from p3s.report.python_module import render as functions

        source, left_out = functions(fitted, places)
        out(source.rstrip("\n"))
        if left_out:
            calls = plural(len(left_out), "call follows", "calls follow")
            notes = [*notes, f"{calls} no rule on some ranks: LEFT_OUT of the module says why"]
    else:
        from p3s.costs.counted import instruction_equations
        from p3s.report.compute import equation_lines
        from p3s.report.equations import render

        out(render(fitted, places, everything, record.program.take_back))
        of_phases = instruction_equations(fitted, _list_counted(study, fitted))
        if lines := equation_lines(of_phases, f"p3s model {quote_word(root)} --scic"):
            out("\n".join(["", *lines]))
    for note in notes:
        say(f"note: {note}")


def verdict(root: Path) -> int:
    """Say what comes next, and why a model is not to be trusted; return the exit code."""
    from p3s.base.serialise import to_data
    from p3s.model.order.kinds import Kinds
    from p3s.pipeline.records import structure_of
    from p3s.predict.doubts import judge_holdout, of_calls, of_order

    study = load_study(root)
    fitted, commands = read(study.model_path), Commands(study)
    if stopped := study.stopped_counts():
        say(
            f"note: tracing at {processes(stopped)} was stopped before its end, so that the model "
            f"does not rest on it; to go on, run {commands.trace(stopped)}"
        )
    say(f"next: {commands.predict(count_to_predict(study))}")
    reasons, held_out = of_calls({"not_modelled": to_data(fitted.not_modelled)}), fitted.holdout
    reasons += of_order(fitted.order, held_out, limit=1.0, commands=commands, kinds=Kinds(fitted))
    if held_out is not None and held_out.possible:
        reasons += judge_holdout(held_out, limit=1.0, commands=commands)
        if held_out.comparison is not None and any(r.code == "holdout-missed" for r in reasons):
            # what differs where tasks are handed out may be timing alone
            before, checked = reasons, {"holdout-missed": [held_out.comparison]}
            reasons = list(structure_of(study).minded(before, checked))
            for reason in reasons:
                if reason not in before:
                    say(f"mind: {reason.sentence}")
    return say_reasons(reasons, "model")


def family(study_dir: Path, json_: bool) -> int:
    """Fit the models of all values and the laws between them; print these."""
    from p3s.base.settings import has_threads
    from p3s.costs.parameters.laws import FAMILY
    from p3s.pipeline.commands import another_value
    from p3s.pipeline.parameters import ensure_family, largest_values, over_threads
    from p3s.report.parameters import doubts, render

    study = load_study(study_dir)
    with progress(2) as bar:
        family_laws = ensure_family(study, bar, again=True)
        threads = over_threads().laws(study, bar, True) if has_threads(study) else None
    if json_:
        laws = FAMILY.data(family_laws) if family_laws is not None else header("model")
        emit_json({**laws, **({} if threads is None else {"threads": threads.data})})
    else:
        texts = [] if family_laws is None else [render(family_laws)]
        out("\n\n".join([*texts, *([] if threads is None else [threads.text])]))
    at, words = largest_values(study)
    say(f"next: {Commands(study).predict(count_to_predict(at), *words)}")
    reasons = [] if family_laws is None else doubts(family_laws, another_value(study))
    return say_reasons([*reasons, *(() if threads is None else threads.reasons)], "model")
