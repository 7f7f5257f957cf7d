"""``p3s exec``: trace the program from inside a launcher."""

from __future__ import annotations

from pathlib import Path

from p3s.base import workers
from p3s.base.errors import P3SError
from p3s.cli.helptext import argument, option
from p3s.cli.options import COUNTERS, LIMIT, POSIX_IO, UNFINALIZED, WORK

EPILOG = """\b
Example:
  mpiexec -n 8 p3s exec -- ./program input
Next:
  p3s add study p3s-np4 p3s-np8 p3s-np16"""


def exec_(
    program: list[str] = argument("PROGRAM", "The program and its arguments.", None),
    run_dir: Path = option(None, "-o --output DIR", "Where captures go [default: p3s-npSIZE]."),
    work: str = WORK,
    counters: str = COUNTERS,
    limit: str = LIMIT,
    posix_io: bool = POSIX_IO,
    unfinalized: bool = UNFINALIZED,
) -> int:
    """Run the program traced, as one rank of a launcher that is already running.

    For launchers that `p3s characterize` cannot start. Each rank becomes the program; what was
    captured is put into a study by `p3s add`.
    """
    from p3s.signature_runner.attach import execute, first_to_say
    from p3s.signature_runner.recording import recording

    workers.check_may_launch()
    try:
        asked = recording(work, counters, limit, posix_io=posix_io, unfinalized=unfinalized)
        execute(list(program or []), run_dir, asked)
    except P3SError as err:
        # All ranks fail alike: one line, not one per rank.
        if first_to_say(str(err)):
            raise
        return err.exit_code
    return 1
