"""Programs with MPI linked statically: traced with the archive inside."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from conformance import FOLDER, Seen, check_counts
from tracer_helpers import TIMEOUT_S

from p3s.signature_runner.archive import OPTIONS, has_tracer, write_archive
from p3s.signature_runner.launch import run_traced

NP = 2
LIBRARIES = Path("/usr/lib/x86_64-linux-gnu")
MPICC, MPIEXEC = shutil.which("mpicc.mpich"), shutil.which("mpiexec.mpich")
NEEDED = (LIBRARIES / "libmpich.a", LIBRARIES / "libmpichfort.a")
#: What Debian's libmpich.a itself asks for.
BEHIND = ("-lhwloc", "-lucp", "-lucs", "-lpthread", "-lm", "-ldl")

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(
        MPICC is None or MPIEXEC is None or not all(path.is_file() for path in NEEDED),
        reason="needs Debian's libmpich-dev with libmpich.a",
    ),
]


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The linker's options for a program with the tracer inside."""
    made = write_archive(tmp_path_factory.mktemp("tracer"), MPICC)
    assert made.options.name == OPTIONS and made.install.family == "mpich"
    return made.options


def _headers() -> str:
    shown = subprocess.run(
        [str(MPICC), "-show"], capture_output=True, text=True, timeout=300, check=True
    )
    return next(word for word in shown.stdout.split() if word.startswith("-I"))


def _linked(folder: Path, source: str, *options: str) -> str:
    """Compile a program of programs/conformance with MPI inside."""
    fortran = source.endswith(".F90")
    if fortran and shutil.which("gfortran") is None:
        pytest.skip("no gfortran")
    compiler = ["gfortran", "-DBINDING=2", "-fallow-argument-mismatch"] if fortran else ["gcc"]
    sources = [FOLDER / "conform.f90"] if fortran else []
    words = [*compiler, "-w", "-g", "-O1", _headers(), *map(str, sources), str(FOLDER / source)]
    target = folder / "program"
    words += ["-o", str(target), *options, *map(str, reversed(NEEDED)), *BEHIND]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return str(target)


@pytest.mark.parametrize("source", ["nonblocking_collectives.c", "persistent.c", "families.F90"])
def test_every_call_is_in_the_capture(
    source: str, options: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = _linked(tmp_path, source, f"@{options}")
    assert has_tracer(program)
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    monkeypatch.chdir(run_dir)
    run_traced([str(MPIEXEC), "-n", "{np}", program], NP, run_dir, timeout_s=TIMEOUT_S)
    files = [(run_dir / f"output-{rank:06d}.txt").read_text().splitlines() for rank in range(NP)]
    check_counts(run_dir, Seen(0, [], files), NP)


def test_outside_of_p3s_the_program_does_what_it_did(options: Path, tmp_path: Path) -> None:
    assert not has_tracer(_linked(tmp_path, "persistent.c"))
    program = _linked(tmp_path, "persistent.c", f"@{options}")
    done = subprocess.run(
        [str(MPIEXEC), "-n", "2", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.glob("**/rank-*.p3t"))
