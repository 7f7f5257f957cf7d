"""Estimators of communication: networks measured, typical, or simulated by SimGrid."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from compute_by_hand import compute_model, phase_costs
from machines import synthetic
from replay_patterns import PATTERNS, Trace, halo, ring, wave

from p3s.base.errors import P3SError
from p3s.base.settings import traces_of
from p3s.base.study import REPLAY_VERSION, Study, write_json
from p3s.costs.spread import Distribution, Spread
from p3s.costs.types import COMPUTE
from p3s.machine.machinefile import Facts
from p3s.machine.programs import ranges
from p3s.predict.estimated import COMM, ESTIMATORS, SOFTWARE, TRANSFER, WAITING, Communication
from p3s.predict.estimators import Setting, available, estimate, estimate_many
from p3s.predict.estimators.drawn import Variation, own_deviation
from p3s.predict.estimators.messages import library_for, networks
from p3s.predict.times import computation, with_communication

BYTES = [0, 1000, 100_000]
NETWORK = {
    "mpi": "openmpi 4.1.4",
    "hosts": ["a", "b"],
    "cores": [0, 0],
    "eager_bytes": 4096,
    "sizes": {
        "bytes": BYTES,
        "timings": [9, 9, 9],
        "one_way_ns": [1000.0, 2000.0, 50_000.0],
        "one_way_median_ns": [1100.0, 2200.0, 55_000.0],
        "send_ns": [100.0, 100.0, 200.0],
        "send_median_ns": [100.0, 100.0, 200.0],
        "receive_ns": [200.0, 300.0, None],
        "receive_median_ns": [200.0, 300.0, None],
        "gap_ns": [300.0, 300.0, 10_000.0],
    },
}


def machine_file(path: Path, **network: object) -> Path:
    found = {**NETWORK, **network}
    replace(synthetic(), network={**found, "ranges": ranges(found)}, facts=Facts(cores=4)).save(
        path
    )
    return path


def study_of(root: Path, *traces: Trace, machine: bool = True, **network: object) -> Study:
    study = Study.create(root, ["mpiexec", "-n", "{np}", "program"])
    for trace in traces:
        trace.write(study.scaled_dir(trace.n))
    if machine:
        machine_file(study.root / "machine.json", **network)
    return study


def put_table(study: Study, n: int, columns: dict[str, list[float]], **head: object) -> None:
    ranks = len(columns["comm_ns"])
    table = {"rank": list(range(ranks)), "phase": [0] * ranks, **columns}
    study.replay_path(n).parent.mkdir(exist_ok=True)
    pq.write_table(pa.table(table), study.replay_table(n))
    write_json(
        study.replay_path(n),
        {
            "schema": "p3s.replay",
            "schema_version": REPLAY_VERSION,
            "n": n,
            "representative": True,
            "why_not_representative": None,
            "notes": ["a note"],
            **head,
        },
    )


COLUMNS = {
    "comm_ns": [5e9, 7e9],
    "comm_low_ns": [4e9, 8e9],
    "comm_high_ns": [6e9, 8e9],
    "waiting_ns": [1e9, 2e9],
    "transfer_ns": [3e9, 4e9],
    "software_ns": [1e9, 1e9],
    "thesis_ns": [2e9, 3e9],
}


def test_every_estimator_says_whether_it_can_be_used(tmp_path: Path) -> None:
    study = study_of(tmp_path / "s", ring(2), ring(1), machine=False)
    found = available(traces_of(study), 2)
    assert list(found) == list(ESTIMATORS)
    assert "p3s replay" in found["simulation"]
    assert "p3s replay" in found["thesis"]
    assert "p3s machine measure" in found["machine"]
    assert "p3s scale" in available(traces_of(study), 3)["machine"]
    assert set(available(traces_of(study), 1).values()) == {""}
    path = machine_file(tmp_path / "other.json")
    assert available(traces_of(study), 2, machine=path)["machine"] == ""
    put_table(study, 2, COLUMNS)
    assert (
        available(traces_of(study), 2)["simulation"]
        == available(traces_of(study), 2)["thesis"]
        == ""
    )
    head = json.loads(study.replay_path(2).read_text())
    write_json(study.replay_path(2), {**head, "schema_version": 1})
    assert "older" in available(traces_of(study), 2)["simulation"]
    path.write_text("{}")
    assert str(path) in available(traces_of(study), 2, machine=path)["machine"]
    replace(synthetic(), network_missing="no MPI here").save(path)
    assert "no MPI here" in available(traces_of(study), 2, machine=path)["machine"]


def test_what_cannot_be_used_is_an_error_of_one_line(tmp_path: Path) -> None:
    study = study_of(tmp_path / "s", ring(2), machine=False)
    for name in ("simulation", "machine"):
        with pytest.raises(P3SError, match="^estimator .* at 2 processes: there is no [^\n]*$"):
            estimate(name, traces_of(study), 2)
    with pytest.raises(P3SError, match="no estimator 'magic'"):
        estimate("magic", traces_of(study), 2)


def test_one_process_communicates_with_nobody(tmp_path: Path) -> None:
    study = study_of(tmp_path / "s", ring(1), machine=False)
    for name in ESTIMATORS:
        found = estimate(name, traces_of(study), 1)
        assert found.comm.shape == (1, 1)
        assert not found.comm.any()


def test_the_replay_s_table(tmp_path: Path) -> None:
    study = study_of(tmp_path / "s", ring(2), machine=False)
    put_table(study, 2, COLUMNS, representative=False, why_not_representative="one machine")
    found = estimate("simulation", traces_of(study), 2)
    assert found.phases == (0,)
    assert found.comm[:, 0].tolist() == [5.0, 7.0]
    assert found.low[:, 0].tolist() == [4.0, 7.0]  # not above the value
    assert found.high[:, 0].tolist() == [6.0, 8.0]
    assert (found.seconds[WAITING : SOFTWARE + 1].sum(axis=0) == found.comm).all()
    assert found.why_not == "one machine"
    assert found.notes == ("a note",)
    thesis = estimate("thesis", traces_of(study), 2)
    assert thesis.comm[:, 0].tolist() == [2.0, 3.0]
    assert np.array_equal(thesis.low, thesis.high)
    assert np.isnan(thesis.waiting).all()


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        ({"comm_ns": [5e9, -1.0]}, "comm_ns is negative"),
        ({"thesis_ns": [float("nan"), 1.0]}, "a value of thesis_ns is no finite number"),
        ({"phase": [0, 7]}, "not in scaled.json"),
        ({"rank": [0, 2]}, "not in scaled.json"),
        ({"waiting_ns": None}, "waiting_ns"),
    ],
)
def test_a_damaged_table(tmp_path: Path, damage: dict, says: str) -> None:
    study = study_of(tmp_path / "s", ring(2), machine=False)
    columns = {k: v for k, v in {**COLUMNS, **damage}.items() if v is not None}
    put_table(study, 2, columns)
    with pytest.raises(P3SError, match=says) as caught:
        estimate("simulation", traces_of(study), 2)
    assert "p3s replay" in str(caught.value)
    assert "\n" not in str(caught.value)


def one_message(nbytes: int) -> Trace:
    trace = Trace(2, weight=10)
    trace.add(0, "MPI_Send", 1, nbytes, work=3000.0)
    trace.add(1, "MPI_Recv", 0, nbytes)
    return trace


def test_a_message_costs_what_was_measured(tmp_path: Path) -> None:
    """By hand: a message leaves every 3,100 ns (3,000 of computation and 100 of the call).

    The tenth leaves at 30,900 ns and takes the median one way of 2,200 ns; the receiver computes
    nothing, so that it is in its ten calls all the time.
    """
    found = estimate("machine", traces_of(study_of(tmp_path / "s", one_message(1000))), 2)
    assert found.comm[:, 0] * 1e9 == pytest.approx([10 * 100.0, 33_100.0])
    assert found.seconds[SOFTWARE][:, 0] * 1e9 == pytest.approx([10 * 100.0, 10 * 300.0])
    # The ends: nine sends and the last one way at their least and most.
    assert found.low[1, 0] * 1e9 == pytest.approx(30_000.0 + 9 * 100.0 + 2_000.0)
    assert found.high[1, 0] * 1e9 == pytest.approx(30_000.0 + 9 * 100.0 + 2_400.0)
    assert found.why_not == ""
    assert (
        "message costs: machine synthetic: two ranks on two hosts, messages inside of "
        "nodes as those between" in found.notes
    )
    assert any("Open MPI 4.1" in note for note in found.notes)


def test_an_order_in_which_ranks_wait_for_ever_is_counted(tmp_path: Path) -> None:
    trace = Trace(2, weight=10)
    for rank in (0, 1):
        trace.add(rank, "MPI_Recv", 1 - rank, 1000)
        trace.add(rank, "MPI_Send", 1 - rank, 1000, work=3000.0)
    found = estimate("machine", traces_of(study_of(tmp_path / "s", trace)), 2)
    assert found.followed.reordered > 0
    assert any("for ever" in note or "not waiting" in note for note in found.notes)
    right = estimate("machine", traces_of(study_of(tmp_path / "t", one_message(1000))), 2)
    assert right.followed.reordered == 0


def test_one_host_says_nothing_of_a_network(tmp_path: Path) -> None:
    study = study_of(tmp_path / "s", one_message(1000), hosts=["a", "a"])
    assert "one host" in estimate("machine", traces_of(study), 2).why_not


@pytest.mark.parametrize("name", sorted(PATTERNS))
def test_parts_add_up_and_ends_enclose(tmp_path: Path, name: str) -> None:
    trace = PATTERNS[name](9)
    study = study_of(tmp_path / "s", trace)
    found = estimate("machine", traces_of(study), 9)
    assert found.comm.shape == (9, trace.phases)
    assert np.isfinite(found.comm).all()
    assert np.allclose(found.seconds[WAITING : SOFTWARE + 1].sum(axis=0), found.comm)
    assert (found.low <= found.comm + 1e-15).all()
    assert (found.comm <= found.high + 1e-15).all()
    assert (found.low >= 0).all()
    assert found.comm.max() > 0


def put_spread(study: Study, phases: int = 1) -> Spread:
    levels = (0.05, 0.25, 0.5, 0.75, 0.95)
    spread = Spread(
        Distribution.of(levels, (0.9, 0.95, 1.0, 1.05, 1.1)),
        Distribution.of(levels, (0.8, 0.9, 1.0, 1.1, 1.2)),
        4,
        9,
    )
    some = tuple(phase_costs(k, spread=spread) for k in range(phases))
    write_json(study.compute_path, COMPUTE.data(compute_model("cpu_ns", phases=some)))
    return spread


def test_computation_that_varies_makes_others_wait(tmp_path: Path) -> None:
    """All wait for the slowest of 16 in each all-reduce; how long is drawn here on its own."""
    trace = Trace(16)
    for rank in range(16):
        trace.add(rank, "MPI_Allreduce", nbytes=8, work=1e6)
    study = study_of(tmp_path / "s", trace)
    even = estimate("machine", traces_of(study), 16)
    assert "computation does not vary" in even.notes
    spread = put_spread(study)
    found, again = (estimate("machine", traces_of(study), 16) for _ in range(2))
    assert np.array_equal(found.comm, again.comm)  # drawn, but the same each time
    rng = np.random.default_rng(99)
    work = spread.ranks.quantile(rng.random((4000, 16))) * spread.turns.quantile(
        rng.random((4000, 16))
    )
    longer = 10 * 1e-3 * float((work.max(axis=1) - work.mean(axis=1)).mean())
    assert (found.comm - even.comm).mean() == pytest.approx(longer, rel=0.25)
    assert (found.waiting - even.waiting).mean() == pytest.approx(longer, rel=0.25)
    assert found.seconds[SOFTWARE] == pytest.approx(even.seconds[SOFTWARE], rel=0.05)
    assert np.array_equal(
        estimate("machine", traces_of(study), 16, setting=Setting(vary=False)).comm, even.comm
    )
    data = COMPUTE.data(compute_model("cpu_ns", phases=(phase_costs(0),)))
    data["phases"][0]["spread"] = {}
    write_json(study.compute_path, data)
    with pytest.raises(P3SError, match="spread: ranks is missing"):
        estimate("machine", traces_of(study), 16)


def test_ranks_that_wait_for_the_slowest_take_as_long_as_it(tmp_path: Path) -> None:
    """What a rank computes less than it is drawn to, or more, is in no rank's time for itself."""
    trace = Trace(16)
    for rank in range(16):
        trace.add(rank, "MPI_Allreduce", nbytes=8, work=1e6)
    study = study_of(tmp_path / "s", trace)
    spread = put_spread(study)
    found = estimate("machine", traces_of(study), 16)
    assert found.longer is not None and np.ptp(found.longer) > 0.05 * 10 * 1e-3
    times = with_communication(computation(study.scaled_dir(16)), found)
    whole = times.whole.sum(axis=1)
    assert np.ptp(whole) < 1e-3 * whole.max()
    rng = np.random.default_rng(98)
    rank, turn = rng.random((2, 4000, 16))
    drawn = spread.ranks.quantile(rank) * spread.turns.quantile(turn)
    assert 0.97 < times.run_s / (10 * 1e-3 * float(drawn.max(axis=1).mean())) < 1.05


