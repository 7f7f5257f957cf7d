"""Runs that go wrong end with one line that names the likely cause."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from capture_writer import small
from tracer_helpers import PROGRAMS, TIMEOUT_S, compile_c, the_mpi, usable_mpi

from p3s.base.errors import CAPTURES, P3SError
from p3s.base.host import compiling, mpi
from p3s.base.host.command import Command
from p3s.base.host.cores import cores
from p3s.capture.chunks import read_header
from p3s.signature_runner import build, diagnose
from p3s.signature_runner.launch import run_traced
from p3s.signature_runner.output import program_said

pytestmark = [pytest.mark.skipif(the_mpi() is None, reason="no usable MPI")]


def launcher() -> str:
    install = usable_mpi()
    return install.mpiexec


@pytest.fixture(scope="module")
def dies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c(PROGRAMS / "dies.c", tmp_path_factory.mktemp("bin") / "dies")


def refused(words: list[str], np: int, run_dir: Path) -> str:
    with pytest.raises(P3SError) as caught:
        run_traced(words, np, run_dir, timeout_s=TIMEOUT_S)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_good_run_is_described(dies: Path, tmp_path: Path) -> None:
    many = cores() + 1
    for np, over in ((1, False), (many, True)):
        outcome = run_traced(
            [launcher(), "-n", "{np}", str(dies), "none", "1"], np, tmp_path, timeout_s=TIMEOUT_S
        )
        assert (outcome.exit_code, outcome.np, outcome.oversubscribed) == (0, np, over)
        assert outcome.problems == [] and outcome.wall_s > 0
        info = json.loads((tmp_path / "run.json").read_text())
        assert info["schema"] == "p3s.run" and info["schema_version"] == 1
        assert (info["np"], info["exit_code"], info["status"]) == (np, 0, "complete")
        assert info["argv"][-3:] == [str(dies), "none", "1"]
        assert (info["oversubscribed"], info["cores"]) == (over, cores())
        # An earlier run's files do not stay.
        assert len(list(tmp_path.glob("rank-*.p3t"))) == np


def test_captures_follow_the_umask(dies: Path, tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        words = [launcher(), "-n", "{np}", str(dies), "none", "1"]
        run_traced(words, 2, tmp_path / "run", timeout_s=TIMEOUT_S)
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "run").iterdir()}
    assert len(modes) == 5 and set(modes.values()) == {0o664}, modes


def test_a_run_without_tracing(dies: Path, tmp_path: Path) -> None:
    words = [launcher(), "-n", "{np}", str(dies), "none", "1"]
    outcome = run_traced(words, 2, tmp_path, timeout_s=TIMEOUT_S, trace=False)
    assert outcome.exit_code == 0
    assert not list(tmp_path.glob("*.p3t"))
    assert json.loads((tmp_path / "run.json").read_text())["traced"] is False


def test_a_program_without_mpi(tmp_path: Path) -> None:
    program = compile_c(PROGRAMS / "quiet.c", tmp_path / "quiet", "-Wl,--as-needed")
    if mpi.library_of(str(program)) is not None:
        pytest.skip("this mpicc links MPI into everything")
    said = refused([launcher(), "-n", "{np}", str(program)], 2, tmp_path / "run")
    assert "no MPI call seen" in said and "not linked to an MPI library" in said


def test_a_script_without_mpi(tmp_path: Path) -> None:
    said = refused([launcher(), "-n", "{np}", "sh", "-c", "echo hello"], 2, tmp_path / "run")
    assert "no MPI call seen" in said
    assert (tmp_path / "run" / "stdout.txt").read_text() == "hello\nhello\n"


def test_a_program_that_fails_before_mpi(tmp_path: Path) -> None:
    words = [launcher(), "-n", "{np}", "sh", "-c", "echo cannot read input >&2; exit 3"]
    said = refused(words, 2, tmp_path / "run")
    assert "before MPI_Init" in said and "cannot read input" in said


def test_a_message_of_several_lines_is_told_whole(tmp_path: Path) -> None:
    text = r"  SIZE IS TOO SMALL -\n  ADJUST IT,  OR\n  TAKE FEWER\n"
    words = [launcher(), "-n", "{np}", "sh", "-c", f"printf '{text}' >&2; exit 3"]
    said = refused(words, 1, tmp_path / "run")
    assert said.endswith(": SIZE IS TOO SMALL - ADJUST IT, OR TAKE FEWER")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("step 1\nstep 2\nSIZE 4:\nTOO SMALL\nSIZE 9:\nTOO SMALL\n", "SIZE 9: TOO SMALL"),
        ("hello\n\nno such\ninput\n\n", "no such input"),
        ("one\n[host:12] chatter\ntwo\n[host:12] chatter\n", "two"),
        ("one\nError: this\ntwo\n", "Error: this"),
        ("no input\n[warn] Epoll MOD(1) on fd 23 failed. Old events were 6\n", "no input"),
        ("[warn] few cells\n", "[warn] few cells"),
        ("a" * 150 + "\n" + "b" * 150 + "\n", "b" * 150),
        ("c" * 300 + "\n", "c" * 200),
        ("\n \n", ""),
    ],
)
def test_what_a_program_said_last(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "stdout.txt").write_text(text)
    assert program_said(tmp_path).text == said


def test_singletons(dies: Path, tmp_path: Path) -> None:
    """Ranks that do not find each other are N programs of one rank."""
    script = tmp_path / "alone.sh"
    # Without what the launcher tells it in its environment, MPI starts a world of its own.
    script.write_text(
        "#!/bin/sh\n"
        "for name in $(env | cut -d= -f1 | grep -E '^(PMI|OMPI|OPAL|PRTE|HYD|MPI)'); do\n"
        "  case $name in *ROOT*) ;; *) unset $name ;; esac\ndone\n"
        f"exec {dies} none 1\n"
    )
    script.chmod(0o755)
    said = refused([launcher(), "-n", "{np}", str(script)], 2, tmp_path / "run")
    assert "2 separate programs of 1 rank" in said


def test_another_count_than_asked_for(dies: Path, tmp_path: Path) -> None:
    said = refused([launcher(), "-n", "2", str(dies), "none", "{np}"], 3, tmp_path / "run")
    assert "has 2 ranks, not the 3 asked for" in said


def test_a_program_with_an_equals_sign_in_its_path(dies: Path, tmp_path: Path) -> None:
    folder = tmp_path / "a=b"
    folder.mkdir()
    program = folder / "x=1 dies"
    shutil.copy(dies, program)
    words = [launcher(), "-n", "{np}", str(program), "none", "1"]
    outcome = run_traced(words, 2, tmp_path / "run", timeout_s=TIMEOUT_S)
    assert outcome.exit_code == 0 and outcome.problems == []
    assert len(list((tmp_path / "run").glob("rank-*.p3t"))) == 2
    info = json.loads((tmp_path / "run" / "run.json").read_text())
    assert info["argv"] == [launcher(), "-n", "2", str(program), "none", "1"]


HYDRA = """
===========================
=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   PID {pid} RUNNING AT node
=   {how}
=   CLEANING UP REMAINING PROCESSES
===========================
YOUR APPLICATION TERMINATED WITH THE EXIT STRING: {string}
"""
OPENMPI = """
--------------------------
mpiexec detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: [{job},3]
  Exit code:    5
