"""Compiles the tracer with a program's own mpicc, once per MPI."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from p3s.errors import P3SError
from signature_runner import mpi
from signature_runner.tracer import generate

_FOLDER = Path(__file__).parent / "tracer"
_COUNTER = "p3s_count.c"  # a plugin of qemu, not part of the tracer
_FLAGS = ("-O2", "-g", "-fPIC", "-fvisibility=hidden", "-std=gnu11", "-w")
_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class TracerBuild:
    """A compiled tracer: its shared library and the MPI it was compiled for."""

    path: Path
    mpi_family: str
    version: str
    mpicc: str


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
        "no place for the compiled tracer (" + "; ".join(problems) + "); set XDG_CACHE_HOME to a"
        " writable directory"
    )


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
    """Run a compiler or linker; P3SError with its first error line if it fails."""
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=_TIMEOUT_S,
            check=False,
            start_new_session=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise P3SError(f"cannot {what} with {argv[0]}: {error}") from error
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if "error" in line.lower()]
        reason = (lines or done.stderr.strip().splitlines() or ["no message"])[0]
        raise P3SError(f"cannot {what} with {argv[0]}: {reason.strip()}; run `p3s doctor`")
    return done.stdout


def source_paths() -> list[Path]:
    """Return the tracer's own C files and headers, in the order of their names."""
    found = [*_FOLDER.glob("p3s_*.c"), *_FOLDER.glob("p3s_*.h")]
    return sorted(path for path in found if path.name != _COUNTER)


def _sources() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in source_paths()}


def _compile(mpicc: str, texts: dict[str, bytes], target: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="build-", dir=target.parent) as work:
        for name, text in texts.items():
            Path(work, name).write_bytes(text)
        objects = []
        for name in texts:
            if not name.endswith(".c"):
                continue
            output = os.path.join(work, name[:-2] + ".o")
            run_tool(
                [mpicc, *_FLAGS, "-I", work, "-c", os.path.join(work, name), "-o", output],
                "compile the tracer",
            )
            objects.append(output)
        # Linked without libmpi: the tracer calls whatever MPI library the program brings, and
        # does not pull one into shells and helpers that run under the same preload.
        library = os.path.join(work, target.name)
        linker = shutil.which("cc") or shutil.which("gcc") or mpicc
        run_tool(
            [linker, "-shared", "-o", library, *objects, "-ldl", "-lpthread"], "link the tracer"
        )
        os.chmod(library, 0o700)
        os.replace(library, target)


def ensure_tracer(
    mpicc: str | None = None,
    program: str | None = None,
    launcher: str | None = None,
    likely: str | None = None,
) -> TracerBuild:
    """Return the tracer for an MPI, compiling it if this MPI has none yet.

    The MPI is that of ``mpicc``, or else the one ``program`` is linked to, or else the one of
    ``launcher``, or else of the family ``likely``. The cache key covers the tracer's sources and
    the whole preprocessed mpi.h, so an upgrade of either makes a new build.
    Errors: P3SError when there is no usable mpicc or it does not compile.
    """
    install = mpi.describe(mpicc) if mpicc else mpi.mpi_for(program, launcher, likely)
    if install is None:
        wanted = mpi.library_of(program) or mpi.library_of_python(program) if program else None
        if mpicc:
            raise P3SError(f"{mpicc} does not compile MPI programs; run `p3s doctor`")
        if wanted:
            raise P3SError(
                f"{program} uses {wanted[1] or wanted[0]}, but no mpicc of that MPI is on PATH;"
                " install its development package or put its bin directory on PATH"
            )
        raise P3SError("no mpicc found; install an MPI (for example `pip install mpich`)")
    text = mpi.preprocess(install.mpicc, "#include <mpi.h>\n")
    if text is None:
        raise P3SError(f"{install.mpicc} cannot read mpi.h; run `p3s doctor`")
    header, wrappers = generate.generate(text)
    texts = {
        **_sources(),
        "p3s_generated.h": header.encode(),
        "wrappers.c": wrappers.encode(),
    }
    digest = hashlib.sha256(" ".join(_FLAGS).encode())
    for name in sorted(texts):
        digest.update(name.encode() + b"\0" + texts[name] + b"\0")
    digest.update(text.encode())
    target = cache_dir() / f"tracer-{install.family}-{digest.hexdigest()[:20]}.so"
    if not target.is_file():
        with locked("build"):
            if not target.is_file():
                _compile(install.mpicc, texts, target)
    return TracerBuild(target, install.family, install.version, install.mpicc)


def ensure_counter() -> Path:
    """Return the plugin that counts instructions under qemu, compiling it if it is missing.

    Errors: P3SError when there is no C compiler.
    """
    source = _FOLDER / _COUNTER
    text = source.read_bytes()
    target = cache_dir() / f"counter-{hashlib.sha256(text).hexdigest()[:20]}.so"
    if target.is_file():
        return target
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise P3SError("no C compiler (cc) for the instruction counter; install gcc")
    with locked("build"), tempfile.TemporaryDirectory(prefix="build-", dir=target.parent) as work:
        library = os.path.join(work, target.name)
        # What qemu itself defines is resolved when it loads the plugin.
        flags = ["-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-std=gnu11"]
        run_tool([compiler, *flags, str(source), "-o", library], "compile the counter")
        os.chmod(library, 0o700)
        os.replace(library, target)
    return target
