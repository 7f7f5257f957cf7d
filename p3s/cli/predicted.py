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


def predict(root: Path, arguments: PredictArguments, asked: PredictOptions, json_: bool) -> int:
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

    wanted, words = list(arguments.counts), asked.trace.command
    if asked.placement is not None:
        request = with_placement(arguments.request, asked.placement, wanted)
        arguments = replace(arguments, request=request)
    with_parameters = bool(asked.param or asked.weak or has_parameters(root))
    if with_parameters and words:
        raise UsageError(f"{root}: has parameters; trace first, with p3s characterize --param")
    over_threads = asked.threads or (with_parameters and needs_threads(root, asked.param))
    if arguments.what_if.asked and over_threads:
        raise UsageError(
            f"--what-if: {root} has several numbers of threads; name one of them, as in "
            "--param threads=2"
        )
    if not words:
        check_there(root, wanted)
    arguments = replace(arguments, files=file_system(asked.io))
    if words:
        trace = replace(asked.trace, extents=parse_dims(asked.dims, words))
        asked = replace(asked, trace=missing_counts(trace, asked.counts, Progress()))
    check_request(root, wanted, arguments.request, arguments.machine, arguments.base)
    if words:
        check_launcher(root, words, asked.trace.chosen or ())
    if asked.weak:
        return several.weak(root, arguments, asked.weak, asked.param, json_)
    if over_threads:
        return several.over_threads(root, arguments, asked.threads, asked.node, asked.param, json_)
    if with_parameters:
        with progress(2) as bar:
            root = at_value(root, asked.param, bar)
    if not words:
        check_study(root)
    return _plain(root, arguments, asked, json_)


def _plain(root: Path, arguments: PredictArguments, asked: PredictOptions, json_: bool) -> int:
    """Trace what is missing, predict one study, and say so."""
    from p3s.pipeline.predicting import ensure_prediction
    from p3s.pipeline.records import keep_parsed, load_study, model_record, read_or_none
    from p3s.pipeline.tracing.study import trace_missing
    from p3s.predict.gate import answer_demand
    from p3s.predict.types import PREDICTION
    from p3s.report.places import phase_places
    from p3s.report.terminal import render

    with progress(2 * len(arguments.counts)) as bar:
        partial = bool(asked.trace.command) and trace_missing(asked.trace, bar)
        study = load_study(root)
        if asked.dims and not asked.trace.command:
            keep_parsed(study, asked.dims)
        study, result = ensure_prediction(study, arguments, bar)
    answer = answer_demand(asked.at_least, result, arguments.counts[-1]) if asked.at_least else None
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
                result, places, explain=explain, more=more, changes=changes, verbose=asked.verbose
            )
        )
    say(f"next: p3s report {quote_word(study.root)}")
    code = say_reasons(result.reasons, told=not json_)
    if answer:
        say(answer.text)
        code = 3 * (answer.said == "cannot tell")
    return code or (3 if partial else 0)
