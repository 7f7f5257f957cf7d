"""The commands on real MPI programs: the whole way, and every wrong turn that needs a real run."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from commands import p3s, started
from endings import only_work
from paths import ROOT

from p3s.base.host.cores import cores

#: What speaks against a prediction where other programs took the cores while tracing.
NOISE = {"holdout-work", "model-off", "superlinear", "validate-work", "wide"}

DIES = """
#include <mpi.h>
#include <signal.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
    int rank, size, victim_at = atoi(argv[argc - 1]);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Barrier(MPI_COMM_WORLD);
    if (size == victim_at && rank == size - 1)
        raise(SIGKILL);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
"""


def tool(name: str) -> str:
    """Return mpicc or mpiexec: the one in PATH, else the one beside this Python."""
    beside = Path(sys.executable).parent / name
    found = shutil.which(name) or (str(beside) if beside.exists() else None)
    if found is None:
        pytest.skip(f"no {name} in PATH and none beside {sys.executable}")
    return found


def alive(word: str) -> list[int]:
    """Return the processes that have a word on their command line."""
    return [p.pid for p in psutil.process_iter(["cmdline"]) if word in (p.info["cmdline"] or [])]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory with the examples and a program of which one rank dies, compiled."""
    folder = tmp_path_factory.mktemp("programs")
    words = ("make", "-s", "-C", ROOT / "examples", f"MPICC={tool('mpicc')}", f"BIN={folder}")
    assert started(words).code == 0
    (folder / "dies.c").write_text(DIES)
    assert started([tool("mpicc"), "dies.c", "-o", "dies"], folder).code == 0
    return folder


def launch(program: Path | str, *args: str) -> list[str]:
    return ["--", tool("mpiexec"), "-n", "{np}", str(program), *args]


@pytest.fixture(scope="module")
def study(programs: Path) -> Path:
    """A characterized and modelled study of the 2-D example, of a size that divides unevenly."""
    command = launch("./jacobi2d", "--nx", "61", "--ny", "47", "--iterations", "20", "--check", "4")
    done = p3s("characterize -n 2,4,6,9 -o study --json", *command, cwd=programs)
    result = done.data
    assert [row["np"] for row in result["counts"]] == [2, 4, 6, 9]
    assert all(row["signature"]["events"] > 0 for row in result["counts"])
    done = p3s("model study --json", code=None, cwd=programs)
    assert only_work(done.code, done.err), done.err
    assert done.data["schema"] == "p3s.model"
    return programs / "study"


def test_validate_prints_the_promised_numbers(study: Path) -> None:
    done = p3s("validate study -n 12 --json", code=None, cwd=study.parent)
    assert only_work(done.code, done.err), done.err
    result = done.data
    for key in ("p2p_triples", "collectives"):
        assert set(result[key]) == {"true", "predicted", "equal"}
        assert result[key]["true"] == result[key]["predicted"] == result[key]["equal"] > 0
    assert result["weights"]["phases"] == result["weights"]["exact"] > 0
    assert result["work"]["mean_abs_error"] >= 0 and result["work"]["max_abs_error"] >= 0
    assert result["unmodelled"]["events"] == 0
    # Two iterations' worth of boundary: 20 iterations, 4 directions, a 4 x 3 grid.
    assert result["p2p_triples"]["true"] == 20 * 2 * (3 * 3 + 4 * 2)
    assert (study / "validate" / "np000012.json").exists()
    assert result["run_time"]["measured_s"] > 0
    why = result["run_time"]["why_not"]
    assert why == "shared-cores" if cores() < 12 else why in ("off-core", "not-predicted")


def test_validate_works_from_another_directory(study: Path, tmp_path: Path) -> None:
    """The study's command names the program from where it was traced: it is run there."""
    shutil.copytree(study, tmp_path / "copy")
    done = p3s("validate copy -n 3", code=None, cwd=tmp_path)
    assert f"running in {study.parent}" in done.err and "run time: measured" in done.out
    again = p3s("validate copy -n 3 --no-run", code=None, cwd=tmp_path)
    assert again.out == done.out and "running" not in again.err
    assert p3s("validate copy -n 5 --no-run", code=None, cwd=tmp_path).code == 2


def test_predict_and_report(study: Path) -> None:
    done = p3s("predict study -n 16 --json", code=None, cwd=study.parent)
    result = done.data
    codes = {each["code"] for each in result["reasons"] if each["untrustworthy"]}
    assert codes <= NOISE and done.code == (3 if codes else 0), done.err
    assert result["network"]["source"] == "typical"
    assert [row["n"] for row in result["counts"]] == [2, 4, 6, 9, 16]
    for row in result["counts"]:
        assert row["time_s"] > 0 and row["speedup"] > 0
        assert row["model_s"] == pytest.approx(row["compute_s"] + row["comm_s"])
        assert row["measured"] is (row["n"] != 16)
        if row["measured"]:
            assert row["measured_s"] > 0 and row["measured_work_s"] > 0
    done = p3s("report study", code=3 if codes else 0, cwd=study.parent)
    assert str(Path("study", "report.html")) in done.out and "speedup" in done.out
    page = (study / "report.html").read_text()
    assert "block" in page and "Allreduce" in page and "http" not in page.split("</head>")[1]
    assert (study / "speedup.png").read_bytes().startswith(b"\x89PNG")


