"""Threads of a run: their cores, what the OpenMP runtime is told, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from p3s.base.errors import UsageError
from p3s.base.host import cores, mpi
from p3s.base.host.command import Command
from p3s.methods.threads.page import LEVELS, heat_chart, level_of


def _machine(tmp_path: Path, places: list[tuple[int, int]]) -> Path:
    """Write the processors of a machine, each with its socket and core, as the kernel does."""
    for cpu, (socket, core) in enumerate(places):
        folder = tmp_path / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "physical_package_id").write_text(f"{socket}\n")
        (folder / "core_id").write_text(f"{core}\n")
    return tmp_path


def _command(*words: str, family: str = mpi.OPENMPI) -> Command:
    return Command(("mpiexec", *words), "mpiexec", family, ("./a",))


@pytest.fixture()
def two_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sockets of four cores with two hardware threads, numbered as on many machines."""
    places = [(k % 2, k // 2) for k in range(8)] * 2
    monkeypatch.setattr(cores, "CPUS", _machine(tmp_path, places))
    monkeypatch.setattr(cores.os, "sched_getaffinity", lambda _: set(range(16)))
    monkeypatch.setattr(cores, "cores", lambda: 16)


@pytest.mark.usefixtures("two_sockets")
def test_processes_get_neighbouring_cores_first_threads_first() -> None:
    sets = cores.core_sets(2)
    assert sets[:4] == ("0,2", "4,6", "1,3", "5,7")
    assert sets[4:] == ("8,10", "12,14", "9,11", "13,15")
    assert cores.core_sets(4)[:2] == ("0,2,4,6", "1,3,5,7")


@pytest.mark.usefixtures("two_sockets")
def test_close_has_as_many_cores_as_threads_and_far_its_part() -> None:
    close = cores.team_for(2, "close", _command(), 2)
    assert close.sets[:2] == ("0,2", "4,6")
    assert close.environment()["OMP_PROC_BIND"] == "close"
    far = cores.team_for(2, "far", _command(), 4)
    assert far.sets[:2] == ("0,2,4,6", "1,3,5,7")
    assert far.environment()["OMP_PROC_BIND"] == "spread"
    assert far.as_info() == {"count": 2, "affinity": "far", "cores": list(far.sets)}


@pytest.mark.usefixtures("two_sockets")
def test_nothing_is_bound_where_cores_are_shared_or_the_launcher_binds() -> None:
    for team in (
        cores.team_for(4, "close", _command(), 8),
        cores.team_for(2, "close", _command("--bind-to", "core"), 2),
        cores.team_for(2, "close", _command("--map-by=slot:PE=2"), 2),
        cores.team_for(2, "none", _command(), 2),
    ):
        assert team.sets == ()
        assert team.environment()["OMP_WAIT_POLICY"] == "passive"
        assert team.environment()["OMP_NUM_THREADS"] == str(team.count)
        assert team.as_info()["affinity"] == "none"


def test_more_threads_than_cores_are_refused() -> None:
    with pytest.raises(UsageError, match="--threads 8: there are 4 cores here; with --oversub"):
        cores.check_threads([1, 8], False, 4)
    cores.check_threads([1, 8], True, 4)
    with pytest.raises(UsageError, match="more than 4096"):
        cores.check_threads([5000], True, 4)


def test_far_is_refused_where_it_is_close() -> None:
    with pytest.raises(UsageError, match="close and far are the same"):
        cores.check_affinity("far", [2, 4], [1, 4], 8)
    cores.check_affinity("far", [2, 4], [2], 8)
    cores.check_affinity("close", [2, 4], [1, 4], 8)


def test_run_json_says_threads() -> None:
    assert cores.threads_in({"threads": {"count": 4, "affinity": "far"}}) == (4, "far")
    assert cores.threads_in({"np": 4}) is None


def test_heat_map_is_darker_where_it_is_slower() -> None:
    assert [level_of(v, 1.0, 64.0) for v in (1.0, 2.1, 63.9, 64.0)] == [1, 2, LEVELS, LEVELS]
    assert level_of(3.0, 3.0, 3.0) == 1
    values = {(2, 1): 8.0, (4, 1): 4.0, (4, 2): 2.0}
    picture = heat_chart(values, {k: f"{v:.0f} s" for k, v in values.items()}, "a & b", [(4, 2)])
    assert picture.count('class="cell') == 3 and picture.count('class="frame"') == 1
    assert "a &amp; b" in picture and "2 threads" in picture and "8 s" in picture
    assert heat_chart({}, {}, "") == ""
