"""Programs that are started or end in other ways than one binary from MPI_Init to MPI_Finalize."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from commands import p3s
from tracer_helpers import PROGRAMS, TIMEOUT_S, compile_c, the_mpi, usable_mpi

from p3s.base.errors import P3SError
from p3s.base.host import mpi
from p3s.capture import read_run
from p3s.signature_runner.launch import _environment, run_traced
from p3s.signature_runner.recording import Recording

pytestmark = [pytest.mark.skipif(the_mpi() is None, reason="no usable MPI")]


def mpiexec() -> str:
    install = usable_mpi()
    return install.mpiexec


def info(run: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((run / "run.json").read_text())
    return record


def calls(run: Path, name: str) -> int:
    """Return how many calls of a name rank 0 made."""
    trace = read_run(run)
    return sum(trace.calls[number].op == f"MPI_{name}" for number in trace.ranks[0].call.tolist())


@pytest.fixture(scope="module")
def bin_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bin")


# ---- standard input ------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["file", "pipe"])
def test_every_run_gets_the_standard_input(kind: str, bin_dir: Path, tmp_path: Path) -> None:
    program = compile_c(PROGRAMS / "launching/reads_input.c", bin_dir / "reads_input")
    launch = ["--", mpiexec(), "-n", "{np}", str(program)]
    (tmp_path / "turns").write_text("12\n")
    words = ["characterize", "-n", "1,2,3", "-o", "s", *launch]
    with open(tmp_path / "turns") as file:
        given: dict[str, Any] = {"stdin": file} if kind == "file" else {"input": "12\n"}
        done = p3s(*words, code=None, **given, cwd=tmp_path)
    assert done.code == 0, done.err
    for np in (1, 2, 3):
        run = tmp_path / f"s/runs/np{np:04d}.r0"
        assert calls(run, "Barrier") == 12
        digest = hashlib.sha256(b"12\n").hexdigest()
        assert info(run)["stdin"] == {"bytes": 3, "sha256": digest}
    # Later runs have the same, given or not; another is refused before anything runs.
    done = p3s("validate s -n 4", code=(0, 3), cwd=tmp_path)
    assert "differ; the table says where" not in done.err
    assert calls(tmp_path / "s/validate/np000004.r0", "Barrier") == 12
    p3s("validate s -n 4", code=2, input="13\n", cwd=tmp_path, err="another standard input")
    p3s(*words, code=2, input="13\n", cwd=tmp_path, err="another standard input")


def test_a_study_without_standard_input_stays_so(bin_dir: Path, tmp_path: Path) -> None:
    program = compile_c(PROGRAMS / "launching/reads_input.c", bin_dir / "reads_input")
    words = ["characterize", "-n", "1,2,3", "-o", "s", "--", mpiexec(), "-n", "{np}", str(program)]
    assert p3s(*words, code=None, cwd=tmp_path).code == 0
    assert calls(tmp_path / "s/runs/np0002.r0", "Barrier") == 5
    assert info(tmp_path / "s/runs/np0002.r0")["stdin"] == {"bytes": 0}
    p3s(*words, code=2, input="12\n", cwd=tmp_path, err="add < /dev/null")


def test_untraced_runs_get_it_too(bin_dir: Path, tmp_path: Path) -> None:
    program = compile_c(PROGRAMS / "launching/reads_input.c", bin_dir / "reads_input")
    words = ["baseline", "run", "-n", "1,2", "-o", "t.json", "--time-from", r"turns: (\d+)"]
    words += ["--", mpiexec(), "-n", "{np}", str(program)]
    p3s(*words, input="12\n", cwd=tmp_path)
    times = json.loads((tmp_path / "t.json").read_text())
    assert {run["seconds"] for run in times["runs"]} == {12.0}
    p3s(*words, code=2, cwd=tmp_path, err="another standard input")


@pytest.mark.parametrize("jobs", ["one", "each", "array"])
def test_jobs_get_the_standard_input(jobs: str, tmp_path: Path) -> None:
    words = ["submit", "study", "-n", "2,4,8", "--jobs", jobs, "--ppn", "2", "--scheduler", "slurm"]
    p3s(*words, "--", "srun", "-n", "{np}", "./program", input="12\n", cwd=tmp_path)
    copy = tmp_path / "study-jobs/stdin.txt"
    assert copy.read_text() == "12\n"
    scripts = [path.read_text() for path in (tmp_path / "study-jobs").glob("trace*.sh")]
    assert scripts and all(f"< {copy}" in text.replace(" \\\n   ", "") for text in scripts)


# ---- MPI that the program opens, LD_PRELOAD that a script overwrites ------
@pytest.mark.parametrize("how", ["RTLD_LOCAL", "RTLD_GLOBAL"])
def test_an_mpi_library_that_the_program_opens_is_traced(
    how: str, bin_dir: Path, tmp_path: Path
) -> None:
    linked = compile_c(PROGRAMS / "launching/reads_input.c", bin_dir / "reads_input")
    library = mpi.library_of(str(linked))
    assert library is not None
    flags = [f'-DLIB="{library[1]}"', f"-DHOW={how}", "-Wl,--as-needed", "-ldl"]
    program = compile_c(PROGRAMS / "launching/opens_mpi.c", bin_dir / how, *flags)
    assert mpi.library_of(str(program)) is None
    run_traced([mpiexec(), "-n", "{np}", str(program)], 2, tmp_path, timeout_s=TIMEOUT_S)
    assert [calls(tmp_path, name) for name in ("Init", "Barrier", "Finalize")] == [1, 7, 1]


@pytest.mark.parametrize(
    "start", ["LD_PRELOAD=/none.so; exec {}", "unset LD_PRELOAD; {}", "exec env -i PATH=$PATH {}"]
)
def test_a_lost_preload_is_named_with_its_way(start: str, bin_dir: Path, tmp_path: Path) -> None:
    program = compile_c(PROGRAMS / "launching/reads_input.c", bin_dir / "reads_input")
    script = tmp_path / "start.sh"
    script.write_text(f"#!/bin/sh\n{start.format(program)}\n")
    script.chmod(0o755)
    words = [mpiexec(), "-n", "{np}", str(script)]
    with pytest.raises(P3SError, match="another LD_PRELOAD") as caught:
        run_traced(words, 1, tmp_path / "run", timeout_s=TIMEOUT_S)
    assert str(program) in str(caught.value) and "`p3s exec --`" in str(caught.value)
    if "-i" in start:
        return  # the variables of the launcher are gone, too
    script.write_text(f"#!/bin/sh\n{start.format(f'{sys.executable} -m p3s exec -- {program}')}\n")
    run_traced(words, 1, tmp_path / "run", timeout_s=TIMEOUT_S)
    assert calls(tmp_path / "run", "Barrier") == 5


# ---- ends without MPI_Finalize ------
@pytest.mark.parametrize("how", ["exit", "_exit", "abort"])
def test_an_end_without_finalize_can_be_the_normal_one(
    how: str, bin_dir: Path, tmp_path: Path
) -> None:
    program = compile_c(PROGRAMS / "launching/ends.c", bin_dir / "ends")
    words = [mpiexec(), "-n", "{np}", str(program), how]
    with pytest.raises(P3SError, match="add --end-without-finalize"):
        run_traced(words, 2, tmp_path, timeout_s=TIMEOUT_S)
    for np in (1, 4):
        recording = Recording(unfinalized=True)
        run_traced(words, np, tmp_path, timeout_s=TIMEOUT_S, recording=recording)
        assert info(tmp_path)["status"] == "complete"
        assert info(tmp_path)["end_without_finalize"] is True
        trace = read_run(tmp_path)
        assert not trace.problem and {len(rank.call) for rank in trace.ranks} == {21}


def test_an_end_by_an_error_is_none(bin_dir: Path, tmp_path: Path) -> None:
    program = compile_c(PROGRAMS / "launching/ends.c", bin_dir / "ends")
    words = [mpiexec(), "-n", "{np}", str(program), "x"]
    with pytest.raises(P3SError, match="rank 0 of 2"):
        recording = Recording(unfinalized=True)
        run_traced(words, 2, tmp_path, timeout_s=TIMEOUT_S, recording=recording)
    assert info(tmp_path)["status"] == "partial"


def test_later_runs_of_a_study_may_end_so_too(bin_dir: Path, tmp_path: Path) -> None:
    program = compile_c(PROGRAMS / "launching/ends.c", bin_dir / "ends")
    launch = ["--", mpiexec(), "-n", "{np}", str(program), "exit"]
    option = "--end-without-finalize"
    done = p3s(f"characterize {option} -n 1,2,3 -o s", *launch, cwd=tmp_path)
    done = p3s("validate s -n 4", code=(0, 3), cwd=tmp_path)
    assert "differ; the table says where" not in done.err


def test_an_exit_code_of_its_own_can_be_the_normal_end(bin_dir: Path, tmp_path: Path) -> None:
    conform = PROGRAMS / "conformance"
    program = compile_c(conform / "exit_code.c", bin_dir / "exit_code", f"-I{conform}")
    launch = ["--", mpiexec(), "-n", "{np}", str(program)]
    refused = p3s("characterize -n 1,2,3 -o s", *launch, cwd=tmp_path, code=None)
    assert refused.code and "if this is its normal end, add --accept-exit 6" in refused.err
    p3s("characterize --accept-exit 6 -n 1,2,3 -o s", *launch, cwd=tmp_path)
    assert info(tmp_path / "s/runs/np0003.r0")["accepted_exit"] == 6
    p3s("validate s -n 4", code=(0, 3), cwd=tmp_path)


# ---- several programs in one launch ------
def coupled(folder: Path) -> list[str]:
    """Return two programs, of one process and of any number, that run together."""
    source = PROGRAMS / "launching/coupled.c"
    return [str(compile_c(source, folder / f"of{k}", f"-DWORKER={k}")) for k in (0, 1)]


def validated(folder: Path, np: int) -> bool:
    """Tell whether messages and collectives of a run are as in the model."""
    done = p3s("validate s -n", str(np), code=(0, 3), cwd=folder)
    rows = [line for line in done.out.splitlines() if line.startswith(("messages", "collectives"))]
    return len(rows) == 2 and all(row.endswith(" 100.00 %") for row in rows)


def test_programs_of_one_launch_are_traced_together(bin_dir: Path, tmp_path: Path) -> None:
    first, second = coupled(bin_dir)
    launch = [mpiexec(), "-n", "1", first, ":", "-n", "{np-1}", second, "x"]
    p3s("characterize -n 2,3,5 -o s --", *launch, cwd=tmp_path)
    assert validated(tmp_path, 4)


def test_captured_programs_of_one_launch_are_all_in_the_study(
    bin_dir: Path, tmp_path: Path
) -> None:
    first, second = coupled(bin_dir)
    inside = [sys.executable, "-m", "p3s", "exec", "-o", "run-{np}", "--"]
    for np in (2, 3, 5):
        words = [mpiexec(), "-n", "1", *inside, first, ":", "-n", str(np - 1), *inside, second, "x"]
        subprocess.run(
            [word.replace("{np}", str(np)) for word in words],
            cwd=tmp_path,
            env={**os.environ, **_environment(True, "")},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=TIMEOUT_S,
        )
    p3s("add s run-2 run-3 run-5", cwd=tmp_path)
    (command,) = json.loads((tmp_path / "s/study.json").read_text())["commands"]
    assert command[1:] == ["-n", "1", first, ":", "-n", "{np-1}", second, "x"]
    assert validated(tmp_path, 4)
