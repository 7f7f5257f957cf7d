"""``--work instructions``: programs under qemu-user, executed instructions counted exactly."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from commands import P3S
from test_exec import launch
from test_exec import run as run_command
from test_launch import launcher
from tracer_helpers import PROGRAMS, TIMEOUT_S, compile_c, the_mpi

from p3s.base.errors import P3SError
from p3s.base.host import mpi
from p3s.capture import read_run
from p3s.signature_runner import build, emulate
from p3s.signature_runner.launch import run_traced
from p3s.signature_runner.recording import Recording

QEMU = shutil.which(f"qemu-{platform.machine()}")
needs_qemu = [
    pytest.mark.skipif(QEMU is None, reason="qemu-user is not installed"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the loops are x86-64 assembly"),
]
needs_mpi = [pytest.mark.mpi, pytest.mark.skipif(the_mpi() is None, reason="no usable MPI")]
COUNTED = Recording(work="instructions")

# Loops of 1, 2, 5 and 10 thousand turns of two instructions: the differences are exact.
LOOPS = re.compile(r"rank (\d+) of (\d+):(\d+) 2000 6000 10000$", re.MULTILINE)

GUEST = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
static volatile uint64_t *count;
static void loop(uint64_t turns)
{
    __asm__ volatile("1: dec %0\\n\\tjnz 1b" : "+r"(turns));
}
int main(int argc, char **argv)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/insn-%ld", argv[argc - 1], (long)getpid());
    int fd = open(path, O_RDONLY);
    count = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    if (fd < 0 || count == MAP_FAILED || count[1] != UINT64_C(0x50335351454d5531))
        return 1;
    for (uint64_t turns = 1; turns <= 10000000; turns *= 10) {
        uint64_t before = count[0];
        loop(turns);
        printf("%" PRIu64 " %" PRIu64 "\\n", turns, count[0] - before);
    }
    uint64_t before = count[0];
    pid_t child = fork(); /* what a child executes is not its parent's */
    if (!child) {
        loop(50000000);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    printf("child %d\\n", count[0] - before < 1000000);
    return 0;
}
"""


