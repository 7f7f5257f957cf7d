"""The choice of the MPI that demo and tests use."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from paths import ROOT

from p3s.base.host.mpi import MpiInstall

SCRIPT = ROOT / ".ci" / "choose_mpi.py"


@pytest.fixture
def choose() -> ModuleType:
    spec = importlib.util.spec_from_file_location("choose_mpi", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def launcher(folder: Path, prints: str, code: int = 0) -> MpiInstall:
    """Make an MPI whose launcher prints what two mpi4py processes would print."""
    folder.mkdir(exist_ok=True)
    for name, text in (("mpiexec", f"cat <<'END'\n{prints}\nEND\nexit {code}"), ("mpicc", "true")):
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return MpiInstall("mpich", "5.0", str(folder / "mpicc"), str(folder / "mpiexec"), True, "")


@pytest.mark.parametrize(
    ("prints", "code", "fault"),
    [
        ("p3s 2 MPICH\np3s 2 MPICH", 0, None),
        ("noise\np3s 2 MPICH\nmore noise\np3s 2 MPICH", 0, None),
        ("p3s 1 MPICH\np3s 1 MPICH", 0, "another MPI"),
        ("p3s 2 Open\np3s 2 Open", 0, "another MPI"),
        ("p3s 2 MPICH", 0, "did not start"),
        ("p3s 2 MPICH\np3s 2 MPICH", 1, "did not start"),
    ],
)
def test_mpi4py_must_run_on_the_same_mpi(
    choose: ModuleType, tmp_path: Path, prints: str, code: int, fault: str | None
) -> None:
    found = choose.fault_of(launcher(tmp_path / "mpi", prints, code))
    assert found is None if fault is None else fault in found


def test_output_of_ranks_is_written_whole(
    choose: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two interpreters on one pipe, each write its own line even when unbuffered."""
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    assert "PYTHONUNBUFFERED" not in choose.environment()
    assert "print" not in choose.QUESTION and choose.QUESTION.count(".write(") == 1
    stand_in = tmp_path / "mpi4py"
    stand_in.mkdir()
    (stand_in / "__init__.py").write_text("")
    (stand_in / "MPI.py").write_text(
        "class COMM_WORLD:\n    size = 2\ndef Get_library_version():\n    return 'Open MPI'\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    text, _ = choose.output_of([sys.executable, "-c", choose.QUESTION])
    assert text == "p3s 2 Open\n"


def test_a_spoiled_start_is_tried_again_and_its_reason_shown(
    choose: ModuleType, tmp_path: Path
) -> None:
    mpi = launcher(tmp_path / "mpi", "p3s 2 MPICH\np3s 2 MPICH")
    script, tried = Path(str(mpi.mpiexec)), tmp_path / "tried"
    whole = script.read_text()
    script.write_text(f"#!/bin/sh\n[ -e {tried} ] || {{ touch {tried}; exit 1; }}\n{whole}")
    assert choose.fault_of(mpi) is None
    script.write_text("#!/bin/sh\necho first >&2\necho no slots left >&2\necho --- >&2\nexit 1\n")
    assert choose.fault_of(mpi) == "two mpi4py processes did not start (no slots left)"


def test_mpi_that_waits_without_yielding_is_not_taken(choose: ModuleType, tmp_path: Path) -> None:
    slow = MpiInstall("mpich", "4.0.2", "/x/mpicc", "/x/mpiexec", False, "waits without yielding")
    assert choose.fault_of(slow) == "waits without yielding"
    assert "no mpiexec" in choose.fault_of(MpiInstall("mpich", "5", "/x/mpicc", None, True, ""))


def test_wheel_is_installed_only_when_nothing_else_works(
    choose: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = launcher(tmp_path / "good", "p3s 2 MPICH\np3s 2 MPICH")
    bad = launcher(tmp_path / "bad", "p3s 2 Open\np3s 2 Open")
    installed: list[bool] = []

    def install() -> None:
        installed.append(True)

    monkeypatch.setattr(choose, "install_wheel", install)
    monkeypatch.setattr(sys, "argv", ["choose_mpi.py", str(tmp_path / "chosen")])
    monkeypatch.setattr(choose, "find_mpi", lambda: [bad, good])
    choose.main()
    assert installed == []
    monkeypatch.setattr(choose, "find_mpi", lambda: [bad, good] if installed else [bad])
    choose.main()
    assert installed == [True]
    monkeypatch.setattr(choose, "find_mpi", lambda: [bad])
    with pytest.raises(SystemExit, match="doctor"):
        choose.main()


def test_chosen_tools_are_called_by_their_own_names(choose: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / "m p i"
    mpi = launcher(folder, "unused")
    for name in ("mpicc", "mpiexec"):
        (folder / name).write_text('#!/bin/sh\necho "$0" "$@"\n')
    choose.write(mpi, tmp_path / "chosen")
    for name in ("mpicc", "mpiexec"):
        done = subprocess.run(
            [tmp_path / "chosen" / name, "-n", "a b"],
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        )
        assert done.stdout == f"{folder / name} -n a b\n"
        assert os.access(tmp_path / "chosen" / name, os.X_OK)
    assert "mpich 5.0" in (tmp_path / "chosen" / "choice").read_text()
