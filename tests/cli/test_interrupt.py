"""Commands that are interrupted, cannot write, or are disturbed."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import timed_study as ts
from capture_writer import small
from commands import cli
from fault_trials import FAULTS, Command, Matrix, compiled
from paths import ROOT

from p3s.base import artefacts
from p3s.base.host.command import parse
from p3s.signature_runner.diagnose import EndedRun

#: Runs the command line; the process gets SIGINT when a module is about to be imported.
PROGRAM = """
import os, signal, sys

class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupts())
sys.argv = ["p3s", "doctor", "--json"]
from p3s.__main__ import main
main()
"""


@pytest.mark.parametrize("module", ["p3s.cli.main", "typer", "p3s.cli.doctor", "p3s.base.text"])
def test_an_interrupt_while_modules_are_imported(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(module=module)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 130, done.stderr
    assert done.stderr == "p3s: interrupted; what was finished before is kept\n"


def test_an_interrupt_that_the_caller_ignores_stays_ignored() -> None:
    script = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    program = PROGRAM.format(module="typer")
    done = subprocess.run(
        [sys.executable, "-c", script + program.replace('"doctor", "--json"', '"--version"')],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("p3s ")


def test_the_command_starts_where_interrupts_are_heeded() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts["p3s"] == "p3s.__main__:main"


def study_of(place: Path) -> Path:
    """Return a directory with the captures of three runs."""
    for count in (2, 3, 4):
        folder = place / "runs" / f"np{count:04d}.r0"
        folder.mkdir(parents=True)
        for rank in range(count):
            (folder / f"rank-{rank:06d}.p3t").write_bytes(small(rank, count).data())
    return place


def test_one_unreadable_run_does_not_hide_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = study_of(tmp_path / "study")
    listdir = os.listdir

    def denied(path: object = ".") -> list[str]:
        if str(path).endswith("np0003.r0"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return listdir(path)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "listdir", denied)
    said = cli(f"check {study}", code=3)
    assert "np0003.r0: unreadable, 0 ranks" in said.out
    assert "cannot be read: Permission denied" in said.out
    assert "np0004.r0: " in said.out
    assert "Traceback" not in said.err


def test_a_full_disk_is_not_taken_for_a_program_without_mpi(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tracer could write neither a capture nor, as stderr.txt is on that disk, a warning."""

    def full(_handle: int, _begin: int, _length: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    command = parse(["mpiexec", "-n", "{np}", "/bin/true"], 2)
    why = EndedRun(tmp_path, command, 2, 0, None, True).verdict().error or ""
    assert f"nothing was captured: {tmp_path}: cannot be written: No space left on device" in why
    assert os.listdir(tmp_path) == []


def test_what_a_library_says_of_a_full_disk_gets_the_name_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(artefacts.P3SError) as caught, artefacts.writing(tmp_path / "part.parquet"):
        raise OSError(errno.ENOSPC, "Error writing bytes to file. Detail: [errno 28] No space left")
    text = str(caught.value)
    assert text.startswith(f"{tmp_path}/part.parquet: cannot be written: No space left on device")


def test_a_library_for_which_there_is_no_memory_is_no_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    def unable(*_: object, **__: object) -> None:
        raise ImportError("x.so: failed to map segment from shared object", name="x")

    monkeypatch.setattr("p3s.cli.main.app", unable)
    said = cli("scale study", code=1).err
    assert said.startswith("p3s: x cannot be loaded: ") and said.count("\n") == 1


#: Those of the tests before a commit.
QUICK = ("kill", "full", "rename", "two writers")
SCALE = Command("scale", ("scale", "study", "-n", "64"), ("scaled/",))


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    work = tmp_path_factory.mktemp("faults")
    shim = compiled(work)
    if shim is None:
        pytest.skip("no C compiler to make faults with")
    study, _ = ts.put_study(work / "base" / "study", ts.sweeps(1 << 20, 10), (4, 8, 16))
    return Matrix(study.root, work, shim)


@pytest.mark.parametrize(
    "fault",
    [fault if fault in QUICK else pytest.param(fault, marks=pytest.mark.slow) for fault in FAULTS],
)
def test_a_fault_is_survived(matrix: Matrix, fault: str) -> None:
    draw = 2 + 7919 * FAULTS.index(fault)
    outcome = matrix.trial(SCALE, fault, draw)
    assert not outcome.wrong, str(outcome)
