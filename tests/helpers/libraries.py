"""Programs around parallel libraries (tests/programs/libraries), and how they are built.

The libraries of a distribution are built with one MPI; where the tests use another one, or one
of them is absent, the tests that need it are skipped.
"""

from __future__ import annotations

import functools
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from paths import PROGRAMS
from patterns import build, fortran
from tracer_helpers import the_mpi

from p3s.base.host.mpi import OPENMPI

SOURCES = PROGRAMS / "libraries"
LIMIT_S = 300.0


@dataclass(frozen=True)
class Library:
    """A library: a header of it, and its compiler flags, pkg-config's where it is known there."""

    name: str
    header: str = ""
    flags: tuple[str, ...] = ()
    package: str = ""


PETSC = Library("PETSc", "petscksp.h", package="petsc")
HYPRE = Library("hypre", "HYPRE_struct_ls.h", ("-I/usr/include/hypre", "-lHYPRE"))
SCALAPACK = Library("ScaLAPACK", flags=("-lscalapack-openmpi",))
FFTW = Library("FFTW with MPI", "fftw3-mpi.h", ("-lfftw3_mpi", "-lfftw3"))
HDF5 = Library("parallel HDF5", "hdf5.h", package="hdf5-openmpi")


def built(source: str, library: Library, work: Path) -> list[str]:
    """Return the words that start a program; skips the test where it cannot be built."""
    if source.endswith(".f90") and fortran() is None:
        pytest.skip("no Fortran compiler of this MPI")
    return build(SOURCES / source, work / Path(source).stem, *flags_of(library))


@functools.cache
def flags_of(library: Library) -> tuple[str, ...]:
    """Return the compiler flags of a library; skips the test where the library is absent."""
    install = the_mpi()
    if install is None or install.mpiexec is None or install.family != OPENMPI:
        pytest.skip("no Open MPI, which the libraries are built with")
    flags = ("-O1", *library.flags)
    if library.package:
        words = _pkg_config(library.package)
        if words is None:
            pytest.skip(f"no {library.name}")
        flags = ("-O1", *words)
    include = f"#include <{library.header}>\n" if library.header else ""
    tried = subprocess.run(
        [install.mpicc, "-x", "c", "-", "-x", "none", "-o", "/dev/null", *flags],
        input=f"{include}int main(void) {{ return 0; }}\n",
        text=True,
        capture_output=True,
        timeout=LIMIT_S,
    )
    if tried.returncode:
        pytest.skip(f"no {library.name} for this MPI")
    # Some linkers drop libraries that stand before the program.
    return ("-Wl,--no-as-needed", *flags)


def _pkg_config(package: str) -> list[str] | None:
    """Return the flags that pkg-config knows of a package, None where it knows none."""
    tool = shutil.which("pkg-config")
    if tool is None:
        return None
    asked = subprocess.run(
        [tool, "--cflags", "--libs", package], text=True, capture_output=True, timeout=LIMIT_S
    )
    return shlex.split(asked.stdout) if asked.returncode == 0 else None


def line_of(source: str, text: str) -> int:
    """Return the one line of a program that holds a text."""
    lines = (SOURCES / source).read_text().splitlines()
    (found,) = [number for number, line in enumerate(lines, 1) if text in line]
    return found
