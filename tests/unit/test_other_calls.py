"""Calls in a program's file that no run came to, near those that were made."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from p3s.capture.elf import Binary, Code
from p3s.capture.lines import lines_of
from p3s.capture.other_calls import OtherCall, other_calls

pytestmark = pytest.mark.skipif(
    shutil.which("cc") is None or platform.machine() != "x86_64",
    reason="machine code of x86-64 is read",
)

#: Planes are exchanged by one, pencils by another function; a report is made by a third.
PROGRAM = """
int MPI_Alltoall(void *data), MPI_Reduce(void *data);
static int buffer[8], planes = 64;
#define APART __attribute__((noinline))
APART void exchange_planes(void) { MPI_Alltoall(buffer); buffer[0]++; }
APART void exchange_rows(void) { MPI_Alltoall(buffer + 1); buffer[1]++; }
APART void pencils(void) { exchange_rows(); buffer[2]++; exchange_rows(); }
APART void report(void) { MPI_Reduce(buffer); buffer[3]++; }
APART void never(void) { MPI_Alltoall(buffer + 2); buffer[4]++; }
void (*unknown)(void) = never;
APART void solve(int n)
{
    if (n <= planes)
        exchange_planes();
    else
        pencils();
    buffer[5]++;
}
int main(int n, char **words)
{
    for (int i = 0; i < 3; i++)
        solve(n);
    if (words[0][0] == 'r')
        report();
    return buffer[0];
}
"""
#: The calls of one line, of which a compiler makes two, and another call in the same function.
COPIES = """
int MPI_Send(void *data);
static int buffer[8];
static inline void send(int i) {
    MPI_Send(buffer + i);
}
__attribute__((noinline)) void solve(int n)
{
    if (n > 1) { send(1); buffer[1]++; } else { send(2); buffer[2]++; }
    if (n > 64)
        MPI_Send(buffer);
    buffer[3]++;
}
int main(int n, char **words) { solve(n); return buffer[0]; }
"""
CALLS = ("MPI_Send", "MPI_Alltoall", "MPI_Reduce")
LIBRARY = "\n".join(f"int {call}(void *data) {{ return !data; }}" for call in CALLS)


@pytest.fixture(scope="module", params=[(), ("-no-pie",), ("-fcf-protection=none", "-Wl,-z,now")])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that is linked to a library with its MPI calls."""
    work = tmp_path_factory.mktemp("program")
    (work / "program.c").write_text(PROGRAM)
    (work / "mpi.c").write_text(LIBRARY)
    run = [["cc", "-shared", "-fPIC", "mpi.c", "-o", "libmpi.so"]]
    run += [["cc", "-O1", *request.param, "program.c", "-o", "program", "-L.", "-lmpi"]]
    for words in run:
        subprocess.run(words, cwd=work, check=True)
    return work / "program"


def code_of(path: Path) -> Code:
    with Binary(path) as binary:
        code = binary.code()
    assert code is not None
    return code


def after(code: Code, function: str, call: str) -> int:
    """Return the address after the first such call in a function."""
    return min(at for at, own, name in code.calls if (code.name(own), name) == (function, call))


def test_another_way_that_the_program_has(program: Path) -> None:
    code = code_of(program)
    stack = [
        after(code, "exchange_planes", "MPI_Alltoall"),
        after(code, "solve", "exchange_planes"),
        after(code, "main", "solve"),
    ]
    assert other_calls(program, {"MPI_Alltoall": [stack]}) == (
        OtherCall("MPI_Alltoall", "exchange_rows", "solve"),
    )


def test_nothing_where_all_ways_were_taken_or_none_is_known(program: Path) -> None:
    code = code_of(program)
    planes = [
        after(code, "exchange_planes", "MPI_Alltoall"),
        after(code, "solve", "exchange_planes"),
    ]
    rows = [
        after(code, "exchange_rows", "MPI_Alltoall"),
        min(at for at, own, _ in code.calls if code.name(own) == "pencils"),
        after(code, "solve", "pencils"),
    ]
    assert other_calls(program, {"MPI_Alltoall": [planes, rows]}) == ()
    assert other_calls(program, {"MPI_Alltoall": [planes]}, rows) == ()
    assert other_calls(program, {}) == ()
    # another operation, which is not one of those that move the data
    assert other_calls(program, {"MPI_Reduce": [[after(code, "report", "MPI_Reduce")]]}) == ()


@pytest.mark.parametrize(("flag", "copied"), [("-g", [False]), ("-g0", [True])])
def test_copies_are_told_by_their_line(tmp_path: Path, flag: str, copied: list[bool]) -> None:
    """With lines the call for more than 64 is another one; without any, two may be copies."""
    (tmp_path / "copies.c").write_text(COPIES)
    (tmp_path / "mpi.c").write_text(LIBRARY)
    for words in (
        ["cc", "-shared", "-fPIC", "mpi.c", "-o", "libmpi.so"],
        ["cc", "-O2", flag, "copies.c", "-o", "copies", "-L.", "-lmpi"],
    ):
        subprocess.run(words, cwd=tmp_path, check=True)
    code = code_of(tmp_path / "copies")
    sends = [at for at, _, name in code.calls if name == "MPI_Send"]
    assert len(sends) == 3, "one was not copied: the compiler does otherwise"
    lines = lines_of(tmp_path / "copies", (at - 1 for at in sends))
    inline = [at for at in sends if not lines or lines[at - 1].line == 5]
    found = other_calls(tmp_path / "copies", {"MPI_Send": [[inline[0]]]})
    assert [each.copied for each in found] == copied
    assert {(each.call, each.function) for each in found} == {("MPI_Send", "solve")}


def test_what_is_no_program(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no program")
    with pytest.raises(ValueError):
        other_calls(tmp_path / "text", {"MPI_Send": [[1]]})
