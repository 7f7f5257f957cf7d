"""Links between switches: flooded, stated, or not known; and the simulation with what is known."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from replay_made import result_of, world_of
from steps_builder import Builder
from test_replay_network import classes, network

from p3s.machine.topology.switches import Topology, read_topology, slurm
from p3s.program.phase_cells import places
from p3s.replay.costs.estimate import phase_times
from p3s.replay.costs.link import Link
from p3s.replay.costs.network import Costs, network_of
from p3s.replay.costs.result import network_entry
from p3s.replay.costs.trunks import Fabric, Flow, Known, known, link_name, nothing_known
from p3s.replay.plan.check import check
from p3s.replay.plan.micro import link_programs, pair_programs, trunk_programs
from p3s.replay.plan.types import flows_of, place
from p3s.replay.plan.world import World, lay_out
from p3s.report.replayed import trunk_lines
from p3s.simulate.network import Network
from p3s.simulate.simulate import simulate
from p3s.simulate.steps import Section, Steps
from p3s.simulate.switch_links import Trunks

SLOTS = 4
#: Two switches with many nodes each; the replay has n0, n8 measured, n1 and n9 beside them.
RACKS = """
SwitchName=s0 Nodes=n[0-7] {0}
SwitchName=s1 Nodes=n[8-15] {0}
SwitchName=t Switches=s[0-1]
"""
HOSTS = ("n0", "n8", "n1", "n9")


def tree(speed: str = "") -> Topology:
    return slurm("racks.conf", RACKS.format(f"LinkSpeed={speed}" if speed else ""))


def fabric(topology: Topology, programs: int = 0, nodes: int = 16, near: int = 0) -> Fabric:
    """Return one of a run on the first nodes of both racks; all pairs of switches talk.

    The first ``near`` of the programs ran on one switch, the others on HOSTS.
    """
    half = [f"n{i}" for i in range(nodes // 2)] + [f"n{8 + i}" for i in range(nodes // 2)]
    switches = np.arange(len(topology.up))
    one = topology.switches_of(["n0", "n1", "n2", "n3"])
    two = topology.switches_of(HOSTS)
    return Fabric(
        topology,
        topology.switches_of(half),
        np.stack([np.repeat(switches, len(switches)), np.tile(switches, len(switches))], axis=1),
        tuple(one if i < near else two for i in range(programs)),
    )


def measured(
    rate: float, *, noise: float = 0.0, nodes: int = 16, speed: str = "", burst: float = 131072.0
) -> Costs:
    """Return the costs of a replay on links of ``rate`` between two switches."""
    world = world_of(SLOTS)
    near = [*pair_programs(classes(), world), *link_programs(world)]
    far = [*trunk_programs(world, [(0, 1), (2, 3)])]
    here = fabric(tree(speed), len(near) + len(far), nodes, len(near))
    truth = replace(
        network(),
        trunks=Trunks((0, 1, 0, 1), (2, 2, -1), (rate, rate, math.inf), (burst, burst, 0.0)),
    )
    results = {
        i: result_of(
            p,
            world,
            truth if i >= len(near) else network(),
            simulate,
            noise=noise,
            seed=i,
            classes=classes(),
        )
        for i, p in enumerate([*near, *far])
    }
    return network_of(classes(), [*near, *far], results, world, fabric=here)


@pytest.mark.parametrize("share, noise", [(0.5, 0.0), (1.0, 0.0), (1.0, 0.02), (1.4, 0.0)])
def test_a_link_between_switches_is_found(share: float, noise: float) -> None:
    rate = share * network().rate
    costs = measured(rate, noise=noise)
    trunks = costs.network.trunks
    assert trunks is not None and costs.trunks is not None
    assert trunks.rate[0] == trunks.rate[1] == pytest.approx(rate, rel=0.02 + 2 * noise)
    assert trunks.burst[0] == pytest.approx(131072.0, rel=0.25 if noise == 0 else 0.5)
    assert trunks.rate[2] == math.inf  # above the top there is nothing
    assert costs.trunks.notes == ()
    assert costs.network.rate == pytest.approx(network().rate, rel=0.03)
    low, high = costs.low.trunks, costs.high.trunks
    assert low is not None and high is not None
    assert high.rate[0] <= trunks.rate[0] * 1.001 and low.rate[0] >= trunks.rate[0] * 0.999
    (entry,) = network_entry(costs)["trunks"]
    assert entry["links"] == 2 and entry["first"] == "s0 - t" and "2 nodes" in entry["from"]
    assert "MB/s" in trunk_lines({"network": {"trunks": [entry]}})[0]


def test_what_four_nodes_cannot_show_is_said() -> None:
    costs = measured(3 * network().rate)
    assert costs.network.trunks is None and costs.trunks is not None
    (note,) = costs.trunks.notes
    assert note.startswith("up to 8 nodes share the link between switches s1 - t and 1 more; 2 n")
    assert "no limit of it is simulated: state it" in note
    assert costs.trunks.least[0] == pytest.approx(2 * network().rate, rel=0.03)
    (entry,) = network_entry(costs)["trunks"]
    assert entry["bytes_per_ns"] is None and entry["nodes_tried"] == 2
    assert "at least 4" in trunk_lines({"network": {"trunks": [entry]}})[0]
    # Two nodes on each side are all that the run has: that was tried.
    assert measured(3 * network().rate, nodes=4).trunks.notes == ()  # type: ignore[union-attr]


def test_a_stated_speed_is_taken_where_floods_do_not_reach_it() -> None:
    costs = measured(3 * network().rate, speed="571.2Mbit/s")
    trunks = costs.network.trunks
    assert trunks is not None and trunks.rate[:2] == pytest.approx((0.0714, 0.0714))
    assert trunks.burst[0] == costs.network.burst
    assert costs.trunks is not None and costs.trunks.notes == ()
    assert "stated in racks.conf" in costs.trunks.why[0]


@pytest.mark.parametrize("speed, rate", [("1Gbit/s", 1.0), ("100Mbit/s", 3.0)])
def test_measured_goes_before_stated(speed: str, rate: float) -> None:
    costs = measured(rate * network().rate, speed=speed)
    assert costs.trunks is not None
    assert any("what was measured is taken" in note for note in costs.trunks.notes)
    if rate == 1.0:
        assert costs.network.trunks is not None
        assert costs.network.trunks.rate[0] == pytest.approx(network().rate, rel=0.02)
    else:
        assert costs.network.trunks is None


FOUR = """
SwitchName=s0 Nodes=n[0-3]
SwitchName=s1 Nodes=n[4-7]
SwitchName=s2 Nodes=n[8-11] LinkSpeed=4GB/s
SwitchName=r0 Switches=s[0-1]
SwitchName=r1 Switches=s2
SwitchName=top Switches=r0,r1
"""


def flow(topology: Topology, switches: str, rate: float, limited: bool, nodes: int = 2) -> Flow:
    links = tuple(topology.switches.index(name) for name in switches.split())
    return Flow(links, nodes, Link(rate, 10.0, 0.0, 0.9 * rate, 1.1 * rate, "flood"), limited)


def rates(topology: Topology, *flows: Flow) -> tuple[dict[str, float], Known]:
    switches = np.arange(len(topology.up))
    used = np.stack([np.repeat(switches, len(switches)), np.tile(switches, len(switches))], axis=1)
    every = Fabric(topology, topology.switches_of(topology.hosts), used, ())
    found = known(every, flows, 100.0)
    return dict(zip(topology.switches, found.rate.tolist(), strict=True)), found


def test_levels_of_a_tree() -> None:
    t = slurm("four.conf", FOUR)
    leaf = flow(t, "s0 s1", 3.0, False)
    # The leaves carry 3 at least, so it is the racks' links that carry 2.
    rate, found = rates(t, leaf, flow(t, "s0 r0 s2 r1", 2.0, True))
    assert rate == {
        "s0": math.inf,
        "s1": math.inf,
        "s2": 4.0,
        "r0": 2.0,
        "r1": 2.0,
        "top": math.inf,
    }
    s2, r0 = (t.switches.index(name) for name in ("s2", "r0"))
    assert found.burst[s2] == 100.0 and found.burst[r0] == 10.0
    assert [note for note in found.notes if "s0 - r0" in note or "s1 - r0" in note]
    # The leaves carry 2, which is why 2 comes over the racks' links: those carry that at least.
    rate, found = rates(t, flow(t, "s0 s1", 2.0, True), flow(t, "s0 r0 s2 r1", 2.0, True))
    assert rate["s0"] == rate["s1"] == 2.0 and rate["s2"] == 4.0 and math.isinf(rate["r0"])
    assert found.least[t.switches.index("r0")] == 2.0
    # Nothing but the long way is measured: all on it are taken for as narrow that may be.
    rate, _ = rates(t, flow(t, "s0 r0 s2 r1", 2.0, True))
    assert rate["s0"] == rate["s1"] == rate["r0"] == rate["r1"] == 2.0 and rate["s2"] == 4.0
    rate, found = rates(t, flow(t, "s2", 2.0, True))
    assert rate["s2"] == 2.0 and "4,000.0 MB/s of s2 - r1, but 2,000.0" in found.notes[0]


def test_links_that_no_message_or_one_node_uses_need_not_be_known() -> None:
    t = slurm("four.conf", FOUR)
    used = np.array([[t.switches.index("s0"), t.switches.index("s1")]])
    both = Fabric(t, t.switches_of(["n0", "n1", "n4", "n5"]), used, ())
    (note,) = known(both, (), 0.0).notes
    assert "s1 - r0 and 1 more; it was not measured" in note
    single = Fabric(t, t.switches_of(["n0", "n1", "n4"]), used, ())
    assert known(single, (), 0.0).notes == ()
    assert link_name(t, t.switches.index("top")) == "top - others"


def test_flows_of_hosts() -> None:
    t = tree()
    assert flows_of(HOSTS, t) == ((0, 1), (2, 3))
    assert flows_of(("n0", "n8", "n9", "n1"), t) == ((0, 1), (3, 2))
    assert flows_of(("n0", "n8", "n1", "n1"), t) == ((0, 1),)
    assert flows_of(("n0", "n8", "n1", "n2"), t) == ((0, 1),)
    assert flows_of(("n0", "n1", "n8", "n9"), t) == ()
    # Of hosts that are as far apart, those with a neighbour each are taken.
    (far,), _ = place(["n0", "n8", "n9", "n1"], t, [3])
    assert len(far.flows) == 2 and far.hops == 3
    four = slurm("four.conf", FOUR)
    (far,), _ = place(["n0", "n8", "n4", "n1", "n9"], four, [5])
    assert set(far.hosts[:2]) == {"n0", "n8"} and len(far.flows) == 2


def test_programs_need_processes_on_all_nodes() -> None:
    world = world_of(2)
    one, every = trunk_programs(world, [(0, 1), (2, 3)])
    for program in (one, every):
        assert program.what == "trunk" and check(program).ends
    assert len(set(np.flatnonzero(np.diff(one.start) > 1))) == 4
    alone = lay_out((2, 2), (), False)
    assert trunk_programs(alone, [(0, 1), (2, 3)]) == ()
    assert [p.what for p in trunk_programs(alone, [(0, 1)])] == ["trunk", "trunk"]
    noisy: World = lay_out((2, 2), (), True)
    assert len(trunk_programs(noisy, [(0, 1), (2, 3)])) == 1


def crossing(nbytes: int = 65536, turns: int = 4) -> Steps:
    """Everybody exchanges with the rank half the world away."""
    builder = Builder(16)
    for rank in range(16):
        for turn in range(turns):
            builder.add(
                rank,
                "MPI_Sendrecv",
                (rank + 8) % 16,
                nbytes,
                peer2=(rank + 8) % 16,
                work_ns=5e6 * (1 + 0.02 * (rank % 5)),
                turn=turn,
            )
    return builder.build()


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_phase_times_with_the_found_links(share: float) -> None:
    costs = measured(share * network().rate, noise=0.02, nodes=4)
    steps, node_of = crossing(), np.arange(16) // 4
    assert costs.network.trunks is not None
    assert costs.network.trunks.switch_of == (0, 0, 1, 1)
    links = Trunks(
        (0, 0, 1, 1), (2, 2, -1), (share * network().rate,) * 2 + (math.inf,), (131072.0,) * 3
    )
    truth = replace(network(), trunks=links)
    section = Section("all", (0,), steps, 1, 0, 1, 1.0, ())
    where = places(16, [0], [section], [steps], [np.arange(len(steps))], np.zeros(0, np.int64))

    def time(*nets: Network) -> float:
        found, *_ = phase_times(where, [steps], node_of, None, (nets[0], nets[1], nets[2]))
        assert (found.low <= found.comm).all() and (found.comm <= found.high).all()
        return float((found.comm + found.work).max())

    real = time(truth, truth, truth)
    assert time(costs.network, costs.low, costs.high) == pytest.approx(real, rel=0.03)
    assert time(*[replace(truth, trunks=None)] * 3) < 0.85 * real


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
    assert math.isnan(found.speed[2]) and found.notes == ()


def test_a_number_without_a_unit_says_nothing() -> None:
    found = tree("100")
    assert np.isnan(found.speed).all()
    (note,) = found.notes
    assert "without a unit" in note and "100 of s0" in note


def test_a_tree_of_netloc_has_speeds_and_other_networks_no_ways(tmp_path: Path) -> None:
    from test_replay_plan_places import _netloc_file

    path = tmp_path / "IB-fe80-nodes.txt"
    links = [("a", "s"), ("b", "s"), ("c", "t"), ("s", "u"), ("t", "u")]
    path.write_text(_netloc_file(links, ["a", "b", "c"], ["s", "t", "u"]))
    found = read_topology(path)
    s, t, u = range(3)
    assert found.up.tolist() == [u, u, -1]
    assert found.speed[:2].tolist() == [12.5, 12.5]
    assert nothing_known(found) == ()
    path.write_text(
        _netloc_file([*links, ("s", "v"), ("t", "v")], ["a", "b", "c"], ["s", "t", "u", "v"])
    )
    other = read_topology(path)
    assert not len(other.up) and "are no tree" in nothing_known(other)[0]
    assert flows_of(("a", "c", "b", "c"), other) == ()
