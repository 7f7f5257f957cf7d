"""Compiles and calls the inner loop (inner.c)."""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt

from p3s.errors import P3SError
from replay.scaled import Ints
from replay.thesis.program import EVENT
from replay.thesis.watchdog import WORDS, pending

_FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-shared")
_TIMEOUT_S = 120.0


def compile_inner(mpicc: str) -> Path:
    """Return the inner loop compiled for an MPI, from the cache if it is there.

    Errors: P3SError when the compiler fails or no place is writable.
    """
    from signature_runner.build import cache_dir

    source = Path(__file__).with_name("inner.c")
    digest = hashlib.sha256(source.read_bytes())
    digest.update(" ".join((mpicc, *_FLAGS)).encode())
    try:
        facts = os.stat(mpicc)
        digest.update(f"{facts.st_mtime_ns} {facts.st_size}".encode())
    except OSError as err:
        raise P3SError(f"{mpicc}: cannot be used: {err.strerror}") from err
    target = cache_dir() / f"replay-{digest.hexdigest()[:20]}.so"
    if target.is_file():
        return target
    with tempfile.TemporaryDirectory(prefix="build-", dir=target.parent) as work:
        output = os.path.join(work, "inner.so")
        try:
            done = subprocess.run(
                [mpicc, *_FLAGS, str(source), "-o", output],
                stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                timeout=_TIMEOUT_S, check=False, start_new_session=True,
            )
        except (OSError, subprocess.SubprocessError) as err:
            raise P3SError(f"cannot compile the replay with {mpicc}: {err}") from err
        if done.returncode != 0:
            lines = [line for line in done.stderr.splitlines() if "error" in line.lower()]
            reason = (lines or done.stderr.strip().splitlines() or ["no message"])[0].strip()
            raise P3SError(f"cannot compile the replay with {mpicc}: {reason}; run `p3s doctor`")
        os.chmod(output, 0o700)
        os.replace(output, target)
    return target


class InnerLoop:
    """The compiled inner loop, loaded into this process."""

    def __init__(self, path: Path, shared_cores: bool) -> None:
        self._function = ctypes.CDLL(str(path)).p3s_replay
        word, pointer = ctypes.c_int64, ctypes.c_void_p
        self._function.argtypes = [
            ctypes.c_int, pointer, word, word, word, word, ctypes.c_double, ctypes.c_int, pointer,
            pointer,
        ]
        self._function.restype = ctypes.c_int
        self._shared_cores = int(shared_cores)
        #: struct progress; read by the watchdog.
        self.progress: Ints = np.zeros(WORDS, dtype=np.int64)

    def run(
        self, fortran_comm: int, events: npt.NDArray[np.void], passes: int, out_bytes: int,
        in_bytes: int, work_scale: float,
    ) -> Ints:
        """Execute events ``passes`` times; return ns per pass and event.

        Errors: P3SError when an MPI call fails or memory is short.
        """
        if events.dtype != EVENT or not events.flags.c_contiguous:
            raise ValueError("events must be a contiguous array of EVENT records")
        elapsed_ns = np.zeros((passes, len(events)), dtype=np.int64)
        error = self._function(
            fortran_comm, events.ctypes.data, len(events), passes, out_bytes, in_bytes,
            work_scale, self._shared_cores, elapsed_ns.ctypes.data, self.progress.ctypes.data,
        )
        if error != 0:
            why = "memory is short" if error < 0 else f"MPI error {error}"
            raise P3SError(f"{why} at {pending(self.progress)}")
        return elapsed_ns
