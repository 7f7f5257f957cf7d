"""``p3s characterize``: trace the program at small counts and find its phases."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from p3s.base.errors import UsageError
from p3s.cli import options
from p3s.cli.helptext import argument, option
from p3s.cli.values import parse_asked, parse_enough, parse_threads

EPILOG = """\b
Example:
  p3s characterize -n 2,4,8,16 -o study -- mpiexec -n {np} ./program input
Next:
  p3s model study"""


def characterize(
    command: list[str] = argument(
        "LAUNCHER", "The launcher command; {np} is the process count.", None
    ),
    counts: str = option(
        "", "-n --counts COUNTS", "Process counts, for example 2,4,8,16; or the largest, as ..32."
    ),
    repeats: int = option(None, "-r --repeats R", "Runs per count [default: 1].", min=1, max=1000),
    no_repeat: bool = option(
        False, "--no-repeat", "Do not run again, up to -r 3, what was disturbed."
    ),
    study_dir: Path = option(None, "-o --study STUDY", "Study directory [default: p3s-PROGRAM]."),
    timeout: float = options.TIMEOUT,
    work: str = options.WORK,
    times: bool = option(
        True, "--times/--no-times", "With --work instructions: also run natively, for the times."
    ),
    counters: str = options.COUNTERS,
    limit: str = options.LIMIT,
    posix_io: bool = options.POSIX_IO,
    unfinalized: bool = options.UNFINALIZED,
    param: list[str] = option(
        [],
        "--param NAME=VALUES",
        "Values of a workload parameter, {NAME} in the command, as size=1000,2000.",
    ),
    threads: str = options.THREADS,
    affinity: str = option(
        "close",
        "--affinity WHERE",
        "Cores of a process's threads: close (neighbours), far (spread over its part of the "
        "node), none (not bound).",
    ),
    oversubscribe: bool = option(
        False, "--oversubscribe", "Allow more threads of a process than there are cores."
    ),
    dims: str = options.DIMS,
    signature: bool = option(
        False, "--signature", "Run the signature of a study: each phase only often enough."
    ),
    stop: bool = option(
        False, "--stop", "With --signature: end the program once every phase has been seen."
    ),
    width: str = option("2%", "--width PERCENT", "Half width at which the time of a run is known."),
    confidence: str = option("95%", "--confidence PERCENT", "Confidence of that interval."),
    turns: str = option(
        "20-1000", "--turns RANGE", "Fewest and most iterations of a phase in full detail."
    ),
    far: bool = option(False, "--far", "The command is the same program with a smaller input."),
    up_to: int = option(
        0, "--up-to N", "With --far and no -n: largest count [default: of the study]."
    ),
    force: bool = options.OTHER_COMMAND,
    part: bool = option(
        False, "--part", "Trace some counts; others, traced elsewhere, follow by p3s add."
    ),
    json_: bool = options.JSON_OPTION,
) -> int:
    """Run the program traced at small process counts and find its phases.

    Adds to the study when it exists already; a count that is run again replaces its earlier run
    only when the new one has succeeded. With --signature, the phases that the study knows are
    recorded only until their times are known; later events are only counted. With --far, the
    command is the same program with a smaller input: kept apart, in far/ of the study.
    """
    from p3s.base.study import Study
    from p3s.cli import characterized as then
    from p3s.pipeline.statements import parse_dims
    from p3s.pipeline.teams import with_teams
    from p3s.pipeline.tracing.counts import Asked
    from p3s.pipeline.tracing.runs import TraceRequest
    from p3s.pipeline.tracing.study import check_counts, default_study
    from p3s.signature_runner.recording import recording
    from p3s.signature_runner.standard_input import own
    from p3s.signature_runner.traced_run import check_template

    words = list(command or [])
    check_template(words)
    how = recording(work, counters, limit, posix_io=posix_io, unfinalized=unfinalized)
    on = parse_asked(counts, largest=not (far or signature)) if counts else Asked()
    teams = parse_threads(threads) if threads else []
    param, how = with_teams(param, how, teams, affinity, oversubscribe, on.counts)
    if not (counts or far):
        raise UsageError(
            "-n is missing: give process counts, for example -n 2,4,8,16, or the "
            "largest, as -n ..32"
        )
    if not (on.top or param or far or signature or part):  # before the program is looked for
        check_counts(None if study_dir is None else Study.find(study_dir), on.counts)
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
        stdin=own,
    )
    if far:
        return then.small_runs(replace(request, repeats=repeats or 0), up_to, json_)
    if signature:
        enough = parse_enough(width, confidence, turns)
        return then.sampled(replace(request, recording=replace(how, stop=stop)), enough, json_)
    return then.values(request, param, json_) if param else then.traced(request, json_)
