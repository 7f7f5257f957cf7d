"""Compiles the core of the simulation (simulate.c) with the C compiler, once per source."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from p3s.errors import P3SError

_FLAGS = ("-O2", "-std=gnu11", "-fPIC", "-shared", "-w")
_SOURCES = ("simulate.c", "ends.h", "messages.h", "state.h")


def c_compiler() -> str:
    """Return the C compiler: $CC, cc, gcc or clang; P3SError when there is none."""
    for word in (os.environ.get("CC", ""), "cc", "gcc", "clang"):
        found = shutil.which(word) if word and " " not in word else None
        if found:
            return found
    raise P3SError("no C compiler (cc) for the simulation; install gcc, or set CC to one")


@functools.cache
def library() -> ctypes.CDLL:
    """Return the compiled core, loaded; from the cache if it is there.

    Errors: P3SError when there is no compiler, it fails, or no place is writable.
    """
    from signature_runner.build import cache_dir, locked, run_tool
    from signature_runner.mpi import ask

    folder = Path(__file__).parent
    compiler = c_compiler()
    version = ((ask([compiler, "--version"]) or "").splitlines() or ["unknown"])[0]
    digest = hashlib.sha256("\0".join((compiler, version, *_FLAGS)).encode())
    for name in _SOURCES:
        digest.update((folder / name).read_bytes())
    target = cache_dir() / f"simulate-{digest.hexdigest()[:20]}.so"
    if not target.is_file():
        with locked("build"), tempfile.TemporaryDirectory(
            prefix="build-", dir=target.parent
        ) as work:
            output = os.path.join(work, "simulate.so")
            run_tool([compiler, *_FLAGS, str(folder / _SOURCES[0]), "-o", output, "-lm"],
                     "compile the dependency simulation")
            os.chmod(output, 0o700)
            os.replace(output, target)
    try:
        return ctypes.CDLL(str(target))
    except OSError as err:
        raise P3SError(f"{target}: cannot be loaded ({err}); remove it and try again") from err
