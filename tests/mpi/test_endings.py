"""A program ends under the tracer as it does without: exit codes, signals, limits, cut captures."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tracer_helpers import PROGRAMS, TIMEOUT_S, compile_c, the_mpi

from p3s.base.errors import P3SError
from p3s.capture import read_run
from p3s.signature_runner import build

pytestmark = [pytest.mark.mpi, pytest.mark.skipif(the_mpi() is None, reason="no usable MPI")]

#: How the program ends, and the returncode of subprocess that says so; None: whatever it is alone.
ENDINGS = {
    "return": 12,
    "exit": 5,
    "_exit": 6,
    "quick_exit": 7,
    "abort": -6,
    "mpi-abort": None,
    "segv": -11,
    "ill": None,
    "kill": -9,
    "term": -15,
    "pipe": -13,
    "thread": 9,
    "exec": 10,
    "child": 6,
    "bus": -7,
    "bus-raise": -7,
    "bus-own": 27,
    "bus-own-before": 27,
    "handler": -14,
    "handler-exit": 31,
    "handler-abort": -6,
    "handler-kill": -9,
    "handler-mpi-abort": None,
    "file-size": -25,
    "file-size-ignored": 23,
    "file-size-of-capture": 0,
    "file-size-blocked": -25,
    "capture-cut": 12,
    "capture-cut-killed": -6,
    "capture-cut-bus": -7,
    "capture-removed": 12,
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("bin") / "endings"
    return compile_c(PROGRAMS / "endings.c", target, "-w", "-lpthread")


def _ended(words: list[str], folder: Path, **env: str) -> int:
    """Run one rank without a launcher and return how it ended; nobody reads what it writes."""
    folder.mkdir(exist_ok=True)
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            words,
            cwd=folder,
            # Open MPI's own handlers would write to the pipe and end by SIGPIPE, traced or not.
            env={**os.environ, "OMPI_MCA_opal_signal": "", **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=writer,
            timeout=TIMEOUT_S,
        )
    finally:
        os.close(writer)
    return done.returncode


def _traced(program: Path, folder: Path) -> dict[str, str]:
    folder.mkdir()
    tracer = build.ensure_tracer(program=str(program))
    return {"LD_PRELOAD": str(tracer.path), "P3S_TRACE_DIR": str(folder)}


@pytest.mark.parametrize("how", ENDINGS)
def test_the_end_is_the_programs_own(how: str, program: Path, tmp_path: Path) -> None:
    words = [str(program), how]
    plain = _ended(words, tmp_path / "plain")
    assert ENDINGS[how] in (plain, None)
    assert _ended(words, tmp_path / "traced", **_traced(program, tmp_path / "run")) == plain


def test_a_capture_that_was_cut_is_told(program: Path, tmp_path: Path) -> None:
    env = {**os.environ, **_traced(program, tmp_path / "run")}
    done = subprocess.run(
        [str(program), "capture-cut"], env=env, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert done.returncode == 12
    assert done.stderr.count("p3s: warning") == 1
    with pytest.raises(P3SError, match="is empty"):
        read_run(tmp_path / "run")


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs to mount")
@pytest.mark.parametrize("kib", [0, 4, 100])
def test_a_full_disk_ends_the_capture_alone(kib: int, program: Path, tmp_path: Path) -> None:
    env = _traced(program, tmp_path / "run")
    room = f"size={max(kib, 4)}k,nr_inodes={5 if kib else 1}"
    mounted = f'mount -t tmpfs -o {room} none "$P3S_TRACE_DIR" || exit 77; exec "$0" "$@"'
    loaded = env.pop("LD_PRELOAD")
    words = ["unshare", "-m", "sh", "-c", mounted, "env", f"LD_PRELOAD={loaded}"]
    code = _ended([*words, str(program), "return"], tmp_path / "traced", **env)
    if code in (1, 77):
        pytest.skip("this user may not mount file systems")
    assert code == ENDINGS["return"]
