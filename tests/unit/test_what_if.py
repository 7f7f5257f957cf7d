"""What changes would save: the changes, and their times."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from compute_by_hand import compute_model, phase_costs
from handmade import put_model, put_replay
from machines import synthetic
from replay_patterns import Trace

from p3s.base.errors import P3SError, UsageError
from p3s.base.settings import traces_of
from p3s.base.study import Study, write_json
from p3s.costs.spread import Distribution, Spread
from p3s.costs.types import COMPUTE
from p3s.machine.machinefile import Facts
from p3s.machine.programs import ranges
from p3s.pipeline.predicting import predict_study as predict
from p3s.pipeline.predicting import what_ifs_of
from p3s.pipeline.saved import PredictionFile
from p3s.predict.estimates import Estimation
from p3s.predict.estimators import Setting, estimate
from p3s.predict.times import with_communication
from p3s.predict.types import PREDICTION, Prediction, WhatIf
from p3s.predict.what_if.answers import with_answers
from p3s.predict.what_if.changes import Change, Changes, check_phases, read_changes
from p3s.predict.what_if.simulated import Simulation, altered_network, costs_of, scale_network
from p3s.program.collectives.choose import Rule
from p3s.simulate.network import Network, rough_network
from p3s.simulate.switch_links import Trunks

#: An empty message takes so many ns, a byte so many more; calls take nothing for themselves.
LATENCY, BYTE = 2000.0, 0.1
SIZES = [0, 1000, 1_000_000]
TURNS = 10
MS = 1e6


def measured(one_way: list[float], call: float, hosts: str) -> dict[str, object]:
    """Return costs of messages that take ``one_way`` ns, on links that are never busy."""
    calls = [call] * len(SIZES)
    sizes = {
        "bytes": SIZES,
        "timings": [9] * len(SIZES),
        "one_way_ns": one_way,
        "one_way_median_ns": one_way,
        "send_ns": calls,
        "send_median_ns": calls,
        "receive_ns": calls,
        "receive_median_ns": calls,
        "gap_ns": [1e-6] * len(SIZES),
    }
    found: dict[str, object] = {
        "mpi": "openmpi 4.1.4",
        "hosts": list(hosts),
        "cores": [0, 0],
        "eager_bytes": 1 << 30,
        "background": True,
        "post_ns": 0.0,
        "sizes": sizes,
    }
    return {**found, "ranges": ranges(found)}


def put_machine(
    study: Study, *, call: float = 1e-6, inside_ns: float = 0.0, one_way: float = LATENCY
) -> None:
    """Write costs of messages between nodes: one_way + bytes x BYTE; inside: ``inside_ns``."""
    found = measured([one_way + BYTE * size for size in SIZES], call, "ab")
    if inside_ns:
        found["inside"] = measured([inside_ns] * len(SIZES), call, "aa")
    replace(synthetic(), network=found, facts=Facts(cores=1)).save(study.root / "machine.json")


def study_of(root: Path, *traces: Trace, **machine: float) -> Study:
    study = Study.create(root / "study", ["mpiexec", "-n", "{np}", "program"])
    put_model(study)
    for trace in traces:
        directory = trace.write(study.scaled_dir(trace.n))
        head = json.loads((directory / "scaled.json").read_text())
        for phase in head["phases"]:
            phase["work_rel_half_width"] = 0.1
        head["share"] = {"exact": {"events": 9, "bytes": 9, "work": 9.0}}
        write_json(directory / "scaled.json", head)
    put_machine(study, **machine)
    return study


def asked(
    study: Study, counts: list[int], *texts: str, estimator: str = "machine", **more: object
) -> Prediction:
    setting = more.pop("setting", Setting())
    result = predict(study, counts, Estimation(estimator, setting=setting))  # type: ignore[arg-type]
    costs = costs_of(traces_of(study), result.estimator, None, setting)  # type: ignore[arg-type]
    table = more.pop("table", False)
    return with_answers(
        traces_of(study),
        result,
        [read_changes(text) for text in texts],
        costs,
        table=table,  # type: ignore[arg-type]
        say=lambda text: None,
    )


def only(prediction: Prediction) -> WhatIf:
    (found,) = prediction.what_if
    return found


def ping_pong(nbytes: int) -> Trace:
    trace = Trace(2, weight=TURNS)
    trace.add(0, "MPI_Send", 1, nbytes)
    trace.add(0, "MPI_Recv", 1, nbytes)
    trace.add(1, "MPI_Recv", 0, nbytes)
    trace.add(1, "MPI_Send", 0, nbytes)
    return trace


def all_reduce(n: int, nbytes: int, work: list[float]) -> Trace:
    trace = Trace(n, weight=TURNS)
    for rank in range(n):
        trace.add(rank, "MPI_Allreduce", nbytes=nbytes, work=work[rank])
    return trace


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("latency/2", LATENCY / 2),
        ("latency*0", LATENCY),
        ("latency*3", -2 * LATENCY),
        ("bandwidth*2", 1000 * BYTE / 2),
        ("bandwidth/2", -1000 * BYTE),
        ("latency/2, bandwidth*2", (LATENCY + 1000 * BYTE) / 2),
        ("network=ideal", LATENCY + 1000 * BYTE),
        ("software/2", 0.0),
        ("balanced", 0.0),
    ],
)
def test_a_ping_pong(tmp_path: Path, text: str, ns: float) -> None:
    """Each turn is two messages, one after the other, and nothing else."""
    found = asked(study_of(tmp_path, ping_pong(1000)), [2], text)
    row, at = found.last, only(found).last
    assert row.model_s == pytest.approx(2 * TURNS * (LATENCY + 1000 * BYTE) / 1e9, rel=1e-6)
    assert at.saved_s == pytest.approx(2 * TURNS * ns / 1e9, rel=1e-6, abs=1e-15)
    assert at.time_s == pytest.approx(row.time_s - at.saved_s)
    assert at.saved_low_s is not None and at.saved_high_s is not None
    assert at.saved_low_s <= at.saved_s <= at.saved_high_s


def test_messages_inside_of_a_node_keep_their_latency(tmp_path: Path) -> None:
    study = study_of(tmp_path, ping_pong(1000))
    found = asked(study, [2], "latency/2", setting=Setting(ranks_per_node=2))
    assert only(found).last.saved_s == 0.0
    assert "one node" in only(found).notes[0]


def test_ranks_that_compute_alike(tmp_path: Path) -> None:
    """All wait for the slow rank in each turn; balanced, they need the mean."""
    work = [1 * MS, 1 * MS, 4 * MS, 2 * MS]
    found = asked(study_of(tmp_path, all_reduce(4, 8, work)), [4], "balanced")
    at = only(found).last
    assert at.saved_s == pytest.approx(TURNS * (4 - 2) * MS / 1e9, rel=5e-3)
    one = asked(study_of(tmp_path / "one", all_reduce(4, 8, work)), [4], "balanced phase 0")
    assert only(one).last == at


def test_a_rank_without_work_takes_its_part(tmp_path: Path) -> None:
    """One rank computes for all: balanced each does a quarter, in its own calls of the phase."""
    study = study_of(tmp_path, all_reduce(4, 8, [0.0, 8 * MS, 0.0, 0.0]))
    at = only(asked(study, [4], "balanced")).last
    assert at.saved_s == pytest.approx(TURNS * (8 - 2) * MS / 1e9, rel=5e-3)


def test_a_phase_that_is_twice_as_fast(tmp_path: Path) -> None:
    """Only its computation: that of the other phase and all messages take as long as before."""
    trace = Trace(4, weight=TURNS, phases=2)
    for rank in range(4):
        for phase, work in ((0, 3 * MS), (1, 5 * MS)):
            trace.add(rank, "MPI_Allreduce", nbytes=8, work=work, phase=phase)
    study = study_of(tmp_path, trace)
    found = asked(study, [4], "phase 1 / 2", "compute*0.5", "phase 0*0", "phase 0*2")
    saved = {each.text: each.last.saved_s * 1e9 / MS / TURNS for each in found.what_if}
    assert saved == {
        "compute / 2": pytest.approx(4.0),
        "phase 0 * 0": pytest.approx(3.0),
        "phase 1 / 2": pytest.approx(2.5),
        "phase 0 * 2": pytest.approx(-3.0),
    }
    assert list(saved) == sorted(saved, key=lambda text: -saved[text])


@pytest.mark.parametrize("n", [4, 8, 16])
@pytest.mark.parametrize("nbytes", [8 * 1024, 16 * (1 << 16)])
def test_algorithms_of_an_all_reduce(tmp_path: Path, n: int, nbytes: int) -> None:
    """Recursive doubling: log2 n whole vectors in a row; ring: 2 (n - 1) n-ths of it."""
    doubling = n.bit_length() - 1
    ring = 2 * (n - 1)
    study = study_of(tmp_path, all_reduce(n, nbytes, [0.0] * n))
    setting = Setting(collectives="allreduce=recursive_doubling")
    found = asked(study, [n], "allreduce=ring", setting=setting)
    at, row = only(found).last, found.last
    before = doubling * (LATENCY + nbytes * BYTE)
    after = ring * (LATENCY + nbytes / n * BYTE)
    assert row.model_s * 1e9 == pytest.approx(TURNS * before, rel=0.01)
    assert at.time_s * 1e9 == pytest.approx(TURNS * after, rel=0.01)
    assert at.saved_s * 1e9 == pytest.approx(TURNS * (before - after), rel=0.02)


def test_the_table_names_the_best_algorithm(tmp_path: Path) -> None:
    """Of large vectors none is as good as one that moves each byte twice; of 8 bytes none is."""
    study = study_of(tmp_path, all_reduce(8, 1 << 20, [2 * MS] * 8))
    setting = Setting(collectives="allreduce=recursive_doubling")
    found = asked(study, [8], "latency/2", table=True, setting=setting)
    texts = [each.text for each in found.what_if]
    assert {each.text for each in found.what_if if each.asked} == {"latency / 2"}
    assert {"phase 0 / 2", "balanced", "bandwidth * 2", "network=ideal"} <= set(texts)
    assert "allreduce=rabenseifner" in texts
    saved = [each.last.saved_s for each in found.what_if]
    assert saved == sorted(saved, reverse=True)
    small = study_of(tmp_path / "small", all_reduce(8, 8, [2 * MS] * 8))
    found = asked(small, [8], table=True, setting=setting)
    assert not [each for each in found.what_if if each.text.startswith("allreduce")]


def test_an_ideal_network_leaves_the_slowest_rank(tmp_path: Path) -> None:
    study = study_of(tmp_path, all_reduce(4, 1 << 16, [1 * MS, 1 * MS, 4 * MS, 2 * MS]), call=50.0)
    at = only(asked(study, [4], "network=ideal")).last
    assert at.time_s == pytest.approx(TURNS * 4 * MS / 1e9, rel=1e-9)


def put_spread(study: Study) -> None:
    levels = (0.05, 0.25, 0.5, 0.75, 0.95)
    spread = Spread(
        Distribution.of(levels, (0.9, 0.95, 1.0, 1.05, 1.1)),
        Distribution.of(levels, (0.8, 0.9, 1.0, 1.1, 1.2)),
        4,
        9,
    )
    write_json(
        study.compute_path,
        COMPUTE.data(compute_model("cpu_ns", phases=(phase_costs(0, spread=spread),))),
    )


def test_both_are_drawn_alike(tmp_path: Path) -> None:
    """What is saved is known better than either time, and to what is off in both alike."""
    study = study_of(tmp_path, all_reduce(16, 8, [1 * MS] * 16))
    put_spread(study)
    found = asked(study, [16], "latency/2", "phase 0 / 2", "latency * 1", "balanced")
    row = found.last
    assert row.low_s is not None and row.high_s is not None
    each = {one.text: one.last for one in found.what_if}
    nothing = each["latency * 1"]
    assert (nothing.saved_s, nothing.saved_low_s, nothing.saved_high_s) == (0.0, 0.0, 0.0)
    latency = each["latency / 2"]
    # less than on all four stages: some messages are there before the rank that is late
    assert 0.2 < latency.saved_s * 1e9 / (TURNS * 4 * LATENCY / 2) < 1.0
    assert latency.saved_low_s is not None and latency.saved_high_s is not None
    assert latency.saved_high_s - latency.saved_low_s < 0.1 * (row.high_s - row.low_s)
    half = each["phase 0 / 2"]
    assert half.saved_low_s is not None and half.saved_low_s > 0
    # lasting differences go, those of single turns stay
    balanced = each["balanced"]
    even = estimate("machine", traces_of(study), 16, setting=Setting(vary=False)).comm.max()
    assert 0 < balanced.saved_s < row.comm_s - even


def test_the_simulation_as_it_is_is_that_of_the_prediction(tmp_path: Path) -> None:
    study = study_of(tmp_path, all_reduce(16, 8, [1 * MS] * 16))
    put_spread(study)
    there = Simulation(traces_of(study), 16, costs_of(traces_of(study), "machine", None, Setting()))
    said = with_communication(there.times, estimate("machine", traces_of(study), 16))
    assert np.array_equal(there.base.times.mpi.comm, said.mpi.comm)


def test_what_the_prediction_has_simulated_is_not_simulated_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same to the bit, with and without the ends of the interval, and drawn as often."""
    study = study_of(tmp_path, all_reduce(16, 8, [1 * MS] * 16))
    put_spread(study)
    costs, kept = costs_of(traces_of(study), "machine", None, Setting()), {}
    predict(study, [16], Estimation("machine", setting=Setting(), keep=kept))
    own = Simulation(traces_of(study), 16, costs)
    again = Simulation(traces_of(study), 16, replace(costs, found=kept))
    plain = own.simulated(own.as_is, None, ends=False)
    monkeypatch.setattr(Simulation, "simulated", lambda *_, **__: pytest.fail("simulated again"))
    for there in (again.base, again._plain):
        assert np.array_equal(there.times.mpi.comm, plain.times.mpi.comm)
        assert there.draws[0].plan == plain.draws[0].plan and there.draws[0].plan
    monkeypatch.undo()
    mine, its = (one.base.times.mpi.seconds for one in (own, again))
    assert np.array_equal(mine, its)


