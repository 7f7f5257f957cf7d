"""Tracing with a tracer that came compiled with P3S, on a machine without a compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT
from tracer_helpers import PROGRAMS, compile_c, the_mpi

from p3s.host import mpi, prebuilt
from p3s.signature_runner import build, doctor
from p3s.signature_runner.launch import run_traced

COMPILERS = ("cc", "gcc", "clang", "tcc", "mpicc", "cpp", "c99", "c89", "x86_64-linux-gnu")


def without_compilers(folder: Path) -> str:
    """Return a PATH with all programs of PATH but compilers."""
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for path in Path(place).glob("*") if place else ():
            link = folder / path.name
            if not any(word in path.name for word in COMPILERS) and not link.is_symlink():
                link.symlink_to(path)
    return str(folder)


@pytest.fixture
def came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> mpi.MpiInstall:
    """The MPI here, its tracer as in a wheel, and no compiler."""
    install = the_mpi()
    if install is None or install.mpiexec is None:
        pytest.skip("no usable MPI")
    program = compile_c(PROGRAMS / "dies.c", tmp_path / "dies")
    library = prebuilt.library_at(str(mpi.libmpi_for(str(program), None)))
    assert library is not None
    folder = tmp_path / "prebuilt"
    folder.mkdir()
    made = build.ensure_tracer(install.mpicc).path
    name = f"tracer-{library.family}.so"
    shutil.copy(made, folder / name)
    sources = prebuilt.source_digest(build.generator_paths(), build.FLAGS)
    digest = made.with_name(f"{made.name}.sha256").read_text().strip()
    prebuilt.write_index(folder, [prebuilt.Prebuilt(name, name, digest, sources, library)])
    monkeypatch.setattr(prebuilt, "FOLDER", folder)
    return install


def test_a_program_is_traced_without_a_compiler(
    came: mpi.MpiInstall, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "dies"
    monkeypatch.setenv("PATH", without_compilers(tmp_path / "bin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    mpi.describe.cache_clear()
    mpi._find.cache_clear()
    try:
        assert came.mpiexec is not None
        made = build.ensure_tracer(program=str(program), launcher=came.mpiexec)
        assert made.mpi_family == came.family and made.path.parent == tmp_path / "cache" / "p3s"
        run_traced(
            [came.mpiexec, "-n", "{np}", str(program), "none", "3"],
            2,
            tmp_path / "run",
            timeout_s=60,
        )
        compiler = doctor._compiler()
    finally:
        mpi.describe.cache_clear()
        mpi._find.cache_clear()
    assert compiler.status == "warn" and came.family in compiler.detail


def test_libraries_of_mpi_say_which_they_are(came: mpi.MpiInstall) -> None:
    (library,) = prebuilt.libraries()
    assert library.family == came.family
    assert library.version.partition(".")[0] == came.version.partition(".")[0]
    assert {"MPI_Init", "MPI_Send", "MPI_Allreduce"} <= library.functions


def test_the_platform_wheel(came: mpi.MpiInstall, tmp_path: Path) -> None:
    """It is built by P3S's own backend for the MPI here, and its replay is not linked to it."""
    pytest.importorskip("setuptools", minversion="77", reason="setuptools is older than 77")
    source = tmp_path / "src"
    ignored = shutil.ignore_patterns(".git", ".venv", "build", "dist", "__pycache__", "tests")
    shutil.copytree(ROOT, source, symlinks=True, ignore=ignored)
    script = (
        "import sys; sys.path.insert(0, '.ci'); import p3s_build;"
        f"print(p3s_build.build_wheel({str(tmp_path)!r}, {{'prebuilt': {came.mpicc!r}}}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=source, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stderr[-2000:]
    name = done.stdout.split()[-1]
    assert "-manylinux_2_" in name
    shutil.unpack_archive(tmp_path / name, tmp_path / "out", "zip")
    folder = tmp_path / "out" / "p3s" / "prebuilt"
    rows = prebuilt.index(folder)
    names = {"simulate.so", "packets.so", "varint.so", f"tracer-{came.family}.so", "replay.so"}
    assert {row.name for row in rows} == names
    for row in rows:
        data = (folder / row.file).read_bytes()
        assert b"libmpi" not in data.replace(b"libmpi.so.12", b"") or row.name != "replay.so"
        assert str(tmp_path).encode() not in data
