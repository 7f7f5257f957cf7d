"""The tracer as an archive, for programs that MPI is linked into statically: docs/static.md."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from p3s.base.errors import P3SError
from p3s.base.host import mpi
from p3s.base.host.compiling import run_tool
from p3s.signature_runner import build

#: Files of a directory with the archive.
ARCHIVE, OPTIONS = "libp3s-tracer.a", "p3s-link.txt"
#: What stands for functions of shared libraries: OpenMP's runtime, Open MPI's Fortran, libc, CUDA.
_SHARED_ONLY = ("p3s_gomp.c", "p3s_fortran.c", "p3s_libc.c", "p3s_device.c")
_FLAGS = (*build.FLAGS, "-DP3S_ARCHIVE")
_EXPORTED = re.compile(r'P3S_NAME\("(\w+)"\)')
#: P3S_ARCHIVE_MARK of tracer/p3s_inside.h.
_MARK = b"P3S tracer in this program"


@dataclass(frozen=True)
class TracerArchive:
    """What was written: the archive, the linker's options, and the MPI that both are for."""

    archive: Path
    options: Path
    install: mpi.MpiInstall


def write_archive(folder: Path, mpicc: str | None = None) -> TracerArchive:
    """Write the tracer for a statically linked program into ``folder``: an archive and options.

    ``mpicc``: of the program's MPI [default: the first on PATH]. The options, a file that the
    compiler reads (``@file``), make the linker send the program's MPI calls through the archive.
    Errors: P3SError when there is no such compiler, it does not compile, or nothing can be written.
    """
    install = mpi.describe(mpicc) if mpicc else next(iter(mpi.find_mpi()), None)
    if install is None:
        raise P3SError(
            f"{mpicc or 'mpicc'}: compiles no MPI program here; name the program's own compiler"
            " with --mpicc"
        )
    texts, _ = build.tracer_sources(install.mpicc)
    archived = {name: text for name, text in texts.items() if name not in _SHARED_ONLY}
    target, options = folder / ARCHIVE, folder / OPTIONS
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="build-", dir=folder) as work:
            objects = build.compile_objects(install.mpicc, archived, work, _FLAGS)
            archive = os.path.join(work, ARCHIVE)
            run_tool([_ar(), "rcs", archive, *objects], "put the tracer into an archive")
            os.replace(archive, target)
        options.write_text(_options(target.resolve(), texts["wrappers.c"].decode()))
    except OSError as error:
        raise P3SError(f"{folder}: cannot be written: {error.strerror}") from error
    return TracerArchive(target, options, install)


def _ar() -> str:
    path = shutil.which("ar") or shutil.which("gcc-ar")
    if path is None:
        raise P3SError("no ar on PATH; install binutils")
    return path


def _options(archive: Path, wrappers: str) -> str:
    """Return the compiler's options, one a line.

    All of the archive is taken: what a library behind it asks for would be asked too late.
    """
    wrapped = sorted({*_EXPORTED.findall(wrappers), "pthread_create"})
    lines = [f"-Wl,--wrap={name}" for name in wrapped]
    return "\n".join([*lines, f"-Wl,--whole-archive,{archive},--no-whole-archive", ""])


def has_tracer(program: str) -> bool:
    """Tell whether a program was linked with the tracer's archive."""
    try:
        return _MARK in Path(program).read_bytes()
    except OSError:
        return False


def relink() -> str:
    """Return what to do about a program that MPI is linked into statically."""
    return (
        "link it with the shared MPI library, or with the tracer's archive, which"
        " `p3s doctor --tracer-archive DIRECTORY` writes"
    )
