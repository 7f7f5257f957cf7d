"""The options that say what is recorded."""

from __future__ import annotations

from p3s.cli.helptext import option

WORK = option(
    "auto",
    "--work UNIT",
    "How work is measured: auto, wall, cpu, or instructions (exact, in qemu, slow).",
)
COUNTERS = option("", "--counters LIST", "Also read these: instructions,cycles,llc-misses...")
TIMES = option(
    True, "--times/--no-times", "With --work instructions: also run natively, for the times."
)
NO_REPEAT = option(False, "--no-repeat", "Do not run again, up to -r 3, what was disturbed.")
THREADS = option("", "--threads COUNTS", "OpenMP threads of each process, as 1,2,4.")
AFFINITY = option(
    "close",
    "--affinity WHERE",
    "Cores of a process's threads: close (neighbours), far (spread over its part of the "
    "node), none (not bound).",
)
OVERSUBSCRIBE = option(
    False, "--oversubscribe", "Allow more threads of a process than there are cores."
)
POSIX_IO = option(
    True, "--posix-io/--no-posix-io", "Record reads and writes of the C library, too."
)
UNFINALIZED = option(
    False, "--end-without-finalize", "The program ends with code 0, without MPI_Finalize."
)
LIMIT = option("", "--limit SIZE", "Bytes per rank, as 64M; then calls are only counted.")
