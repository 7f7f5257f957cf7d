"""``p3s predict``: everything that is still missing, then times and speedup."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import typer

from p3s.cli import costs, options
from p3s.cli.common import allowed_codes, launcher_words
from p3s.cli.helptext import option
from p3s.cli.values import parse_asked, parse_counts, parse_share

EPILOG = """Words after -- are a launcher command; with it a new study is traced first.

\b
Example:
  p3s predict study -n 32,64 -- mpiexec -n {np} ./program input
  p3s predict study -n 1024 --network slingshot
  p3s predict study -n 1024 --what-if latency/2 --what-if 'phase 3 * 0.7'
Next:
  p3s report study"""

#: Counts traced when a launcher is given and nothing has been traced yet.
DEFAULT_FROM = "2,4,8,16"


def predict(
    ctx: typer.Context,
    study_dir: Path = options.STUDY,
    counts: str = option(
        "",
        "-n --counts COUNTS",
        "Process counts, for example 32,64 [default: about 2 and 4 times the largest traced].",
    ),
    traced: str = option("", "--from COUNTS", f"Counts to trace first [default: {DEFAULT_FROM}]."),
    repeats: int = options.REPEATS,
    dims: str = options.DIMS,
    timeout: float = options.TIMEOUT,
    knee: float = option(
        0.5, "--knee SHARE", "Efficiency below which the knee is reached.", min=0.0, max=1.0
    ),
    hosts: str = costs.HOSTS,
    cores_per_node: int = costs.CORES,
    budget: str = costs.BUDGET,
    launcher: str = costs.LAUNCHER,
    collectives: str = costs.COLLECTIVES,
    param: list[str] = options.VALUE,
    weak: str = option(
        "", "--weak LAW", "Let a parameter grow with n, as size~n or size~2*n^(1/3)."
    ),
    threads: str = options.THREADS,
    node: str = option(
        "",
        "--node NODE",
        "With --threads: a node as 2x32 (sockets x cores), 2x4x8+smt2, or a file of lstopo.",
    ),
    machine: Path | None = option(
        None,
        "--machine FILE",
        "Machine to predict for, a file of p3s machine measure [default: that of the runs].",
    ),
    base: Path | None = option(
        None, "--base FILE", "Machine file of the runs [default: machine.json in the study]."
    ),
    estimator: str = costs.ESTIMATOR,
    network: str = costs.NETWORK,
    topology: str = costs.TOPOLOGY,
    placement: Path | None = option(
        None,
        "--placement FILE",
        "Where the ranks are: Open MPI rankfile, host list of MPICH or Slurm; --hosts then names "
        "the job's nodes.",
    ),
    no_replay: bool = option(
        False,
        "--no-replay",
        "Run nothing: costs of messages as in machine.json, else those of a typical network.",
    ),
    every_rank: bool = option(
        False,
        "--every-rank",
        "Simulate every rank beyond 8,192 processes too, not smaller grids that stand for them.",
    ),
    io: str = option(
        "",
        "--io FILE|NAME",
        "File system to predict for: a file of p3s machine measure --io, or one of p3s machine"
        " list; runs: what the traced runs took [default: that of the machine file, else of the "
        "runs].",
    ),
    what_if: list[str] = option(
        [],
        "--what-if CHANGE",
        "What a change would save, such as latency/2, 'phase 3 * 0.7', balanced, allreduce=ring "
        "or network=ideal; may be repeated. table: the usual changes; none: no table.",
    ),
    only: bool = option(
        False, "--only", "Leave out the counts of an earlier prediction [default: they stay]."
    ),
    allow: list[str] = option(
        [],
        "--allow CODES",
        "Trust the prediction although these reasons speak against it, as in "
        "--allow other-calls; may be repeated.",
    ),
    within: str = option(
        "",
        "--within SHARE",
        "How well run times must be known, as in --within 10%; exit code 3 where they are not.",
    ),
    json_: bool = options.JSON_OPTION,
) -> int:
    """Predict run time, speedup and the knee; runs every stage that is missing or out of date."""
    from p3s.cli import predicted as then
    from p3s.pipeline.basis import request_of
    from p3s.pipeline.before import ahead
    from p3s.pipeline.predicting import PredictArguments, what_ifs_of
    from p3s.pipeline.tracing.runs import TraceRequest
    from p3s.signature_runner.standard_input import own

    settings = costs.settings_of(hosts, cores_per_node, budget, launcher, collectives=collectives)
    placed = placement is not None
    request = request_of(estimator, network, no_replay, settings, topology, placed=placed)
    words, usual = launcher_words(ctx), parse_asked(DEFAULT_FROM)
    first = parse_asked(traced, "--from") if traced else None
    arguments = PredictArguments(
        tuple(parse_counts(counts) if counts else ahead(study_dir, words, first or usual)),
        replace(request, every_rank=every_rank),
        machine=machine,
        base=base,
        knee=knee,
        only=only or placed,
        allowed=allowed_codes(allow),
        within=parse_share(within, "--within") if within else None,
        what_if=what_ifs_of(what_if),
    )
    trace = TraceRequest(study_dir, tuple(words), usual, repeats, timeout, stdin=own)
    asked = then.Asked(trace, first, dims, io, param, weak, threads, node, placement)
    return then.predict(study_dir, arguments, asked, json_)
