"""The ways of ``p3s predict``: one study, over threads, or with an input that grows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from p3s.base.errors import UsageError
from p3s.cli.common import emit_json, out, quote_word, say, say_reasons
from p3s.cli.progress import Progress, progress

if TYPE_CHECKING:
    from p3s.pipeline.predicting import PredictArguments
    from p3s.pipeline.tracing.runs import CountRequest as Counts
    from p3s.pipeline.tracing.runs import TraceRequest


@dataclass(frozen=True)
class PredictOptions:
    """Options that say what is traced first, and which of several studies is meant.

    trace: of the launcher command, without one nothing is traced; counts: those of --from. Others
    are their texts.
    """

    trace: TraceRequest
    counts: Counts | None
    dims: str
    io: str
    param: Sequence[str]
    weak: str
    threads: str
    node: str
    placement: Path | None
    verbose: bool
    at_least: str


def predict(root: Path, arguments: PredictArguments, options: PredictOptions, json_: bool) -> int:
    """Predict what is asked for; return the exit code."""
    from p3s.cli import several
    from p3s.pipeline.parameters import at_value, needs_threads
    from p3s.pipeline.predicting import file_system
    from p3s.pipeline.prediction import (
        check_launcher,
        check_request,
        check_study,
        check_there,
        with_placement,
    )
    from p3s.pipeline.records import has_parameters, parse_dims
    from p3s.pipeline.tracing.study import missing_counts

    counts, words = list(arguments.counts), options.trace.command
    if options.placement is not None:
        request = with_placement(arguments.request, options.placement, counts)
        arguments = replace(arguments, request=request)
    with_parameters = bool(options.param or options.weak or has_parameters(root))
    if with_parameters and words:
        raise UsageError(f"{root}: has parameters; trace first, with p3s characterize --param")
    over_threads = options.threads or (with_parameters and needs_threads(root, options.param))
    if arguments.what_if.asked and over_threads:
        raise UsageError(
            f"--what-if: {root} has several numbers of threads; name one of them, as in "
            "--param threads=2"
        )
    if not words:
        check_there(root, counts)
    arguments = replace(arguments, files=file_system(options.io))
    if words:
        trace = replace(options.trace, extents=parse_dims(options.dims, words))
        options = replace(options, trace=missing_counts(trace, options.counts, Progress()))
    check_request(root, counts, arguments.request, arguments.machine, arguments.base)
    if words:
        check_launcher(root, words, options.trace.chosen or ())
    if options.weak:
        return several.weak(root, arguments, options.weak, options.param, json_)
    if over_threads:
        return several.over_threads(
            root, arguments, options.threads, options.node, options.param, json_
        )
    if with_parameters:
        with progress(2) as bar:
            root = at_value(root, options.param, bar)
    if not words:
        check_study(root)
    return _plain(root, arguments, options, json_)


def _plain(root: Path, arguments: PredictArguments, options: PredictOptions, json_: bool) -> int:
    """Trace what is missing, predict one study, and say so."""
    from p3s.pipeline.predicting import ensure_prediction
    from p3s.pipeline.records import keep_parsed, load_study, model_record, read_or_none
    from p3s.pipeline.tracing.study import trace_missing
    from p3s.predict.gate import answer_demand
    from p3s.predict.types import PREDICTION
    from p3s.report.places import phase_places
    from p3s.report.terminal import render

    with progress(2 * len(arguments.counts)) as bar:
        partial = bool(options.trace.command) and trace_missing(options.trace, bar)
        study = load_study(root)
        if options.dims and not options.trace.command:
            keep_parsed(study, options.dims)
        study, result = ensure_prediction(study, arguments, bar)
    answer = (
        answer_demand(options.at_least, result, arguments.counts[-1]) if options.at_least else None
    )
    if json_:
        emit_json(PREDICTION.data(result) | ({"answer": asdict(answer)} if answer else {}))
    else:
        record = read_or_none(lambda: model_record(study))
        places = phase_places(record.model, record.places) if record else {}
        explain = f"p3s explain {quote_word(study.root)}" if record else ""
        more = "shown with --verbose"
        changes = bool(arguments.what_if.asked or arguments.what_if.table)
        out(
            render(
                result, places, explain=explain, more=more, changes=changes, verbose=options.verbose
            )
        )
    say(f"next: p3s report {quote_word(study.root)}")
    code = say_reasons(result.reasons, printed=not json_)
    if answer:
        say(answer.text)
        code = 3 * (answer.said == "cannot tell")
    return code or (3 if partial else 0)