--------------------------
"""
# Process ids of the ranks that died() writes down: 1000 + rank; rank 3 is outside of MPI.
DEATHS = [
    (HYDRA.format(pid=1002, how="EXIT CODE: 9", string="Killed (signal 9)"), 9, "after"),
    (HYDRA.format(pid=1002, how="EXIT CODE: 9", string="Terminated (signal 15)"), 15, "after"),
    (
        HYDRA.format(pid=1003, how="EXIT CODE: 9", string="Killed (signal 9)"),
        9,
        "killed by SIGKILL, after",
    ),
    (
        HYDRA.format(pid=1003, how="KILLED BY SIGNAL: 6 (Aborted)", string="Killed (signal 15)"),
        15,
        "killed by SIGABRT, after",
    ),
    (
        HYDRA.format(pid=1003, how="EXIT CODE: 1280", string="Killed (signal 9)"),
        9,
        "exit code 5, after",
    ),
    ("", 5, "exit code 5, after"),
    (OPENMPI.format(job="[7732,1]"), 5, "exit code 5, after"),
    (OPENMPI.format(job="prterun-node-12@1"), 5, "exit code 5, after"),
    (
        f"{'-' * 26}\nmpiexec noticed that process rank 3 with PID 0 on node n exited on"
        f" signal 9 (Killed).\n{'-' * 26}\n",
        137,
        "killed by SIGKILL, after",
    ),
    ("[n:1] *** reported by process [28054,3]\n", 6, "stopped by an MPI error, after"),
    ("[n:1] *** reported by process [prterun-n-12@1,3]\n", 6, "stopped by an MPI error, after"),
    (
        "[n:1] *** An error occurred in MPI_Cart_coords\n[n:1] *** reported by process [9,3]\n"
        "[n:1] *** on communicator MPI_COMM_WORLD\n[n:1] *** MPI_ERR_COMM: invalid communicator\n",
        5,
        "stopped by an MPI error in MPI_Cart_coords (MPI_ERR_COMM: invalid communicator), after",
    ),
    (
        "Abort(604644357) on node 3 (rank 3 in comm 0): Fatal error in internal_Cart_coords: "
        "Invalid communicator, error stack:\n",
        5,
        "stopped by an MPI error in MPI_Cart_coords (Invalid communicator), after",
    ),
]


_NORMAL_END = "; if this is its normal end, add --end-without-finalize"


@pytest.mark.parametrize(("text", "code", "how"), DEATHS)
def test_what_launchers_say_of_a_death(text: str, code: int, how: str, tmp_path: Path) -> None:
    for rank in range(4):
        w = small(rank, 4, pid=1000 + rank, in_call=0 if rank == 3 else 4)
        w.parts.pop()  # without END
        w.save(tmp_path)
    (tmp_path / "stdout.txt").write_text(text)
    family = mpi.MPICH if "=   PID" in text or not text else mpi.OPENMPI
    command = Command(("/l/mpiexec",), "/l/mpiexec", family, ("./app",))
    verdict = diagnose.EndedRun(tmp_path, command, 4, code, None, True).verdict()
    assert verdict.error is not None
    unknown = _NORMAL_END if how == "after" else ""  # it may have ended by itself
    assert verdict.error == f"./app: rank 3 of 4 died ({how} MPI_Put){unknown}"
    assert verdict.left == CAPTURES


IMPROPER = """
--------------------------
mpiexec has exited due to process rank 3 with PID 0 on
node n exiting improperly. There are three reasons this could occur:
--------------------------
"""
SRUN = """srun: error: fetch_config: DNS SRV lookup failed
srun: fatal: Could not establish a configuration source
"""


def test_a_rank_that_left_out_mpi_finalize(tmp_path: Path) -> None:
    for rank in range(4):
        w = small(rank, 4)
        w.parts.pop()
        w.save(tmp_path)
    (tmp_path / "stderr.txt").write_text(IMPROPER)
    command = Command(("/l/mpiexec",), "/l/mpiexec", mpi.OPENMPI, ("./app",))
    verdict = diagnose.EndedRun(tmp_path, command, 4, 1, None, True).verdict()
    ended = "./app: rank 3 of 4 ended without MPI_Finalize, after MPI_Put"
    assert verdict.error == ended + _NORMAL_END


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rank 3 with PID 0 on node n exited on signal 11 (", "rank 3 of 4 was killed by SIGSEGV"),
        ("", "4 ranks: was killed by SIGSEGV"),
    ],
)
def test_a_death_after_the_end(text: str, said: str, tmp_path: Path) -> None:
    for rank in range(4):
        small(rank, 4).save(tmp_path)
    (tmp_path / "stderr.txt").write_text(f"{'-' * 26}\nprocess {text}\n{'-' * 26}\n")
    command = Command(("/l/mpiexec",), "/l/mpiexec", mpi.OPENMPI, ("./app",))
    verdict = diagnose.EndedRun(tmp_path, command, 4, 139, None, True).verdict()
    assert verdict.error is not None and verdict.error.startswith(f"./app: {said}")
    assert "after MPI_Finalize" in verdict.error


def test_a_launcher_that_starts_nothing(tmp_path: Path) -> None:
    (tmp_path / "stderr.txt").write_text(SRUN)
    command = Command(("/l/srun",), "/l/srun", mpi.SLURM, ("./app",))
    verdict = diagnose.EndedRun(tmp_path, command, 1, 1, None, True).verdict()
    assert verdict.error is not None and verdict.error.startswith(
        "srun: fatal: Could not establish a configuration source; ./app was not started at 1 rank,"
    )


SLOTS = """
--------------------------
There are not enough slots available in the system to satisfy the 64
slots that were requested by the application:

  ./app

