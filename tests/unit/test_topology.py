"""Topologies: switches, nodes, and what is inside of a node."""

from __future__ import annotations

import itertools
import json
import math
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p3s.base.errors import P3SError, UsageError
from p3s.machine.topology.fabric import About, Fabric
from p3s.machine.topology.inside import Inside, Node, read_inside, read_node
from p3s.machine.topology.read import read_fabric
from p3s.machine.topology.switches import read_topology
from p3s.machine.topology.trees import Tree
from p3s.methods.placement.phases import traffic
from p3s.methods.placement.within import as_text, in_order, on_cores
from p3s.program.mapping import rank_map

SLURM = """SwitchName=s0 Nodes=n[0-1] LinkSpeed=10Gbit/s
SwitchName=s1 Nodes=n[2-3] LinkSpeed=20Gbit/s
SwitchName=s2 Nodes=n4
SwitchName=r0 Switches=s[0-1] LinkSpeed=40Gbit/s
SwitchName=top Switches=r0,s2
"""


def way(fabric: Fabric, a: int, b: int) -> list[tuple[int, int]]:
    """Return the ends of the links that a message passes."""
    found = fabric.routes(np.array([a]), np.array([b]))
    return [(int(x), int(y)) for x, y in fabric.ends[found.of(0)]]


def path(fabric: Fabric, a: int, b: int) -> list[int]:
    """Return the switches on the way, the first of the network being 0."""
    return [end - fabric.nodes for _, end in way(fabric, a, b)[:-1]]


def far(fabric: Fabric, a: int, b: int) -> int:
    return int(fabric.distances(np.array([a]), np.array([b]))[0])


def test_fat_tree_of_two_levels() -> None:
    # Leaves 0 (nodes 0, 1) and 1 (nodes 2, 3), switches 2 and 3 above both.
    f = read_fabric("fat-tree:2,2@1Gbit/s", 4)
    assert (f.nodes, f.switches, len(f.rate)) == (4, 4, 4 + 4)
    assert path(f, 0, 1) == [0] and far(f, 0, 1) == 1
    assert path(f, 0, 2) == [0, 2, 1] and far(f, 0, 2) == 3  # destination 2: 2 mod 2 = 0
    assert path(f, 0, 3) == [0, 3, 1] and path(f, 1, 3) == [0, 3, 1]
    assert path(f, 3, 0) == [1, 2, 0] and path(f, 2, 1) == [1, 3, 0]
    assert way(f, 1, 1) == [] and far(f, 1, 1) == 0
    assert f.rate.tolist() == [0.125] * 8


def test_fat_tree_of_three_levels_chooses_by_further_digits_of_the_destination() -> None:
    # 2 nodes a leaf, 2 above it, 2 leaves below each of those, 2 above, 2 groups.
    f = read_fabric("fat-tree:2,2,2,2", 8)
    assert (f.nodes, f.switches) == (8, 4 + 4 + 4)
    # Leaves 0 to 3; second level 4, 5 (of leaves 0, 1), 6, 7 (of leaves 2, 3); top 8 to 11.
    assert path(f, 0, 3) == [0, 5, 1] and far(f, 0, 3) == 3
    assert path(f, 0, 4) == [0, 4, 8, 6, 2] and far(f, 0, 4) == 5  # 4: digits 0, 0
    assert path(f, 0, 5) == [0, 5, 10, 7, 2]  # 5: 5 mod 2 = 1, 5 / 2 mod 2 = 0
    assert path(f, 0, 6) == [0, 4, 9, 6, 3]  # 6: 0, 3 mod 2 = 1
    assert path(f, 7, 1) == [3, 7, 10, 5, 0]


def test_torus_takes_the_shorter_way() -> None:
    f = read_fabric("torus:5x4", 20)  # node x + 5 y
    assert path(f, 0, 2) == [0, 1, 2] and far(f, 0, 2) == 3
    assert path(f, 0, 3) == [0, 4, 3]  # round the end
    assert path(f, 0, 10) == [0, 5, 10]  # 2 of 4: as far both ways, upwards
    assert path(f, 0, 15) == [0, 15] and path(f, 15, 0) == [15, 0]
    assert path(f, 1, 19) == [1, 0, 4, 19]  # first along x, then along y


