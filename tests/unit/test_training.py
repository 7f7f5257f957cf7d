"""Learning a machine: what is measured, its dataset and going on with it, the models' errors."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from commands import cli
from traffic_patterns import at_faces, fixed_halo

from p3s.base.errors import DamagedFile, P3SError, UsageError
from p3s.machine.topology.fabric import Fabric
from p3s.machine.topology.read import read_fabric
from p3s.machine.topology.trees import one_switch
from p3s.methods.placement.costs import network_id, row_of
from p3s.methods.placement.learned import (
    Card,
    Widening,
    doublings,
    doubts,
    load,
    measure_miss,
    save,
    widening,
)
from p3s.methods.placement.learned import Settings as Fit
from p3s.methods.placement.lines import feature_of, fit_robust, fit_single
from p3s.methods.placement.phases import Traffic, traffic
from p3s.methods.placement.ranking import Agreement
from p3s.methods.placement.simulated import SIMULATED, link_counters, simulated_features, steps_of
from p3s.methods.placement.training import campaign, platform
from p3s.methods.placement.training.campaign import Settings, executions, shapes
from p3s.methods.placement.training.card import render
from p3s.methods.placement.training.costs import (
    FAN,
    Hockney,
    hockney_of,
    network_of,
    pairs_of,
    probes,
    traffic_of,
)
from p3s.methods.placement.training.dataset import SIZES, DatasetHeader, measure_dataset
from p3s.methods.placement.training.jobs import Job, Repeats, measure
from p3s.methods.placement.training.jobs import read_results as results_of
from p3s.methods.placement.training.train import CORRECTED, SIMULATION, A, C, train
from p3s.program.mapping import RankMap, block, rank_map
from p3s.simulate.network import Network, rough_network

FABRIC = read_fabric("fat-tree:4,2,4@10Gbit/s", 16)
COST = Hockney(1e-5, 1e-9)
FEW = Settings(ranks=16, slots=2, phases=90)


@dataclass
class Made:
    """A machine whose times are made up; ``until``: phases after which a run is interrupted."""

    seconds: Callable[[Traffic, tuple[str, ...]], float]
    repeats: Repeats = Repeats(0, 1)
    until: int = 1 << 30
    ran: list[tuple[str, int]] = field(default_factory=list)

    def run(self, job: Job, directory: Path) -> None:
        with open(directory / "results.txt", "a") as file:
            for number, sent in job.phases.items():
                if len(self.ran) >= self.until:
                    file.write(f"{number} 1.0")  # a line that was cut off
                    raise KeyboardInterrupt
                self.ran.append((directory.name, number))
                file.write(f"{number} {self.seconds(sent, job.hosts):.9e}\n")


def simulated_seconds(sent: Traffic, placed: RankMap, fabric: Fabric, network: Network) -> float:
    return simulated_features(sent, placed, fabric, network)[SIMULATED]


def shared_links(sent: Traffic, hosts: tuple[str, ...]) -> float:
    """Return what a network of known costs takes."""
    order = list(dict.fromkeys(hosts))
    placed = rank_map(
        "x", np.array([order.index(host) for host in hosts]), tuple(f"+n{h[1:]}" for h in order)
    )
    return simulated_seconds(sent, placed, FABRIC, rough_network(rate=1.25, eager_bytes=1e12))


def told(settings: Settings = FEW, machine: str = "made") -> DatasetHeader:
    nodes = tuple(range(16))
    return DatasetHeader(
        machine, network_id(FABRIC), nodes, tuple(f"n{k}" for k in nodes), settings
    )


# ---- jobs ----------------------------------------------------------------------------------


def test_what_a_run_that_was_interrupted_has_measured_is_not_measured_again(tmp_path) -> None:
    machine = Made(lambda sent, _: float(sent.nbytes[0]), until=2)
    job = Job(("a", "b"), {k: traffic(2, [0], [1], k + 1) for k in range(5)}, machine.repeats)
    with pytest.raises(KeyboardInterrupt):
        measure(job, machine, tmp_path)
    assert results_of(tmp_path) == {0: 1.0, 1: 2.0}  # the cut line counts for nothing
    machine.until = 1 << 30
    assert measure(job, machine, tmp_path) == {k: k + 1.0 for k in range(5)}
    assert [number for _, number in machine.ran] == [0, 1, 2, 3, 4]
    silent = dataclasses.replace(machine, until=1 << 30)
    silent.run = lambda job, directory: None  # type: ignore[method-assign]
    with pytest.raises(P3SError, match="1 of 6 phases were not measured, the first is 7"):
        measure(dataclasses.replace(job, phases={**job.phases, 7: job.phases[0]}), silent, tmp_path)


# ---- campaign ------------------------------------------------------------------------------


def test_executions_are_the_same_every_time_and_within_the_machine() -> None:
    nodes = np.arange(3, 40)
    made = list(executions(nodes, Settings(32, 4, 300, seed=5), COST))
    again = list(executions(nodes, Settings(32, 4, 300, seed=5), COST))
    assert [(e.nodes.tolist(), e.slots, e.draws) for e in made] == [
        (e.nodes.tolist(), e.slots, e.draws) for e in again
    ]
    assert [e.number for e in made] == list(range(len(made)))
    for each in made:
        assert set(each.nodes) <= set(nodes) and (np.diff(each.nodes) > 0).all()
        assert 2 <= len(each.nodes) * each.slots <= 32 and each.slots <= 4
        assert all(d.messages in (1, 2, 3, 4, 6, 8, 13, 26) for d in each.draws)
        assert all(d.inside == 0 for d in each.draws) or each.slots > 1
    sizes = {(len(e.nodes), e.slots) for e in made}
    assert {(3, 3), (12, 2), (32, 1), (1, 4)} <= sizes  # also no powers of two


def test_random_pairs_are_what_class_a_takes_them_for() -> None:
    for each in executions(np.arange(16), Settings(16, 2, 60), COST):
        placed = each.placed
        for draw in each.draws:
            sent = campaign.traffic_of(draw, placed)
            if len(sent):
                found = row_of((sent, placed), FABRIC)
                assert found["PD(max)"] == found["PM(max)"] * found["l(max)"]
                assert found["PM(max)"] <= draw.messages and found["l(max)"] == draw.nbytes


def test_a_budget_bounds_the_length_of_messages() -> None:
    def longest(budget: float | None) -> int:
        made = executions(np.arange(8), Settings(8, 1, 200, budget_s=budget), COST)
        return max(draw.nbytes for each in made for draw in each.draws)

    assert longest(None) > 2_000_000 > longest(0.2) > 500 and longest(1e9) == longest(None)


def test_no_two_ranks_to_measure_between() -> None:
    with pytest.raises(UsageError, match="no two ranks"):
        shapes(1, Settings(slots=1))


# ---- costs ---------------------------------------------------------------------------------


def test_probes_find_the_costs_of_messages() -> None:
    truth = rough_network(rate=1.25, inside_rate=4.0, overhead_ns=0, eager_bytes=1e12)
    truth = dataclasses.replace(truth, post=0.0)
    pairs = pairs_of(np.arange(16), FABRIC, 2)
    assert [pair.distance for pair in pairs] == [0, 1, 3, FAN]
    used = np.unique([node for pair in pairs for node in (pair.first, *pair.others)])
    by_distance = {pair.distance: pair for pair in pairs}
    placed = rank_map(
        "x", np.repeat(np.arange(len(used)), 2), tuple(f"+n{node}" for node in used.tolist())
    )
    known = {
        probe: simulated_seconds(
            traffic_of(probe, by_distance[probe.distance], used, 2), placed, FABRIC, truth
        )
        for probe in probes(pairs, SIZES)
    }
    found = network_of(known, "x")
    assert found.rate == pytest.approx(1.25, rel=0.01)
    assert found.paths[1].transfer.ns[0] == pytest.approx(2000, rel=0.01)
    assert found.path(0).transfer.at(1e6) == pytest.approx(500 + 1e6 / 4, rel=0.01)
    fitted = hockney_of(known, found)
    assert fitted.alpha == pytest.approx(2e-6, rel=0.03)
    assert fitted.beta == pytest.approx(1 / 1.25e9, rel=0.03) and fitted.gamma == 0


# ---- simulated phases ----------------------------------------------------------------------


def test_messages_of_one_node_share_its_link() -> None:
    network, fabric = rough_network(rate=1.0, overhead_ns=0), one_switch(4)
    one = simulated_seconds(traffic(4, [0], [1], 10**6), block(4, 1), fabric, network)
    two = simulated_seconds(traffic(4, [0, 0], [1, 2], 10**6), block(4, 1), fabric, network)
    assert one == pytest.approx(1.002e-3, rel=0.01) and two == pytest.approx(2 * one, rel=0.01)
    assert simulated_seconds(traffic(4, [], [], []), block(4, 1), fabric, network) == 0


def test_steps_are_posted_in_the_order_of_the_rows() -> None:
    steps = steps_of(traffic(3, [0, 2, 0], [1, 0, 2], [1, 2, 3], [2, 1, 1]))
    assert len(steps) == 2 * 4 + 3 and steps.n == 3
    at = steps.of(0)  # sends two, receives, sends; waits for the four
    assert steps.peer[at].tolist() == [1, 1, 2, 2, -1]
    assert steps.bytes[at].tolist() == [1, 1, 2, 3, 0]
    assert steps.done[steps.done_start[4] : steps.done_start[5]].tolist() == [0, 1, 2, 3]
    sends = np.flatnonzero(steps.to >= 0)
    assert (steps.source[steps.to[sends]] == sends).all()


RING = read_fabric("torus:8@10Gbit/s", 8)


def on_ring(source: list[int], dest: list[int], nbytes: int = 512_000) -> dict[str, float]:
    network = rough_network(rate=1.25, eager_bytes=1e12)
    return simulated_features(traffic(8, source, dest, nbytes), block(8, 1), RING, network)


def test_packets_wait_where_two_flows_come_together() -> None:
    shared, alone, apart = on_ring([0, 1], [3, 3]), on_ring([0], [3]), on_ring([0, 4], [3, 6])
    # One link of 16 has waiting packets: from 0 to 1, behind which the other flow begins.
    assert shared["avg buffer"] * 16 == shared["avg buffer AO"] == shared["avg buffer TO"] > 500
    assert 0.5 < shared["avg delay AO"] <= 1 and shared["avg delay AO"] == shared["avg delay TO"]
    assert shared[SIMULATED] == pytest.approx(2 * alone[SIMULATED], rel=0.01)  # one after the other
    for each in (alone, apart, on_ring([], []), on_ring([2], [2])):
        assert not any(value for name, value in each.items() if name != SIMULATED)
    # Flows that come by one link have waited before it.
    assert on_ring([0, 0], [2, 3])["avg buffer"] == 0


def test_packets_received_are_the_bytes_of_links() -> None:
    first, second, begin = np.array([0, 1, 5]), np.array([3, 3, 2]), np.zeros(3)
    nbytes = np.array([5120, 512, 1024])
    received, buffered = link_counters(RING, first, second, nbytes, begin, begin + 100.0)
    assert (received * 512 == RING.loads(first, second, nbytes)).all()
    assert buffered.max() == 10 and (buffered <= received).all()
    begin = np.array([0.0, 75.0, 200.0])
    _, later = link_counters(RING, first, second, nbytes, begin, begin + 100.0)
    assert later.max() == 2.5  # while a quarter of the packets is under way


# ---- dataset -------------------------------------------------------------------------------


def test_a_sweep_goes_on_where_it_was_interrupted(tmp_path) -> None:
    whole = measure_dataset(tmp_path / "whole", told(), FABRIC, Made(shared_links))
    machine = Made(shared_links)
    for until in (30, 80, 1 << 30):
        machine.until = until
        try:
            parts = measure_dataset(tmp_path / "parts", told(), FABRIC, machine)
        except KeyboardInterrupt:
            continue
    assert len(machine.ran) == len(set(machine.ran)), "a phase was measured twice"
    assert parts.rows == whole.rows and (parts.seconds == whole.seconds).all()
    assert (parts.execution == whole.execution).all() and parts.probes == whole.probes
    assert not list((tmp_path / "parts").glob("*.running"))
    silent = Made(lambda *_: pytest.fail("all is there"))
    assert measure_dataset(tmp_path / "parts", told(), FABRIC, silent).rows == whole.rows


def test_a_dataset_of_something_else_is_refused(tmp_path) -> None:
    measure_dataset(tmp_path / "x", told(), FABRIC, Made(shared_links))
    with pytest.raises(P3SError, match="another machine"):
        measure_dataset(tmp_path / "x", told(machine="y"), FABRIC, Made(shared_links))
    other = dataclasses.replace(FEW, seed=3)
    with pytest.raises(P3SError, match="another --ranks"):
        measure_dataset(tmp_path / "x", told(other), FABRIC, Made(shared_links))
    (tmp_path / "x" / "execution-0001.json").write_bytes(b"{")
    with pytest.raises(DamagedFile, match="measure it again"):
        measure_dataset(tmp_path / "x", told(), FABRIC, Made(shared_links))
    (tmp_path / "y").mkdir()
    (tmp_path / "y" / "file").touch()
    with pytest.raises(P3SError, match="no measured phases"):
        measure_dataset(tmp_path / "y", told(), FABRIC, Made(shared_links))
    assert [path.name for path in (tmp_path / "y").iterdir()] == ["file"]


# ---- models --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return measure_dataset(
        tmp_path_factory.mktemp("data") / "x", told(), FABRIC, Made(shared_links)
    )


def test_where_the_simulation_is_right_learning_leaves_it_alone(dataset, tmp_path) -> None:
    pytest.importorskip("sklearn")
    fit = Fit(trees=25, rate=0.1, depth=3)
    model = train(dataset, FABRIC, "made", network_id(FABRIC), settings=fit)
    table = model.card.compared
    assert model.card.features == CORRECTED and table[SIMULATION].mmre < 0.1
    assert table[CORRECTED].mmre < table[C].mmre < table[A].mmre
    save(tmp_path / "m.json", model)
    again = load(tmp_path / "m.json")
    assert again.card == model.card and again.first == model.first
    sent = fixed_halo((4, 4), at_faces(2), 30_000)
    rows = [
        row_of((sent, placed), FABRIC, model.network) for placed in (block(16, 1), block(16, 2))
    ]
    one, other = model.predict(rows), again.predict(rows)
    assert (one.seconds == other.seconds).all()
    assert (one.low <= one.seconds).all() and (one.seconds <= one.high).all()
    with pytest.raises(P3SError, match="is of network"):
        model.check("", network_id(read_fabric("torus:4x4", 16)))
    with pytest.raises(P3SError, match="is of machine made, not of other"):
        again.check("other", "")


def test_networks_of_one_form_are_told_from_others() -> None:
    names = ["fat-tree:4,2@1Gbit/s", "fat-tree:4,2@2Gbit/s", "fat-tree:4,1@1Gbit/s", "torus:4x4"]
    found = [network_id(read_fabric(name, 16)) for name in names]
    assert len(set(found)) == 4
    assert network_id(read_fabric(names[0], 64)) == found[0]  # as many nodes as a run needs


# ---- intervals -----------------------------------------------------------------------------


def test_intervals_widen_by_what_was_missed() -> None:
    rng = np.random.default_rng(0)
    truth = rng.normal(0, 1, 5000)
    off = measure_miss(np.full(5000, -0.5), np.full(5000, 0.5), truth)
    assert off[np.argmin(np.abs(truth))] == pytest.approx(-0.5, abs=1e-2)
    found = widening([off, off[:100] - 9], np.zeros(0), np.zeros(0))
    assert found.always == pytest.approx(1.645 - 0.5, abs=0.05) and found.doubling == 0
    held = np.abs(rng.normal(0, 1, 5000)) <= 0.5 + found.always
    assert 0.88 < held.mean() < 0.92


def test_intervals_widen_beyond_the_training() -> None:
    far = np.array([1.0, 2.0, 3.0, 0.0])
    found = widening([np.full(50, 0.1)], 0.1 + 0.2 * far, far)
    assert found == Widening(pytest.approx(0.1), pytest.approx(0.2))
    assert found.at(np.array([0.0, 2.0])) == pytest.approx([0.1, 0.5])
    least, most = np.array([0.0, 3.0]), np.array([7.0, 15.0])
    rows = np.array([[7.0, 15.0], [31.0, 8.0], [0.0, 0.0], [1.0, 31.0]])
    assert doublings(rows, least, most) == pytest.approx([0, 2, 2, 1])


# ---- platforms -----------------------------------------------------------------------------

CLUSTER = (
    '<?xml version="1.0"?><!DOCTYPE platform SYSTEM "x"><platform version="4.1"><cluster id="c" '
    'prefix="n-" suffix=".x" radical="{}" bw="10Gbps" lat="1us" speed="1Gf" {}/></platform>'
)


@pytest.mark.parametrize(
    ("radical", "shape", "hosts", "network"),
    [
        ("0-3", "", 4, ""),
        ("0-3,7", 'topology="FLAT"', 5, ""),
        ("0-7", 'topology="TORUS" topo_parameters="2,2,2"', 8, "torus:2x2x2@10Gbit/s"),
        ("0-15", 'topology="FAT_TREE" topo_parameters="2;4,4;1,2;1,1"', 16, "fat-tree:4,2,4"),
        ("0-15", 'topology="FAT_TREE" topo_parameters="2;4,4;1,2;1,2"', 16, ""),
        ("0-7", 'topology="DRAGONFLY" topo_parameters="2,1;1,1;2,1;2"', 8, ""),
    ],
)
def test_platforms_say_their_hosts_and_networks(tmp_path, radical, shape, hosts, network) -> None:
    path = tmp_path / "p.xml"
    path.write_text(CLUSTER.format(radical, shape))
    assert len(platform.hosts_of(path)) == hosts and platform.hosts_of(path)[0] == "n-0.x"
    found = platform.network_of(path)
    assert found.partition("@")[0] == network.partition("@")[0]
    if found:
        assert read_fabric(found, hosts).nodes == hosts


@pytest.mark.parametrize(
    "text",
    [
        "", "<x/>", "<platform/>", CLUSTER.format("a", ""), CLUSTER.format("0-99999999", ""),
        CLUSTER.format("0-999999,0-999999", ""),
        '<!DOCTYPE p [<!ENTITY a "b">]><platform/>',
    ],
)  # fmt: skip
def test_platforms_that_are_none(tmp_path, text) -> None:
    path = tmp_path / "p.xml"
    path.write_text(text)
    with pytest.raises(P3SError) as err:
        platform.hosts_of(path)
    assert "\n" not in str(err.value) and str(path) in str(err.value)


# ---- the command ---------------------------------------------------------------------------


def test_a_model_is_learned_and_shown(tmp_path, monkeypatch) -> None:
    pytest.importorskip("sklearn")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.xml").write_text(CLUSTER.format("0-3", ""))
    machine = Made(lambda sent, _: 1e-6 * sent.number + 1e-9 * float(sent.volume.max()))
    monkeypatch.setattr(
        "p3s.methods.placement.training.train.SimulatedMachine", lambda path: machine
    )
    quick = functools.partial(train, settings=Fit(trees=10, rate=0.3, depth=2))
    monkeypatch.setattr("p3s.methods.placement.training.train.train", quick)
    words = "machine learn --simgrid p.xml --ppn 2 --phases 60 --way B --json -o m.json"
    printed = cli(*words.split(), code=3, err="do not rely on this model (learned-off)")
    card = json.loads(printed.out)["card"]
    assert not card["named"] and card["topology"] == ""
    assert "m.json: for p3s place, with --model m.json" in printed.err
    assert card["features"] == "B" and card["machine"] == "p" and card["rows"] >= 40
    assert {"alpha-beta", "simulation", "A", "B", "C", "corrected"} <= set(card["compared"])
    shown = ("class B: and of nodes", "network: one switch", "learned-off: the learned model (B)")
    cli("machine show m.json", out=shown)
    assert (tmp_path / "m.phases" / "execution-0000.json").exists()
    number = len(machine.ran)
    cli(*words.split(), code=3)
    assert len(machine.ran) == number
    cli(*words.split(), "--patterns", "star", code=2, err="there are halo2d, halo3d, rows")


# ---- ways of the sources, patterns, quality ------------------------------------------------


def test_lines_of_the_sources_find_the_law_they_are_made_of() -> None:
    rng = np.random.default_rng(1)
    x = 2.0 ** rng.uniform(8, 24, 300)
    columns = {"ppn": rng.integers(1, 17, 300).astype(float), "SD(max)": x}
    truth = 2.39e-5 + 1.915e-13 * x * np.log2(x) ** 2 + 1.565e-14 * x * np.sqrt(x)  # section 4.2
    single = fit_single((), columns, truth)
    assert {feature_of(each) for product in single.products for each in product} == {"SD(max)"}
    assert single.seconds(columns) == pytest.approx(truth, rel=0.01, abs=2e-6)
    products = ((), ("SD(max)",), ("ppn", "SD(max)"), ("SD(max)>65536", "ppn"))
    large = 1e-5 + 2e-10 * x + 1e-11 * x * columns["ppn"] + 3e-5 * columns["ppn"] * (x > 65536)
    spoiled = large.copy()
    spoiled[::20] *= 10  # outliers count for nothing
    robust = fit_robust(products, columns, spoiled)
    assert robust.seconds(columns) == pytest.approx(large, rel=1e-3)


@pytest.mark.parametrize("way", ["SV", "MV", "H1", "H2", "H3", "H4", "H5", "H6"])
def test_ways_of_the_sources_are_learned_and_come_back(tmp_path, way: str) -> None:
    data = measure_dataset(tmp_path / "data", told(), FABRIC, Made(shared_links))
    model = train(data, FABRIC, "made", network_id(FABRIC), way=way, settings=Fit(trees=20))
    assert model.card.features == way and {A, C, way} <= set(model.card.compared)
    counted = way in ("H3", "H4", "H5", "H6")
    assert ("switch counters: simulated" in render(model)) == counted
    save(tmp_path / "model.json", model)
    rows = [row_of(phase, FABRIC, model.network) for phase in data.phases]
    again = load(tmp_path / "model.json").predict(rows)
    assert again.seconds.tolist() == model.predict(rows).seconds.tolist()


def test_patterns_are_measured_beside_random_pairs(tmp_path) -> None:
    settings = dataclasses.replace(FEW, patterns=("halo2d", "halo3d", "rows"))
    data = measure_dataset(tmp_path / "data", told(settings), FABRIC, Made(shared_links))
    assert len(data.seconds) == len(data.phases)
    again = measure_dataset(tmp_path / "data", told(settings), FABRIC, Made(shared_links))
    assert again.seconds.tolist() == data.seconds.tolist()
    with pytest.raises(P3SError, match="--patterns"):
        measure_dataset(tmp_path / "data", told(), FABRIC, Made(shared_links))


@pytest.mark.parametrize(("name", "messages"), [("halo2d", 4), ("halo3d", 14), ("rows", 3)])
def test_patterns_are_those_of_the_source(name: str, messages: int) -> None:
    sent = campaign.patterned(name, 64, 512)  # 4 x 4 x 4
    assert sent.messages.sum() == 64 * messages and (sent.nbytes == 512).all()
    assert set(np.bincount(sent.source, weights=sent.messages)) == {messages}


def test_errors_on_unseen_phases_are_reasons() -> None:
    def said(mmre: float) -> list[tuple[bool, bool]]:
        scores = Agreement(100, mmre, 0.1, 0.5, 0.9, 0.9)
        card = Card("m", "n", 100, 5, scores=scores, features="C")
        return [(each.untrustworthy, each.rough) for each in doubts(card)]

    assert said(0.2) == [] and said(0.3) == [(False, True)] and said(7.1) == [(True, False)]
    (reason,) = doubts(Card("m", "n", 100, 5))
    assert reason.untrustworthy and "on no phases" in reason.text
