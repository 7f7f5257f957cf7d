"""Threads: laws of their times, where they are, teams on command lines and in signatures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from p3s.base.errors import P3SError, UsageError
from p3s.base.host import cores, mpi
from p3s.base.host.command import Command
from p3s.machine.topology.inside import read_node
from p3s.methods.threads.law import ThreadLaw, fit_law, measured_of, rows_of, value_of
from p3s.methods.threads.page import LEVELS, heat_chart, level_of
from p3s.methods.threads.places import cores_of, places, same_places
from p3s.methods.threads.types import Samples, Uses, Value, samples, uses
from p3s.signature.teams import COLUMNS, Teams

NODE = read_node("2x4x8+smt2")
#: Full nodes, 1, 2 and 4 of them, with three numbers of threads; some that are not full.
FULL = [(64 * k // t, t, 64 // t) for k in (1, 2, 4) for t in (1, 4, 16)]
SOME = [(8, 1, 8), (4, 1, 4), (2, 2, 2), (1, 64, 1), (64, 2, 64)]
WORK = 1000.0


def columns(rows: list[tuple[int, int, int]]) -> Uses:
    n, threads, per_node = (np.array(x) for x in zip(*rows, strict=True))
    return uses(n, threads, per_node)


def value(law: ThreadLaw, at: Uses, work: np.ndarray, work_error: float = 0.0) -> Value:
    """Return seconds with their interval."""
    return value_of(law.draws(at, work, work_error))


def saturating(u: Uses) -> np.ndarray:
    """Computing of 1 and waiting of 0.5 for a unit of work; 3 threads fill a domain's bandwidth."""
    total = np.minimum(u.per_node, u.n) * u.threads
    crowd = np.minimum(total, np.where(total > 64, 16, 8))
    share = np.where(total > 64, 2, 1)
    work = WORK / u.n
    each = (1 + 0.6 * (share - 1)) + 0.5 * np.maximum(1, crowd / 3)
    return work / u.threads * each + 0.01 * work + 0.002


def taken(rows: list[tuple[int, int, int]], noise: float = 0.0, **known: np.ndarray) -> Samples:
    u = columns(rows)
    y = saturating(u) * np.random.default_rng(5).lognormal(0.0, noise, len(u))
    return samples(
        n=u.n, threads=u.threads, per_node=u.per_node, work=WORK / u.n, seconds=y, **known
    )


def test_a_known_law_is_recovered_between_and_beyond_the_runs() -> None:
    law = fit_law(taken(FULL + SOME, 0.01), NODE)
    asked = columns([(32, 8, 8), (128, 2, 32), (512, 4, 16), (1024, 1, 64), (16, 1, 16)])
    told, true = value(law, asked, WORK / asked.n), saturating(asked)
    error = np.abs(told.seconds / true - 1)
    assert np.median(error) < 0.03 and error.max() < 0.2
    assert np.count_nonzero((told.low <= true) & (true <= told.high)) >= 4
    assert law.fit < 0.03


def test_few_points_work_and_say_little_of_what_nobody_saw() -> None:
    rows = [(n, t, n) for n in (2, 4, 8) for t in (1, 2)]
    law = fit_law(taken(rows, 0.01), NODE)
    near, far = columns([(4, 2, 4)]), columns([(4, 16, 4)])
    inside, outside = (value(law, u, WORK / u.n) for u in (near, far))
    assert inside.high[0] / inside.low[0] < 1.1
    assert outside.high[0] / outside.low[0] > 1.5
    assert law.outside(far)[1][0] == 8
    assert law.outside(near)[2][0] == 1


def test_more_runs_narrow_the_interval_of_full_nodes() -> None:
    rows = [(n, t, n) for n in (2, 4, 8) for t in (1, 2)]
    asked = columns([(4, 16, 4)])
    width = [
        float(np.log(told.high / told.low)[0])
        for more in ([], [(64, 1, 64)])
        for told in [value(fit_law(taken(rows + more, 0.01), NODE), asked, WORK / asked.n)]
    ]
    assert width[1] < 0.8 * width[0]


def test_measured_parts_tell_serial_from_parallel() -> None:
    u = columns(rows := [(n, t, n) for n in (2, 4) for t in (1, 4)])
    work = WORK / u.n
    serial = 0.2 * work
    parts = {
        "serial": serial,
        "busy": (saturating(u) - 0.01 * work - 0.002) * u.threads,
        "longest": saturating(u) - 0.01 * work - 0.002,
        "overhead": np.full(len(u), 1e-5),
        "regions": np.full(len(u), 5.0),
    }
    y = serial + parts["longest"] + parts["overhead"]
    law = fit_law(
        samples(n=u.n, threads=u.threads, per_node=u.per_node, work=work, seconds=y, **parts), NODE
    )
    share = {each.name: each for each in law.parts}
    at = int(np.argmax(u.n * u.threads))
    assert rows[at] == (4, 4, 4)
    assert share["serial"].value + share["fixed"].value == pytest.approx(
        serial[at] / y[at], rel=0.1
    )
    assert share["serial"].seen


def test_equal_samples_give_equal_laws_and_jointly_drawn_times() -> None:
    some = taken(FULL, 0.02)
    one, other = fit_law(some, NODE), fit_law(some, NODE)
    asked = columns([(512, 4, 16), (512, 4, 16), (2048, 1, 64)])
    draws = one.draws(asked, WORK / asked.n)
    assert np.array_equal(draws, other.draws(asked, WORK / asked.n))
    assert np.array_equal(draws[:, 0], draws[:, 1])
    alone = one.draws(asked.take([2]), WORK / asked.n[2:])
    np.testing.assert_allclose(alone[:, 0], draws[:, 2], rtol=1e-6)


