"""Launches of ``p3s exec`` and the directories they write into."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from commands import P3S
from test_exec import SHARING, TIMEOUT_S, launch, mpi_only, run
from tracer_helpers import PROGRAMS, compile_c, usable_mpi

from p3s.base.errors import P3SError
from p3s.capture.chunks import read_header
from p3s.signature_runner import attach as claims
from p3s.signature_runner.attach import NAME, Launch, claim, this_launch

OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "0", "PMIX_NAMESPACE": "77"}
STEP = {"SLURM_JOB_ID": "5", "SLURM_STEP_ID": "2", "SLURM_SRUN_COMM_PORT": "31"}


@pytest.mark.parametrize(
    ("env", "name"),
    [
        (OPEN_MPI, "OMPI_COMM_WORLD_RANK 77"),
        ({**STEP, "SLURM_PROCID": "3", **OPEN_MPI}, "OMPI_COMM_WORLD_RANK 77"),
        ({**STEP, "SLURM_PROCID": "3"}, "SLURM_PROCID 5 2 31"),
        ({**STEP, "PMIX_RANK": "3", "PMIX_NAMESPACE": "slurm.pmix.5.2"}, "PMIX_RANK slurm.pmix.5"),
        ({"FLUX_TASK_RANK": "1", "FLUX_JOB_ID": "f9"}, "FLUX_TASK_RANK f9"),
    ],
)
def test_the_ranks_of_a_launch_agree(env: dict[str, str], name: str) -> None:
    found = this_launch(env)
    assert found is not None and found.everywhere and found.name.startswith(name)
    assert len(found.run_id) == 32


def test_what_a_program_outside_of_launchers_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "parents", lambda most: iter([(1, "init")]))
    assert this_launch({}) is None
    monkeypatch.setattr(claims, "parents", lambda most: iter([(os.getpid(), "mpiexec")]))
    found = this_launch({})
    assert found is not None and not found.everywhere and found.run_id == ""


def test_one_launch_per_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    one, other = Launch("one", True), Launch("other", True)
    claim(tmp_path, one)
    claim(tmp_path, one)  # another of its ranks
    with pytest.raises(P3SError, match=r"another launch is about to write .* -o"):
        claim(tmp_path, other)
    claim(tmp_path, None)  # it cannot be told which launch this is
    assert [path.name for path in tmp_path.glob(f"{NAME}*")] == [NAME]


def test_a_launch_that_is_over_is_in_nobodys_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    code = (
        "import sys; from pathlib import Path; from p3s.signature_runner.attach import *;"
        "claim(Path(sys.argv[1]), Launch('one', True))"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=TIMEOUT_S)
    assert (tmp_path / NAME).read_text().startswith("one\n")
    claim(tmp_path, Launch("other", True))
    assert (tmp_path / NAME).read_text().startswith(f"other\n{socket.gethostname()}\n")
    # Of another machine nothing is known but how long ago it was.
    (tmp_path / NAME).write_text("one\nelsewhere\n1\n2\n")
    with pytest.raises(P3SError, match="another launch"):
        claim(tmp_path, Launch("other", True))
    os.utime(tmp_path / NAME, (1, 1))
    claim(tmp_path, Launch("other", True))


class TestLaunches:
    pytestmark = mpi_only

    def test_two_at_once(self, tmp_path: Path) -> None:
        """The second comes while the first has not called MPI_Init yet."""
        program = str(compile_c(PROGRAMS / "dies.c", tmp_path / "dies"))
        install = usable_mpi()
        go = tmp_path / "go"
        os.mkfifo(go)
        # The ranks of the first wait for the second's end, then become the program.
        script = f"read x < {go}; exec {program} none 1"
        waits = [*P3S, "exec", "-o", "out", "--", "sh", "-c", script]
        with subprocess.Popen(
            [install.mpiexec, "-n", "1", *waits],
            cwd=tmp_path,
            env={**SHARING, **os.environ},
            stdin=subprocess.DEVNULL,
        ) as first:
            with open(go, "w") as file:  # opened when the first is there
                second = launch(2, tmp_path, "-o", "out", "--", program, "none", "2")
                file.write("go\n")
            assert first.wait(TIMEOUT_S) == 0
        assert second.code == 1 and len(second.said) == 1
        assert "out: another launch is about to write its captures there" in second.said[0]
        assert [path.name for path in (tmp_path / "out").glob("*.p3t")] == ["rank-000000.p3t"]

    def test_captures_say_which_launch_they_are_of(self, tmp_path: Path) -> None:
        program = str(compile_c(PROGRAMS / "dies.c", tmp_path / "dies"))
        found = []
        for name in ("a", "b"):
            done = launch(2, tmp_path, "-o", name, "--", program, "none", "1")
            assert done.code == 0, done.err
            headers = [read_header(path) for path in (tmp_path / name).glob("*.p3t")]
            assert [header.launched for header in headers] == [2, 2]
            found.append({header.run for header in headers})
        assert [len(runs) for runs in found] == [1, 1] and found[0] != found[1]
        assert 0 not in found[0] | found[1]

    def test_ranks_that_do_not_find_each_other(self, tmp_path: Path) -> None:
        program = compile_c(PROGRAMS / "dies.c", tmp_path / "dies")
        script = tmp_path / "alone"
        script.write_text(
            "#!/bin/sh\n"
            "for name in $(env | cut -d= -f1 | grep -E '^(PMI|OMPI|OPAL|PRTE|HYD|MPI)'); do\n"
            "  case $name in *ROOT*) ;; *) unset $name ;; esac\ndone\n"
            f"exec {program} none 1\n"
        )
        script.chmod(0o755)
        launch(2, tmp_path, "-o", "out", "--", str(script))
        done = run([*P3S, "check", "out"], tmp_path)
        assert done.code == 3 and "is one of 2 separate programs of 1 rank" in done.out
