"""``p3s predict``: everything that is still missing, then times and speedup."""

from __future__ import annotations

from pathlib import Path

import typer

from p3s.cli.common import allowed_codes, launcher_words
from p3s.cli.values import parse_asked, parse_counts, parse_share, settings_of

#: Counts traced when a launcher is given and nothing has been traced yet.
DEFAULT_FROM = "2,4,8,16"


def predict(
    ctx: typer.Context,
    study_dir: Path,
    counts: str,
    traced: str,
    repeats: int,
    dims: str,
    timeout: float,
    knee: float,
    hosts: str,
    cores_per_node: int,
    budget: str,
    launcher: str,
    collectives: str,
    param: list[str],
    weak: str,
    threads: str,
    node: str,
    machine: Path | None,
    base: Path | None,
    estimator: str,
    network: str,
    topology: str,
    placement: Path | None,
    no_replay: bool,
    every_rank: bool,
    io: str,
    what_if: list[str],
    only: bool,
    allow: list[str],
    within: str,
    verbose: bool,
    at_least: str,
    json_: bool,
) -> int:
    """Predict run time, speedup and the knee; runs every stage that is missing or out of date."""
    from p3s.cli import predicted as then
    from p3s.pipeline.predicting import PredictArguments, what_ifs_of
    from p3s.pipeline.prediction import ahead, request_of
    from p3s.pipeline.tracing.runs import TraceRequest
    from p3s.predict.gate import parse_demand
    from p3s.signature_runner.standard_input import take_input

    if at_least:
        parse_demand(at_least)
    settings = settings_of(hosts, cores_per_node, budget, launcher, collectives=collectives)
    placed = placement is not None
    request = request_of(
        estimator, network, no_replay, settings, topology, placed=placed, every_rank=every_rank
    )
    words, usual = launcher_words(ctx), parse_asked(DEFAULT_FROM)
    first = parse_asked(traced, "--from") if traced else None
    arguments = PredictArguments(
        tuple(parse_counts(counts) if counts else ahead(study_dir, words, first or usual)),
        request,
        machine=machine,
        base=base,
        knee=knee,
        only=only or placed,
        allowed=allowed_codes(allow),
        within=parse_share(within, "--within") if within else None,
        what_if=what_ifs_of(what_if),
    )
    trace = TraceRequest(study_dir, tuple(words), usual, repeats, timeout, stdin=take_input)
    options = then.PredictOptions(
        trace, first, dims, io, param, weak, threads, node, placement, verbose, at_least
    )
    return then.predict(study_dir, arguments, options, json_)