def test_a_law_holds_for_another_workload() -> None:
    law = fit_law(taken(FULL + SOME, 0.01), NODE)
    asked = columns([(64, 4, 16)])
    whole, half = (value(law, asked, w * WORK / asked.n).seconds[0] for w in (1.0, 0.5))
    assert half == pytest.approx(whole / 2, rel=0.05)
    wide = value(law, asked, WORK / asked.n, work_error=0.2)
    assert wide.high[0] / wide.low[0] > 1.6


def test_measured_bandwidth_and_regions_tell_of_threads_that_no_run_had() -> None:
    class Machine:
        def bandwidth(self, threads: int, far: bool) -> float:
            return 1e10 * min(threads, 3) if threads <= 8 else 3e10 * threads / 8

        def fork_join(self, threads: int) -> float:
            return 1e-6 * threads

    measured = measured_of(Machine(), NODE)
    law = fit_law(taken([(n, t, n) for n in (2, 4, 8) for t in (1, 2)]), NODE, measured=measured)
    asked = columns([(1, 1, 1), (1, 8, 1), (16, 4, 16), (64, 2, 64)])
    np.testing.assert_allclose(rows_of(asked, NODE, measured).slower, [1, 8 / 3, 8 / 3, 16 / 3])
    assert law.shapes.curve.mean() > 0.5


def test_loops_with_fewer_iterations_than_threads_leave_some_idle() -> None:
    """192 rows: what each thread gets whole of; known from the runs, they are no guess."""
    u, asked = columns(FULL), columns([(256, 1, 64), (512, 1, 64), (64, 8, 8), (96, 2, 32)])

    def seconds(at: Uses) -> np.ndarray:
        whole = np.ceil(np.ceil(192 / at.n) / at.threads)
        return whole / 192 * WORK

    law = fit_law(
        samples(
            n=u.n,
            threads=u.threads,
            per_node=u.per_node,
            work=WORK / u.n,
            seconds=seconds(u),
            rows=192.0 / u.n,
        ),
        NODE,
    )
    told = value(law, asked, WORK / asked.n).seconds
    np.testing.assert_allclose(told, seconds(asked), rtol=0.08)
    busy = np.median(law.busy(asked, WORK / asked.n), axis=0)
    np.testing.assert_allclose(busy, WORK / asked.n, rtol=0.08)  # idle threads are not busy
    assert law.envelope.rows and law.envelope.in_all == 256


def test_what_cannot_be_fitted_is_said() -> None:
    with pytest.raises(P3SError, match="hardware threads"):
        fit_law(taken([(64, 4, 64), (32, 1, 32)]), NODE)
    for wrong in ({"seconds": [0.0]}, {"work": [np.nan]}, {"threads": [0]}, {"strange": [1.0]}):
        good = {"n": [1], "threads": [1], "per_node": [1], "work": [1.0], "seconds": [1.0]}
        with pytest.raises(P3SError) as caught:
            samples(**(good | wrong))
        assert "\n" not in str(caught.value)
    with pytest.raises(P3SError, match="different lengths"):
        samples(n=[1, 2], threads=[1], per_node=[1, 2], work=[1.0, 1.0], seconds=[1.0, 2.0, 3.0])


PLACES_NODE = read_node("2x2x4+smt2")


def test_close_threads_are_packed_and_far_ones_spread() -> None:
    assert cores_of(PLACES_NODE, 2, 2, False).tolist() == [[0, 1], [2, 3]]
    assert cores_of(PLACES_NODE, 2, 2, True).tolist() == [[0, 4], [8, 12]]
    assert cores_of(PLACES_NODE, 32, 1, False).ravel().tolist() == [k // 2 for k in range(32)]
    assert same_places(PLACES_NODE, 8, 2) and not same_places(PLACES_NODE, 2, 4)


def test_threads_share_domains_sockets_and_cores() -> None:
    found = places(
        uses([2, 2, 1, 32], [2, 2, 16, 1], [2, 2, 1, 32], [False, True, False, False]), PLACES_NODE
    )
    assert found.crowd.tolist() == [4, 1, 4, 8] and found.node_crowd.tolist() == [4, 4, 16, 32]
    assert found.share.tolist() == [1, 1, 1, 2] and found.active.tolist() == [0.5, 0.25, 1, 1]
    np.testing.assert_allclose(found.remote, [0, 0.5, 0.75, 0])
    np.testing.assert_allclose(found.remote_socket, [0, 0, 0.5, 0])


def test_fewer_processes_than_fit_on_a_node() -> None:
    few, many = places(uses([2, 4], [1, 1], [16, 16]), PLACES_NODE).node_crowd
    assert (few, many) == (2, 4)


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
    assert picture.count('fill="var(--m') == 3 and picture.count('stroke="var(--measured)"') == 1
    assert "a &amp; b" in picture and "2 threads" in picture and "8 s" in picture
    assert heat_chart({}, {}, "") == ""


def _teams(*rows: dict[str, int]) -> Teams:
    """Return a table with a row per place of one rank."""
    places = tuple((str(k), "MPI_Barrier") for k in range(len(rows)))
    values = np.array([[row.get(name, 0) for name in COLUMNS[2:]] for row in rows]).reshape(
        len(rows), len(COLUMNS) - 2
    )
    return Teams(places, np.zeros(len(rows), int), np.arange(len(rows)), values)


def test_imbalance_is_the_longest_thread_over_the_mean() -> None:
    found = _teams({"busy_ns": 8000, "longest_ns": 3000, "team": 4})
    assert found.imbalance() == pytest.approx(1.5)
