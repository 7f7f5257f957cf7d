"""C sources compiled once and kept in a private cache."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from p3s.base.artefacts import write_bytes
from p3s.base.errors import P3SError
from p3s.base.host.mpi import ask
from p3s.base.host.processes import run_session

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


def owned(facts: os.stat_result, *, directory: bool = False) -> str:
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


def is_sound(made: Path) -> bool:
    """Tell whether a file of the cache is this user's, and still what was put there.

    What is loaded or executed from the cache is asked this first; :func:`keep` puts it there.
    """
    try:
        stated = _digest_beside(made).read_text(encoding="ascii", errors="replace").strip()
        return not owned(os.lstat(made)) and digest_of(made) == stated
    except OSError:
        return False


def keep(draft: Path, made: Path) -> None:
    """Put what was compiled into its place in the cache, with its digest beside it."""
    os.chmod(draft, 0o700)
    digest = digest_of(draft)
    os.replace(draft, made)
    write_bytes(_digest_beside(made), f"{digest}\n".encode())


def _digest_beside(made: Path) -> Path:
    return made.with_name(f"{made.name}.sha256")


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold a lock of the cache, so that processes that need the same thing make it once.

    A file system without locks is no error: then some work is done twice.
    """
    with open(cache_dir() / f"{name}.lock", "ab") as file:
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def run_tool(argv: list[str], what: str) -> str:
    """Run a compiler or linker; P3SError with its first error line if it fails.

    Nothing that it starts is left, also where it is stopped or this process is ended meanwhile.
    """
    try:
        done = run_session(argv, _TIMEOUT_S)
    except OSError as error:
        raise P3SError(f"cannot {what} with {argv[0]}: {error}") from error
    except subprocess.TimeoutExpired as error:
        why = f"it did not end within {_TIMEOUT_S:g} s; is it stopped, or the machine overloaded?"
        raise P3SError(f"cannot {what} with {argv[0]}: {why}") from error
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if "error" in line.lower()]
        reason = (lines or done.stderr.strip().splitlines() or ["no message"])[0]
        raise P3SError(f"cannot {what} with {argv[0]}: {reason.strip()}; run `p3s doctor`")
    return done.stdout


def c_compiler(what: str) -> str:
    """Return the C compiler: $CC, cc, gcc or clang; P3SError when there is none for ``what``."""
    for word in (os.environ.get("CC", ""), "cc", "gcc", "clang"):
        found = shutil.which(word) if word and " " not in word else None
        if found:
            return found
    raise P3SError(
        f"no C compiler (cc) for {what}; install gcc (Debian: apt install gcc libc6-dev), or set"
        " CC to one"
    )


def version_of(compiler: str) -> str:
    """Return the first line of what a compiler says of its version, "unknown" if it says none."""
    return ((ask([compiler, "--version"]) or "").splitlines() or ["unknown"])[0]


def compiled(
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
    if is_sound(target):
        return target
    with locked("build"), tempfile.TemporaryDirectory(prefix="build-", dir=target.parent) as work:
        if is_sound(target):  # another process has made it meanwhile
            return target
        output = os.path.join(work, "made")
        command = [compiler, *flags, str(sources[0]), "-o", output, *libraries]
        run_tool(command, f"compile {what}")
        keep(Path(output), target)
    return target