def test_what_is_not_waited_in_one_phase_is_waited_less_in_others(tmp_path: Path) -> None:
    trace = Trace(2, phases=2)
    for rank in range(2):
        trace.add(rank, "MPI_Allreduce", nbytes=8, work=1e6)
        trace.add(rank, "MPI_Barrier", phase=1, work=1e6)
    study = study_of(tmp_path / "s", trace)
    times = computation(study.scaled_dir(2))
    phases = times.numbers
    seconds = np.zeros((6, 2, len(phases)))
    at = phases.index(1)
    seconds[[COMM, WAITING], 0, at] = 5.0
    longer = np.zeros((2, len(phases)))
    longer[0, phases.index(0)] = -3.0
    told = Communication("machine", 2, phases, seconds, longer=longer)
    made = with_communication(times, told).mpi
    assert made.longer is None and (made.waiting >= 0).all()
    assert made.waiting[0, at] == pytest.approx(2.0) and made.comm.sum() == pytest.approx(2.0)


def test_several_counts_at_once_are_the_same(tmp_path: Path) -> None:
    study = study_of(tmp_path / "s", wave(4), wave(9), wave(16), wave(1))
    put_spread(study, 2)
    said: list[str] = []
    both = estimate_many("machine", traces_of(study), [4, 16, 9, 1], jobs=2, say=said.append)
    alone = estimate_many("machine", traces_of(study), [4, 16, 9, 1], jobs=1)
    assert list(both) == list(alone) == [4, 16, 9, 1]
    for n, found in both.items():
        assert np.array_equal(found.comm, alone[n].comm)
        assert np.array_equal(found.high, alone[n].high)
        assert (found.notes, found.phases, found.why_not) == (
            alone[n].notes,
            alone[n].phases,
            alone[n].why_not,
        )
    assert {line.split(" ", 1)[0] for line in said} == {"4", "9", "16"}
    next(study.scaled_dir(9).glob("part-*")).write_bytes(b"")
    with pytest.raises(P3SError, match=r"np000009.*damaged"):
        estimate_many("machine", traces_of(study), [4, 16, 9], jobs=2)


