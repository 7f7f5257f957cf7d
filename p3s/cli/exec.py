"""``p3s exec``: trace the program from inside a launcher."""

from __future__ import annotations

from pathlib import Path

from p3s.base import workers
from p3s.base.errors import P3SError


def exec_(
    program: list[str],
    run_dir: Path,
    work: str,
    counters: str,
    limit: str,
    posix_io: bool,
    unfinalized: bool,
) -> int:
    """Run the program traced, as one rank of a launcher that is already running.

    For launchers that `p3s characterize` cannot start. Each rank becomes the program; what was
    captured is put into a study by `p3s add`.
    """
    from p3s.signature_runner.attach import execute, first_to_say
    from p3s.signature_runner.recording import recording

    workers.check_may_launch()
    try:
        request = recording(work, counters, limit, posix_io=posix_io, unfinalized=unfinalized)
        execute(list(program or []), run_dir, request)
    except P3SError as err:
        # All ranks fail alike: one line, not one per rank.
        if first_to_say(str(err)):
            raise
        return err.exit_code
    return 1
