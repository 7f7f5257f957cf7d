"""Where the program begins in a launcher command."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from p3s.base import extents
from p3s.base.errors import P3SError, UsageError
from p3s.base.host import command, mpi

FAMILIES = {
    "mpiexec.openmpi": mpi.OPENMPI,
    "mpirun.openmpi": mpi.OPENMPI,
    "mpiexec.hydra": mpi.MPICH,
    "mpiexec.mpich": mpi.MPICH,
    "srun": "slurm",
}


@pytest.fixture(autouse=True)
def launchers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Launchers that need not run: these names tell their family."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in [*FAMILIES, "app"]:
        path = folder / name
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


@pytest.mark.parametrize(
    "before",
    [
        "mpiexec.openmpi -n {np}",
        "mpiexec.openmpi --oversubscribe -np {np} --mca pml ob1 --mca btl tcp,self",
        "mpirun.openmpi -x A=1 -x B --host a:1,b:1 -n {np} --bind-to none -wdir /tmp",
        "mpirun.openmpi --map-by node --n {np} --hostfile=h -q --report-bindings",
        "mpiexec.hydra -genv A 1 -genvlist B,C -env D 2 -n {np} -ppn 1 -l",
        "mpiexec.mpich -launcher ssh -iface eth0 -hosts a,b -np {np}",
        "srun --mpi=pmix -N4 -n{np} --ntasks-per-node 2 -t 10",
        "srun -n {np} -u --cpu-bind none --exclusive",
        "env A=1 timeout 60 mpiexec.hydra -n {np}",
    ],
)
def test_the_program_is_found(before: str) -> None:
    words = before.split()
    parsed = command.parse([*words, "app", "-n", "3", "--x", "{np}"], 4)
    assert parsed.program == ("app", "-n", "3", "--x", "4")
    name = next(word for word in words if word in FAMILIES)
    assert parsed.family == FAMILIES[name]
    filled = [word.replace("{np}", "4") for word in words]
    filled[words.index(name)] = parsed.launcher
    assert parsed.argv(lambda program: ["/usr/bin/env", "P=1", *program]) == [
        *filled,
        "/usr/bin/env",
        "P=1",
        "app",
        "-n",
        "3",
        "--x",
        "4",
    ]


@pytest.mark.parametrize(
    ("words", "np", "listed", "program"),
    [
        ("{px} {py} {pz}", 12, {}, "3 2 2"),
        ("{px} {py} {pz}", 12, {12: (1, 6, 2), 4: (4, 1, 1)}, "1 6 2"),
        ("--grid={py}x{px}", 6, {}, "--grid=2x3"),
        ("-x {px} -z {pz}", 8, {}, "-x 4 -z 2"),  # two are asked for: a grid of two dimensions
        ("{px}", 7, {}, "7"),
        ("{px} {py} {pz} {pt}", 16, {}, "2 2 2 2"),
    ],
)
def test_extents_of_the_grid_are_placeholders_too(
    words: str, np: int, listed: dict[int, tuple[int, ...]], program: str
) -> None:
    template = ["mpiexec.openmpi", "-n", "{np}", "/bin/true", *words.split()]
    given = extents.with_extents(template, np, listed)
    assert given[4:] == program.split() and given[2] == "{np}"
    grid = extents.extents_at(template, np, listed)
    assert extents.extents_of(template, ["/bin/true", *program.split()]) == grid
    if not listed:  # what is still open when a command is taken apart is MPI_Dims_create's
        assert command.parse(template, np).program[1:] == tuple(program.split())


def test_arguments_that_are_no_extents_are_refused() -> None:
    template = ["mpiexec", "-n", "{np}", "app", "-g{px}x{py}"]
    assert extents.extents_of(template, ["app", "-g4x2"]) == (4, 2)
    assert extents.extents_of(["mpiexec", "-n", "{np}", "app"], ["app"]) == ()
    for wrong in (["app"], ["app", "-g4"], ["app", "-g4x2", "more"]):
        with pytest.raises(UsageError, match="are no arguments of"):
            extents.extents_of(template, wrong)


def test_several_programs_share_the_count() -> None:
    words = "mpiexec.openmpi -n 1 app x : -n {np-3} -x A app {np} : -n 2 -- app --".split()
    parsed = command.parse(words, 8)
    assert parsed.programs == [("app", "x"), ("app", "8"), ("app", "--")]
    assert parsed.argv(lambda program: ["env", *program])[1:] == (
        "-n 1 env app x : -n 5 -x A env app 8 : -n 2 env app --".split()
    )
    halves = command.parse("mpiexec.hydra -n {np/2} app : -n {np/2} app x".split(), 6)
    assert halves.argv()[1:] == "-n 3 app : -n 3 app x".split()


def test_two_dashes_say_where_the_program_begins() -> None:
    words = ["mpiexec.openmpi", "-n", "{np}", "--", "app", "--", "x"]
    parsed = command.parse(words, 2)
    assert parsed.program == ("app", "--", "x")
    assert parsed.before[1:] == ("-n", "2")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("mpiexec.openmpi -n 4 app", "no {np}"),
        ("app -n {np}", "no launcher"),
        ("mpiexec.openmpi -n {np}", "no program"),
        ("mpiexec.openmpi -n {np} --frobnicate 3 app", "--frobnicate"),
        ("mpiexec.hydra --oversubscribe -n {np} app", "--oversubscribe"),
        ("mpiexec.openmpi -n 1 app : -n {np-1}", "no program"),
        ("mpiexec.openmpi -n 1 app : -n {np-2} app", "{np-2}: is no number of processes at 2"),
    ],
)
def test_what_cannot_be_read_is_a_usage_error(words: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        command.parse(words.split(), 2)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_programs_that_cannot_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.txt").write_text("not a program")
    (tmp_path / "folder").mkdir()
    for word, said in [
        ("./nothing", "program not found, relative to the directory you are in"),
        ("nothing-of-this-name", "program not found on PATH"),
        ("./data.txt", "not executable"),
        ("data.txt", "write ./data.txt"),
        ("./folder", "is a directory"),
    ]:
        with pytest.raises(P3SError) as caught:
            command.parse(["mpiexec.openmpi", "-n", "{np}", word], 2)
        assert said in str(caught.value) and word in str(caught.value)
    # Somewhere else the file may well exist.
    command.parse(["mpiexec.openmpi", "-n", "{np}", "--wdir", "/elsewhere", "./nothing"], 2)


def test_a_launcher_that_is_nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(P3SError, match="launcher not found"):
        command.parse(["prterun", "-n", "{np}", "/bin/true"], 2)


@pytest.mark.parametrize(
    ("before", "kept"),
    [
        ("app -k {np} --", "app -k 4"),
        ("app run -n{np} -- --", "app run -n4 --"),
        ("env A=1 app -k {np} --", "env A=1 app -k 4"),
    ],
)
def test_an_unknown_launcher_with_dashes_before_the_program(before: str, kept: str) -> None:
    parsed = command.parse([*before.split(), "app", "-x", "--", "{np}"], 4)
    assert parsed.program == ("app", "-x", "--", "4")
    assert parsed.family == command.UNKNOWN
    assert parsed.launcher == command.find_launcher(before.split()[0])
    assert [os.path.basename(word) for word in parsed.before] == kept.split()


def test_an_unknown_option_with_dashes_before_the_program() -> None:
    parsed = command.parse("mpiexec.hydra --sites 1 -n {np} -- app -- 1".split(), 2)
    assert parsed.program == ("app", "--", "1")
    assert parsed.before[1:] == ("--sites", "1", "-n", "2")


def test_a_known_launcher_after_the_dashes_is_the_program() -> None:
    parsed = command.parse("app -k {np} -- mpiexec.hydra -n 1".split(), 2)
    assert parsed.program == ("mpiexec.hydra", "-n", "1")