def counted(guest: Path, folder: Path) -> str:
    assert QEMU is not None
    plugin = f"{build.ensure_counter()},dir={str(folder).replace(',', ',,')}"
    done = subprocess.run(
        [QEMU, "-plugin", plugin, str(guest), str(folder)],
        check=True,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    return done.stdout


class TestCounter:
    pytestmark = needs_qemu

    def test_the_count_is_exact_and_the_same_again(self, tmp_path: Path) -> None:
        (tmp_path / "guest.c").write_text(GUEST)
        guest, folder = tmp_path / "guest", tmp_path / "a, place"
        folder.mkdir()
        subprocess.run(
            ["cc", "-O1", str(tmp_path / "guest.c"), "-o", str(guest)], check=True, timeout=300
        )
        first, again = counted(guest, folder), counted(guest, folder)
        assert first == again
        rows = [line.split() for line in first.splitlines()]
        beside = {int(took) - 2 * int(turns) for turns, took in rows[:-1]}
        assert len(rows) == 9 and len(beside) == 1 and 0 < beside.pop() < 20
        assert rows[-1] == ["child", "1"]
        assert list(folder.iterdir()) == []  # the counter is gone with its program


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c(PROGRAMS / "count.c", tmp_path_factory.mktemp("bin") / "count")


class TestPrograms:
    pytestmark = [*needs_qemu, *needs_mpi]

    @pytest.mark.parametrize("np", [2, 4])
    def test_every_rank_reads_exact_counts(self, np: int, program: Path, tmp_path: Path) -> None:
        words = [launcher(), "-n", "{np}", str(program)]
        run_traced(words, np, tmp_path / "run", timeout_s=TIMEOUT_S, recording=COUNTED)
        found = LOOPS.findall((tmp_path / "run" / "stdout.txt").read_text())
        assert sorted(int(rank) for rank, _, _ in found) == list(range(np))
        assert len({first for _, _, first in found}) == 1
        assert all(rank.complete for rank in read_run(tmp_path / "run").ranks)
        assert not list((tmp_path / "run").glob("insn-*"))

    def test_inside_a_launcher(self, program: Path, tmp_path: Path) -> None:
        done = launch(2, tmp_path, "--work", "instructions", "--", str(program))
        assert (done.code, done.said) == (0, []), done.err
        assert len(LOOPS.findall(done.out)) == 2
        assert all(rank.complete for rank in read_run(tmp_path / "p3s-np2").ranks)

    def test_a_script_that_leaves_the_emulator(self, program: Path, tmp_path: Path) -> None:
        """What a shell starts runs natively: its count must not be taken for one."""
        for number, text in enumerate((f"exec {program}", f"{program}; exit $?")):
            script = tmp_path / f"run{number}.sh"
            script.write_text(f"#!/bin/sh\n{text}\n")
            script.chmod(0o755)
            words = [launcher(), "-n", "{np}", str(script)]
            # Its own check of the counter fails: there is none that moves.
            with pytest.raises(P3SError, match=r"no counter|ran outside of qemu"):
                run_traced(words, 2, tmp_path / "run", timeout_s=TIMEOUT_S, recording=COUNTED)

    def test_a_python_script(self, tmp_path: Path) -> None:
        install = the_mpi()
        loaded = mpi.library_of_python(sys.executable)
        if install is None or loaded is None or loaded[0] != install.family:
            pytest.skip("mpi4py does not load the MPI of the tests")
        script = tmp_path / "app.py"
        script.write_text(
            f"#!{sys.executable}\nfrom mpi4py import MPI\n"
            "for i in range(3): MPI.COMM_WORLD.Barrier()\n"
        )
        script.chmod(0o755)
        words = [launcher(), "-n", "{np}", str(script)]
        run_traced(words, 2, tmp_path / "run", timeout_s=TIMEOUT_S, recording=COUNTED)
        run = read_run(tmp_path / "run")
        for rank in run.ranks:
            ops = [run.calls[number].op for number in rank.call.tolist()]
            assert rank.complete and ops.count("MPI_Barrier") == 3


class TestPrerequisites:
    def test_without_qemu(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(P3SError, match=r"qemu-\S+: not found.*install qemu-user"):
            emulate.emulator()

    @pytest.mark.skipif(the_mpi() is None, reason="no usable MPI")
    def test_without_qemu_one_line_of_exec(self, tmp_path: Path) -> None:
        folder = tmp_path / "bin"
        folder.mkdir()
        for name in ("sh", "true", "ldd", "cc", "gcc", "as", "ld"):
            found = shutil.which(name)
            if found:
                (folder / name).symlink_to(found)
        words = [*P3S, "exec", "--work", "instructions", "--", "true"]
        done = run_command(words, tmp_path, PATH=str(folder))
        assert done.code == 1 and len(done.said) == 1
        assert "install qemu-user" in done.said[0] or "mpicc" in done.said[0]

    def test_the_interpreter_is_put_in_front(self, tmp_path: Path) -> None:
        sh = shutil.which("sh")
        assert sh is not None
        for number, (line, expected) in enumerate(
            [
                ("#!/bin/sh -e", ["/bin/sh", "-e"]),
                ("#! /usr/bin/env sh", [sh]),
                ("#!/usr/bin/env -S A=1 sh -e", [sh, "-e"]),
            ]
        ):
            script = tmp_path / f"script{number}"
            script.write_text(f"{line}\nexit 0\n")
            script.chmod(0o755)
            assert emulate.native([str(script), "x"]) == [*expected, str(script), "x"]

    def test_what_cannot_be_run(self, tmp_path: Path) -> None:
        foreign = bytearray(Path(sys.executable).read_bytes()[:64])
        foreign[18:20] = (0x0008).to_bytes(2, "little")  # EM_MIPS
        for name, data, said in (
            ("foreign", bytes(foreign), "another processor"),
            ("text", b"echo no first line\n", "neither a program nor a script"),
            ("lost", b"#!/usr/bin/env no-such-python\n", "interpreter that is not there"),
        ):
            path = tmp_path / name
            path.write_bytes(data)
            path.chmod(0o755)
            with pytest.raises(P3SError, match=said) as caught:
                emulate.native([str(path)])
            assert "\n" not in str(caught.value) and str(path) in str(caught.value)
        assert os.access(tmp_path / "text", os.X_OK)