def test_a_replay_is_answered_by_the_simulation(tmp_path: Path) -> None:
    """Its costs cannot be changed; the share that is saved is taken of its time."""
    study = study_of(tmp_path, ping_pong(1000))
    put_replay(study, 2, [(0, 0, 9e6, 8e6, 10e6), (1, 0, 9e6, 8e6, 10e6)])
    found = asked(study, [2], "latency * 0", estimator="simulation")
    each = only(found)
    assert each.estimator == "machine" and "rests on simulation" in each.why
    assert found.last.time_s == pytest.approx(9e-3)
    assert each.last.saved_s == pytest.approx(9e-3 * LATENCY / (LATENCY + 1000 * BYTE))
    (study.root / "machine.json").unlink()
    other = only(asked(study, [2], "latency / 2", estimator="simulation"))
    assert other.estimator == "typical" and "infiniband" in other.why


def test_one_process_has_no_messages(tmp_path: Path) -> None:
    study = study_of(tmp_path, all_reduce(1, 8, [5 * MS]), all_reduce(2, 8, [2 * MS, 4 * MS]))
    found = asked(study, [1, 2], "latency/2", "phase 0 / 2", "balanced", "network=ideal")
    each = {one.text: one.counts for one in found.what_if}
    assert [at.n for at in each["balanced"]] == [1, 2]
    for text in ("latency / 2", "balanced", "network=ideal"):
        assert each[text][0].saved_s == 0.0
    assert each["phase 0 / 2"][0].saved_s == pytest.approx(TURNS * 2.5 * MS / 1e9)
    # over the program as it is with one process
    ideal = each["network=ideal"][1]
    assert ideal.speedup == pytest.approx(5 / 4, rel=1e-3)