def test_ends_of_the_costs_and_progress() -> None:
    machine = replace(synthetic(), network=NETWORK)
    typical, low, high = networks(machine)
    assert [net.path(1).transfer.at(1000) for net in (low, typical, high)] == [
        2000.0,
        2200.0,
        2400.0,
    ]
    assert not typical.background  # Open MPI moves large messages inside of calls
    assert networks(replace(machine, network={**NETWORK, "background": True}))[0].background
    assert networks(replace(machine, network={**NETWORK, "mpi": "other 1"}))[0].background
    with pytest.raises(P3SError, match="measure it again"):
        networks(replace(machine, network={**NETWORK, "sizes": {"bytes": []}}))


def test_whose_collectives_are_taken(tmp_path: Path) -> None:
    study = study_of(tmp_path / "s", ring(2))
    machine = replace(synthetic(), network={**NETWORK, "mpi": "mpich 5.0.2"})
    assert str(library_for(traces_of(study), machine, Setting())) == "MPICH 5.0"
    assert str(library_for(traces_of(study), None, Setting())) == "Open MPI 4.1"
    rules = library_for(traces_of(study), machine, Setting(collectives="allreduce=ring")).rules
    assert [(rule.call, rule.algorithm) for rule in rules] == [("allreduce", "ring")]
    with pytest.raises(P3SError, match="no collective"):
        library_for(traces_of(study), machine, Setting(collectives="dance=ring"))


