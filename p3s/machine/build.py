"""The kernels as programs: compiled here once per compiler and source, or as they came with P3S."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from p3s.base.host import compiling
from p3s.base.host.compiling import c_compiler, compiled, version_of

#: Of the base instruction set, as most programs are: a binary that runs on both machines.
FLAGS = ("-O2", "-ftree-vectorize", "-std=gnu11", "-w")
#: Programs that call MPI come as libraries without a libmpi: it has other names elsewhere.
LIBRARY_FLAGS = (*FLAGS, "-fPIC", "-shared")
KERNELS, NETWORK, FILES = "kernels.c", "network.c", "files.c"
#: Loads a libmpi and such a library, and calls its main.
_STARTER = Path(__file__).with_name("loaded.py")


@dataclass(frozen=True)
class Built:
    """A program: its path, compiler, that compiler's first line of --version, flags.

    ``libmpi``: of one that came without, the library that it is loaded with.
    """

    path: Path
    compiler: str
    version: str
    flags: str
    libmpi: str | None = None

    @property
    def words(self) -> list[str]:
        """The words that start it."""
        if self.libmpi is None:
            return [str(self.path)]
        return [sys.executable, "-I", str(_STARTER), self.libmpi, str(self.path)]


def source_of(source: str) -> Path:
    """Return the path of a source file of this package."""
    return Path(__file__).with_name(source)


def name_of(source: str, ending: str = "") -> str:
    """Return under which name what a source compiles to is kept, and came with P3S."""
    return f"machine-{Path(source).stem}{ending}"


def built(source: str, compiler: str, more: Sequence[str] = ()) -> Built:
    """Return ``source`` (a file of this package) compiled, from the cache if it is there.

    more: flags beside FLAGS. Errors: P3SError when the compiler fails or no place is writable.
    """
    path, flags = source_of(source), (*FLAGS, *more)
    made = compiled(name_of(source), [path], flags, compiler=compiler, what=path.name)
    return Built(made, compiler, version_of(compiler), _told(flags))


def kernels() -> Built:
    """Return the program of the kernels, as it came with P3S or compiled here.

    Errors: P3SError, which says what to install, when there is neither, or as of :func:`built`.
    """
    found = _came(name_of(KERNELS), KERNELS, FLAGS)
    return found or built(KERNELS, c_compiler("the kernels of p3s machine measure"))


def for_ranks(source: str, mpicc: str, libmpi: str | None) -> Built:
    """Return a program that calls MPI: compiled with ``mpicc``, or as it came with P3S.

    ``mpicc``: "" where there is none that works; ``libmpi``: path of the library that is loaded
    then. Errors: P3SError when nothing came that fits, or as of :func:`built`.
    """
    if not mpicc and libmpi is not None:
        found = _came(name_of(source, ".so"), source, LIBRARY_FLAGS, libmpi)
        if found is not None:
            return found
    return built(source, mpicc)


def _came(name: str, source: str, flags: Sequence[str], library: str | None = None) -> Built | None:
    """Return what came compiled with P3S, None where nothing that fits did."""
    sources = [source_of(source)]
    found = compiling.came(name, sources, flags, library)
    made = compiling.taken(name, sources, flags, library) if found else None
    if found is None or made is None:
        return None
    return Built(made, "came with P3S", found.compiler, _told(flags), library)


def _told(flags: Sequence[str]) -> str:
    """Return the flags that matter to what is measured."""
    return " ".join(flag for flag in flags if flag not in ("-std=gnu11", "-w", "-fPIC", "-shared"))
