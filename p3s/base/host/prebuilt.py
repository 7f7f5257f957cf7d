"""Compiled C that came with P3S, so that machines without a C compiler can use it.

A wheel for one kind of machine (.ci/prebuild.py) has it in the folder prebuilt, with an index of
what each file was compiled from and for which MPI. A file is taken where its sources are still
those, and where the MPI is of that family and major version and has no function that the file does
not know: within a major version Open MPI and MPICH keep their binary interfaces. Otherwise the C
is compiled here.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from p3s.base.artefacts import parse_json
from p3s.base.host import mpi
from p3s.base.host.compiling import cache_dir, is_sound, keep

FOLDER = Path(__file__).parents[2] / "prebuilt"
INDEX = "index.json"
_FUNCTION = re.compile(r"MPI_[A-Z][a-z]\w*")
_SAYS = (
    (mpi.OPENMPI, re.compile(r"Open MPI v(\d+[\w.]*)")),
    (mpi.MPICH, re.compile(r"MPICH Version:\s*(\d+[\w.]*)")),
)
# What a library says of itself may be asked before MPI_Init.
_ASK = """import ctypes, sys
text, length = ctypes.create_string_buffer(65536), ctypes.c_int()
ctypes.CDLL(sys.argv[1]).MPI_Get_library_version(text, ctypes.byref(length))
print(text.value.decode(errors="replace"))
"""


@dataclass(frozen=True)
class Library:
    """An MPI library: its family, version, and the MPI functions that it has."""

    family: str
    version: str
    functions: frozenset[str]

    def fits(self, other: Library) -> bool:
        """Tell whether what was compiled for this one can be used with another."""
        major = [version.partition(".")[0] for version in (self.version, other.version)]
        return (
            self.family == other.family
            and major[0] == major[1]
            and other.functions <= self.functions
        )


@dataclass(frozen=True)
class Prebuilt:
    """A compiled file: what it is, the digests of it and of its sources, and its MPI if any.

    ``compiler``: what the compiler said of its version.
    """

    name: str
    file: str
    sha256: str
    sources: str
    library: Library | None = None
    compiler: str = "unknown"


def source_digest(sources: Sequence[Path], flags: Sequence[str]) -> str:
    """Return the SHA-256 of source files and of the compiler's flags. Raises OSError."""
    digest = hashlib.sha256("\0".join(flags).encode())
    for path in sources:
        digest.update(b"\0" + path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def write_index(folder: Path, files: Sequence[Prebuilt]) -> None:
    """Write the index of compiled files that lie in ``folder``. Raises OSError."""
    rows = [asdict(each) for each in files]
    text = json.dumps({"files": rows}, indent=1, sort_keys=True, default=sorted)
    (folder / INDEX).write_text(f"{text}\n")


@functools.cache
def index(folder: Path) -> tuple[Prebuilt, ...]:
    """Return what compiled files a folder has; none where there is no index that can be read."""
    try:
        rows = parse_json((folder / INDEX).read_bytes())["files"]
        return tuple(_prebuilt(row) for row in rows)
    except (OSError, ValueError, KeyError, TypeError):
        return ()


def _prebuilt(row: dict[str, object]) -> Prebuilt:
    name, file, sha256, sources = (str(row[key]) for key in ("name", "file", "sha256", "sources"))
    of, compiler = row["library"], str(row.get("compiler", "unknown"))
    if not isinstance(of, dict):
        return Prebuilt(name, file, sha256, sources, None, compiler)
    library = Library(str(of["family"]), str(of["version"]), frozenset(of["functions"]))
    return Prebuilt(name, file, sha256, sources, library, compiler)


def libraries() -> list[Library]:
    """Return the MPIs for which compiled files came with P3S, in the order of the index."""
    return list(dict.fromkeys(each.library for each in index(FOLDER) if each.library))


@functools.cache
def library_at(path: str) -> Library | None:
    """Return which MPI a libmpi is of; None for one that is neither Open MPI nor MPICH.

    It is loaded in a process of its own, which does not start MPI.
    """
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    said = mpi.ask([sys.executable, "-I", "-c", _ASK, path]) or ""
    for family, pattern in _SAYS:
        if match := pattern.match(said):
            try:
                with open(path, "rb") as file:
                    section: Any = ELFFile(file).get_section_by_name(".dynsym")
                    symbols = [] if section is None else list(section.iter_symbols())
            except (OSError, ELFError):
                return None
            defined = {each.name for each in symbols if each["st_shndx"] != "SHN_UNDEF"}
            return Library(family, match[1], frozenset(filter(_FUNCTION.fullmatch, defined)))
    return None


def taken(
    name: str, sources: Sequence[Path], flags: Sequence[str], library: str | None = None
) -> Path | None:
    """Return the compiled file ``name`` of the cache, put there from what came with P3S.

    ``library``: path of the libmpi that it is for. None where nothing came that fits, or what came
    is not what the index says. Errors: P3SError when no place is writable.
    """
    found = came(name, sources, flags, library)
    return None if found is None else _kept(found)


def came(
    name: str, sources: Sequence[Path], flags: Sequence[str], library: str | None = None
) -> Prebuilt | None:
    """Return what came with P3S under a name and fits; arguments as of :func:`taken`."""
    files = [each for each in index(FOLDER) if each.name == name]
    if not files:
        return None
    digest = source_digest(sources, flags)
    found = library_at(library) if library else None
    fitting = (each for each in files if each.sources == digest and _fits(each.library, found))
    return next(fitting, None)


def _fits(of: Library | None, found: Library | None) -> bool:
    return of is None or (found is not None and of.fits(found))


def _kept(each: Prebuilt) -> Path | None:
    stem, dot, ending = each.name.partition(".")
    target = cache_dir() / f"{stem}-{each.sha256[:20]}{dot}{ending}"
    if is_sound(target):
        return target
    try:
        data = (FOLDER / each.file).read_bytes()
    except OSError:
        return None
    if hashlib.sha256(data).hexdigest() != each.sha256:
        return None
    with tempfile.TemporaryDirectory(prefix="build-", dir=target.parent) as work:
        draft = Path(work, "made")
        draft.write_bytes(data)
        keep(draft, target)
    return target


def runtime(
    program: str | None, launcher: str | None, likely: str | None = None
) -> tuple[str, mpi.MpiInstall] | None:
    """Return the libmpi of a program started by a launcher, and its MPI without a compiler.

    Arguments as of :func:`p3s.base.host.mpi.mpi_for`. None where nothing compiled for its MPI came
    with P3S, or where no libmpi is found.
    """
    if not libraries():
        return None
    path = mpi.libmpi_for(program, launcher, likely)
    found = library_at(path) if path else None
    if path is None or found is None or not any(each.fits(found) for each in libraries()):
        return None
    started = shutil.which(launcher) if launcher else None
    mpiexec = started if started and mpi.launcher_family(started) == found.family else None
    why_not = mpi.why_not_oversubscribed(found.family, found.version)
    return path, mpi.MpiInstall(found.family, found.version, "", mpiexec, not why_not, why_not)


def runtimes(installs: Sequence[mpi.MpiInstall]) -> list[mpi.MpiInstall]:
    """Return the MPIs with a launcher but no compiler that works, beside those of ``installs``.

    None for which nothing compiled came with P3S.
    """
    known = {os.path.realpath(each.mpiexec) for each in installs if each.mpiexec}
    found = {}
    for launcher in mpi.launchers():
        real = os.path.realpath(launcher)
        if real in known or real in found:
            continue
        if (made := runtime(None, launcher)) and made[1].mpiexec:
            found[real] = made[1]
    return list(found.values())
