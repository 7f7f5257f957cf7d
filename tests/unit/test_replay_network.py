"""A network that is known is found again from what programs would have measured on it."""

from __future__ import annotations

import numpy as np
import pytest
from replay_made import event, program_of, result_of, world_of
from steps_builder import Builder

from p3s.program.phase_cells import places
from p3s.replay.costs.estimate import phase_times
from p3s.replay.costs.network import Costs, network_of
from p3s.replay.plan.classes import MessageClass
from p3s.replay.plan.micro import link_programs, pair_programs
from p3s.replay.plan.program import Code, Program
from p3s.simulate.network import Curve, Network, Path
from p3s.simulate.simulate import simulate
from p3s.simulate.steps import Section, Steps

SIZES = (8, 1024, 8192, 16384, 32768, 65000, 131072)
PAUSE = 25_000_000
SLOTS = 4


def network(rate: float = 0.0238, burst: float = 131072.0) -> Network:
    """Return a cluster like that of the fake nodes: 200 Mbit, burst 128 KiB."""
    inside = Path(
        Curve((1.0, 65536.0, 1e6), (3e3, 40e3, 5e5)),
        Curve((1.0, 65536.0), (1e3, 9e3)),
        Curve((1.0, 65536.0), (1e3, 8e3)),
        4040.0,
        False,
    )
    outside = Path(
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
