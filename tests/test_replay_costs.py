"""Costs of the replay: intervals, interpolation, composed collectives, sums. No MPI."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from replay_patterns import Trace, collectives, halo, ring

from p3s.errors import P3SError
from replay.thesis.collectives import EXCHANGE, MESSAGE, compose
from replay.thesis.costs import (
    COMPOSED,
    INTERPOLATED,
    MEASURED,
    NONE,
    Curve,
    class_costs,
    phase_costs,
)
from replay.thesis.driver import _landed, why_not_representative
from replay.thesis.launch import Outcome, Place, _host_words
from replay.thesis.plan import ReplayPlan, make_plan
from replay.thesis.stats import Estimate, interval_rank, median_interval
from replay.thesis.world import lay_out


def test_interval_of_a_median_covers_it_in_95_of_100_cases() -> None:
    for count in range(1, 400):
        cut = interval_rank(count)
        # The true median lies below the k-th smallest of n values with P(Binomial < k).
        outside = sum(math.comb(count, i) for i in range(cut + 1)) / 2**count
        if cut > 0:
            assert outside <= 0.025
        one_more = outside + math.comb(count, cut + 1) / 2**count
        assert one_more > 0.025 or count == 1
    estimate = median_interval([5.0, 1.0, 3.0], 12)
    assert estimate == Estimate(3.0, 1.0, 5.0, 12)
    assert interval_rank(10_000) == pytest.approx(10_000 / 2 - 0.98 * 100, abs=2)


def test_curve_goes_through_its_points_and_on() -> None:
    curve = Curve([(100, Estimate(20, 18, 22)), (0, Estimate(10, 9, 11))])
    assert curve.at(0).cost_ns == 10
    assert curve.at(50) == Estimate(15, 13.5, 16.5)
    assert curve.at(1000).cost_ns == pytest.approx(110)
    flat = Curve([(100, Estimate(20, 18, 22))])
    assert flat.at(1).cost_ns == flat.at(10_000).cost_ns == 20
    falling = Curve([(1, Estimate(20, 18, 22)), (2, Estimate(10, 9, 11))])
    assert falling.at(1000).cost_ns == 10  # noise is no reason to become negative


def on_nodes(p: int, per_node: int) -> np.ndarray:
    return np.arange(p) // per_node


def rounds(op: str, nbytes: int, p: int, per_node: int = 1, root: int = 0) -> list[tuple]:
    found = compose(op, nbytes, on_nodes(p, per_node), root)
    assert found is not None
    return [(r.primitive, r.bytes, r.inter, r.times) for r in found.rounds]


def test_rounds_of_known_algorithms() -> None:
    assert rounds("MPI_Barrier", 0, 8, 4) == [(EXCHANGE, 0, True, 1)] * 3
    assert rounds("MPI_Bcast", 100, 8, 4) == [
        (MESSAGE, 100, False, 1), (MESSAGE, 100, False, 1), (MESSAGE, 100, True, 1)]
    assert rounds("MPI_Allreduce", 8, 8, 2) == [
        (EXCHANGE, 8, False, 1), (EXCHANGE, 8, True, 1), (EXCHANGE, 8, True, 1)]
    # 12 members: 4 fold away, 8 double, 4 get the result.
    assert rounds("MPI_Allreduce", 8, 12, 12) == [
        (MESSAGE, 8, False, 1), *[(EXCHANGE, 8, False, 1)] * 3, (MESSAGE, 8, False, 1)]
    assert rounds("MPI_Alltoall", 800, 8, 2) == [(EXCHANGE, 100, True, 7)]
    assert rounds("MPI_Alltoall", 800, 8, 8) == [(EXCHANGE, 100, False, 7)]
    assert rounds("MPI_Gather", 10, 5, 1) == [
        (MESSAGE, 10, True, 1), (MESSAGE, 20, True, 1), (MESSAGE, 10, True, 1)]
    assert rounds("MPI_Allreduce", 8, 1) == []
    assert compose("MPI_Neighbor_alltoall", 8, on_nodes(4, 1)) is None
    for twin in ("MPI_Iallreduce", "MPI_Allreduce_init"):
        assert rounds(twin, 8192, 6, 2) == rounds("MPI_Allreduce", 8192, 6, 2)


@pytest.mark.parametrize("p", [2, 4, 8, 64])
def test_bytes_that_every_algorithm_must_move(p: int) -> None:
    share = (p - 1) / p
    large = rounds("MPI_Allreduce", 2**20, p)
    assert sum(b * t for _, b, _, t in large) == pytest.approx(2 * share * 2**20)
    gathered = rounds("MPI_Allgather", 2**20, p)
    assert sum(b * t for _, b, _, t in gathered) == (p - 1) * 2**20
    small = rounds("MPI_Allgather", 8, p)
    assert sum(b * t for _, b, _, t in small) == (p - 1) * 8
    assert len(small) == math.ceil(math.log2(p))
    scattered = rounds("MPI_Reduce_scatter", 2**20, p)
    assert sum(b * t for _, b, _, t in scattered) == pytest.approx(share * 2**20)
    assert len(rounds("MPI_Reduce", 4, p)) == math.ceil(math.log2(p))


def test_a_tree_turns_with_its_root() -> None:
    # Rank 3 of 4 on two nodes: its first partner (distance 1) is rank 0, on the other node.
    assert [inter for _, _, inter, _ in rounds("MPI_Bcast", 1, 4, 2, root=0)] == [False, True]
    assert [inter for _, _, inter, _ in rounds("MPI_Bcast", 1, 4, 2, root=3)] == [True, True]


def invented(plan: ReplayPlan) -> dict[int, tuple[list[float], int]]:
    """Samples as if a message took 1000 ns + 1 ns per byte, twice that between nodes."""
    samples = {}
    items = [*((c.bytes, c.distance) for c in plan.classes),
             *((p.bytes, p.distance) for p in plan.primitives)]
    for number, (nbytes, distance) in enumerate(items):
        cost = (1000.0 + nbytes) * (2 if distance == "inter" else 1)
        samples[number] = ([cost] * 9, 18)
    return samples


def test_collectives_are_sums_of_their_rounds(tmp_path: Path) -> None:
    plan = make_plan(collectives(16).write(tmp_path), 4)
    costs = class_costs(plan, {k: v for k, v in invented(plan).items() if k >= len(plan.classes)})
    seen = {(plan.classes[c].op, plan.classes[c].bytes, plan.classes[c].members): costs[c]
            for c in range(len(costs))}
    barrier = seen["MPI_Barrier", 0, 16]
    assert barrier.how == COMPOSED and barrier.detail == "dissemination"
    assert barrier.estimate.cost_ns == pytest.approx(4 * 2000)  # all 4 rounds leave the node
    assert seen["MPI_Allreduce", 8, 4].estimate.cost_ns == pytest.approx(2 * 1008)  # inside a node
    assert seen["MPI_Allreduce", 256, 16].estimate.cost_ns == pytest.approx(6 * 1256)
    assert seen["MPI_Bcast", 1024, 16].estimate.cost_ns == pytest.approx(6 * 2024)
    assert seen["MPI_Alltoall", 256, 16].estimate.cost_ns == pytest.approx(15 * 2 * 1016)
    assert seen["MPI_Comm_split", 0, 0].estimate.cost_ns == 0


def test_time_of_a_phase_is_repeat_times_cost(tmp_path: Path) -> None:
    plan = make_plan(halo(16, nbytes=800).write(tmp_path), 4)
    samples = invented(plan)
    costs = class_costs(plan, samples)
    assert all(c.how in (MEASURED, COMPOSED, "measured with black holes") for c in costs)
    table = phase_costs(plan, costs)
    trace = plan.trace
    for rank in (0, 5, 15):
        expected = 0.0
        for row in np.flatnonzero(trace.rank == rank):
            cls = int(plan.classified.of_row[row])
            expected += 10 * costs[cls].estimate.cost_ns
        assert table.value[rank, 0] == pytest.approx(expected)
    assert (table.low <= table.value).all() and (table.value <= table.high).all()


def test_what_was_not_measured_is_interpolated_and_says_so(tmp_path: Path) -> None:
    trace = ring(8, nbytes=1000, op="MPI_Send")
    trace.add(0, "MPI_Send", 1, 3000, tag=9)  # no receive: never executed
    trace.add(0, "MPI_Ssend", 7, 3000, tag=9)
    trace.add(0, "MPI_Send", 1, 500, tag=9, verdict="unknown")
    plan = make_plan(trace.write(tmp_path), 2)
    samples = {k: v for k, v in invented(plan).items()
               if k >= len(plan.classes) or plan.classes[k].bytes == 1000}
    costs = class_costs(plan, samples)
    found = {(c.op, c.bytes, c.distance): cost
             for c, cost in zip(plan.classes, costs, strict=True)}
    assert found["MPI_Send", 1000, "intra"].how == MEASURED
    assert found["MPI_Send", 3000, "intra"].how == INTERPOLATED
    assert "MPI_Send" in found["MPI_Send", 3000, "intra"].detail
    assert "blocking" in found["MPI_Ssend", 3000, "inter"].detail
    assert found["MPI_Send", 500, "intra"].estimate.cost_ns == pytest.approx(2000)
    nothing = class_costs(plan, {})
    assert {cost.how for cost in nothing} == {NONE}
    assert phase_costs(plan, nothing).value.sum() == 0


def test_empty_trace_costs_nothing(tmp_path: Path) -> None:
    trace = Trace(3)
    trace.add(0, "MPI_Init", repeat=1)
    plan = make_plan(trace.write(tmp_path), 2)
    assert plan.iterations == ()
    assert phase_costs(plan, class_costs(plan, {})).value.tolist() == [[0.0]] * 3


def test_shared_machines_and_cores_are_not_representative() -> None:
    world = lay_out((2, 2), [(0, 0), (1, 1)], noise=False)
    assert [p.node for p in world.processes] == [0, 0, 1, 1, 2, 3]

    def verdict(kernels: list[str], cores: int) -> str | None:
        places = [Place(f"host{p.node}", kernels[p.node], frozenset(range(cores)))
                  for p in world.processes]
        return why_not_representative(world, places)

    assert verdict(["a", "b", "c", "d"], 2) is None
    assert verdict(["a", "b", "c", "d"], 1) == "measured ranks share the 1 core of a node"
    assert verdict(["a", "b", "c", "c"], 8) == "some of the four nodes are the same machine"
    # Four host names, one kernel: containers or namespaces.
    assert verdict(["a"] * 4, 8) == "all nodes are one machine"
    bound = [Place("host", str(p.node), frozenset({p.slot})) for p in world.processes]
    assert why_not_representative(world, bound) is None  # each process has a core of its own
    assert verdict(["a"] * 4, 2) == (
        "all nodes are one machine; measured ranks share the 2 cores of a node")


def test_hosts_become_blocks_of_the_launcher() -> None:
    world = lay_out((2, 2), [(0, 0), (0, 1), (1, 1)], noise=True)
    hosts = ["n0", "n1", "n2", "n3"]
    # Node 2: one black hole of side 1 and a noise process; node 3: two and one.
    assert _host_words("openmpi", hosts, world) == [
        "--host", "n0:2,n1:2,n2:2,n3:3", "--map-by", "slot"]
    assert _host_words("mpich", hosts, world) == ["-hosts", "n0:2,n1:2,n2:2,n3:3"]
    small = lay_out((1, 0), [], noise=False)
    assert _host_words("mpich", hosts, small) == ["-hosts", "n0:1"]


def test_processes_elsewhere_than_on_the_hosts_are_an_error(tmp_path: Path) -> None:
    plan = make_plan(ring(8).write(tmp_path), 2)

    def outcome(names: list[str]) -> Outcome:
        where = [names[p.node] for p in plan.world.processes]
        places = tuple(Place(name, name, frozenset({0})) for name in where)
        return Outcome({}, places, 0, 0, 0.0)

    hosts = ["n0", "n1", "n2", "n3"]
    assert _landed(plan, outcome(["x0", "x1", "x2", "x3"]), hosts) == ["x0", "x1", "x2", "x3"]
    with pytest.raises(P3SError, match="put the processes on x0, but the hosts are n0, n1"):
        _landed(plan, outcome(["x0"] * 4), hosts)
    assert _landed(plan, outcome(["x0"] * 4), ["n0"]) == ["x0"] * 4