def test_dragonfly_goes_over_one_cable_between_groups() -> None:
    f = read_fabric("dragonfly:3,2,2", 12)  # groups of switches 0 1, 2 3, 4 5; one cable of each
    assert path(f, 0, 1) == [0] and path(f, 0, 2) == [0, 1]
    # Group 0: switch 0 has the cable to group 1, switch 1 that to group 2.
    # Group 1: switch 2 to group 2, switch 3 to group 0. Group 2: 4 to group 0, 5 to group 1.
    assert path(f, 0, 4) == [0, 3, 2] and far(f, 0, 4) == 3
    assert path(f, 0, 6) == [0, 3]
    assert path(f, 0, 11) == [0, 1, 4, 5] and far(f, 0, 11) == 4
    assert path(f, 4, 10) == [2, 5]


def test_tree_of_switches(tmp_path: Path) -> None:
    file = tmp_path / "topology.conf"
    file.write_text(SLURM)
    f = read_fabric(str(file), 5)
    assert f.about.hosts == ("n0", "n1", "n2", "n3", "n4")
    assert path(f, 0, 1) == [0] and path(f, 0, 3) == [0, 3, 1] and far(f, 0, 3) == 3
    assert path(f, 0, 4) == [0, 3, 4, 2] and path(f, 4, 2) == [2, 4, 3, 1]
    assert f.rate[5:9].tolist() == [1.25, 2.5, pytest.approx(math.nan, nan_ok=True), 5.0]
    as_json = {
        "kind": "tree",
        "tree": [
            {"switch": "s0", "nodes": "n[0-1]", "speed": "10Gbit/s"},
            {"switch": "s1", "nodes": "n[2-3]", "speed": "20Gbit/s"},
            {"switch": "s2", "nodes": "n4"},
            {"switch": "r0", "switches": "s[0-1]", "speed": "40Gbit/s"},
            {"switch": "top", "switches": "r0,s2"},
        ],
    }
    same = made(tmp_path, as_json)
    assert path(same, 0, 4) == path(f, 0, 4)
    assert np.array_equal(same.rate, f.rate, equal_nan=True)


def test_trees_that_are_not_joined_are_told(tmp_path: Path) -> None:
    file = tmp_path / "topology.conf"
    file.write_text(
        "SwitchName=a Nodes=n[0-1]\nSwitchName=b Nodes=n[2-3]\nSwitchName=c Switches=d\n"
    )
    file.write_text(file.read_text() + "SwitchName=d Nodes=n0\n")  # a second network of n0
    f = read_fabric(str(file), 4)
    assert path(f, 0, 3) == [0, 4, 1] and far(f, 0, 3) == 3
    (note,) = f.about.notes
    assert "2 trees of switches (a, b) have no common root" in note
    assert note.endswith("add SwitchName=root Switches=a,b")
    assert read_topology(file).about.notes == f.about.notes
    file.write_text(SLURM)
    assert read_fabric(str(file), 5).about.notes == ()


