"""``p3s predict`` of several studies: over threads, or with an input that grows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from p3s.cli.common import emit_json, out, quote_word, say, say_reasons
from p3s.cli.progress import progress
from p3s.cli.values import parse_threads

if TYPE_CHECKING:
    from p3s.pipeline.predicting import PredictArguments
    from p3s.predict.types import Reason


def weak(
    root: Path, arguments: PredictArguments, law: str, params: Sequence[str], json_: bool
) -> int:
    """Predict times with a value of the parameters that grows with the counts."""
    from p3s.pipeline.parameters import with_parameters
    from p3s.pipeline.predicting import predicted_weak
    from p3s.predict.types import WEAK
    from p3s.report.terminal import render_weak

    study = with_parameters(root)
    with progress(2 * len(arguments.counts) + 2) as bar:
        prediction, path = predicted_weak(study, arguments, law, params, bar)
    return _print_written(
        WEAK.data(prediction) if json_ else render_weak(prediction), path, prediction.reasons
    )


def over_threads(
    root: Path,
    arguments: PredictArguments,
    counts: str,
    named: str,
    params: Sequence[str],
    json_: bool,
) -> int:
    """Predict run times over processes and threads; write and print the surface.

    counts: numbers of threads, named: a node, both as texts of their options, "" where not given.
    """
    from p3s.machine.topology.inside import read_node
    from p3s.pipeline.predicting import surface_of
    from p3s.predict.surface import SURFACE, write
    from p3s.report.surface import render

    node = read_node(named) if named else None
    threads = parse_threads(counts) if counts else ()
    with progress(2 * max(len(threads), 1) * len(arguments.counts)) as bar:
        study, surface = surface_of(root, arguments, threads, params, node, bar)
    result = SURFACE.data(surface) if json_ else render(surface)
    advise = f"p3s advise {quote_word(root)} --cores {max(cell.cores for cell in surface.cells)}"
    return _print_written(result, write(study.root, surface), surface.reasons, advise)


def _print_written(
    result: str | dict[str, Any], path: Path, reasons: Sequence[Reason], next_command: str = ""
) -> int:
    """Print a result that was written, as text or JSON; return the exit code."""
    is_text = isinstance(result, str)
    out(result) if isinstance(result, str) else emit_json(result)
    say(f"written: {quote_word(path)}")
    if next_command:
        say(f"next: {next_command}")
    return say_reasons(reasons, printed=is_text)