Either request fewer slots for your application, or make more slots
available for use.

A "slot" is the Open MPI term for an allocatable unit where we can
launch a process.

Alternatively, you can use the --oversubscribe option.
--------------------------
"""
JOB_ENDED = """
--------------------------
Primary job  terminated normally, but 1 process returned
a non-zero exit code. Per user-direction, the job has been aborted.
--------------------------
"""
UCX = """[vm:6636 :0:6636] Caught signal 11 (Segmentation fault: address not mapped to object)
==== backtrace (tid:   6636) ====
 0  /lib/libucs.so.0(ucs_handle_error+0x2dc) [0x7efcf5c16e9c]
 1  ./app(+0x1151) [0x564240139151]
=================================
"""
BEFORE_INIT = [
    (
        SLOTS,
        mpi.OPENMPI,
        1,
        "mpiexec: There are not enough slots available in the system to satisfy the 64 slots that"
        " were requested by the application: ... Alternatively, you can use the --oversubscribe"
        " option; ./app was not started at 4 ranks, or failed before MPI_Init returned",
    ),
    (
        "[mpiexec@vm] HYDU_parse_hostfile (args.c:319): unable to open host file: hosts\n",
        mpi.MPICH,
        255,
        "mpiexec: HYDU_parse_hostfile (args.c:319): unable to open host file: hosts; ./app was not"
        " started at 4 ranks, or failed before MPI_Init returned",
    ),
    (
        JOB_ENDED + "ERROR: no in.nml\nLast command: (unknown)\n",
        mpi.OPENMPI,
        2,
        "./app: failed at 4 ranks before MPI_Init returned (exit code 2): ERROR: no in.nml",
    ),
    (UCX, mpi.MPICH, 255, "./app: failed at 4 ranks before MPI_Init returned (killed by SIGSEGV)"),
    (
        "munmap_chunk(): invalid pointer\n" + UCX + JOB_ENDED,
        mpi.OPENMPI,
        139,
        "./app: failed at 4 ranks before MPI_Init returned (killed by SIGSEGV): munmap_chunk():"
        " invalid pointer",
    ),
]


@pytest.mark.parametrize(("text", "family", "code", "said"), BEFORE_INIT)
def test_what_is_said_before_mpi_init_returned(
    text: str, family: str, code: int, said: str, tmp_path: Path
) -> None:
    (tmp_path / "stderr.txt").write_text(text)
    command = Command(("/l/mpiexec",), "/l/mpiexec", family, ("./app",))
    verdict = diagnose.EndedRun(tmp_path, command, 4, code, None, True).verdict()
    assert (verdict.error, verdict.left) == (said, "stderr.txt")


def test_a_signal_comes_before_what_libraries_print_of_it(tmp_path: Path) -> None:
    small(0, 1, in_call=0).save(tmp_path)
    fortran = (
        "Program received signal SIGSEGV: Segmentation fault - invalid memory reference.\n\n"
        "Backtrace for this error:\n#0  0x7f2831b4cfd0 in ???\n\tat solver.f90:12\n"
    )
    (tmp_path / "stderr.txt").write_text("step 3\n" + fortran + UCX)
    command = Command(("/l/mpiexec",), "/l/mpiexec", mpi.MPICH, ("./app",))
    verdict = diagnose.EndedRun(tmp_path, command, 1, 255, None, True).verdict()
    assert str(verdict.error).endswith("killed by SIGSEGV after MPI_Finalize")


@pytest.mark.parametrize(
    ("code", "last", "said"),
    [
        (139, "Warning: lib chatter: using default table", ""),
        (139, "ERROR: cell 3 is empty", "ERROR: cell 3 is empty"),
        (139, "double free or corruption (out)", "double free or corruption (out)"),
        (134, "solver: no convergence", "solver: no convergence"),  # a program aborts knowing why
        (1, "solver: no convergence", "solver: no convergence"),
    ],
)
def test_last_words_before_a_signal_are_no_reason(
    code: int, last: str, said: str, tmp_path: Path
) -> None:
    w = small(0, 2, in_call=0)
    w.parts.pop()
    w.save(tmp_path)
    (tmp_path / "stderr.txt").write_text(last + "\n" + JOB_ENDED)
    command = Command(("/l/mpiexec",), "/l/mpiexec", mpi.OPENMPI, ("./app",))
    verdict = diagnose.EndedRun(tmp_path, command, 2, code, None, True).verdict()
    assert str(verdict.error).endswith(f"): {said}" if said else ")")


def test_a_killed_p3s_leaves_no_launcher_behind(dies: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from p3s.signature_runner.launch import run_traced;"
        "run_traced(sys.argv[2:], 2, Path(sys.argv[1]), timeout_s=300)"
    )
    run_dir = tmp_path / "run"
    words = [launcher(), "-n", "{np}", str(dies), "hang", "1"]
    process = subprocess.Popen([sys.executable, "-c", code, str(run_dir), *words])
    files = [run_dir / f"rank-{rank:06d}.p3t" for rank in (0, 1)]
    try:
        wait_for(lambda: all(path.exists() and path.stat().st_size > 5000 for path in files))
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    finally:
        process.kill()
        process.wait()
    pids = [*map(int, children), *(read_header(path).pid for path in files)]
    assert len(pids) == 3
    try:
        wait_for(lambda: not any(running(pid) for pid in pids))
    finally:
        for pid in filter(running, pids):
            os.kill(pid, signal.SIGKILL)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def running(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}/exe")


def test_a_place_that_cannot_be_written(dies: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    words = [launcher(), "-n", "{np}", str(dies), "none", "1"]
    said = refused(words, 2, tmp_path / "file" / "run")
    assert "cannot be written" in said and str(tmp_path / "file") in said


def test_output_is_passed_on_as_it_appears(dies: Path, tmp_path: Path) -> None:
    pieces: list[tuple[str, str]] = []
    # A program that ends well: of one that aborts, a launcher may not pass on everything.
    words = [launcher(), "-n", "{np}", "sh", "-c", f"echo heard >&2; exec '{dies}' none 1"]
    run_traced(
        words, 2, tmp_path, timeout_s=TIMEOUT_S, on_output=lambda n, t: pieces.append((n, t))
    )
    seen = "".join(text for name, text in pieces if name == "stderr")
    assert seen.count("heard") == 2
    assert seen == (tmp_path / "stderr.txt").read_text()


def test_output_that_cannot_be_kept_is_told_and_nobody_waits(dies: Path, tmp_path: Path) -> None:
    """A program that writes more than a pipe holds ends all the same."""
    heard: list[str] = []
    (tmp_path / "stdout.txt").symlink_to("/dev/full")
    chatter = f"head -c 300000 /dev/zero; exec '{dies}' none 1"
    words = [launcher(), "-n", "{np}", "sh", "-c", chatter]
    with pytest.raises(P3SError, match="cannot be written: No space left on device"):
        run_traced(
            words, 2, tmp_path, timeout_s=TIMEOUT_S, on_output=lambda name, text: heard.append(text)
        )
    assert sum(map(len, heard)) >= 600000


def test_the_tracer_is_compiled_once_and_private(
    dies: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = build.ensure_tracer(program=str(dies))
    before = first.path.stat().st_mtime_ns
    again = build.ensure_tracer(program=str(dies))
    assert again == first and again.path.stat().st_mtime_ns == before
    assert stat.S_IMODE((tmp_path / "p3s").stat().st_mode) == 0o700
    made = sorted(path.name for path in (tmp_path / "p3s").iterdir() if path.suffix != ".lock")
    assert made == [first.path.name, f"{first.path.name}.sha256"]
    install = the_mpi()
    assert install is not None and first.mpi_family == install.family


def test_a_cache_that_preload_cannot_name_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "with space"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert compiling.cache_dir() == tmp_path / f"p3s-{os.getuid()}"


def test_a_compiler_that_is_none(tmp_path: Path) -> None:
    fake = tmp_path / "mpicc"
    fake.write_text("#!/bin/sh\nexit 1\n")
    fake.chmod(0o755)
    with pytest.raises(P3SError, match="does not compile MPI programs"):
        build.ensure_tracer(mpicc=str(fake))


def test_another_family_than_the_launcher(dies: Path, tmp_path: Path) -> None:
    install = usable_mpi()
    other = next(
        (m for m in mpi.find_mpi() if m.family != install.family and m.mpiexec is not None), None
    )
    if other is None:
        pytest.skip("only one MPI here")
    assert other.mpiexec is not None
    said = refused([other.mpiexec, "-n", "{np}", str(dies), "none", "1"], 2, tmp_path)
    assert "the launcher of another MPI" in said
    own = [m.mpiexec for m in mpi.find_mpi() if m.family == install.family and m.mpiexec]
    assert said.endswith(tuple(f"start it with {path}" for path in own))


@pytest.mark.parametrize(
    ("version", "usable"), [("4.0.2", False), ("4.0", False), ("3.4.1", False), ("4.1.2", True)]
)
def test_mpich_that_cannot_share_cores_is_named(version: str, usable: bool, tmp_path: Path) -> None:
    fake = tmp_path / "mpicc"
    fake.write_text(f'#!/bin/sh\necho "p3s_is mpich \\"{version}\\""\n')
    fake.chmod(0o755)
    install = mpi.describe(str(fake))
    assert install is not None
    assert (install.family, install.version) == (mpi.MPICH, version)
    assert install.usable_oversubscribed is usable
    assert bool(install.why_not) is not usable
    assert os.path.dirname(install.mpicc) == str(tmp_path)