@given(st.integers(1, 30), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_ways_in_trees_are_those_of_their_graph(number: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    up = np.array([rng.integers(-1, k) if k else -1 for k in range(number)], dtype=np.int64)
    every = np.arange(number)  # a node on each switch
    t = Tree(About("made"), every, up, np.full(2 * number, np.nan))
    above = [[k] for k in range(number)]
    for chain in above:
        while up[chain[-1]] >= 0:
            chain.append(int(up[chain[-1]]))
    hops = t.apart(every)
    for a, b in itertools.product(range(number), repeat=2):
        way = set(above[a]) ^ set(above[b])
        assert hops[a, b] == (len(way) + 1 if a != b else 0)
        shared = t.sharing(a, b, every)
        c, d = rng.integers(0, number, 2)
        assert shared[c, d] == (not way.isdisjoint(set(above[c]) ^ set(above[d])))


@pytest.mark.parametrize("form", ["wide", "netloc", "chains"])
def test_memory_grows_with_the_switches_not_with_their_square(tmp_path: Path, form: str) -> None:
    number, file = 8000, tmp_path / "network"
    if form == "netloc":  # a ring: no tree
        rows = [f"s{k},1,1,,switch,s{k}" for k in range(number)] + ["h,1,0,,host,h"]
        edges = [f"s{k},s{(k + 1) % number},1,,0" for k in range(number)] + ["h,s0,1,,0"]
        file.write_text("\n".join(["1", "x", "x", str(number + 1), *rows, *edges]) + "\n")
        read = read_topology
    else:
        root = f"SwitchName=root Switches=s[0-{number - 1}]\n"
        if form == "chains":  # of 50 switches each
            root = f"SwitchName=root Switches={','.join(f's{k}' for k in range(0, number, 50))}\n"
        file.write_text(
            root
            + "".join(
                f"SwitchName=s{k} Nodes=n{k}"
                + (f" Switches=s{k + 1}" if form == "chains" and (k + 1) % 50 else "")
                + "\n"
                for k in range(number)
            )
        )
        read = lambda path: read_fabric(str(path), 1)  # noqa: E731
    tracemalloc.start()
    try:
        read(file)
        assert tracemalloc.get_traced_memory()[1] < 200 * file.stat().st_size
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "".join(f"SwitchName=s{k} Switches=s{k + 1}\n" for k in range(8000))
            + "SwitchName=s8000 Nodes=n0\n",
            "more than 64 switches are above one another",
        ),
        ("SwitchName=a Switches=b Nodes=n0\nSwitchName=b Switches=a\n", "go round in a circle"),
        (
            "".join(f"SwitchName=s{k} Nodes=a{k}n[0-99999]\n" for k in range(11)),
            "names more than 1,000,000 nodes and switches",
        ),
        ('{"kind": "fat-tree", "down": [2, 2, 2], "up": [1000000, 1000000]}', "cables are more"),
        ('{"kind": "dragonfly", "groups": 1, "switches": 65536, "nodes": 1}', "cables are more"),
        (
            '{"kind": "dragonfly", "groups": 9, "switches": 4096, "nodes": 1, "global": 60000}',
            "cables are more",
        ),
    ],
)
def test_files_that_ask_for_much_are_refused_before_they_get_it(
    tmp_path: Path, text: str, why: str
) -> None:
    file = tmp_path / "network"
    file.write_text(text)
    tracemalloc.start()
    try:
        with pytest.raises(P3SError, match=why):
            read_fabric(str(file), 1)
        assert tracemalloc.get_traced_memory()[1] < 1 << 28
    finally:
        tracemalloc.stop()


def made(directory: Path, data: dict[str, Any], nodes: int = 1) -> Fabric:
    file = directory / "network.json"
    file.write_text(json.dumps(data))
    return read_fabric(str(file), nodes)


def test_json_says_what_short_descriptions_say(tmp_path: Path) -> None:
    one = read_fabric("fat-tree:16,4@1Gbit/s,2us", 64)
    two = made(
        tmp_path,
        {
            "schema": "p3s.topology",
            "schema_version": 1,
            "kind": "fat-tree",
            "down": [16, 4],
            "up": [4],
            "speed": ["1Gbit/s", "1Gbit/s"],
            "latency": "2us",
            "hosts": "n[00-63]",
            "sharing": "queue",
        },
        64,
    )
    assert (one.ends == two.ends).all() and (one.rate == two.rate).all()
    assert one.about.extra == two.about.extra and one.about.extra.ns == (2000.0,)
    assert one.about.fair and not two.about.fair
    assert two.numbers(["n63", "n00.cluster.org", "", "+n5"]).tolist() == [63, 0, 2, 5]
    with pytest.raises(P3SError, match="does not name node x"):
        two.numbers(["x"])


def test_speeds_by_level(tmp_path: Path) -> None:
    f = made(
        tmp_path,
        {"kind": "dragonfly", "groups": 3, "switches": 2, "nodes": 1, "speed": ["2GB/s", "1GB/s"]},
    )
    assert f.rate[6:].tolist() == [2.0] * 3 + [1.0] * 3 and np.isnan(f.rate[:6]).all()


