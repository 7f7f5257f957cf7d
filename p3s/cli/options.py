"""Options that several commands have."""

from __future__ import annotations

from p3s.cli.helptext import argument, option

STUDY = argument("STUDY", "Study directory.")
JSON_OPTION = option(False, "--json", "Print only JSON on stdout.")
MODULES = option([], "--modules DIR", "Where the program and its libraries are, if moved.")
NO_SOURCE = option(False, "--no-source", "Quote no lines of the program's source on the page.")
DIMS = option(
    "",
    "--dims N=EXTENTS",
    "What {px}, {py}, {pz} are at some counts, as 16=4x2x2,32=4x4x2 "
    "[default: as MPI_Dims_create deals them].",
)
REPEATS = option(1, "-r --repeats R", "Runs per count.", min=1, max=1000)
TIMEOUT = option(3600.0, "--timeout SECONDS", "Limit of one run.", min=1.0)
OTHER_COMMAND = option(False, "--force", "Add runs of another command to an existing study.")
VALUE = option([], "--param NAME=VALUE", "The value of a workload parameter, as size=4000.")
THREADS = option("", "--threads COUNTS", "OpenMP threads of each process, as 1,2,4.")

# ---- what is recorded ---------------------------------------------------------------------------
WORK = option(
    "auto",
    "--work UNIT",
    "How work is measured: auto, wall, cpu, or instructions (exact, in qemu, slow).",
)
COUNTERS = option("", "--counters LIST", "Also read these: instructions,cycles,llc-misses...")
POSIX_IO = option(
    True, "--posix-io/--no-posix-io", "Record reads and writes of the C library, too."
)
UNFINALIZED = option(
    False, "--end-without-finalize", "The program ends with code 0, without MPI_Finalize."
)
LIMIT = option("", "--limit SIZE", "Bytes per rank, as 64M; then calls are only counted.")
