"""``p3s doctor``: each thing that is missing is named with what to do about it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from commands import P3S, Shown, cli
from test_exec import run
from tracer_helpers import PROGRAMS, compile_c, the_mpi, usable_mpi

from p3s.base.errors import P3SError
from p3s.base.host import mpi
from p3s.signature_runner import examine
from p3s.signature_runner.launch import run_traced

pytestmark = [pytest.mark.skipif(the_mpi() is None, reason="no usable MPI")]
STATUSES = ("ok", "info", "warn", "fail")
# What Debian's static MPICH needs of other libraries, as files: their development packages
# need not be there.
STATIC_MPICH = Path("/usr/lib/x86_64-linux-gnu/libmpich.a")
STATIC_NEEDS = ("libucp.so.0", "libucs.so.0", "libuct.so.0", "libhwloc.so.15", "libfabric.so.1")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c(PROGRAMS / "dies.c", tmp_path_factory.mktemp("bin") / "dies")


def mpiexec() -> str:
    install = usable_mpi()
    return install.mpiexec


def other_mpi() -> mpi.MpiInstall:
    install = usable_mpi()
    for found in mpi.find_mpi():
        if found.family != install.family and found.mpiexec:
            return found
    pytest.skip("only one MPI family here")


def about(cwd: Path, *command: str) -> tuple[Shown, dict[str, dict[str, str]]]:
    """Run doctor on a command; return how it ended and its checks by name."""
    done = run([*P3S, "doctor", "--json", "--", *command], cwd)
    rows = json.loads(done.out)["checks"]
    assert all("\n" not in row["detail"] + row["fix"] for row in rows)
    return done, {row["name"]: row for row in rows}


def test_every_event_of_every_trial_is_there() -> None:
    found = examine.checks()
    assert all(check.status in STATUSES for check in found)
    assert all(check.fix for check in found if check.status in ("warn", "fail"))
    traced = [check for check in found if check.name.startswith("trace ")]
    install = usable_mpi()
    assert f"trace {install.family}" in {check.name for check in traced}
    # Of an MPI that cannot share cores a busy machine may spoil the trial.
    bad = [check for check in traced if check.status == "fail"]
    assert bad == [] and any(check.detail == "2 ranks, 46 of 46 events" for check in traced)
    names = {check.name for check in found}
    assert {"instructions", "counters", "slurm", "directory", "cache"} <= names


def test_a_missing_event_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    install = usable_mpi()
    more = examine.Trial(examine.C.name, examine.C.text, {**examine.C.events, "MPI_Barrier": 2})
    monkeypatch.setattr(examine, "C", more)
    check = examine.trace_c(install)
    assert check.status == "fail" and "MPI_Barrier -1" in check.detail and check.fix


def test_a_program_that_is_traced(program: Path, tmp_path: Path) -> None:
    done, found = about(tmp_path, mpiexec(), "-n", "{np}", str(program), "none", "1")
    assert done.code == 0, done.err
    assert found["program"]["status"] == "ok" and "libmpi" in found["program"]["detail"]
    assert "2 ranks traced to their end" in found["start"]["detail"]
    assert list(tmp_path.iterdir()) == []


def test_a_program_that_takes_long(program: Path, tmp_path: Path) -> None:
    done, found = about(tmp_path, mpiexec(), "-n", "{np}", str(program), "hang", "1")
    assert done.code == 0, done.err
    assert "2 ranks traced, stopped after" in found["start"]["detail"]


def test_a_program_that_comes_late_to_mpi(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time begins with MPI: a launcher that queues and large programs take a while to it."""
    monkeypatch.setattr(examine, "_TRY_S", 0.5)
    words = [mpiexec(), "-n", "{np}", "sh", "-c", f"sleep 2; exec '{program}' hang 1"]
    (start,) = [check for check in examine.examine(words) if check.name == "start"]
    assert (start.status, start.fix) == ("ok", "")
    assert "2 ranks traced, stopped after 0.5 s" in start.detail
    monkeypatch.setattr(examine, "TIMEOUT_S", 0.5)
    (start,) = [check for check in examine.examine(words) if check.name == "start"]
    assert start.status == "fail" and "not finished after 1 s" in start.detail


@pytest.mark.skipif(not STATIC_MPICH.is_file(), reason="no static MPI library (libmpich-dev)")
def test_a_static_mpi(tmp_path: Path) -> None:
    target = tmp_path / "static"
    words = ["gcc", str(PROGRAMS / "dies.c"), "-I/usr/include/x86_64-linux-gnu/mpich"]
    words += [str(STATIC_MPICH), *(f"-l:{name}" for name in STATIC_NEEDS), "-lpthread", "-lm"]
    built = subprocess.run([*words, "-o", str(target)], capture_output=True, timeout=120)
    if built.returncode:
        pytest.skip("the static MPICH cannot be linked here")
    launcher = shutil.which("mpiexec.mpich")
    if launcher is None:
        pytest.skip("no mpiexec.mpich")
    done, found = about(tmp_path, launcher, "-n", "{np}", str(target), "none", "1")
    assert done.code == 1 and "start" not in found
    assert "statically" in found["program"]["detail"]
    assert "shared MPI library" in found["program"]["fix"]
    with pytest.raises(P3SError, match="has MPI linked statically; .*p3s doctor --tracer-archive"):
        words = [launcher, "-n", "{np}", str(target), "none", "1"]
        run_traced(words, 2, tmp_path / "run", timeout_s=300)