SHORT = st.one_of(
    st.lists(st.integers(1, 5), min_size=1, max_size=4).map(
        lambda dims: f"torus:{'x'.join(map(str, dims))}"
    ),
    st.lists(st.integers(1, 5), min_size=1, max_size=4).map(
        lambda dims: f"mesh:{'x'.join(map(str, dims))}"
    ),
    st.lists(st.integers(1, 4), min_size=2, max_size=6).map(
        lambda told: f"fat-tree:{','.join(map(str, told))}"
    ),
    st.tuples(*(st.integers(1, 5),) * 3).map(lambda told: "dragonfly:{},{},{}".format(*told)),
    st.integers(2, 5).map(lambda groups: f"dragonfly:{groups},4,2,3"),
)


@given(SHORT, st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_routes_connect_and_loads_conserve_bytes(told: str, seed: int) -> None:
    f = read_fabric(told, 1)
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, f.nodes, (2, 40))
    nbytes = rng.integers(0, 1000, 40)
    routes, distances, ends = f.routes(a, b), f.distances(a, b), f.ends
    assert len(f.rate) == len(f.cables())
    assert (distances == f.distances(b, a)).all() and (distances[a == b] == 0).all()
    for k in range(40):
        links = routes.of(k)
        assert len(links) == (distances[k] + 1 if a[k] != b[k] else 0)
        assert len(set(links)) == len(links)
        stops = [int(a[k]), *(int(end) for end in ends[links, 1])]
        assert stops[:-1] == ends[links, 0].tolist() and stops[-1] == b[k]
        assert all(stop >= f.nodes for stop in stops[1:-1])
    loads = f.loads(a, b, nbytes)
    assert loads.sum() == (nbytes * np.diff(routes.start)).sum()
    # What comes into a switch leaves it; nodes send and get what is theirs.
    balance = np.bincount(ends[:, 1], loads, f.nodes + f.switches) - np.bincount(
        ends[:, 0], loads, f.nodes + f.switches
    )
    assert (balance[f.nodes :] == 0).all()
    sent = np.bincount(a, nbytes, f.nodes)
    assert (balance[: f.nodes] == np.bincount(b, nbytes, f.nodes) - sent).all()


def test_short_texts_say_sockets_domains_and_cores() -> None:
    node = read_node("2x4x8+smt2+256GB")
    assert (node.cores, node.slots, node.smt) == (64, 128, 2)
    assert node.domains == (8,) * 8 and node.sockets == (4, 4) and node.memory == 256 * 2**30
    assert node.domain_of.tolist()[::8] == list(range(8))
    assert node.socket_of.tolist()[31:33] == [0, 1]
    assert read_node("2x32").domains == (32, 32) and read_node("2x32").memory is None
    assert [read_node(text).text for text in ("2x32", "2x4x8+smt2")] == ["2x32", "2x4x8+smt2"]


