"""C sources compiled once and kept in a private cache, or as they came compiled with P3S."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from p3s.base.artefacts import parse_json, write_bytes
from p3s.base.errors import P3SError
from p3s.base.host import mpi
from p3s.base.host.mpi import ask
from p3s.base.host.processes import run_session
from p3s.base.staging import alone

_TIMEOUT_S = 300.0


def cache_dir() -> Path:
    """Return the private cache directory (mode 0700), made if it is missing.

    LD_PRELOAD cannot hold a space or a colon and an option of qemu no comma, so such a place is
    passed over.
    """
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    fallback = os.path.join(tempfile.gettempdir(), f"p3s-{os.getuid()}")
    problems = []
    for folder in (os.path.join(home, "p3s"), fallback):
        if any(char in folder for char in " :,\t\n") or not os.path.isabs(folder):
            problems.append(f"{folder}: a space, comma or colon in the path")
            continue
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            facts = os.lstat(folder)
            if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid():
                problems.append(f"{folder}: not a directory of yours")
                continue
            if facts.st_mode & 0o077:
                os.chmod(folder, 0o700)
            with tempfile.TemporaryFile(dir=folder):
                return Path(folder)
        except OSError as error:
            problems.append(f"{folder}: {error.strerror}")
    raise P3SError(
        "no place for compiled programs (" + "; ".join(problems) + "); set XDG_CACHE_HOME to a"
        " writable directory"
    )


def explain_unsafe(facts: os.stat_result, *, directory: bool = False) -> str:
    """Return why a file (or directory) may hold what others have put there; empty if it may not."""
    if not (stat.S_ISDIR if directory else stat.S_ISREG)(facts.st_mode):
        return f"not a {'directory' if directory else 'file'}"
    if facts.st_uid != os.getuid():
        return "belongs to another user"
    return "can be written by others" if facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH) else ""


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits. Raises OSError."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_sound(compiled: Path) -> bool:
    """Tell whether a file of the cache is this user's, and still what was put there.

    What is loaded or executed from the cache is asked this first; :func:`keep` puts it there.
    """
    try:
        stated = _digest_beside(compiled).read_text(encoding="ascii", errors="replace").strip()
        return not explain_unsafe(os.lstat(compiled)) and digest_of(compiled) == stated
    except OSError:
        return False


def keep(draft: Path, compiled: Path) -> None:
    """Put what was compiled into its place in the cache, with its digest beside it."""
    os.chmod(draft, 0o700)
    digest = digest_of(draft)
    os.replace(draft, compiled)
    write_bytes(_digest_beside(compiled), f"{digest}\n".encode())


def _digest_beside(compiled: Path) -> Path:
    return compiled.with_name(f"{compiled.name}.sha256")


def lock_cache(name: str) -> contextlib.AbstractContextManager[None]:
    """Hold a lock of the cache, so that processes that need the same thing make it once."""
    return alone(cache_dir() / name, lambda: None)


def made_once(target: Path, make: Callable[[Path], object]) -> Path:
    """Return a file of the cache; what is not sound there is made: ``make`` writes a draft."""
    if not is_sound(target):
        with (
            lock_cache("build"),
            tempfile.TemporaryDirectory(prefix="build-", dir=target.parent) as work,
        ):
            if not is_sound(target):  # another process may have made it meanwhile
                draft = Path(work, "made")
                make(draft)
                keep(draft, target)
    return target


def run_tool(argv: list[str], what: str) -> str:
    """Run a compiler or linker; P3SError with its first error line if it fails.

    Nothing that it starts is left, also where it is stopped or this process is ended meanwhile.
    """
    try:
        process = run_session(argv, _TIMEOUT_S)
    except OSError as error:
        raise P3SError(f"cannot {what} with {argv[0]}: {error}") from error
    except subprocess.TimeoutExpired as error:
        why = f"it did not end within {_TIMEOUT_S:g} s; is it stopped, or the machine overloaded?"
        raise P3SError(f"cannot {what} with {argv[0]}: {why}") from error
    if process.returncode != 0:
        lines = [line for line in process.stderr.splitlines() if "error" in line.lower()]
        reason = (lines or process.stderr.strip().splitlines() or ["no message"])[0]
        raise P3SError(f"cannot {what} with {argv[0]}: {reason.strip()}; run `p3s doctor`")
    return process.stdout


def c_compiler(what: str) -> str:
    """Return the C compiler: $CC, cc, gcc or clang; P3SError when there is none for ``what``."""
    for word in (os.environ.get("CC", ""), "cc", "gcc", "clang"):
        compiler = shutil.which(word) if word and " " not in word else None
        if compiler:
            return compiler
    raise P3SError(
        f"no C compiler (cc) for {what}; install gcc (Debian: apt install gcc libc6-dev), or set"
        " CC to one"
    )


def version_of(compiler: str) -> str:
    """Return the first line of what a compiler says of its version, "unknown" if it says none."""
    return ((ask([compiler, "--version"]) or "").splitlines() or ["unknown"])[0]


def compile_cached(
    name: str,
    sources: Sequence[Path],
    flags: Sequence[str],
    *,
    compiler: str,
    what: str,
    libraries: Sequence[str] = (),
    also: str = "",
) -> Path:
    """Return what the first of ``sources`` compiles to, from the cache if it is there.

    The others are read by it. Its name in the cache is ``name`` with a digest of all sources, the
    flags, the compiler's version and ``also``; what is not sound there is made again. Errors:
    P3SError when the compiler fails, which says that ``what`` could not be compiled, or when no
    place is writable.
    """
    if not compiler:
        raise P3SError(
            f"{what} cannot be compiled: no mpicc of this MPI that works; install its development"
            " package and a C compiler"
        )
    digest = hashlib.sha256("\0".join((compiler, version_of(compiler), also, *flags)).encode())
    for path in sources:
        digest.update(path.read_bytes())
    stem, dot, ending = name.partition(".")
    target = cache_dir() / f"{stem}-{digest.hexdigest()[:20]}{dot}{ending}"
    words = [compiler, *flags, str(sources[0])]
    return made_once(
        target, lambda draft: run_tool([*words, "-o", str(draft), *libraries], f"compile {what}")
    )


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

    answer = mpi.ask([sys.executable, "-I", "-c", _ASK, path]) or ""
    for family, pattern in _SAYS:
        if match := pattern.match(answer):
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
    prebuilt = came(name, sources, flags, library)
    return None if prebuilt is None else _copy_prebuilt(prebuilt)


def came(
    name: str, sources: Sequence[Path], flags: Sequence[str], library: str | None = None
) -> Prebuilt | None:
    """Return what came with P3S under a name and fits; arguments as of :func:`taken`."""
    files = [each for each in index(FOLDER) if each.name == name]
    if not files:
        return None
    digest = source_digest(sources, flags)
    mpi_library = library_at(library) if library else None
    for each in (file for file in files if file.sources == digest):
        if each.library is None or (mpi_library is not None and each.library.fits(mpi_library)):
            return each
    return None


def _copy_prebuilt(each: Prebuilt) -> Path | None:
    stem, dot, ending = each.name.partition(".")
    target = cache_dir() / f"{stem}-{each.sha256[:20]}{dot}{ending}"
    try:
        data = b"" if is_sound(target) else (FOLDER / each.file).read_bytes()
    except OSError:
        return None
    if data and hashlib.sha256(data).hexdigest() != each.sha256:
        return None
    return made_once(target, lambda draft: draft.write_bytes(data))


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
    libmpi = library_at(path) if path else None
    if path is None or libmpi is None or not any(each.fits(libmpi) for each in libraries()):
        return None
    started = shutil.which(launcher) if launcher else None
    mpiexec = started if started and mpi.launcher_family(started) == libmpi.family else None
    why_not = mpi.why_not_oversubscribed(libmpi.family, libmpi.version)
    return path, mpi.MpiInstall(libmpi.family, libmpi.version, "", mpiexec, not why_not, why_not)


def runtimes(installs: Sequence[mpi.MpiInstall]) -> list[mpi.MpiInstall]:
    """Return the MPIs with a launcher but no compiler that works, beside those of ``installs``.

    None for which nothing compiled came with P3S.
    """
    installed = {os.path.realpath(each.mpiexec) for each in installs if each.mpiexec}
    installs_found = {}
    for launcher in mpi.launchers():
        real = os.path.realpath(launcher)
        if real in installed or real in installs_found:
            continue
        if (install := runtime(None, launcher)) and install[1].mpiexec:
            installs_found[real] = install[1]
    return list(installs_found.values())