def test_ranks_on_nodes_in_another_way(tmp_path: Path) -> None:
    """Neighbours talk: dealt out in turn they are on different nodes."""
    trace = Trace(4, weight=TURNS)
    for rank in range(4):
        trace.add(rank, "MPI_Send" if rank % 2 == 0 else "MPI_Recv", rank ^ 1, 1000)
    study = study_of(tmp_path, trace, inside_ns=100.0)
    setting = Setting(ranks_per_node=2)
    found = asked(study, [4], "placement=cyclic", setting=setting)
    assert only(found).last.saved_s < 0
    back = asked(study, [4], "placement=block", setting=replace(setting, mapping="cyclic"))
    assert only(back).last.saved_s == pytest.approx(-only(found).last.saved_s)
    with pytest.raises(P3SError, match="give block, cyclic or a rank file"):
        asked(study, [4], "placement=everywhere")
    file = tmp_path / "ranks"
    file.write_text("a\nb\na\nb\n")
    placed = asked(study, [4], f"placement={file}", setting=setting)
    assert only(placed).last.saved_s == only(found).last.saved_s


def test_another_network(tmp_path: Path) -> None:
    study = study_of(tmp_path, ping_pong(1000))
    found = asked(study, [2], "network=ethernet-10g", setting=Setting(ranks_per_node=1))
    assert only(found).last.saved_s < 0
    with pytest.raises(UsageError, match="no-such"):
        asked(study, [2], "network=no-such")


