"""Compiles the kernels with the system's C compiler, once per compiler and source."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from p3s.errors import P3SError

#: Of the base instruction set, as most programs are: a binary that runs on both machines.
FLAGS = ("-O2", "-ftree-vectorize", "-std=gnu11", "-w")


@dataclass(frozen=True)
class Built:
    """A compiled program: its path, compiler, that compiler's first line of --version, flags."""

    path: Path
    compiler: str
    version: str
    flags: str


def c_compiler() -> str:
    """Return the C compiler: $CC, cc, gcc or clang; P3SError when there is none."""
    for word in (os.environ.get("CC", ""), "cc", "gcc", "clang"):
        found = shutil.which(word) if word and " " not in word else None
        if found:
            return found
    raise P3SError("no C compiler (cc) for the kernels; install gcc, or set CC to one")


def built(source: str, compiler: str) -> Built:
    """Return ``source`` (a file of this package) compiled, from the cache if it is there.

    Errors: P3SError when the compiler fails or no place is writable.
    """
    from signature_runner.build import cache_dir, locked, run_tool
    from signature_runner.mpi import ask

    path = Path(__file__).with_name(source)
    text = path.read_bytes()
    version = ((ask([compiler, "--version"]) or "").splitlines() or ["unknown"])[0]
    digest = hashlib.sha256(text)
    digest.update("\0".join((compiler, version, *FLAGS)).encode())
    target = cache_dir() / f"machine-{path.stem}-{digest.hexdigest()[:20]}"
    found = Built(target, compiler, version, " ".join(FLAGS[:-2]))
    if target.is_file():
        return found
    with locked("build"), tempfile.TemporaryDirectory(prefix="build-", dir=target.parent) as work:
        output = os.path.join(work, "program")
        run_tool([compiler, *FLAGS, str(path), "-o", output], f"compile {path.name}")
        os.chmod(output, 0o700)
        os.replace(output, target)
    return found
