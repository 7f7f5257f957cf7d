"""Small programs do the same with and without the tracer, and every call they make is recorded.

Each program counts its own calls and notes statuses, error classes and data; see
programs/conformance/conform.h.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from conformance import Installed, Program, check_counts, missing, mpis, run

from p3s.capture import read_run

#: Completions of no and of some requests from each Fortran binding.
COMPLETIONS = tuple(
    Program(
        f"completions-{name}",
        "completions.F90",
        counts_vary=True,
        flags=(f"-DBINDING={k}", "-fallow-argument-mismatch"),
    )
    for k, name in enumerate(("mpif", "mpi", "f08"))
)
#: Every family of calls from each Fortran binding.
FAMILIES = tuple(
    Program(
        f"families-{name}", "families.F90", flags=(f"-DBINDING={k}", "-fallow-argument-mismatch")
    )
    for k, name in enumerate(("mpif", "mpi", "f08"))
)
PROGRAMS = (
    Program("blocking", "blocking.c"),
    Program("waits", "waits.c", counts_vary=True),
    Program("persistent", "persistent.c"),
    Program("sendrecv", "sendrecv.c"),
    Program("wildcards", "wildcards.c"),
    Program("wildcards-ignore", "wildcards.c", args=("ignore",)),
    Program("null-and-zero", "null_and_zero.c"),
    Program("bottom", "bottom.c"),
    Program("in-place", "in_place.c"),
    Program("vector-collectives", "vector_collectives.c"),
    Program("types", "types.c"),
    Program("large", "large.c"),
    Program("errors", "errors.c", counts_vary=True),
    Program("exit-code", "exit_code.c", exit_code=6),
    Program("matched", "matched.c"),
    Program("polling", "polling.c"),
    Program("cancel", "cancel.c"),
    Program("comms", "comms.c"),
    Program("topologies", "topologies.c"),
    Program("intercomm", "intercomm.c", least_ranks=2),
    Program("callbacks", "callbacks.c"),
    Program("jumps", "jumps.c"),
    Program("freed-inside", "freed_inside.c"),
    Program("nonblocking-collectives", "nonblocking_collectives.c"),
    Program("rma", "rma.c", least_ranks=2),
    Program("io", "io.c"),
    Program("threads", "threads.c"),
    Program("requests", "requests.c"),
    Program("pcontrol", "pcontrol.c"),
    Program("own-wrappers", "own_wrappers.c"),
    Program(
        "linked-wrappers",
        "own_wrappers.c",
        flags=("-DWRAPPERS_ELSEWHERE",),
        library="wrappers.c",
        linked=True,
    ),
    Program("opened", "opened.c", library="opened_library.c"),
    Program("plugin", "plugin_host.c", library="plugin.c", flags=("-Wl,--as-needed",)),
    Program(
        "fortran-plugin", "plugin_host.c", library="plugin_fortran.f90", flags=("-Wl,--as-needed",)
    ),
    Program("forks", "forks.c"),
    Program("sessions", "sessions.c", needs="MPI_Session_init"),
    Program("sessions-and-init", "sessions.c", args=("init",), needs="MPI_Session_init"),
    Program("f08-sessions", "f08_sessions.f90", needs="MPI_Session_init"),
    Program("mpif-p2p", "mpif_p2p.f"),
    Program("mpif-collectives", "mpif_collectives.f", flags=("-fallow-argument-mismatch",)),
    Program("use-mpi", "use_mpi.f90"),
    Program("use-mpi-in-place", "use_mpi_in_place.f90"),
    Program("f08-p2p", "f08_p2p.f90", counts_vary=True),
    Program("f08-collectives", "f08_collectives.f90"),
    Program("f08-sections", "f08_sections.f90"),
    Program("f08-persistent", "f08_persistent.f90"),
    Program("f08-rma", "f08_rma.f90", least_ranks=2),
    *COMPLETIONS,
    *FAMILIES,
    Program(
        "families-newer",
        "families.F90",
        flags=("-DBINDING=2", "-DNEWER", "-fallow-argument-mismatch"),
        needs="MPI_Allreduce_init",
    ),
    Program("py-buffers", "buffers.py"),
    Program("py-pickled", "pickled.py"),
    Program("py-windows", "windows.py", least_ranks=2),
    Program("py-sessions", "sessions.py", needs="MPI_Session_init"),
    Program("py-task-farm", "task_farm.py", counts_vary=True),
)

COUNTS = (1, 2, 3, 5, 8)

#: What `make test` runs, by MPI and language: at these counts. Everything else is slow.
QUICK = {
    ("chosen", "c"): (3,),
    ("chosen", "fortran"): (3,),
    ("chosen", "python"): (3,),
    ("openmpi4", "fortran"): (3,),
    ("mpich4", "fortran"): (2,),
    ("openmpi5", "c"): (3,),
    ("openmpi5", "python"): (3,),
    ("mpich5", "c"): (3,),
    ("mpich5", "python"): (3,),
}


def cases() -> list[object]:
    """Every program with every MPI at every count; the slow ones marked."""
    made = []
    for tested in mpis().values():
        for program in PROGRAMS:
            for np in COUNTS:
                if np > tested.max_ranks or np < program.least_ranks:
                    continue
                quick = np in QUICK.get((tested.name, program.language), ())
                made.append(
                    pytest.param(
                        program,
                        tested,
                        np,
                        id=f"{tested.name}-{program.name}-{np}",
                        marks=() if quick else pytest.mark.slow,
                    )
                )
    return made


@pytest.fixture(scope="module")
def binaries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("conformance")


@pytest.mark.parametrize(("program", "tested", "np"), cases())
def test_the_tracer_changes_nothing_and_misses_nothing(
    program: Program, tested: Installed, np: int, binaries: Path, tmp_path: Path
) -> None:
    why = missing(program, tested)
    if why:
        pytest.skip(why)
    folder = binaries / tested.name
    folder.mkdir(exist_ok=True)
    plain = run(program, tested, np, folder, tmp_path / "plain", traced=False)
    assert plain.exit_code == program.exit_code
    traced = run(program, tested, np, folder, tmp_path / "traced", traced=True)
    assert traced.comparable(program) == plain.comparable(program)
    check_counts(tmp_path / "traced", traced, np)
    if program in COMPLETIONS:  # one line each, whether there are requests or not
        calls = read_run(tmp_path / "traced").calls
        for op in ("all", "any", "some"):
            for kind in ("MPI_Wait", "MPI_Test"):
                assert len({call.site for call in calls if call.op == kind + op}) == 1, kind + op