def test_a_program_of_another_mpi_than_the_launcher(program: Path, tmp_path: Path) -> None:
    other = other_mpi()
    assert other.mpiexec is not None
    done, found = about(tmp_path, other.mpiexec, "-n", "{np}", str(program), "none", "1")
    assert done.code == 1
    assert "the launcher of another MPI" in found["program"]["detail"]
    assert mpi.launcher_family(found["program"]["fix"].split()[-1]) == mpi.find_mpi()[0].family


def test_mpi4py_under_the_wrong_launcher(tmp_path: Path) -> None:
    loaded = mpi.library_of_python(sys.executable)
    if loaded is None:
        pytest.skip("mpi4py does not load")
    wrong = next((m for m in mpi.find_mpi() if m.family != loaded[0] and m.mpiexec), None)
    if wrong is None or wrong.mpiexec is None:
        pytest.skip("only one MPI family here")
    (tmp_path / "app.py").write_text("from mpi4py import MPI\nMPI.COMM_WORLD.Barrier()\n")
    words = [wrong.mpiexec, "-n", "{np}", sys.executable, str(tmp_path / "app.py")]
    done, found = about(tmp_path, *words)
    assert done.code == 1
    assert found["mpi4py"]["status"] == "warn"
    assert f"MPI4PY_MPIABI={wrong.family}" in found["mpi4py"]["fix"]
    assert found["start"]["status"] == "fail"
    assert "another MPI than" in found["start"]["detail"]
    with pytest.raises(P3SError, match=f"MPI4PY_MPIABI={wrong.family}$"):
        run_traced(words, 2, tmp_path / "run", timeout_s=300)


def test_ranks_that_do_not_find_each_other(program: Path, tmp_path: Path) -> None:
    script = tmp_path / "alone.sh"
    script.write_text(
        "#!/bin/sh\n"
        "for name in $(env | cut -d= -f1 | grep -E '^(PMI|OMPI|OPAL|PRTE|HYD|MPI)'); do\n"
        "  case $name in *ROOT*) ;; *) unset $name ;; esac\ndone\n"
        f"exec {program} none 1\n"
    )
    script.chmod(0o755)
    done, found = about(tmp_path, mpiexec(), "-n", "{np}", str(script))
    assert done.code == 1
    assert "a script" in found["program"]["detail"]
    assert "2 separate programs of 1 rank" in found["start"]["detail"]
    assert "mpiexec of the MPI it uses" in found["start"]["fix"]


def test_what_cannot_be_started(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("no program\n")
    (tmp_path / "text").write_text("no program\n")
    (tmp_path / "text").chmod(0o755)
    for words, name, said in (
        (["./plain"], "command", "not executable; `chmod +x ./plain`"),
        (["./absent"], "command", "program not found"),
        (["./text"], "program", "neither a program nor a script"),
        (["sh", "-c", "exit 3"], "start", "failed at 2 ranks before MPI_Init"),
    ):
        done, found = about(tmp_path, mpiexec(), "-n", "{np}", *words)
        assert done.code == 1 and found[name]["status"] == "fail"
        assert said in found[name]["detail"] and found[name]["fix"]


@pytest.mark.skipif(os.getuid() == 0, reason="root can write everywhere")
def test_places_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tmp_path.chmod(0o500)
    try:
        check = examine._directory()
    finally:
        tmp_path.chmod(0o700)
    assert check.status == "warn" and "-o" in check.fix and str(tmp_path) in check.detail


def test_a_directory_on_which_nothing_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/proc/self")  # also for root
    check = examine._directory()
    assert check.status == "warn" and "nothing can be written" in check.detail and check.fix


def test_no_place_for_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    monkeypatch.setattr("tempfile.tempdir", "/proc/nowhere either")
    check = examine._cache()
    assert check.status == "fail" and "XDG_CACHE_HOME" in check.fix
    assert "/proc/nowhere" in check.detail


def test_a_library_that_does_not_load(tmp_path: Path) -> None:
    """It is named in one line, by the command that needs it and by doctor."""
    (tmp_path / "pyarrow.py").write_text("raise ImportError('needs NumPy 2.0\\nor newer')\n")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    code = "from p3s.signature_runner.examine import _libraries as f; print(f().status, f().detail)"
    ran = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120
    )
    assert ran.stdout == "fail pyarrow cannot be loaded: needs NumPy 2.0\n"
    assert examine._libraries().status == "ok"


def test_no_mpi_at_all() -> None:
    (check,) = examine._installs([], [])
    assert check.status == "fail" and "pip install mpich" in check.fix


def test_an_mpi_without_a_compiler_is_enough_where_the_tracer_came_with_p3s() -> None:
    there = mpi.MpiInstall(mpi.MPICH, "5.0.2", "", "/m/mpiexec", True, "")
    (check,) = examine._installs([], [there])
    assert check.status == "ok" and "the tracer came with P3S" in check.detail


def test_mpich_that_waits_without_yielding_is_named() -> None:
    old = mpi.MpiInstall(mpi.MPICH, "4.0.2", "/m/mpicc", "/m/mpiexec", False, "waits")
    (check,) = examine._installs([old], [])
    assert check.status == "warn" and "waits" in check.detail and check.fix


def test_every_check_that_failed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [examine.Check(name, "fail", "absent", "bring it") for name in ("compiler", "mpi")]
    monkeypatch.setattr(
        examine, "checks", lambda command=(): [*found, examine.Check("a", "ok", "")]
    )
    assert cli("doctor", code=1).err == "2 of 3 checks failed: compiler, mpi\n"
