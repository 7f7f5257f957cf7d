"""``p3s advise``, and ``p3s report``, ``view``, ``next`` of studies with several threads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from p3s.base.errors import P3SError, UsageError
from p3s.cli.common import emit_json, header, out, quote_word, say, say_reasons
from p3s.cli.declared import argument, option
from p3s.cli.options import COLLECTIVES, JSON_OPTION, NETWORK, THREADS, VALUE
from p3s.cli.progress import progress
from p3s.cli.table import make_shared
from p3s.cli.values import parse_counts

if TYPE_CHECKING:
    from p3s.report.show import Page

EPILOG = """\b
Example:
  p3s advise study
  p3s advise study --cores 1024 --nodes 64
  p3s advise study --nodes 64 --node 2x32+256GB --objective core-hours
Next:
  p3s predict study -n 256 --threads 4"""

_ESTIMATOR = make_shared("estimator")
_OBJECTIVES = ("time", "efficiency-index", "core-index", "core-hours")


def advise(
    study_dir: Path = argument("STUDY", "Study directory."),
    cores: int = option(0, "--cores C", "Cores to use at most.", min=0),
    nodes: int = option(0, "--nodes M", "Nodes to use at most.", min=0),
    node: str = option(
        "",
        "--node NODE",
        "A node: 2x32 (sockets x cores), 2x4x8+smt2+256GB, or a file of lstopo --of xml "
        "[default: cores of the network's nodes].",
    ),
    threads: str = THREADS,
    counts: str = option(
        "",
        "-n --counts COUNTS",
        "Process counts to choose from [default: those that the program takes].",
    ),
    objective: str = option(
        "time", "--objective WHAT", f"What is to be least: {', '.join(_OBJECTIVES)}."
    ),
    top: int = option(3, "--top N", "Configurations to name.", min=1, max=1000),
    smt: bool = option(False, "--smt", "Hardware threads of a core may be used."),
    param: list[str] = VALUE,
    estimator: str = _ESTIMATOR,
    network: str = NETWORK,
    collectives: str = COLLECTIVES,
    json_: bool = JSON_OPTION,
) -> int:
    """Name the best numbers of processes and threads within limits, and how sure that is.

    Compares every admissible configuration: computation by the laws of threads, communication
    by the simulation. A study without threads gets its process count, by default up to 4 times
    the largest traced one. Exit code 3 where the advice is not to be trusted.
    """
    from p3s.cli.values import parse_threads
    from p3s.machine.topology.inside import read_node
    from p3s.methods.threads.advise.stage import advise_threads
    from p3s.methods.threads.advise.text import ADVICE, reasons_of, render, write
    from p3s.methods.threads.advise.types import Asked, Objective
    from p3s.methods.threads.predicting import trace_next
    from p3s.pipeline.parameters import inputs_of, with_threads
    from p3s.pipeline.prediction import request_of
    from p3s.pipeline.records import load_study
    from p3s.replay.settings import ReplaySettings

    study = with_threads(study_dir) if threads or smt else load_study(study_dir)
    if objective not in list(Objective):
        raise UsageError(f"--objective {objective}: not one of {', '.join(Objective)}")
    request = request_of(estimator, network, True, ReplaySettings(collectives=collectives))
    query = Asked(
        nodes=nodes,
        cores=cores,
        rest=inputs_of(study, param),
        threads=tuple(parse_threads(threads)) if threads else (),
        counts=tuple(parse_counts(counts)) if counts else (),
        node=read_node(node) if node else None,
        smt=smt,
        objective=Objective(objective),
        top=top,
    )
    with progress(1) as bar:
        file = advise_threads(study_dir, query, request, bar)
    path = write(study_dir, file)
    run = file.next
    command = "" if run is None else trace_next(study, run.configuration, file.next_setting)
    if json_:
        emit_json(ADVICE.data(file))
    else:
        out(render(file, command))
    say(f"written: {quote_word(path)}")
    at = file.advice.best.configuration
    team = "" if file.answers else f" --threads {at.threads}"
    say(f"next: p3s predict {quote_word(study_dir)} -n {at.processes}{team}")
    return say_reasons(reasons_of(file), "advice", printed=not json_)


def _traced_with_threads(study_dir: Path) -> bool:
    from p3s.pipeline.parameters import needs_threads

    return needs_threads(study_dir, ())


def _page(study_dir: Path) -> Page:
    from p3s.methods.threads.page import view_of
    from p3s.methods.threads.predicting import runs_of
    from p3s.pipeline.records import load_study

    study = load_study(study_dir)
    return view_of(study_dir, study.command(), runs_of(study))


def next_(study_dir: Path, target: str, json_: bool) -> int | None:
    """Say which run would narrow the decision of the last advice most."""
    from p3s.cli.values import one_count

    one_count(target, "give one count, the largest to be predicted")
    if not _traced_with_threads(study_dir):
        return None
    from p3s.base.serialise import to_data
    from p3s.methods.threads.advise.text import load, next_run
    from p3s.methods.threads.predicting import at_threads, base_of, trace_next
    from p3s.pipeline.records import load_study

    file, study = load(study_dir), load_study(study_dir)
    if file is None:
        raise P3SError(
            f"{study_dir}: which run would tell most depends on what is to be decided; first run "
            f"p3s advise {quote_word(study_dir)} --nodes 64"
        )
    run = file.next
    command = "" if run is None else trace_next(study, run.configuration, file.next_setting)
    base = at_threads(study, file.setting, base_of(study))
    if json_:
        data = None if run is None else to_data(run)
        emit_json({**header("next"), "study": str(study_dir), "run": data, "command": command})
        return 0
    out(next_run(file, command))
    say(f"more counts, for messages and the laws of n: p3s next {quote_word(base.root)}")
    return 0


def view(study_dir: Path, serve: bool, port: int) -> int | None:
    """Open or serve the page of a study with several numbers of threads."""
    from p3s.cli.view import show
    from p3s.report.html import as_bytes, render_page

    if not _traced_with_threads(study_dir):
        return None
    return show(study_dir, as_bytes(render_page(_page(study_dir))), serve, port)


def report(
    study_dir: Path,
    output: Path | None,
    picture: list[Path],
    plot: list[str],
    size: str,
    csv: bool,
    json_: bool,
) -> int | None:
    """Write the page of a study with several numbers of threads."""
    from p3s.cli.report import pictures_of
    from p3s.methods.threads.page import write_page

    pictures_of(picture, plot, size)
    if not _traced_with_threads(study_dir):
        return None
    if picture or csv:
        raise UsageError(
            f"--picture, --csv: {study_dir} has a prediction for each number of threads; name "
            f"one of its studies, as in {study_dir}/at/threads=1"
        )
    page_view = _page(study_dir)
    page = output or study_dir / "report.html"
    write_page(page_view, page)
    if json_:
        emit_json({**header("report"), "verdict": list(page_view.sentences), "report": str(page)})
    else:
        out("\n".join([*([page_view.warning] if page_view.warning else []), *page_view.sentences]))
        out(f"report: {page}")
    return say_reasons(page_view.against, printed=not json_)
