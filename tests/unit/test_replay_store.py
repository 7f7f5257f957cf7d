"""Results of a replay that are kept, and the hosts it runs on."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from replay_jobs import Script, program_of

from p3s.base.errors import P3SError
from p3s.base.host.hosts import allocated_hosts, expand_hosts
from p3s.replay.engine.job import ResultStore
from p3s.replay.engine.results import Place, ProgramResult, save_result
from p3s.replay.launching import Mpi, _Output, landing_problem, on_hosts, write_hosts
from p3s.replay.plan.program import BLACK_HOLE, MEASURED, Code, Process, Program, World

HOSTS = ("a", "b", "c", "d")
OPENMPI = Mpi(("mpiexec", "--mca", "x", "y"), "openmpi", "4.1.4", "mpicc", "openmpi")
MPICH = Mpi(("mpiexec.hydra",), "mpich", "5.0", "mpicc", "mpich")
SRUN = Mpi(("srun", "-A", "me"), "mpich", "5.0", "mpicc", "slurm")
WORLD = World(
    (
        *(Process(MEASURED, 0, 0, k) for k in range(3)),
        Process(MEASURED, 1, 1, 0),
        Process(BLACK_HOLE, 2, 1, 0),
        *(Process(BLACK_HOLE, 3, 0, k) for k in range(2)),
    )
)


def test_every_process_has_its_host(tmp_path: Path) -> None:
    mpi = on_hosts(OPENMPI, HOSTS, WORLD)
    words = write_hosts(mpi, tmp_path)
    assert words == (
        "mpiexec",
        "--mca",
        "x",
        "y",
        "-n",
        "{np}",
        "--hostfile",
        str(tmp_path / "hosts"),
        "--map-by",
        "seq",
    )
    assert (tmp_path / "hosts").read_text().split() == list("aaabcdd")
    assert mpi.busiest == 3
    assert on_hosts(MPICH, HOSTS, WORLD).words == (
        "mpiexec.hydra",
        "-n",
        "{np}",
        "-hosts",
        "a:3,b:1,c:1,d:2",
    )


def test_hosts_that_come_twice_keep_the_order_of_the_ranks() -> None:
    assert on_hosts(MPICH, ("a", "b", "a", "b"), WORLD).words[-1] == "a:3,b:1,a:1,b:2"
    assert on_hosts(MPICH, ("a",) * 4, WORLD).words[-1] == "a:7"
    here = on_hosts(OPENMPI, ("localhost",) * 4, WORLD)  # which Open MPI knows by another name
    assert set(here.per_process) == {socket.gethostname()}
    mpi = on_hosts(OPENMPI, ("a", "b", "a", "b"), WORLD)
    assert mpi.per_process == tuple("aaababb") and mpi.busiest == 4


def test_srun_gets_one_host_per_process() -> None:
    words = on_hosts(SRUN, HOSTS, WORLD, {"SLURM_CPUS_ON_NODE": "2"}).words
    assert words[:3] == ("/usr/bin/env", "SLURM_HOSTFILE={hosts}", "srun")
    assert {"--mpi=pmi2", "--distribution=arbitrary", "--nodes=4", "--overcommit"} <= set(words)
    words = on_hosts(
        replace(SRUN, words=("srun", "--mpi=pmix")), HOSTS, WORLD, {"SLURM_CPUS_ON_NODE": "64"}
    ).words
    assert "--mpi=pmi2" not in words and "--overcommit" not in words


def test_a_launcher_with_a_place_for_the_number_is_left_alone() -> None:
    own = replace(OPENMPI, words=("mpiexec", "-n", "{np}", "--host", "x:7"))
    assert on_hosts(own, HOSTS, WORLD) == own


def test_no_hosts_and_the_wrong_number_of_hosts() -> None:
    assert on_hosts(OPENMPI, None, WORLD).words == (*OPENMPI.words, "-n", "{np}")
    with pytest.raises(P3SError, match="2 names for 4 nodes"):
        on_hosts(OPENMPI, ("a", "b"), WORLD)


def test_an_allocation_gives_the_hosts() -> None:
    assert allocated_hosts({"SLURM_JOB_NODELIST": "n[1-2]"}) == []
    assert allocated_hosts({"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2],m"}) == [
        "n1",
        "n2",
        "m",
    ]


def _places(names: str) -> list[Place]:
    return [Place(name, name, (0,)) for name in names]


@pytest.mark.parametrize(
    ("names", "hosts"),
    [
        ("aaabcdd", HOSTS),
        ("aaabcdd", None),
        ("xxxyzww", HOSTS),
        ("aaaaaaa", ("a",) * 4),
        ("aaababb", ("a", "b", "a", "b")),
        ("aaabcdd", ("a.site", "b", "c.site", "d")),
    ],
)
def test_landed(names: str, hosts: tuple[str, ...] | None) -> None:
    assert landing_problem(WORLD, _places(names), hosts) is None


@pytest.mark.parametrize(
    ("names", "hosts", "why"),
    [
        ("aabbcdd", HOSTS, "for a were started on a and b"),
        ("aaaaaaa", HOSTS, "for a and b were started on a and a"),
        ("bbbacdd", HOSTS, "for a were started on b"),
        ("aaabcdd", ("a", "b", "a", "b"), "for a and a were started on a and c"),
        ("aaabcd", HOSTS, "7 processes were to be started, but 6 were"),
    ],
)
def test_landed_elsewhere(names: str, hosts: tuple[str, ...], why: str) -> None:
    assert why in (landing_problem(WORLD, _places(names), hosts) or "")


def test_slurm_may_call_nodes_by_other_names() -> None:
    places = [Place("login", "k", (0,), node=name) for name in "aaabcdd"]
    assert landing_problem(WORLD, places, HOSTS) is None
    problem = landing_problem(WORLD, [replace(place, node="a") for place in places], HOSTS)
    assert "started on login and login" in (problem or "")


# ---- what the processes say ------------------------------------------------------------------
def test_the_output_tells_what_failed() -> None:
    lines: list[str] = []
    said = _Output(lines.append)
    said("stdout", "measured a: 3 passes\nnoise\nmeas")
    said("stdout", "ured b: 4 passes\n")
    said("stderr", "warning\np3s replay: stalled: process 10 (x), event 3 RECV\n")
    said("stderr", "p3s replay: stalled: process 2 (y), event 1 WAIT\n")
    assert lines == ["measured a: 3 passes", "measured b: 4 passes"]
    said.table()
    assert lines[2:] == ["process 2 (y), event 1 WAIT", "process 10 (x), event 3 RECV"]
    assert "pending: process 2 (y), event 1 WAIT; process 10" in str(said.failure())
    said("stderr", "p3s replay: error: process 4: killed")
    assert said.failure() == "process 4: killed"


def test_the_end_of_a_traceback_is_what_failed() -> None:
    said = _Output(None)
    said("stderr", "Traceback:\n  File x\n    y\nValueError: no such thing\nmpiexec: bye\n")
    assert said.failure() == "ValueError: no such thing"
    assert _Output(None).failure() is None


# ---- the store -------------------------------------------------------------------------------
def _program(nbytes: int = 8) -> Program:
    scripts = [Script() for _ in range(7)]
    scripts[0].add(Code.SEND, peer=1, bytes=nbytes)
    scripts[1].add(Code.RECV, peer=0, bytes=nbytes)
    return program_of(scripts)


def _result(passes: int = 3) -> ProgramResult:
    places = tuple(_places("aaabcdd"))
    return ProgramResult(passes, np.ones((passes, 7)), places=places)


def test_results_are_kept_under_their_keys(tmp_path: Path) -> None:
    store = ResultStore(tmp_path / "np4.parts")
    keys = [store.key(_program(size), WORLD, {"hosts": HOSTS}) for size in (8, 16)]
    assert store.get(keys[0]) is None
    save_result(store.path(keys[1]), _result())
    assert store.get(keys[0]) is None
    found = store.get(keys[1])
    assert found is not None and found.passes == 3
    assert found.places[3] == Place("b", "b", (0,))
    store.clear()
    assert store.get(keys[1]) is None


def test_keys_tell_apart_what_is_measured_differently(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    facts = {"hosts": list(HOSTS), "scale": 1.0}
    base = store.key(_program(), WORLD, facts)
    assert base == store.key(replace(_program(), name="other", section=3), WORLD, facts)
    other = World((*WORLD.processes[:-1], replace(WORLD.processes[-1], node=2)))
    different = [
        store.key(_program(16), WORLD, facts),
        store.key(replace(_program(), timed=True), WORLD, facts),
        store.key(_program(), other, facts),
        store.key(_program(), WORLD, {**facts, "scale": 0.5}),
        store.key(_program(), WORLD, {**facts, "hosts": None}),
    ]
    assert len({base, *different}) == 6


def test_the_directory_of_a_job_is_its_own_and_gone_afterwards(tmp_path: Path) -> None:
    store = ResultStore(tmp_path / "np4.parts")
    with pytest.raises(P3SError), store.job() as directory:
        assert directory.parent == store.directory and directory.stat().st_mode & 0o77 == 0
        with store.job() as other:
            assert other != directory and directory.is_dir()
        raise P3SError("stopped")
    assert list(store.directory.iterdir()) == []


def test_damaged_results_are_measured_again(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    (tmp_path / "a.npz").write_bytes(b"PK not really")
    assert store.get("a") is None
    save_result(store.path("b"), _result())
    content = bytearray(store.path("b").read_bytes())
    content[len(content) // 2] ^= 1
    store.path("b").write_bytes(content)
    assert store.get("b") is None


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("a", ["a"]),
        ("n0, n1", ["n0", "n1"]),
        ("n[0-3,7]", ["n0", "n1", "n2", "n3", "n7"]),
        ("n[008-011]", ["n008", "n009", "n010", "n011"]),
        ("r[0-1]n[0,2].local,x", ["r0n0.local", "r0n2.local", "r1n0.local", "r1n2.local", "x"]),
        ("a,a", ["a", "a"]),
        ("[1-2]x", ["1x", "2x"]),
        ("10.0.0.1,fe80::1", ["10.0.0.1", "fe80::1"]),
    ],
)
def test_lists(text: str, hosts: list[str]) -> None:
    assert expand_hosts(text) == hosts


def test_no_host_at_all_is_no_list() -> None:
    with pytest.raises(P3SError, match="hosts"):
        expand_hosts("")
