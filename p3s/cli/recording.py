"""The options that say what is recorded."""

from __future__ import annotations

import typer

WORK = typer.Option(
    "auto",
    "--work",
    metavar="UNIT",
    help="How work is measured: auto, wall, cpu, or instructions (exact, in qemu, slow).",
)
COUNTERS = typer.Option(
    "", "--counters", metavar="LIST", help="Also read these: instructions,cycles,llc-misses..."
)
TIMES = typer.Option(
    True, "--times/--no-times", help="With --work instructions: also run natively, for the times."
)
NO_REPEAT = typer.Option(
    False, "--no-repeat", help="Do not run again, up to -r 3, what was disturbed."
)
THREADS = typer.Option(
    "", "--threads", metavar="COUNTS", help="OpenMP threads of each process, as 1,2,4."
)
AFFINITY = typer.Option(
    "close",
    "--affinity",
    metavar="WHERE",
    help="Cores of a process's threads: close (neighbours), far (spread over its part of the "
    "node), none (not bound).",
)
OVERSUBSCRIBE = typer.Option(
    False, "--oversubscribe", help="Allow more threads of a process than there are cores."
)
POSIX_IO = typer.Option(
    True, "--posix-io/--no-posix-io", help="Record reads and writes of the C library, too."
)
UNFINALIZED = typer.Option(
    False, "--end-without-finalize", help="The program ends with code 0, without MPI_Finalize."
)
LIMIT = typer.Option(
    "", "--limit", metavar="SIZE", help="Bytes per rank, as 64M; then calls are only counted."
)
