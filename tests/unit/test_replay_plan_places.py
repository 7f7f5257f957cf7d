"""Ranks to nodes, nodes to switches, hosts to the four nodes of a replay."""

from __future__ import annotations

import numpy as np
import pytest

from p3s.base.errors import P3SError
from p3s.machine.topology.switches import apart, read_topology
from p3s.program.mapping import block, cyclic, mapping_of, read_rank_file
from p3s.replay.plan.types import place, placement_of

SLURM = """
# two racks of two switches
SwitchName=s0 Nodes=n[0-3]
switchname=s1 nodes=n[4-7] LinkSpeed=100
SwitchName=s2 Nodes=n[08-11]
SwitchName=r0 Switches=s[0-1]
SwitchName=r1 Switches=s2   # one only
SwitchName=top \\
  Switches=r0,r1
"""


def test_block_and_cyclic():
    m = block(10, 4)
    assert m.node_of.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2]
    assert m.slot_of.tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]
    assert m.sizes.tolist() == [4, 4, 2]
    m = cyclic(10, 4)
    assert m.node_of.tolist() == [0, 1, 2] * 3 + [0]
    assert m.ranks_of(0).tolist() == [0, 3, 6, 9]
    assert m.slot_of[[0, 3, 6, 9]].tolist() == [0, 1, 2, 3]
    assert m.sizes.max() <= 4
    assert block(3, 8).nodes == 1
    assert mapping_of("cyclic", 4, 2).node_of.tolist() == [0, 1, 0, 1]
    for bad in ((0, 4), (4, 0)):
        with pytest.raises(P3SError):
            block(*bad)
    with pytest.raises(P3SError, match="not known"):
        mapping_of("random", 4, 2)


@pytest.mark.parametrize(
    "text",
    [
        "rank 0=a slot=0\nrank 1=b slot=0:1  # comment\n\nrank 3=a slot=1\nrank 2=b slots=2-3\n",
        "a\nb\nb\na\n",
        "1 b\n2 b\n3 a\n0 a\n9 c\n",
    ],
)
def test_rank_files(tmp_path, text):
    path = tmp_path / "ranks"
    path.write_text(text)
    m = read_rank_file(path, 4)
    assert m.node_of.tolist() == [0, 1, 1, 0]
    assert m.slot_of.tolist() == [0, 0, 1, 1]
    assert m.names == ("a", "b")


def test_relative_hosts_keep_their_number(tmp_path):
    path = tmp_path / "ranks"
    path.write_text("rank 0=+n5 slot=0\nrank 1=+n1 slot=0\n")
    m = mapping_of("block", 2, 1, path)
    assert m.node_of.tolist() == [1, 0]
    (tmp_path / "topology").write_text(SLURM)
    topology = read_topology(tmp_path / "topology")
    assert apart(topology, m.names).tolist() == [[0, 3], [3, 0]]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a\nb\n", "no host for rank 2 to 3"),
        ("0 a\n0 b\n1 a\n2 a\n3 a", "rank 0 is on a and on b"),
        ("a\n1 b\n", "mixed"),
        ("rank 0 is a", "neither"),
        ("0 a\n1 +n1\n2 a\n3 a", "relative"),
    ],
)
def test_bad_rank_files(tmp_path, text, why):
    path = tmp_path / "ranks"
    path.write_text(text)
    with pytest.raises(P3SError, match=why) as err:
        read_rank_file(path, 4)
    assert "\n" not in str(err.value)


def test_unreadable_files(tmp_path):
    with pytest.raises(P3SError, match="cannot be read"):
        read_rank_file(tmp_path / "none", 4)
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    for read in (lambda p: read_rank_file(p, 4), read_topology):
        with pytest.raises(P3SError, match="not text"):
            read(tmp_path / "bytes")


def far(topology, first, second):
    """Return the switches between a host and others."""
    return apart(topology, [first, *second])[0, 1:].tolist()


def test_switch_tree(tmp_path):
    path = tmp_path / "topology.conf"
    path.write_text(SLURM)
    t = read_topology(path)
    assert t.about.hosts[:9] == ("n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7", "n08")
    assert far(t, "n0", ["n0", "n3", "n4", "n08", "n11.cluster.org"]) == [0, 1, 3, 5, 5]
    every = apart(t, block(12, 1).names)
    assert (every == every.T).all() and every[0, 11] == 5 and every[8, 11] == 1
    with pytest.raises(P3SError, match="does not name node x"):
        far(t, "x", ["n0"])
    with pytest.raises(P3SError, match="has 12 nodes"):
        apart(t, block(13, 1).names)


