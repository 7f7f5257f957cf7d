"""LogGOPSim on the halo of simulate.py: what it needs for the same messages."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from figures import whole

TIMEOUT_S = 600.0


def goal(peer: np.ndarray, turns: int, nbytes: int) -> str:
    """Return the halo in GOAL, LogGOPSim's language."""
    lines = [f"num_ranks {len(peer)}"]
    for rank in range(len(peer)):
        lines.append(f"rank {rank} {{")
        label = 0
        for turn in range(turns):
            lines.append(f"c{turn}: calc 100000")
            lines += [f"c{turn} requires l{k}" for k in range(label - 8, label) if turn]
            for k in range(8):
                what, way = ("recv", "from") if k < 4 else ("send", "to")
                tag = (k ^ 1) if k < 4 else k - 4  # what goes up is received from below
                lines.append(f"l{label}: {what} {nbytes}b {way} {peer[rank, k]} tag {tag}")
                lines.append(f"l{label} requires c{turn}")
                label += 1
        lines.append("}")
    return "\n".join(lines) + "\n"


#: Prints the CPU time between two calls of gettimeofday: LogGOPSim times its simulation by them, in
#: whole seconds.
_SHIM = """#include <stdio.h>
#include <stddef.h>
#include <time.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>
int gettimeofday(struct timeval *restrict when, void *restrict zone)
{
    static struct timespec before;
    struct timespec now;
    if (before.tv_sec | before.tv_nsec) {
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
        fprintf(stderr, "inner %.9f\\n", (double)(now.tv_sec - before.tv_sec)
                + 1e-9 * (double)(now.tv_nsec - before.tv_nsec));
    }
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    return (int)syscall(SYS_gettimeofday, when, zone);
}
"""


def timed_inside(work: Path) -> Path:
    """Return a library that tells how long LogGOPSim simulates."""
    source, library = work / "shim.c", work / "shim.so"
    source.write_text(_SHIM)
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", source, "-o", library], check=True, timeout=60)
    return library


def loggopsim(
    directory: Path, peer: np.ndarray, turns: int, nbytes: int, repeats: int
) -> dict[str, Any]:
    """Return what LogGOPSim needs for the halo: CPU time of its loop and in all, memory in MB.

    ``peer``: partners of each rank's four receives and four sends. txt2bin, which makes what it
    loads from text, counts in neither.
    """
    with tempfile.TemporaryDirectory() as work:
        text, binary, said = (Path(work) / name for name in ("halo.goal", "halo.bin", "said"))
        text.write_text(goal(peer, turns, nbytes))
        subprocess.run(
            [directory / "txt2bin", "-i", text, "-o", binary],
            check=True,
            capture_output=True,
            timeout=TIMEOUT_S,
        )
        words = [directory / "LogGOPSim", "-b", "-f", binary]
        words += "-L 2000 -o 200 -g 5 -G 1 -S 16384".split()
        used = [whole(words) for _ in range(repeats)]
        inner = []
        for _ in range(repeats):
            said.touch()
            os.truncate(said, 0)
            whole(["/usr/bin/env", f"LD_PRELOAD={timed_inside(Path(work))}", *words], str(said))
            inner.append(float(said.read_text().split()[1]))
    return {
        "seconds": min(inner),
        "peak_mb": max(x.peak_mib for x in used),
        "whole_s": min(x.cpu_s for x in used),
    }
