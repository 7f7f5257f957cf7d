"""What a measurement of a simulated disk says of more processes, beside that disk."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from paths import PROGRAMS

from p3s.machine.filesystem import DENSE, OWN, FileSystem, parsed

CALL_S = 0.005


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("disk") / "disk"
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    words = [compiler, "-O1", str(PROGRAMS / "io/disk.cpp"), "-o", str(target), "-lsimgrid"]
    if subprocess.run(words, capture_output=True, timeout=120).returncode:
        pytest.skip("no SimGrid to compile with")
    return target


def took(disk: Path, processes: int, nbytes: int, calls: int) -> float:
    """Seconds until all have written."""
    words = [str(disk), str(processes), str(nbytes), str(calls), str(CALL_S)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=True)
    return float(done.stdout.split()[-1])


@pytest.mark.parametrize(("processes", "mib", "calls"), [(16, 16, 16), (64, 16, 16), (64, 8, 1)])
def test_many_processes_on_one_disk(disk: Path, processes: int, mib: int, calls: int) -> None:
    rates = []
    for k in (1, 2, 4, 8):
        lines = [
            f"posix own write dense {size} {number} {took(disk, k, size * number, number)}"
            for size, number in ((4096, 256), (1 << 20, 16))
        ]
        rates += parsed("\n".join(lines), k)
    nbytes = mib << 20
    found = FileSystem("simulated", "disk", tuple(rates)).seconds(
        "posix", OWN, "write", DENSE, processes=processes, calls=calls, nbytes=nbytes
    )
    assert found is not None
    assert found.s == pytest.approx(took(disk, processes, nbytes, calls), rel=0.02)
