"""Costs that a replay measured: links, networks, trunks between switches."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from replay_made import event, program_of, result_of, world_of
from steps_builder import Builder

from p3s.machine.topology.switches import read_topology, slurm
from p3s.machine.topology.trees import Graph, Tree
from p3s.program.phase_cells import places
from p3s.replay.costs.estimate import phase_times
from p3s.replay.costs.link import Flood, fit_link
from p3s.replay.costs.messages import (
    PAIR,
    TRACE,
    Fabric,
    message_costs,
    not_simulated,
    observations,
)
from p3s.replay.costs.network import Costs, network_of
from p3s.replay.costs.thesis import MEASURED, NONE, call_costs
from p3s.replay.engine.results import ProgramResult, interval_rank, median_interval
from p3s.replay.plan.classes import CallClass, MessageClass
from p3s.replay.plan.micro import link_programs, pair_programs
from p3s.replay.plan.program import Code, Program
from p3s.simulate.network import Curve, Network
from p3s.simulate.network import Path as PathOf
from p3s.simulate.simulate import simulate
from p3s.simulate.steps import Section, Steps
from p3s.simulate.switch_links import Trunks

SIZES = (8, 1024, 8192, 16384, 32768, 65000, 131072)
PAUSE = 25_000_000
SLOTS = 4


def network(rate: float = 0.0238, burst: float = 131072.0) -> Network:
    """Return a cluster like that of the fake nodes: 200 Mbit, burst 128 KiB."""
    inside = PathOf(
        Curve((1.0, 65536.0, 1e6), (3e3, 40e3, 5e5)),
        Curve((1.0, 65536.0), (1e3, 9e3)),
        Curve((1.0, 65536.0), (1e3, 8e3)),
        4040.0,
        False,
    )
    outside = PathOf(
        Curve((1.0, 65480.0, 131072.0, 1e6), (60e3, 200e3, 420e3, 3.7e7)),
        Curve((1.0, 65536.0), (12e3, 40e3)),
        Curve((1.0, 65536.0), (6e3, 25e3)),
        65480.0,
        True,
    )
    return Network(
        {0: inside, 1: outside},
        rate=rate,
        burst=burst,
        post=700.0,
        background=False,
        handshake=True,
    )


def classes() -> list[MessageClass]:
    return [MessageClass(size, distance, 1, 10.0) for distance in (0, 1) for size in SIZES]


def recovered(truth: Network, *, noise: float, only: tuple[Program, ...] = ()) -> Costs:
    """Return the costs that the micro-programs of a plan give, or ``only`` those and floods."""
    world = world_of(SLOTS)
    programs = [*(only or pair_programs(classes(), world)), *link_programs(world)]
    results = {
        i: result_of(p, world, truth, simulate, noise=noise, seed=i, classes=classes())
        for i, p in enumerate(programs)
    }
    return network_of(classes(), programs, results, world)


@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_network_is_found_again(noise: float) -> None:
    truth = network()
    costs = recovered(truth, noise=noise)
    found = costs.network
    assert found.rate == pytest.approx(truth.rate, rel=0.03)
    assert found.burst == pytest.approx(truth.burst, rel=0.2 if noise == 0 else 0.5)
    for distance in (0, 1):
        for size in SIZES:
            assert float(found.paths[distance].transfer.at(size)) == pytest.approx(
                float(truth.paths[distance].transfer.at(size)), rel=0.01 + 2 * noise
            )
        assert found.paths[distance].eager_bytes == truth.paths[distance].eager_bytes
        assert float(found.paths[distance].send.at(8)) == pytest.approx(
            float(truth.paths[distance].send.at(8)), rel=0.01 + 2 * noise
        )
    assert np.nanmax(np.abs(costs.checked)) < 0.01 + 2 * noise


def test_queueing_is_not_counted_twice() -> None:
    """Four messages at once share the link: their transfers hold the queue, the curve must not."""
    truth = network()
    world = world_of(SLOTS)
    measured = world.rank_of("measured")
    big = classes()[-1].bytes
    lists: dict[int, list[dict[str, int]]] = {}
    pairing = []
    for slot in range(SLOTS):
        a, b = measured[0, slot], measured[1, slot]
        lists[a] = [event(Code.SEND, b, bytes=big, work_ns=PAUSE)]
        lists[b] = [event(Code.RECV, a, bytes=big)]
        pairing.append((len(classes()) - 1, a, b, 0, 0, 0, 1))
    loaded = program_of(world, lists, pairing=pairing)
    costs = recovered(truth, noise=0.01, only=(loaded,))
    idle = float(truth.paths[1].transfer.at(big))
    assert costs.messages[-1].estimate.cost_ns > 2 * idle
    # a few KiB of burst too many or too few are some 100 us of queue
    assert float(costs.network.paths[1].transfer.at(big)) == pytest.approx(
        idle, abs=0.05 * costs.messages[-1].estimate.cost_ns
    )
    assert abs(costs.checked[-1]) < 0.02


def halo(nbytes: int = 32768, turns: int = 4, work: float = 5e6) -> Steps:
    """4 x 4 periodic halo: 4 Irecv, 4 Isend, Waitall per turn."""
    builder = Builder(16)
    for rank in range(16):
        x, y = rank % 4, rank // 4
        around = [
            (x + 1) % 4 + 4 * y,
            (x - 1) % 4 + 4 * y,
            x + 4 * ((y + 1) % 4),
            x + 4 * ((y - 1) % 4),
        ]
        for turn in range(turns):
            for i, peer in enumerate(around):
                builder.add(
                    rank,
                    "MPI_Irecv",
                    peer,
                    nbytes,
                    tag=i ^ 1,
                    work_ns=work * (1 + 0.02 * (rank % 5)) if i == 0 else 0.0,
                    turn=turn,
                )
            for i, peer in enumerate(around):
                builder.add(rank, "MPI_Isend", peer, nbytes, tag=i, turn=turn)
            builder.add(rank, "MPI_Waitall", turn=turn)
    return builder.build()


def wave(nbytes: int, blocks: int, work: float) -> Steps:
    """4 x 4 sweep: receive from west and north, work, send east and south; block after block."""
    builder = Builder(16)
    for rank in range(16):
        x, y = rank % 4, rank // 4
        for block in range(blocks):
            if x > 0:
                builder.add(rank, "MPI_Recv", rank - 1, nbytes, turn=block)
            if y > 0:
                builder.add(rank, "MPI_Recv", rank - 4, nbytes, turn=block)
            ahead = work
            if x < 3:
                builder.add(rank, "MPI_Send", rank + 1, nbytes, work_ns=ahead, turn=block)
                ahead = 0.0
            if y < 3:
                builder.add(rank, "MPI_Send", rank + 4, nbytes, work_ns=ahead, turn=block)
                ahead = 0.0
            if ahead:
                builder.add(rank, "REST", work_ns=ahead, turn=block)
    return builder.build()


@pytest.mark.parametrize(
    "steps", [halo(), wave(65536, 6, 5e6), wave(16384, 10, 5e6)], ids=["halo", "wave", "wave2"]
)
def test_phase_times_from_the_found_network(steps: Steps) -> None:
    truth = network()
    costs = recovered(truth, noise=0.02)
    node_of = np.arange(16) // 4
    section = Section("all", (0,), steps, 1, 0, 1, 1.0, ())
    where = places(16, [0], [section], [steps], [np.arange(len(steps))], np.zeros(0, np.int64))
    found, begin, _ = phase_times(
        where, [steps], node_of, None, (costs.network, costs.low, costs.high)
    )
    real, *_ = phase_times(where, [steps], node_of, None, (truth, truth, truth))
    time = (found.comm + found.work).max()
    assert time == pytest.approx((real.comm + real.work).max(), rel=0.02)
    assert found.comm.sum() == pytest.approx(real.comm.sum(), rel=0.06)
    assert found.waiting.sum() + found.transfer.sum() + found.software.sum() == pytest.approx(
        found.comm.sum(), rel=0.01
    )
    assert (found.low <= found.comm).all() and (found.comm <= found.high).all()
    assert len(begin[0]) == len(steps)


def test_messages_vary_as_measured() -> None:
    """Ranks that wait for each other lose time by every deviation; the mean of some runs has it."""
    truth = network()
    costs = recovered(truth, noise=0.3)
    key = (1, 32768)
    deviations = costs.spread[key]
    assert np.median(deviations) == pytest.approx(0.0, abs=0.1 * costs.points[key].cost_ns)
    assert np.std(deviations) == pytest.approx(0.3 * costs.points[key].cost_ns, rel=0.4)
    steps = wave(16384, 10, 5e6)
    section = Section("all", (0,), steps, 1, 0, 1, 1.0, ())
    where = places(16, [0], [section], [steps], [np.arange(len(steps))], np.zeros(0, np.int64))
    networks = (costs.network, costs.low, costs.high)
    node_of = np.arange(16) // 4
    typical, *_ = phase_times(where, [steps], node_of, None, networks)
    varied, *_ = phase_times(where, [steps], node_of, None, networks, costs.spread)
    again, *_ = phase_times(where, [steps], node_of, None, networks, costs.spread)
    assert varied.comm.sum() > typical.comm.sum()
    assert (varied.comm == again.comm).all()


def test_median_interval_is_that_of_order_statistics() -> None:
    # 95 % tables: of 10 values the 2nd and 9th, of 20 the 6th and 15th, of 100 the 40th and 61st.
    for count, rank in ((6, 0), (10, 1), (20, 5), (100, 39)):
        assert interval_rank(count) == rank
    assert abs(interval_rank(1000) - 468) <= 1
    found = median_interval([3.0, 1.0, 2.0, math.nan])
    assert (found.cost_ns, found.low_ns, found.high_ns, found.n_samples) == (2.0, 1.0, 3.0, 3)
    assert median_interval([]).n_samples == 0


def bucket(
    senders: int,
    rate: float,
    burst: float,
    *,
    noise: float,
    latency: float = 60_000.0,
    fast: float = 1.0,
    messages: int = 40,
    size: float = 65536.0,
) -> Flood:
    """Return arrivals behind a token bucket, with noise of the median over passes."""
    rng = np.random.default_rng(3)
    sent = np.arange(1, messages + 1) * size
    ns = latency + np.maximum(sent / fast, (sent - burst) / rate)
    return Flood(senders, sent, np.sort(ns * np.exp(rng.normal(0.0, noise, len(ns)))))


@pytest.mark.parametrize(("rate", "burst"), [(0.0238, 131072.0), (0.119, 262144.0)])
def test_link_finds_rate_and_burst(rate: float, burst: float) -> None:
    found = fit_link([bucket(1, rate, burst, noise=0.0)])
    assert found.rate == pytest.approx(rate, rel=0.005)
    assert found.burst == pytest.approx(burst, rel=0.1)
    assert found.residual < 0.005
    noisy = fit_link([bucket(1, rate, burst, noise=0.01)])
    assert noisy.rate == pytest.approx(rate, rel=0.03)
    assert noisy.burst == pytest.approx(burst, rel=0.35)
    assert noisy.low <= noisy.rate * 1.02 and noisy.high >= noisy.rate * 0.98


def test_link_without_burst_is_a_steady_rate() -> None:
    found = fit_link([bucket(1, 12.5, 0.0, noise=0.002, fast=100.0, size=1 << 20)])
    assert found.rate == pytest.approx(12.5, rel=0.02)
    assert found.burst == pytest.approx(0.0, abs=3e6)


def test_link_that_senders_do_not_share_has_no_limit() -> None:
    # Each sender is as fast as its core; together they carry four times as much.
    one = Flood(1, np.arange(1, 41) * 65536.0, np.arange(1, 41) * 20_000.0)
    four = Flood(4, np.arange(1, 161) * 65536.0, np.arange(1, 161) * 5_000.0)
    assert math.isinf(fit_link([one, four]).rate)
    shared = Flood(4, np.arange(1, 161) * 65536.0, np.arange(1, 161) * 20_000.0)
    assert fit_link([one, shared]).rate == pytest.approx(65536.0 / 20_000.0, rel=0.01)
    assert math.isinf(fit_link([]).rate)


def results_of(transfer: np.ndarray, event_ns: np.ndarray, sampled: list[int]) -> ProgramResult:
    passes = len(event_ns)
    return ProgramResult(
        passes,
        np.zeros((passes, 4)),
        np.array(sampled, dtype=np.int64),
        event_ns,
        np.zeros(len(sampled)),
        transfer,
        np.zeros((passes, 0)),
        0.0,
        np.zeros(0),
    )


def test_messages_take_the_pair_before_the_trace_and_only_what_waits_alone() -> None:
    world = world_of(1)
    lists = {
        0: [event(Code.SEND, 1, bytes=100, sample=0)] * 2,
        1: [event(Code.RECV, 0, bytes=100, sample=1)] * 2,
    }
    # class 0 completes alone in the trace, class 1 does not; class 2 has no sample anywhere
    trace = program_of(world, lists, pairing=[(0, 0, 1, 0, 0, 0, 1), (1, 0, 1, 1, 1, 1, 0)])
    pair = program_of(world, lists, what="pair", pairing=[(1, 0, 1, 1, 1, 1, 1)])
    passes = 8
    event_ns = np.full((passes, 4), 10.0)
    first = np.column_stack([np.full(passes, 50.0), np.full(passes, 999.0)])
    first[3, 0] = np.nan  # nobody waited in that pass
    second = np.full((passes, 1), 80.0)
    classes = [
        MessageClass(100, 1, 1, 5.0),
        MessageClass(200, 1, 1, 5.0),
        MessageClass(300, 1, 1, 5.0),
    ]
    found = message_costs(
        classes,
        observations(
            classes,
            [trace, pair],
            {
                0: results_of(first, event_ns, [0, 1, 2, 3]),
                1: results_of(second, event_ns, [0, 1, 2, 3]),
            },
            world,
        ),
    )
    assert [cost.how for cost in found] == [TRACE, PAIR, "none"]
    assert [cost.estimate.cost_ns for cost in found] == [50.0, 80.0, 0.0]
    assert found[0].estimate.n_samples == passes - 1


def test_calls_cost_the_mean_of_a_pass() -> None:
    world = world_of(1)
    lists = {
        0: [event(Code.SEND, 1, bytes=100, sample=0)] * 2,
        1: [event(Code.RECV, 0, bytes=100, sample=1)] * 2,
    }
    trace = program_of(world, lists)
    event_ns = np.tile([10.0, 30.0, 5.0, 7.0], (9, 1))
    send = CallClass("MPI_Send", "send", 100, 1, 1, 0, 0, 2.0)
    classes = [
        send,
        CallClass("MPI_Recv", "recv", 100, 1, 1, 0, 0, 2.0),
        CallClass("MPI_Send", "send", 200, 1, 4, 0, 0, 2.0),
        CallClass("MPI_Allreduce", "collective", 8, 1, 1, 0, 4, 2.0),
    ]
    results = {0: results_of(np.zeros((9, 0)), event_ns, [0, 1, 2, 3])}
    found = call_costs(classes, [trace], results)
    assert [cost.how for cost in found] == [MEASURED, MEASURED, NONE, NONE]
    assert [cost.estimate.cost_ns for cost in found] == [20.0, 6.0, 0.0, 0.0]


#: Two switches with many nodes each; the replay has n0, n8 measured, n1 and n9 beside them.
RACKS = """
SwitchName=s0 Nodes=n[0-7] {0}
SwitchName=s1 Nodes=n[8-15] {0}
SwitchName=t Switches=s[0-1]
"""
HOSTS = ("n0", "n8", "n1", "n9")


def tree(speed: str = "") -> Tree:
    return slurm("racks.conf", RACKS.format(f"LinkSpeed={speed}" if speed else ""))


def measured(topology: Tree, rate: float) -> Costs:
    """Return the costs of a replay on HOSTS, where links between switches carry ``rate``."""
    world = world_of(SLOTS)
    programs = [*pair_programs(classes(), world), *link_programs(world)]
    nodes, here = topology.switch_of, topology.switch_of[topology.numbers(HOSTS)]
    links = Trunks((0, 1, 0, 1), (2, 2, -1), (rate, rate, math.inf), (131072.0, 131072.0, 0.0))
    truth = replace(network(), trunks=links)
    results = {
        i: result_of(p, world, truth, simulate, noise=0.0, seed=i, classes=classes())
        for i, p in enumerate(programs)
    }
    fabric = Fabric(topology, nodes, (here,) * len(programs))
    return network_of(classes(), programs, results, world, fabric=fabric)


def test_a_stated_speed_is_that_of_the_simulated_links() -> None:
    costs = measured(tree("571.2Mbit/s"), 0.0714)
    for found in (costs.network, costs.low, costs.high):
        trunks = found.trunks
        assert trunks is not None and trunks.switch_of == (0,) * 8 + (1,) * 8
        assert trunks.rate[:2] == pytest.approx((0.0714, 0.0714)) and math.isinf(trunks.rate[2])
        assert trunks.burst == (costs.network.burst, costs.network.burst, 0.0)
    assert costs.network.rate == pytest.approx(network().rate, rel=0.03)
    # What queues between the switches is in no curve.
    truth = network().paths[1].transfer
    assert float(costs.network.paths[1].transfer.at(65536)) == pytest.approx(
        float(truth.at(65536)), rel=0.01
    )
    assert measured(tree(), math.inf).network.trunks is None


def test_links_that_several_nodes_share_and_nobody_knows_are_said() -> None:
    every = tree().about.hosts
    (note,) = not_simulated(tree(), every)
    assert "above switch s0 and 1 more" in note and "LinkSpeed" in note
    assert not_simulated(tree("100Gbit/s"), every) == ()
    assert not_simulated(tree(), ["n0", "n1", "n8"]) == ()


@pytest.mark.parametrize(
    "text, speed",
    [
        ("100Gbit/s", 12.5),
        ("100gbit", 12.5),
        ("12.5GB/s", 12.5),
        ("200Mbit/s", 0.025),
        ("25GByte/s", 25.0),
        ("400Gbps", 50.0),
        ("8e9", None),
        ("0Gbit/s", None),
        ("fast", None),
    ],
)
def test_speeds(text: str, speed: float | None, tmp_path: Path) -> None:
    path = tmp_path / "topology.conf"
    path.write_text(RACKS.format(f"LinkSpeed={text}"))
    if speed is None:
        with pytest.raises(Exception, match="line 2: LinkSpeed=.* is no speed") as err:
            read_topology(path)
        assert "\n" not in str(err.value)
        return
    found = read_topology(path)
    assert found.speed[:2].tolist() == pytest.approx([speed, speed])
    assert math.isnan(found.speed[2]) and found.about.notes == ()


def test_a_tree_of_netloc_has_speeds_and_other_networks_no_ways(tmp_path: Path) -> None:
    from test_replay_plan_places import _netloc_file

    path = tmp_path / "IB-fe80-nodes.txt"
    links = [("a", "s"), ("b", "s"), ("c", "t"), ("s", "u"), ("t", "u")]
    path.write_text(_netloc_file(links, ["a", "b", "c"], ["s", "t", "u"]))
    found = read_topology(path)
    s, t, u = range(3)
    assert found.up.tolist() == [u, u, -1]
    assert found.speed[:2].tolist() == [12.5, 12.5]
    path.write_text(
        _netloc_file([*links, ("s", "v"), ("t", "v")], ["a", "b", "c"], ["s", "t", "u", "v"])
    )
    other = read_topology(path)
    assert isinstance(other, Graph)
    assert "are no tree" in not_simulated(other, ["a", "b", "c"])[0]