def test_what_is_saved_survives_as_a_file(tmp_path: Path) -> None:
    found = asked(study_of(tmp_path, ping_pong(1000)), [2], "latency/2")
    again = PredictionFile.of(PREDICTION.data(found)).content
    assert again.what_if == found.what_if
    with pytest.raises(UsageError, match="no phase 7"):
        asked(study_of(tmp_path / "other", ping_pong(1000)), [2], "phase 7 / 2")


@pytest.mark.parametrize(
    ("text", "parts", "canonical"),
    [
        ("latency/2", [Change("latency", 0.5)], "latency / 2"),
        ("Bandwidth *2", [Change("bandwidth", 2.0)], "bandwidth * 2"),
        ("software*0", [Change("software", 0.0)], "software * 0"),
        ("phase 3 * 0.7", [Change("phase", 0.7, 3)], "phase 3 * 0.7"),
        ("phase -1/3", [Change("phase", 1 / 3, -1)], "phase start / 3"),
        ("Phase END*0.5", [Change("phase", 0.5, -2)], "phase end / 2"),
        ("balanced phase end", [Change("balanced", phase=-2)], "balanced phase end"),
        ("compute/1.6", [Change("compute", 0.625)], "compute * 0.625"),
        ("balanced", [Change("balanced")], "balanced"),
        ("Balanced phase 2", [Change("balanced", phase=2)], "balanced phase 2"),
        ("allreduce=RING", [Change("allreduce", Rule("allreduce", "ring"))], "allreduce=ring"),
        (
            "MPI_Bcast=pipeline:65536",
            [Change("bcast", Rule("bcast", "pipeline", 65536))],
            "bcast=pipeline:65536",
        ),
        ("network = ideal", [Change("network", "ideal")], "network=ideal"),
        ("network=Dir/My.json", [Change("network", "Dir/My.json")], "network=Dir/My.json"),
        ("placement=cyclic", [Change("placement", "cyclic")], "placement=cyclic"),
        (
            "latency/2, phase 0*0.5,balanced",
            [Change("latency", 0.5), Change("phase", 0.5, 0), Change("balanced")],
            "latency / 2, phase 0 / 2, balanced",
        ),
    ],
)
def test_what_is_read(text: str, parts: list[object], canonical: str) -> None:
    """What is written again is read as the same."""
    found = read_changes(text)
    assert list(found.parts) == parts
    assert found.text == canonical
    assert read_changes(canonical).text == canonical


