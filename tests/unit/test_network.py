"""Costs of a network, and of collectives that are simulated on one."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from machines import synthetic
from steps_builder import Builder

from p3s.base.errors import DamagedFile, P3SError
from p3s.program.collectives.choose import library_of
from p3s.program.collectives.expand import expand
from p3s.simulate.network import Curve, Network, Path, line, network_from_machine, rough_network
from p3s.simulate.simulate import simulate


def machine(hosts: tuple[str, str] = ("n0", "n1"), **changes: Any) -> dict[str, Any]:
    sizes = {
        "bytes": [0, 1000, 100_000],
        "one_way_ns": [1000.0, 1500.0, 51_000.0],
        "one_way_median_ns": [1100.0, 1600.0, 52_000.0],
        "send_ns": [100.0, 200.0, 150.0],
        "receive_ns": [80.0, 130.0, None],
        "gap_ns": [100.0, 300.0, 40_000.0],
    }
    found = {"hosts": list(hosts), "eager_bytes": 4000, "sizes": sizes, **changes}
    return {"name": "box", "network": found}


def test_network_of_a_measured_machine() -> None:
    network = network_from_machine(machine())
    path = network.path(1)
    assert path.transfer.at([0, 500, 100_000]).tolist() == [1000, 1250, 51_000]
    assert path.receive.at([0, 1000, 100_000]).tolist() == [80, 130, 130]
    assert (path.eager_bytes, path.linked, network.path(0).linked) == (4000, True, False)
    assert network.rate == 2.5 and network.post > 0
    assert "two hosts" in network.source
    alone = network_from_machine(machine(("n0", "n0")))
    assert alone.rate == math.inf and not alone.path(1).linked and "one host" in alone.source


def test_messages_that_follow_each_other_slowly_keep_the_link_busy() -> None:
    """Only where the stream is well behind the calls of both ends: there it is not the calls."""
    sizes = machine()["network"]["sizes"]
    slow = network_from_machine(machine(sizes={**sizes, "gap_ns": [100.0, 500.0, 40_000.0]}))
    assert slow.path(1).busy.at([0, 1000, 100_000]).tolist() == [0, 500, 40_000]
    assert slow.path(0).busy.at(1000) == 500  # between hosts as inside, as all its costs
    assert network_from_machine(machine()).path(1).busy.at([0, 1000]).tolist() == [0, 0]
    assert network_from_machine(machine(("n0", "n0"))).path(1).busy.at(100_000) == 0
    assert Network.from_json(slow.to_json()) == slow


def test_the_call_that_posts_a_receive_costs_what_was_measured() -> None:
    assert network_from_machine(machine(post_ns=35.0)).post == 35
    assert network_from_machine(machine()).post == 80


def test_a_machine_without_a_network_is_refused() -> None:
    with pytest.raises(P3SError, match="machine synthetic: its network was not measured"):
        network_from_machine(synthetic())
    with pytest.raises(DamagedFile, match="machine box"):
        network_from_machine(machine(sizes={"bytes": [1]}))


def test_rough_network() -> None:
    network = rough_network(latency_ns=1000.0, rate=2.0)
    assert network.path(1).transfer.at([0, 1000, 10**7]) == pytest.approx([1000, 1500, 5_001_000])
    assert network.path(0).transfer.at(0) < 1000
    assert network.path(7) is network.path(1)
    with pytest.raises(P3SError, match="rate"):
        rough_network(rate=0.0)


def test_json_brings_everything_back() -> None:
    network = Network(
        {
            0: Path(Curve((0.0, 10.0), (1.0, 2.5)), line(3.0), line(4.0, 0.5), math.inf, False),
            3: Path(line(1.0), line(3.0), line(4.0), 4096, True),
        },
        rate=0.025,
        burst=131072.0,
        post=120.0,
        source="somewhere",
        detail={"residual": 0.01},
        sender_buffer=16384.0,
        background=False,
    )
    text = json.dumps(network.to_json(), allow_nan=False)
    assert Network.from_json(json.loads(text)) == network
    assert Network.from_json(rough_network().to_json()) == rough_network()
    assert Network.from_json({**network.to_json(), "rate_bytes_per_ns": None}).rate == math.inf


@pytest.mark.parametrize(
    "change, words",
    [
        ({"schema": "p3s.model"}, "not p3s.network version 1"),
        ({"schema_version": 9}, "not p3s.network version 1"),
        ({"paths": []}, "no path"),
        ({"post_ns": -1}, "-1 is no cost"),
        ({"post_ns": "x"}, "could not convert"),
        ({"rate_bytes_per_ns": 0}, "a rate of 0"),
        ({"paths": [{"distance": 0}]}, "is missing"),
        ({"paths": 3}, "damaged"),
    ],
)
def test_damaged_json_is_refused_in_one_line(change: dict[str, Any], words: str) -> None:
    with pytest.raises(DamagedFile, match=words) as failure:
        Network.from_json({**rough_network().to_json(), **change}, "study/network.json")
    assert str(failure.value).startswith("study/network.json: damaged")
    assert "\n" not in str(failure.value)


def test_curves_never_fall_beyond_their_end() -> None:
    falling = Curve((0.0, 100.0), (50.0, 20.0))
    assert falling.at([0, 100, 1000]).tolist() == [50, 20, 20]
    assert np.all(np.diff(line(5.0, 0.1).at(np.arange(0, 10**7, 10**5))) > 0)


def test_two_ranks_of_one_host_are_measured_beside_those_of_two(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from p3s.machine import programs as net

    asked: list[object] = []

    def measured(hosts: tuple[str, str]):
        def measure(launcher, budget_s: float) -> dict:
            asked.append(launcher)
            own = ("n0", "n1") if launcher else hosts
            return {**machine(own)["network"], "mpi": "openmpi 4.1.4", "ranges": []}

        return measure

    monkeypatch.setattr(net, "measure_messages", measured(("n1", "n1")))
    found = net.measured_both(["mpiexec"], 1.0)
    assert found["inside"]["hosts"] == ["n1", "n1"] and asked == [["mpiexec"], None]
    assert (
        "inside of nodes measured" in network_from_machine({"name": "x", "network": found}).source
    )
    for elsewhere in (("laptop", "laptop"), ("n0", "n1")):
        monkeypatch.setattr(net, "measure_messages", measured(elsewhere))
        assert "inside" not in net.measured_both(["mpiexec"], 1.0)
    assert "inside" not in net.measured_both(None, 1.0)


CALLS = (
    "Barrier",
    "Bcast",
    "Reduce",
    "Allreduce",
    "Gather",
    "Scatter",
    "Allgather",
    "Alltoall",
    "Reduce_scatter_block",
    "Scan",
    "Exscan",
)


@pytest.mark.parametrize(
    "family, version", [("openmpi", "4.1.4"), ("openmpi", "5.0.3"), ("mpich", "4.2.0")]
)
def test_they_end_when_every_message_is_synchronous(family: str, version: str) -> None:
    own = line(10.0)
    paths = {d: Path(line(1000.0 + 4000 * d, 0.5), own, own, -1, d > 0) for d in (0, 1)}
    network = Network(paths, rate=2.0, post=5.0)
    library = library_of(family, version)
    for call in CALLS:
        for p in (2, 5, 8, 17):
            for nbytes in (8, 70_000):
                root = 1 if call in ("Bcast", "Reduce", "Gather", "Scatter") else -1
                b = Builder(p)
                for rank in range(p):
                    for _ in range(2):
                        b.add(rank, f"MPI_{call}", root, nbytes, work_ns=100.0 * rank)
                steps = expand(b.build(), library).steps
                found = simulate(steps, np.arange(p) // 4, network)
                assert np.isfinite(found.end_ns).all()


def test_recursive_doubling_takes_its_rounds() -> None:
    """Eight bytes summed by 16 ranks: four exchanges one after the other."""
    own = line(0.0)
    network = Network({0: Path(line(1000.0), own, own, 4096, False)})
    b = Builder(16)
    for rank in range(16):
        b.add(rank, "MPI_Allreduce", nbytes=8)
    library = library_of("openmpi", "4.1.4", "allreduce=recursive_doubling")
    found = simulate(expand(b.build(), library).steps, np.zeros(16, int), network)
    assert found.end_ns.max() == 4000.0


def test_wanted_algorithms_are_known_before_anything_else_is_imported() -> None:
    words = "from p3s.program.collectives.choose import rules_of; rules_of('bcast=binomial')"
    command = [sys.executable, "-c", words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
