"""Tracing with a tracer that came compiled with P3S, on a machine without a compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT
from tracer_helpers import PROGRAMS, compile_c, usable_mpi

from p3s.base.host import compiling, mpi
from p3s.signature_runner import build, examine
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
    install = usable_mpi()
    program = compile_c(PROGRAMS / "dies.c", tmp_path / "dies")
    library = compiling.library_at(str(mpi.libmpi_for(str(program), None)))
    assert library is not None
    folder = tmp_path / "prebuilt"
    folder.mkdir()
    made = build.ensure_tracer(install.mpicc).path
    name = f"tracer-{library.family}.so"
    shutil.copy(made, folder / name)
    sources = compiling.source_digest(build.generator_paths(), build.FLAGS)
    digest = made.with_name(f"{made.name}.sha256").read_text().strip()
    compiling.write_index(folder, [compiling.Prebuilt(name, name, digest, sources, library)])
    monkeypatch.setattr(compiling, "FOLDER", folder)
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
            timeout_s=300,
        )
        compiler = examine._compiler()
    finally:
        mpi.describe.cache_clear()
        mpi._find.cache_clear()
    assert compiler.status == "warn" and came.family in compiler.detail


def test_libraries_of_mpi_say_which_they_are(came: mpi.MpiInstall) -> None:
    (library,) = compiling.libraries()
    assert library.family == came.family
    assert library.version.partition(".")[0] == came.version.partition(".")[0]
    assert {"MPI_Init", "MPI_Send", "MPI_Allreduce"} <= library.functions


@pytest.fixture(scope="module")
def brought(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the platform wheel for the MPI here brings along, built by P3S's own backend."""
    pytest.importorskip("setuptools", minversion="77", reason="setuptools is older than 77")
    install = usable_mpi()
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "src"
    ignored = shutil.ignore_patterns(".git", ".venv", "build", "dist", "__pycache__", "tests")
    shutil.copytree(ROOT, source, symlinks=True, ignore=ignored)
    script = (
        "import sys; sys.path.insert(0, '.ci'); import p3s_build;"
        f"print(p3s_build.build_wheel({str(folder)!r}, {{'prebuilt': {install.mpicc!r}}}))"
    )
    temporary = folder / "temporary"
    temporary.mkdir()
    env = {**os.environ, "TMPDIR": str(temporary)}
    words = [sys.executable, "-c", script]
    done = subprocess.run(
        words, cwd=source, env=env, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert not list(temporary.iterdir()), "what was made on the way is gone"
    name = done.stdout.split()[-1]
    assert "-manylinux_2_" in name
    shutil.unpack_archive(folder / name, folder / "out", "zip")
    return folder / "out" / "p3s" / "prebuilt"


def test_the_platform_wheel(brought: Path) -> None:
    """What it brings for MPIs is not linked to one, and nothing says where it was compiled."""
    rows = compiling.index(brought)
    family = {row.library.family for row in rows if row.library}
    assert {row.name for row in rows} == {
        *("simulate.so", "varint.so", "counter.so", "machine-kernels"),
        *(f"tracer-{family.pop()}.so", "replay.so", "machine-network.so", "machine-files.so"),
    }
    for row in rows:
        data = (brought / row.file).read_bytes()
        unlinked = row.library is not None and not row.name.startswith("tracer")
        assert b"libmpi" not in data.replace(b"libmpi.so.12", b"") or not unlinked
        assert str(brought.parents[2]).encode() not in data


def test_a_machine_is_measured_without_a_compiler(
    brought: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from p3s.machine import filesystem, programs
    from p3s.machine import programs as machine
    from p3s.machine.programs import Runners
    from p3s.signature_runner.build import ensure_counter

    monkeypatch.setattr(compiling, "FOLDER", brought)
    monkeypatch.setenv("PATH", without_compilers(tmp_path / "bin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CC", raising=False)
    mpi.describe.cache_clear()
    mpi._find.cache_clear()
    try:
        kernels = machine.kernels()
        found = programs.measure_messages(None, 0.5)
        rates = filesystem.measure_files(tmp_path, None, [2], 1 << 20, 1).rates
        counter = ensure_counter()
    finally:
        mpi.describe.cache_clear()
        mpi._find.cache_clear()
    with Runners(kernels.path, [0], 1 << 20) as runners:
        assert runners.run("int_add", 0, 1_000_000).ns > 0
    assert "came with P3S" in kernels.compiler and kernels.version != "unknown"
    assert len(found["hosts"]) == 2 and found["sizes"]["bytes"] and rates
    assert counter.parent == tmp_path / "cache" / "p3s"
