"""``p3s doctor``: what this machine has, what is missing, what to do about it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import typer

from p3s.base.text import one_line
from p3s.cli.common import emit, launcher_words, out, say, write_out


def doctor(
    ctx: typer.Context, tracer_archive: Path | None, mpicc: str | None, report: bool, json_: bool
) -> int:
    """Say what this machine has for tracing and replay, what is missing, what to do about it.

    Traces small programs at 2 ranks and counts their events. With a launcher command, it starts
    that program at 2 ranks for some seconds instead.
    """
    if report:
        return _report(ctx)
    if tracer_archive is not None:
        return _archive(tracer_archive, mpicc, json_)
    from p3s.signature_runner.examine import checks

    results = list(checks(launcher_words(ctx)))
    failed = [check for check in results if check.status == "fail"]
    if json_:
        emit("doctor", ok=not failed, checks=[asdict(check) for check in results])
    else:
        width = max((len(check.name) for check in results), default=0)
        for check in results:
            out(f"{check.status.upper():4}  {check.name:{width}}  {one_line(check.detail)}")
            if check.status != "ok" and check.fix:
                out(f"{'':4}  {'':{width}}  -> {one_line(check.fix)}")
    if failed:
        names = ", ".join(check.name for check in failed)
        say(f"{len(failed)} of {len(results)} checks failed: {names}")
        return 1
    return 0


def _report(ctx: typer.Context) -> int:
    """Print the bug report; it is a success also where checks fail."""
    from p3s.signature_runner.bug_report import bug_report
    from p3s.signature_runner.examine import checks

    write_out(bug_report(lambda: checks(launcher_words(ctx))))
    say("read it, fill in what you did and what happened, and send it as its last lines say")
    return 0


def _archive(folder: Path, mpicc: str | None, as_json: bool) -> int:
    """Write the archive, and say how a program is linked with it."""
    from p3s.signature_runner.archive import write_archive

    archive = write_archive(folder, mpicc)
    if as_json:
        emit(
            "doctor",
            archive=str(archive.archive),
            options=str(archive.options),
            mpi=f"{archive.install.family} {archive.install.version}",
            mpicc=archive.install.mpicc,
        )
        return 0
    out(f"{archive.archive}, for {archive.install.family} {archive.install.version}")
    out(f"Link the program once more, with @{archive.options} before its MPI library:")
    out(f"  {archive.install.mpicc} ... -o program @{archive.options}")
    out("Then trace it as any other program.")
    return 0