def test_program_is_found_from_another_directory(study: Path, tmp_path: Path) -> None:
    """Also when the study is copied: run.json has the program's absolute path."""
    copy = tmp_path / "else" / "study"
    shutil.copytree(study, copy)
    done = p3s("phases", str(copy), cwd=tmp_path)
    assert "jacobi2d.c:" in done.out
    assert "not found" not in done.err and "+0x" not in done.out


def test_refused_counts_are_named_and_the_others_kept(programs: Path) -> None:
    done = p3s("characterize -n 2,3,4,8 -o cg-study", *launch("./cg"), code=3, cwd=programs)
    assert any(
        "np=3" in line and "exit code" in line and "power of two" in line
        for line in done.err.splitlines()[-2:]
    )
    runs = json.loads((programs / "cg-study" / "study.json").read_text())["runs"]
    assert sorted({run["np"] for run in runs}) == [2, 4, 8]
    done = p3s("characterize -n 3,5,6 -o cg-none", *launch("./cg"), code=1, cwd=programs)
    assert done.out == ""
    assert "np=3, 5, 6" in done.last and "power of two" in done.last


def test_launchers_own_reason_is_shown_with_the_place_of_the_rest(programs: Path) -> None:
    """The launcher starts nothing: its own text says why, not P3S's guess."""
    command = ["--", tool("mpiexec"), "--bind-to", "nowhere", "-n", "{np}", "./ring"]
    done = p3s("characterize -n 2,3,4 -o no-start", *command, code=1, cwd=programs)
    assert "nowhere" in done.last
    assert "no-start/runs/np*.r0.failed/std" in done.last
    kept = programs / "no-start" / "runs" / "np0002.r0.failed"
    assert any("nowhere" in (kept / f"{name}.txt").read_text() for name in ("stdout", "stderr"))


def test_dead_rank_is_named_and_nothing_is_lost(programs: Path) -> None:
    command = launch("./dies", "-o", "--json", "3")
    done = p3s("characterize -n 2,4,5 -o dies-study", *command, cwd=programs)
    before = sorted(p.name for p in (programs / "dies-study" / "runs").iterdir())
    done = p3s("characterize -n 3 -o dies-study", *command, code=3, cwd=programs)
    assert "rank" in done.err and "np=3" in done.err and "died" in done.err
    after = sorted(p.name for p in (programs / "dies-study" / "runs").iterdir())
    assert set(after) - set(before) == {"np0003.r0.failed"} and set(before) <= set(after)


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("./no-such-program", "not found"),
        ("/bin/true", "no MPI call seen"),
        ("./dies.c", "not executable"),
    ],
)
def test_what_is_no_mpi_program_is_one_line(programs: Path, program: str, says: str) -> None:
    done = p3s("characterize -n 2,4,8 -o wrong", *launch(program), code=1, cwd=programs)
    assert done.out == ""
    before = ("tracing into", "note: -n 2,4,8 has")
    lines = [line for line in done.err.splitlines() if not line.startswith(before)]
    assert len(lines) == 1 and says in lines[0]
    assert not (programs / "wrong").exists()


def test_run_that_does_not_end_is_ended(programs: Path) -> None:
    """An endless run is stopped by --timeout, named, and leaves no process behind."""
    command = launch("./jacobi2d", "--nx", "400", "--ny", "400", "--iterations", "100000000")
    done = p3s("characterize -n 2,3,4 -o slow --timeout 1", *command, code=1, cwd=programs)
    assert "not finished after 1 s" in done.last
    assert not alive("100000000")


def test_terminated_command_takes_its_program_along(programs: Path) -> None:
    command = launch("./jacobi2d", "--nx", "400", "--ny", "400", "--iterations", "200000000")
    process = subprocess.Popen(
        [sys.executable, "-m", "p3s", "characterize", "-n", "2,3,4", "-o", "ended", *command],
        cwd=programs,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        # The capture appears when the program has started.
        for _ in range(600):
            if list(programs.glob("ended/runs/.*/rank-*.p3t")):
                break
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.1)
        assert process.poll() is None
        process.terminate()
        _, err = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert process.returncode == 128 + signal.SIGTERM and "Traceback" not in err
    assert not alive("200000000")
    assert [p.name for p in (programs / "ended" / "runs").iterdir()] == ["np0002.r0.stopped"]
