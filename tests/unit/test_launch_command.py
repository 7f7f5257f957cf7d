"""Launch commands, tools that are run, processes, and what kind of program is started."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from p3s.base import extents
from p3s.base.errors import P3SError, UsageError
from p3s.base.extents import with_count
from p3s.base.host import command, compiling, mpi
from p3s.base.host.processes import MARK, marked, new_mark, stop
from p3s.machine.network import run_ranks
from p3s.signature_runner.programs import Block, launched

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


def test_a_compiler_that_is_stopped_is_ended_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = tmp_path / "child"
    stopped = f"sleep 600 & echo $! >{child}; kill -STOP $$"
    deadline, start = time.monotonic() + 120, subprocess.Popen

    def started(*words: Any, **options: Any) -> subprocess.Popen[str]:
        """Start it; its time begins when its child is there, on a busy machine some time later."""
        process = start(*words, **options)
        while not (child.exists() and child.read_text()) and time.monotonic() < deadline:
            time.sleep(0.01)
        return process

    monkeypatch.setattr(compiling, "_TIMEOUT_S", 1.0)
    monkeypatch.setattr(subprocess, "Popen", started)
    with pytest.raises(P3SError, match="cannot compile it with sh: it did not end within 1 s"):
        compiling.run_tool(["sh", "-c", stopped], "compile it")
    number = int(child.read_text())
    while _lives(number) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _lives(number), "what the compiler has started is still there"


def test_the_first_error_of_a_compiler_is_told() -> None:
    said = "echo note; echo 'a.c:1: error: no such thing' >&2; exit 1"
    with pytest.raises(P3SError, match="cannot compile it with sh: a.c:1: error: no such thing"):
        compiling.run_tool(["sh", "-c", said], "compile it")
    assert compiling.run_tool(["echo", "done"], "say it") == "done\n"


def _lives(number: int) -> bool:
    """Tell whether a process is there and no zombie, which its new parent may not ask for."""
    try:
        os.kill(number, 0)
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


#: Starts a rank in a session of its own, which no signal but SIGKILL ends, says which, and is gone.
LAUNCHER = """
import subprocess, sys
rank = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
one = subprocess.Popen([sys.executable, "-c", rank], stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, start_new_session=True)
open(sys.argv[1], "w").write(str(one.pid))
sys.exit(int(sys.argv[2]))
"""


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def goes(pid: int) -> bool:
    """Wait for the end of a process that was told to end; whether it came."""
    deadline = time.monotonic() + 120
    while is_there(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not is_there(pid)


def test_a_rank_that_its_launcher_has_left_is_ended(tmp_path: Path) -> None:
    mark, told = new_mark(), tmp_path / "pid"
    words = [sys.executable, "-c", LAUNCHER, str(told), "0"]
    process = subprocess.Popen(words, env={**os.environ, MARK: mark}, start_new_session=True)
    assert process.wait(300) == 0
    pid = int(told.read_text())
    assert marked(mark) == [pid]
    stop(process, mark, 5.0)
    assert goes(pid)


def test_ranks_of_a_measurement_are_ended_when_their_launcher_fails(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    words = [sys.executable, "-c", LAUNCHER, str(told), "7"]
    with pytest.raises(P3SError, match="exit code 7"):
        run_ranks(words, 300.0, "two ranks", 2)
    assert goes(int(told.read_text()))


#: Starts a launcher that waits, says which, and waits, too.
MEASURES = """
import sys
import time
from p3s.machine.network import run_ranks
run_ranks(["/bin/sh", "-c", "echo $$ >$0; exec sleep 600", sys.argv[1]], 600.0, "ranks", 2)
"""


def test_ranks_of_a_measurement_that_is_killed_are_ended(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    os.mkfifo(told)
    process = subprocess.Popen([sys.executable, "-c", MEASURES, str(told)])
    pid = int(told.read_text())  # waits for it
    handle = os.pidfd_open(pid)
    process.send_signal(signal.SIGKILL)
    process.wait()
    # Readable when the process has ended.
    assert select.select([handle], [], [], 300.0)[0]
    os.close(handle)


def run(*counts: int) -> list[Block]:
    return [Block((f"./{'abc'[k]}", str(k)), count, own=True) for k, count in enumerate(counts)]


@pytest.mark.parametrize(
    ("runs", "counts"),
    [
        ([(1, 2)], ["1", "{np-1}"]),
        ([(2, 1)], ["{np-1}", "1"]),
        ([(1, 2), (1, 4)], ["1", "{np-1}"]),
        ([(2, 2), (4, 4)], ["{np/2}", "{np/2}"]),
        ([(1, 3, 2), (1, 7, 2)], ["1", "{np-3}", "2"]),
    ],
)
def test_counts_follow_from_the_whole(runs: list[tuple[int, ...]], counts: list[str]) -> None:
    words = launched([run(*each) for each in runs])
    assert [words[at + 1] for at, word in enumerate(words) if word == "-n"] == counts
    for each in runs:
        whole = with_count(words, sum(each))
        assert [int(whole[at + 1]) for at, word in enumerate(whole) if word == "-n"] == list(each)
    assert "./b 1" in " ".join(words) and words.count(":") == len(runs[0]) - 1


def test_counts_without_a_rule_need_the_command() -> None:
    with pytest.raises(UsageError, match="after --"):
        launched([run(1, 3), run(2, 6), run(3, 7)])