@pytest.mark.parametrize("text", ["0x4", "2x0x8", "2x4+smt0", "2x4x8 cores", "999999x999999"])
def test_texts_that_are_no_node(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_node(text)
    assert "\n" not in str(caught.value) and "2x4x8" in str(caught.value)


def test_hwloc_tells_domains_caches_hardware_threads_and_memory(tmp_path: Path) -> None:
    path = tmp_path / "n.xml"
    text = xml(2, 2, 3).replace(
        '<object type="NUMANode"', '<object type="NUMANode" local_memory="512"'
    )
    path.write_text(text)
    node = read_node(str(path))
    assert node.domains == (6, 6) and node.caches == (3,) * 4 and node.sockets == (1, 1)
    assert node.smt == 2 and node.memory == 1024.0


def test_memory_inside_of_which_cores_are_as_hwloc_1_has_it(tmp_path: Path) -> None:
    core = '<object type="Core"><object type="PU"/></object>'
    domain = f'<object type="NUMANode" local_memory="8">{core * 2}</object>'
    socket = f'<object type="Socket">{domain * 2}</object>'
    path = tmp_path / "o.xml"
    path.write_text(f"<topology><object type='Machine'>{socket * 2}</object></topology>")
    node = read_node(str(path))
    assert node.domains == (2,) * 4 and node.sockets == (2, 2) and node.memory == 32.0


def test_parts_of_a_node_hold_the_same_cores() -> None:
    with pytest.raises(P3SError, match="do not hold the same cores"):
        Node("n", (4, 4), (2,), (4, 3))
    assert Node("n", (4, 3), (1, 1), (4, 3)).text == "7 cores in 2 memory domains"


def xml(sockets: int, caches: int, cores: int, *, socket: str = "Package") -> str:
    """What lstopo 2 writes, with hyperthreads, a memory object and a private cache each."""
    core = '<object type="Core"><object type="PU"/><object type="PU"/></object>'
    core = f'<object type="L2Cache">{core}</object>'
    shared = f'<object type="L3Cache">{core * cores}</object>'
    whole = f'<object type="{socket}"><object type="NUMANode"/>{shared * caches}</object>'
    return (
        '<?xml version="1.0"?><!DOCTYPE topology SYSTEM "hwloc2.dtd"><topology version="2.0">'
        f'<object type="Machine">{whole * sockets}</object></topology>'
    )


def read(path: Path, text: str) -> Inside:
    path.write_text(text)
    return read_inside(path)


def test_cores_know_their_socket_and_the_cache_that_they_share(tmp_path: Path) -> None:
    found = read(tmp_path / "n.xml", xml(2, 2, 3))
    assert len(found) == 12 and found.sockets == 2 and found.caches.tolist() == [3] * 4
    assert found.socket.tolist() == found.domain.tolist() == [0] * 6 + [1] * 6
    assert found.cache.tolist() == found.l3.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert found.l2.tolist() == list(range(12))
    old = read(tmp_path / "o.xml", xml(1, 1, 2, socket="Socket"))
    assert old.socket.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("<topology/>", "tells of no cores"),
        ("<other><object type='Core'/></other>", "tells of no cores"),
        ("<topology>", "no XML of hwloc"),
        ("cores=4", "no XML of hwloc"),
    ],
)
def test_what_is_not_hwloc_s(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(P3SError, match=why) as caught:
        read(tmp_path / "n.xml", text)
    assert "\n" not in str(caught.value)
    with pytest.raises(P3SError, match="cannot be read"):
        read_inside(tmp_path / "none.xml")


def test_pairs_share_a_socket(tmp_path: Path) -> None:
    """Ranks 0 and 2, 1 and 3 talk: in their order they would be on two sockets."""
    inside = read(tmp_path / "n.xml", xml(2, 1, 2))
    placed = rank_map("block", np.array([0, 0, 0, 0, 1, 1, 1, 1]), ("a", "b"))
    sent = traffic(8, [0, 1, 4, 5], [2, 3, 6, 7], 1000)
    found = on_cores(sent, placed, inside)
    assert in_order(placed, inside).between_sockets(sent, placed) == 4000
    assert found.between_sockets(sent, placed) == 0
    lines = as_text(placed, "openmpi", found).splitlines()
    assert len({line.split("=", 1)[1] for line in lines}) == 8, "no core has two ranks"
    slots = [line.rsplit("=", 1)[1] for line in lines]
    assert slots[0].split(":")[0] == slots[2].split(":")[0] != slots[1].split(":")[0]
    with pytest.raises(UsageError, match="has 4 cores, a node gets 8 ranks"):
        on_cores(sent, rank_map("all", np.zeros(8, dtype=np.int64)), inside)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 3), st.integers(1, 2), st.integers(1, 3), st.data())
def test_every_rank_has_a_core_of_its_own(
    sockets: int, caches: int, cores: int, data: st.DataObject
) -> None:
    number = sockets * caches * cores
    core = np.arange(number)
    socket, cache = core // (caches * cores), core // cores
    inside = Inside("node", socket, cache, socket, cache, core)
    ranks = data.draw(st.integers(1, 2 * number))
    placed = rank_map("block", np.arange(ranks) // number)
    ends = data.draw(st.lists(st.tuples(*[st.integers(0, ranks - 1)] * 2), max_size=20))
    sent = traffic(ranks, [a for a, _ in ends], [b for _, b in ends], 100)
    found = on_cores(sent, placed, inside)
    pairs = set(zip(placed.node_of.tolist(), found.core_of.tolist(), strict=True))
    assert len(pairs) == ranks and found.core_of.min() >= 0 and found.core_of.max() < number
    usual = in_order(placed, inside)
    assert found.between_sockets(sent, placed) <= usual.between_sockets(sent, placed)
