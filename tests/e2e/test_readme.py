"""The README: each of its commands runs as it is written, with a small program in its place."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from paths import EXAMPLES, ROOT
from tracer_helpers import compile_c, usable_mpi

README = (ROOT / "README.md").read_text(encoding="utf-8")
#: Indented blocks of code, and what stands in a line between backticks.
BLOCKS = [
    re.sub(r"(?m)^    ", "", block)
    for block in re.findall(r"(?m)(?:^    .*\n(?:\n(?=    ))?)+", README)
]
LINES = [
    line for block in BLOCKS if "import p3s" not in block for line in block.splitlines() if line
]
INLINE = [text for text in re.findall(r"`([^`\n]+)`", README) if text.split()[0] in ("p3s", "make")]
#: Commands that are tested elsewhere: installing takes the network, make what a clone has.
ELSEWHERE = {
    "python3 -m venv p3s-venv && . p3s-venv/bin/activate",
    "git clone URL p3s && pip install ./p3s",
    "make demo", "make test", "make docs",
}  # fmt: skip
LIMIT_S = 240


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with ./program, and with p3s and the launcher of the MPI by these names."""
    install = usable_mpi()
    place = tmp_path_factory.mktemp("readme")
    compile_c(EXAMPLES / "ring.c", place / "ring", "-O2", "-g", "-I", str(EXAMPLES), "-lm")
    for path, text in (
        ("program", "exec ./ring --bodies 801 --steps 2"),
        ("bin/mpiexec", f'exec {Path(install.mpiexec).absolute()} "$@"'),
    ):
        (place / path).parent.mkdir(exist_ok=True)
        (place / path).write_text(f"#!/bin/sh\n{text}\n")
        (place / path).chmod(stat.S_IRWXU)
    return place


def ran(place: Path, command: list[str]) -> tuple[int, str]:
    """Return the exit code and what a command printed."""
    path = (str(place / "bin"), str(Path(sys.executable).parent), os.environ["PATH"])
    done = subprocess.run(
        command, cwd=place, env={**os.environ, "PATH": os.pathsep.join(path)}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT_S,
    )  # fmt: skip
    return done.returncode, done.stdout


def test_every_command_of_the_readme(place: Path) -> None:
    """Blocks in their order, then what sentences name; a name alone has at least its help."""
    commands = [line for line in [*LINES, *INLINE] if line not in ELSEWHERE]
    assert len(commands) >= 8 and all(line.startswith("p3s ") for line in commands)
    for command in commands:
        named = command in INLINE and "study" not in command
        code, said = ran(place, ["bash", "-c", f"{command} --help" if named else command])
        assert code in (0, 3), f"{command}\n{said}"
    assert (place / "study" / "report.html").exists()
    (python,) = (block for block in BLOCKS if "import p3s" in block)
    code, said = ran(place, [sys.executable, "-c", python])
    assert code == 0, said
