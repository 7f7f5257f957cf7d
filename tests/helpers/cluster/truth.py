"""Runs the real program of the replay benchmark on a cluster and reads its times."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from cluster.network import Cluster, openmpi_words
from cluster.patterns import Pattern
from paths import PROGRAMS

SOURCE = PROGRAMS / "replay" / "truth.c"


@dataclass(frozen=True)
class Truth:
    """Times of a pattern's real execution, in ns.

    ``times[rank]``: (repetitions, lines, 3): begin of the work, begin and end of the call.
    """

    pattern: Pattern
    times: tuple[np.ndarray, ...]

    @property
    def phase(self) -> np.ndarray:
        """Phase time of each repetition: until the last rank has ended."""
        return np.max([t[:, -1, 2] for t in self.times], axis=0)

    @property
    def comm(self) -> np.ndarray:
        """Time in calls, (ranks, repetitions)."""
        return np.array([(t[:, :, 2] - t[:, :, 1]).sum(axis=1) for t in self.times])

    @property
    def work(self) -> np.ndarray:
        """Time of the computation, (ranks, repetitions)."""
        return np.array([(t[:, :, 1] - t[:, :, 0]).sum(axis=1) for t in self.times])


def build(directory: Path, mpicc: str = "/usr/bin/mpicc.openmpi") -> Path:
    """Compile the program."""
    path = Path(directory) / "truth"
    subprocess.run([mpicc, "-O2", "-o", str(path), str(SOURCE)], check=True, timeout=60)
    return path


def measure(
    cluster: Cluster,
    program: Path,
    pattern: Pattern,
    directory: Path,
    *,
    repetitions: int = 20,
    warmup: int = 2,
    timeout_s: float = 300.0,
) -> Truth:
    """Run a pattern for real, ranks in blocks over the nodes."""
    script = pattern.write_script(Path(directory) / "script.txt")
    result = Path(directory) / "result.bin"
    result.unlink(missing_ok=True)
    per = -(-pattern.n // cluster.nodes)
    hosts = ",".join(f"{host}:{per}" for host in cluster.hosts)
    words = [
        *openmpi_words(cluster),
        "--host",
        hosts,
        "--map-by",
        "slot",
        "-n",
        str(pattern.n),
        str(program),
        str(script),
        str(result),
        str(repetitions),
        str(warmup),
    ]
    run(words, timeout_s)
    return read(pattern, result)


def run(words: list[str], timeout_s: float) -> str:
    """Run a command under a time limit and return what it printed; its group never outlives it."""
    env = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    process = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env=env,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=timeout_s)
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    if process.returncode:
        raise RuntimeError(f"exit code {process.returncode}: {said.strip()[-500:]}")
    return said


def read(pattern: Pattern, path: Path) -> Truth:
    """Read a result file of truth.c."""
    data = np.fromfile(path, dtype=np.int64)
    ranks, repetitions = int(data[0]), int(data[1])
    counts, at, times = data[2 : 2 + ranks], 2 + ranks, []
    for count in counts.tolist():
        size = 3 * count * repetitions
        times.append(data[at : at + size].reshape(repetitions, count, 3))
        at += size
    if ranks != pattern.n or at != len(data) or counts.tolist() != [len(x) for x in pattern.lines]:
        raise RuntimeError(f"{path}: not a result of {pattern.name}")
    return Truth(pattern, tuple(times))
