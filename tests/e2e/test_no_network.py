"""P3S needs no network: the whole way in a network namespace that has nothing but lo."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from commands import P3S, started
from paths import ROOT
from test_cli_mpi import tool

#: Brings lo up, over which ranks of one machine may talk, and becomes the command after it.
ENTER = """
import fcntl, os, socket, struct, sys
with socket.socket() as one:
    fcntl.ioctl(one, 0x8914, struct.pack("16sh14x", b"lo", 1))  # SIOCSIFFLAGS, IFF_UP
assert [name for _, name in socket.if_nameindex()] == ["lo"]
os.execvp(sys.argv[1], sys.argv[1:])
"""
UNSHARED = ["unshare", "--map-root-user", "--net"]


@pytest.fixture
def alone() -> list[str]:
    """Words that start a command without a network."""
    words = [*UNSHARED, sys.executable, "-c", ENTER]
    try:
        done = subprocess.run([*words, "true"], capture_output=True, timeout=300)
    except OSError as error:
        pytest.skip(f"no unshare: {error}")
    if done.returncode:
        pytest.skip(f"no network namespace of one's own here: {done.stderr.decode()[-80:]}")
    return words


def test_nothing_is_asked_of_a_network(
    alone: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # also to compile
    program = tmp_path / "jacobi2d"
    subprocess.run(
        [tool("mpicc"), "-O1", str(ROOT / "examples" / "jacobi2d.c"), "-o", str(program), "-lm"],
        check=True,
        timeout=300,
    )
    launch = [tool("mpiexec"), "-n", "{np}", str(program), "--nx", "200", "--ny", "300"]
    for words, codes in (
        (["characterize", "-n", "2,4,6", "-o", "study", "--", *launch, "--iterations", "6"], (0,)),
        (["model", "study"], (0, 3)),
        (["scale", "study", "-n", "16"], (0, 3)),
        (["replay", "study", "-n", "16", "--budget", "1"], (0, 3)),
        (["predict", "study", "-n", "16"], (0, 3)),
        (["report", "study"], (0, 3)),
        (["validate", "study", "-n", "5"], (0, 3)),
    ):
        done = started([*alone, *P3S, *words], tmp_path)
        assert done.code in codes, f"{words[0]}: {done.code} {done.err}"
    assert (tmp_path / "study" / "report.html").exists()