def run_of(work: np.ndarray, unit: str = "cpu_ns") -> SimpleNamespace:
    """Return a run whose ranks compute ``work`` (ranks, turns) ns before each call of one place.

    Ranks call with different partners, as in a ring.
    """
    ranks, turns = work.shape
    calls = tuple(SimpleNamespace(op="MPI_Sendrecv", site=1, peer=rank) for rank in range(ranks))
    return SimpleNamespace(
        work_unit=unit,
        calls=calls,
        ranks=[
            SimpleNamespace(call=np.full(turns, rank), work=work[rank]) for rank in range(ranks)
        ],
    )


def test_what_turns_have_in_common_makes_nobody_wait() -> None:
    rng = np.random.default_rng(5)
    common = np.where(np.arange(201) % 7 == 0, 2e6, 1e6)
    level = rng.uniform(0.8, 1.2, (8, 1))  # ranks that are slower for good are another thing
    own = rng.normal(0, 1e5, (8, 201))
    assert own_deviation(run_of(level * common)) < 1e-6
    assert own_deviation(run_of(level * (1e6 + own))) == pytest.approx(0.1, rel=0.05)
    assert own_deviation(run_of(level * (1e6 + own[:1]))) < 1e-6
    assert own_deviation(run_of(common + own)) == pytest.approx(1e5 / common.mean(), rel=0.05)


