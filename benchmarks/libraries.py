"""How much of programs around parallel libraries their models say, beside real runs.

Programs of tests/programs/libraries, traced at a few counts and compared at larger ones. What the
machine lacks is left out, and said. Ranks share cores: no times are compared.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "helpers"))

import pytest
from libraries import FFTW, HDF5, HYPRE, PETSC, SCALAPACK, SOURCES, Library, flags_of
from patterns import At, Program, outcome

from p3s.base.text import table

POWERS, CUBES, SQUARES = (2, 4, 8), (8, 12, 18, 27), (4, 9, 16)


@dataclass(frozen=True)
class Case:
    """A program of a library; seen: it was looked at while the laws were written."""

    library: Library
    program: Program
    seen: bool = True


CASES = [
    Case(PETSC, Program("petsc_cg.c", "2 64 2", POWERS, (16, 32))),
    Case(PETSC, Program("petsc_cg.c", "2 16 2 grows", POWERS, (16, 32))),
    Case(PETSC, Program("petsc_cg.c", "3 16 2", (4, 8, 16), (32, 64))),
    Case(PETSC, Program("petsc_cg.c", "3 16 2", CUBES, (54,))),
    Case(PETSC, Program("petsc_mg.c", "65 3 2", POWERS, (16, 32))),
    Case(HYPRE, Program("hypre_struct.c", "64 2 pfmg", POWERS, (16, 32))),
    Case(SCALAPACK, Program("scalapack_lu.f90", "256 16 2 lu", SQUARES, (25, 36))),
    Case(FFTW, Program("fftw_slab.c", "2 64 4", POWERS, (16, 32))),
    Case(FFTW, Program("fftw_slab.c", "3 32 4", POWERS, (16, 32))),
    Case(HDF5, Program("hdf5_write.c", "steps.h5 64 32 4 collective", POWERS, (16, 32))),
    Case(HDF5, Program("hdf5_write.c", "steps.h5 64 32 4 independent", POWERS, (16, 32))),
    Case(
        PETSC,
        Program("petsc_cg.c", "3 16 2 -ksp_type gmres -pc_type bjacobi", (4, 8, 16), (32, 64)),
        False,
    ),
    Case(HYPRE, Program("hypre_struct.c", "64 2 smg", POWERS, (16, 32)), False),
    Case(SCALAPACK, Program("scalapack_lu.f90", "256 16 2 cholesky", SQUARES, (36, 64)), False),
]


def rows_of(case: Case) -> Iterator[list[str]]:
    """Yield a row per count at which a program is compared."""
    program, name = case.program, f"{Path(case.program.source).stem} {case.program.args}"
    traced = ",".join(map(str, program.counts))
    try:
        flags = flags_of(case.library)
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            found = outcome(replace(program, flags=flags), SOURCES, Path(folder))
    except pytest.skip.Exception as absent:
        yield [name, traced, "", str(absent)]
        return
    for at in found.at:
        yield [name, traced, str(at.n), *_said(at), "" if case.seen else "not looked at before"]


def _said(at: At) -> list[str]:
    if at.refused:
        return [at.refused]
    parts = (at.triples, at.collectives)
    return [*(f"{p.equal:,} of {max(p.true, p.predicted):,}" for p in parts), at.order]


def main() -> None:
    """Print a table of all programs, or of those whose names hold a word."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("word", nargs="?", default="", help="only programs with this word")
    word = options.parse_args().word
    heads = ["program", "traced", "at", "messages equal", "collectives equal", "ranks in order", ""]
    rows = [
        [*row, *[""] * (len(heads) - len(row))]
        for case in CASES
        if word in f"{case.program.source} {case.program.args}"
        for row in rows_of(case)
    ]
    print(table(rows, heads))


if __name__ == "__main__":
    main()
