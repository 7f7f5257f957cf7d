"""What a rank starts is no rank: it does not get the tracer, least of all with another's rights."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from paths import ROOT
from tracer_helpers import compile_c, the_mpi, usable_mpi

from p3s.capture import read_run
from p3s.signature_runner.launch import run_traced

TIMEOUT_S = 300.0


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if the_mpi() is None:
        pytest.skip("no MPI here")
    source = ROOT / "tests" / "programs" / "children.c"
    return compile_c(source, tmp_path_factory.mktemp("children") / "children")


def told(program: Path, child: Path, folder: Path) -> dict[str, str]:
    """Run the program traced; return what its children have said, by when they were started."""
    install = usable_mpi()
    words = [install.mpiexec, "-n", "{np}", str(program), str(folder / "said"), str(child)]
    run_traced(words, 2, folder / "run", timeout_s=TIMEOUT_S)
    assert [len(rank.call) > 0 for rank in read_run(folder / "run").ranks] == [True, True]
    lines = (folder / "said").read_text().splitlines()
    return {when: rest.strip() for when, _, rest in (line.partition(":") for line in lines)}


def test_children_of_a_rank_are_not_traced(program: Path, tmp_path: Path) -> None:
    said = told(program, program, tmp_path)
    assert said["before"].startswith("traced")  # a script may start the program itself
    assert said["after"] == "preload="


def test_other_preloads_stay(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = compile_c("int p3s_other;\n", tmp_path / "other.so", "-shared", "-fPIC")
    monkeypatch.setenv("LD_PRELOAD", f"{other}")
    assert told(program, program, tmp_path)["after"] == f"other preload={other}"


def test_a_setuid_child_never_has_the_tracer(program: Path, tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can make a program of another user's")
    child = tmp_path / "setuid"
    shutil.copy(program, child)
    os.chown(child, 65534, 65534)
    child.chmod(0o6755)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == 0 and folder.name.startswith(("pytest", "test")):
            folder.chmod(0o755)
    if os.statvfs(tmp_path).f_flag & os.ST_NOSUID:
        pytest.skip("setuid programs have no effect on this file system")
    said = told(program, child, tmp_path)
    assert not said["before"].startswith("traced") and not said["after"].startswith("traced")