def test_a_phase_that_there_is_not() -> None:
    check_phases([read_changes("phase 2/2, latency/2")], [0, 2])
    with pytest.raises(UsageError, match="no phase 3; there are start, 0, 2"):
        check_phases([read_changes("phase 3/2")], [0, 2, -1])


def test_the_table_is_asked_for_or_not() -> None:
    assert what_ifs_of([]).table is None and not what_ifs_of([]).asked
    assert what_ifs_of(["none"]).table is False
    found = what_ifs_of(["table", "latency/2", "latency * 0.5"])
    assert found.table is True and [each.text for each in found.asked] == ["latency / 2"]
    with pytest.raises(UsageError, match="leave the others out"):
        what_ifs_of(["none", "latency/2"])


def made(network: Network, text: str) -> Network:
    change = altered_network(read_changes(text))
    assert change is not None
    return change(network)


def test_latency_and_bandwidth_of_a_network() -> None:
    """A message takes latency + bytes / rate: half of the one, or of the other."""
    network = rough_network(latency_ns=2000.0, rate=10.0, inside_latency_ns=500.0)
    half = scale_network(network, latency=0.5).path(1).transfer.at([0, 1000])
    assert half.tolist() == [1000.0, 1100.0]
    fast = scale_network(network, bandwidth=2.0)
    assert fast.path(1).transfer.at([0, 1000]).tolist() == [2000.0, 2050.0]
    assert fast.rate == 20.0
    both = made(network, "latency*0, bandwidth*2")
    assert both.path(1).transfer.at([0, 1000]).tolist() == [0.0, 50.0]
    for changed in (fast, both):
        assert changed.path(0) == network.path(0)  # messages inside of a node stay as they are
    longer = scale_network(network, latency=3.0).path(1).transfer.at([0, 1000])
    assert longer.tolist() == [6000.0, 6100.0]


def test_software_and_an_ideal_network() -> None:
    network = rough_network(overhead_ns=200.0)
    found = made(network, "software/4")
    for path in found.paths.values():
        assert (path.send.at(0), path.receive.at(1e6)) == (50.0, 50.0)
    assert found.post == network.post / 4
    free = made(network, "network=ideal")
    assert free.rate == math.inf and free.post == 0 and free.trunks is None
    for path in free.paths.values():
        assert not path.transfer.at([0, 1e9]).any() and not path.send.at([0, 1e9]).any()
    assert altered_network(read_changes("balanced, network=my")) is None


def test_links_between_switches_are_faster_too() -> None:
    trunks = Trunks((0, 1), (-1, -1), (5.0, math.inf), (0.0, 0.0))
    network = Network(rough_network().paths, rate=10.0, trunks=trunks)
    faster = scale_network(network, bandwidth=4.0)
    assert faster.trunks is not None and faster.trunks.rate == (20.0, math.inf)


def test_changes_of_a_kind() -> None:
    found = Changes(
        "", (Change("balanced", phase=1), Change("phase", 0.5, 2), Change("latency", 0.5))
    )
    assert found.of("balanced") == [Change("balanced", phase=1)] and found.phases == {1, 2}