def test_without_ranks_to_compare_all_is_their_own() -> None:
    work = np.random.default_rng(5).uniform(1e6, 2e6, (4, 50))
    assert own_deviation(run_of(work[:1])) == np.inf
    assert own_deviation(run_of(work[:, :8])) == np.inf  # too few turns to tell
    assert own_deviation(run_of(work, unit="instructions")) == np.inf


def test_no_more_is_drawn_than_is_their_own() -> None:
    spread = Spread(turns=Distribution.of((0.25, 0.5, 0.75), (0.5, 1.0, 1.5)))
    work, cell = np.full(20_000, 1e6), np.zeros(20_000, dtype=np.int64)
    off = [
        np.std(Variation((spread,), own).varying(work, cell, None).drawn(np.random.default_rng(1)))
        for own in (np.inf, 9.0, 0.1, 0.0)
    ]
    assert off[0] == off[1] > 3e5
    assert off[2] == pytest.approx(1e5, rel=0.05)
    assert off[3] == 0.0
    assert not Variation((spread,), 0.0).varies
    assert Variation((spread,)).varies


needs_simgrid = pytest.mark.skipif(
    shutil.which("smpirun") is None, reason="SimGrid (smpirun) is not installed"
)


def test_where_simgrid_is_not_installed(tmp_path: Path, monkeypatch) -> None:
    study = study_of(tmp_path / "s", ring(2))
    monkeypatch.setenv("PATH", "")
    assert "SimGrid is not installed" in available(traces_of(study), 2)["simgrid"]
    with pytest.raises(P3SError, match="not installed"):
        estimate("simgrid", traces_of(study), 2)


@needs_simgrid
def test_it_needs_the_costs_of_messages(tmp_path: Path) -> None:
    study = study_of(tmp_path / "s", ring(2), machine=False)
    assert "p3s machine measure" in available(traces_of(study), 2)["simgrid"]


@needs_simgrid
@pytest.mark.parametrize(
    "trace", [ring(4), wave(6), halo(6, nbytes=512, work=5000.0)], ids=["ring", "wave", "halo"]
)
def test_it_says_what_the_simulation_says(trace, tmp_path: Path) -> None:
    study = study_of(tmp_path / "s", trace, mpi="other 1", background=True)
    setting = Setting(vary=False, ranks_per_node=1)
    ours, theirs = (
        estimate(name, traces_of(study), trace.n, setting=setting)
        for name in ("machine", "simgrid")
    )
    assert theirs.phases == ours.phases and theirs.comm.shape == ours.comm.shape
    assert theirs.comm.sum() == pytest.approx(ours.comm.sum(), rel=0.05)
    assert (theirs.low <= theirs.comm).all() and (theirs.comm <= theirs.high).all()
    assert np.isnan(theirs.waiting).all() and np.isnan(theirs.seconds[TRANSFER]).all()
    assert theirs.why_not == ours.why_not == ""
    assert any(note.startswith("collectives as in Open MPI") for note in theirs.notes)
