"""Programs around PETSc, hypre, ScaLAPACK, FFTW and HDF5: where their calls are, and their laws."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from libraries import (
    FFTW,
    HDF5,
    HYPRE,
    PETSC,
    SCALAPACK,
    SOURCES,
    Library,
    built,
    flags_of,
    line_of,
)
from patterns import ALL, PAIRS, Program, outcome, traced
from tracer_helpers import usable_mpi

from p3s.capture import read_run
from p3s.capture.callpath import call_path, stack
from p3s.capture.modules import Modules
from p3s.capture.sites import resolve


@dataclass(frozen=True)
class Case:
    """A program, and for functions of its library the text of the line that calls them."""

    source: str
    library: Library
    args: str
    calls: tuple[tuple[str, str], ...]


NAMED = [
    Case(
        "petsc_cg.c",
        PETSC,
        "3 8 1",
        (
            ("PetscInitialize", "PetscInitialize("),
            ("DMSetUp", "DMSetUp("),
            ("MatAssemblyEnd", "MatAssemblyEnd("),
            ("KSPSolve", "KSPSolve("),
        ),
    ),
    Case("petsc_mg.c", PETSC, "17 2 1", (("KSPSolve", "KSPSolve("),)),
    Case(
        "hypre_struct.c",
        HYPRE,
        "16 1 pfmg",
        (
            ("HYPRE_StructGridAssemble", "HYPRE_StructGridAssemble("),
            ("HYPRE_StructPFMGSetup", "HYPRE_StructPFMGSetup("),
            ("HYPRE_StructPFMGSolve", "HYPRE_StructPFMGSolve("),
        ),
    ),
    Case(
        "scalapack_lu.f90",
        SCALAPACK,
        "32 8 1",
        (("blacs_gridinit", "call blacs_gridinit("), ("pdgetrf", "call pdgetrf(")),
    ),
    Case(
        "fftw_slab.c",
        FFTW,
        "2 16 1",
        (
            ("fftw_mpi_plan_dft", "forward = fftw_mpi_plan_dft("),
            ("fftw_execute", "fftw_execute(forward)"),
            ("fftw_execute", "fftw_execute(backward)"),
        ),
    ),
    Case(
        "hdf5_write.c",
        HDF5,
        "steps.h5 16 8 1",
        (("H5Fcreate", "H5Fcreate("), ("H5Dwrite", "H5Dwrite("), ("H5Fclose", "H5Fclose(")),
    ),
]


def _launched(words: list[str]) -> list[str]:
    install = usable_mpi()
    return [install.mpiexec, "-n", "{np}", *words]


@pytest.mark.parametrize("case", NAMED, ids=lambda case: Path(case.source).stem)
def test_calls_in_a_library_have_its_function_and_the_line_that_calls_it(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = built(case.source, case.library, tmp_path)
    run = read_run(traced(_launched([*words, *case.args.split()]), 4, tmp_path / "run"))
    places, _ = resolve({frame for site in run.sites for frame in site.frames}, Modules(words))
    paths = [call_path(stack(site.frames, places)) for site in run.sites]
    inside = [path for path in paths if path is not None and path.library]
    assert inside and all(path.own is not None and path.own.line for path in inside)
    found = {
        ((path.entry or path.at).function, path.own.line) for path in inside if path.own is not None
    }
    assert {(name, line_of(case.source, text)) for name, text in case.calls} <= found


MODELLED = [
    (PETSC, Program("petsc_cg.c", "2 32 2", (2, 4, 8), (16,))),
    # The planner tries more ways of splitting the processes the more there are.
    (FFTW, Program("fftw_slab.c", "2 32 3", (2, 4, 8), (16,), PAIRS, "planning is recursive")),
]


@pytest.mark.parametrize(
    ("library", "program"), [pytest.param(*each, id=each[1].id) for each in MODELLED]
)
def test_messages_of_a_library_follow_laws(
    library: Library, program: Program, tmp_path: Path
) -> None:
    flags = flags_of(library)
    found = outcome(replace(program, flags=flags), SOURCES, tmp_path)
    assert not {at.n: at.exact_wrong for at in found.at if at.exact_wrong}
    for at in found.at:
        assert at.triples.true and at.triples.all_equal
        assert at.level == program.level or program.level != ALL
