"""Links between switches as the topology file states them, and the simulation with them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from replay_made import result_of, world_of
from test_replay_network import classes, network

from p3s.machine.topology.switches import read_topology, slurm
from p3s.machine.topology.trees import Graph, Tree
from p3s.replay.costs.messages import Fabric, not_simulated
from p3s.replay.costs.network import Costs, network_of
from p3s.replay.plan.micro import link_programs, pair_programs
from p3s.simulate.simulate import simulate
from p3s.simulate.switch_links import Trunks

SLOTS = 4
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