def test_links_shared_in_a_tree(tmp_path):
    path = tmp_path / "topology.conf"
    path.write_text(SLURM)
    t = read_topology(path)
    s0, s1, s2 = nodes = t.numbers(["n0", "n4", "n08"])  # a node of each switch
    shared = t.sharing(s0, s1, nodes)  # links s0-r0 and r0-s1
    assert shared[0, 2] and shared[1, 2] and shared[1, 0] and not shared[0, 0]
    across = t.sharing(s1, s2, nodes)
    assert across[0, 2] and across[0, 1]
    assert not t.sharing(s0, s0, nodes).any()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Nodes=n0", "no SwitchName"),
        ("SwitchName=a Nodes", "KEY=VALUE"),
        ("SwitchName=a Switches=b", "no switch has nodes"),
        ("SwitchName=a Nodes=n0\nSwitchName=a Nodes=n1", "twice"),
        ("SwitchName=a Nodes=n0\nSwitchName=b Switches=c", "not there"),
        ("SwitchName=a Nodes=n0\nSwitchName=b Switches=c\nSwitchName=c Switches=b", "circle"),
        ("SwitchName=a Nodes=n0\nSwitchName=b Switches=a\nSwitchName=c Switches=a", "two switches"),
        ("<?xml version='1.0'?><topology/>", "hwloc"),
        ("2\nx\n", "version 2"),
        ("1\n", "netloc"),
        ("1\ns\n\n2\na,0,0,,d,h\n", "netloc"),
        ("1\ns\n\n1\na,0,0,,d,h\na\n", "no host"),
    ],
)
def test_bad_topologies(tmp_path, text, why):
    path = tmp_path / "topology"
    path.write_text(text)
    with pytest.raises(P3SError, match=why) as err:
        read_topology(path)
    assert "\n" not in str(err.value)


def _netloc_file(links, hosts, switches):
    """Write what netloc_ib_extract_dats writes."""
    nodes = [*((h, 0, h) for h in hosts), *((s, 1, "") for s in switches)]
    lines = ["1", "fe80:0000:0000:0000", "hwloc", str(len(nodes))]
    lines += [
        f"guid-{name},{i},{kind},0:1,a name, with a comma,{host}"
        for i, (name, kind, host) in enumerate(nodes)
    ]
    for name, _, _ in nodes:
        edges = [(a, b) for a, b in links if a == name] + [(b, a) for a, b in links if b == name]
        text = f"guid-{name}"
        for _, other in edges:
            text += f",guid-{other},100.0,0,2" + ",7,1,1,4x,EDR,100.0,a - b,8,0" * 2
        lines.append(text)
    return "\n".join([*lines, "part", "guid-a,guid-b,7,8"]) + "\n"


def test_netloc(tmp_path):
    path = tmp_path / "IB-fe80-nodes.txt"
    path.write_text(
        _netloc_file(
            [("a", "s"), ("b", "s"), ("c", "t"), ("s", "u"), ("t", "u"), ("s", "v"), ("t", "v")],
            ["a", "b", "c"],
            ["s", "t", "u", "v"],
        )
    )
    t = read_topology(path)
    assert t.about.hosts == ("a", "b", "c")
    assert far(t, "a", ["a", "b", "c"]) == [0, 1, 3]
    every = np.arange(3)
    assert t.sharing(0, 2, every)[0, 2] and not t.sharing(0, 1, every).any()


def test_measured_hosts_are_as_far_apart_as_the_ranges(tmp_path):
    path = tmp_path / "topology.conf"
    path.write_text(SLURM)
    t = read_topology(path)
    hosts = ["n0", "n1", "n4", "n08"]
    found, notes = place(hosts, t, [0, 1, 3, 5])
    assert not notes
    for hops in (1, 3, 5):
        one = found[placement_of(found, hops)]
        assert one.hops == hops and sorted(one.hosts) == sorted(hosts)
        assert far(t, one.hosts[0], one.hosts[1:2]) == [hops]
    assert placement_of(found, 0) == placement_of(found, 1)
    found, notes = place(["n0", "n1", "n2", "n3"], t, [3])
    assert len(found) == 1 and found[0].hops == 1 and "3 switches apart" in notes[0]
    assert place(hosts, None, [1])[0][0].hosts[:2] == ("n0", "n1")


@pytest.mark.parametrize("number", [1, 2, 3])
def test_few_hosts(number):
    (one,), notes = place([f"h{i}" for i in range(number)], None, [1])
    assert len(one.hosts) == 4 and len(set(one.hosts)) == number and not notes
    if number > 1:
        assert one.hosts[0] != one.hosts[1]
        # What an absent rank would send comes from another machine.
        assert one.hosts[3] != one.hosts[0] and one.hosts[2] != one.hosts[1]
