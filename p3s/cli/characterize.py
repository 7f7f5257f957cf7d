"""``p3s characterize``: trace the program at small counts and find its phases."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from p3s.base.errors import UsageError
from p3s.cli.values import parse_asked, parse_enough, parse_threads


def characterize(
    command: list[str],
    counts: str,
    repeats: int,
    no_repeat: bool,
    study_dir: Path,
    timeout: float,
    work: str,
    times: bool,
    counters: str,
    limit: str,
    posix_io: bool,
    unfinalized: bool,
    accept_exit: int,
    param: list[str],
    threads: str,
    affinity: str,
    oversubscribe: bool,
    dims: str,
    signature: bool,
    stop: bool,
    width: str,
    confidence: str,
    turns: str,
    far: bool,
    up_to: int,
    force: bool,
    part: bool,
    json_: bool,
) -> int:
    """Run the program traced at small process counts and find its phases.

    Adds to the study when it exists already; a count that is run again replaces its earlier run
    only when the new one has succeeded. With --signature, the phases that the study knows are
    recorded only until their times are known; later events are only counted. With --far, the
    command is the same program with a smaller input: kept apart, in far/ of the study.
    """
    from p3s.cli import characterized as then
    from p3s.pipeline.parameters import with_teams
    from p3s.pipeline.records import existing, load_study, parse_dims
    from p3s.pipeline.tracing.runs import CountRequest, TraceRequest
    from p3s.pipeline.tracing.study import check_counts, default_study
    from p3s.signature_runner.recording import recording
    from p3s.signature_runner.standard_input import take_input
    from p3s.signature_runner.traced_run import check_template

    words = list(command or [])
    check_template(words)
    how = recording(
        work, counters, limit, posix_io=posix_io, unfinalized=unfinalized, accepted=accept_exit
    )
    on = parse_asked(counts, largest=not (far or signature)) if counts else CountRequest()
    teams = parse_threads(threads) if threads else []
    param, how = with_teams(param, how, teams, affinity, oversubscribe, on.counts)
    if not (counts or far):
        raise UsageError(
            "-n is missing: give process counts, for example -n 2,4,8,16, or the "
            "largest, as -n ..32"
        )
    if not (on.top or param or far or signature or part):  # before the program is looked for
        check_counts(existing(study_dir), on.counts)
    request = TraceRequest(
        study_dir if far or study_dir else default_study(words, on),
        tuple(words),
        on,
        repeats or 1,
        timeout,
        how,
        parse_dims(dims, words),
        times=times,
        repeat_disturbed=not no_repeat,
        force=force,
        part=part,
        stdin=take_input,
    )
    if far:
        return then.small_runs(replace(request, repeats=repeats or 0), up_to, json_)
    if signature:
        enough = parse_enough(width, confidence, turns)
        load_study(request.root)  # its phases are followed
        request = replace(request, recording=replace(how, stop=stop), enough=enough)
    return then.values(request, param, json_) if param else then.characterize_counts(request, json_)
