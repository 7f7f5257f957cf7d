"""Links between switches: ways through a tree, and messages that wait at them."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from slow_simulation import Simulation
from steps_builder import Builder
from test_dependency_random import RANKS, hops, network, pattern

from p3s.base.errors import Damaged, P3SError
from p3s.simulate.network import Network, Path, line
from p3s.simulate.simulate import Simulated, simulate
from p3s.simulate.switch_links import Trunks, routes

#: Leaves 0, 1 below 3; 2 below 4; 3 and 4 below 5.
UP = (3, 3, 4, 5, 5, -1)
#: Nodes 0 and 1 on one switch, 2 and 3 on another, one above both.
TWO = Trunks((0, 0, 1, 1), (2, 2, -1), (0.5, 0.5, math.inf), (0.0, 0.0, 0.0))
TRANSFER = 5000.0


def ways(trunks: Trunks) -> dict[tuple[int, int], list[int]]:
    """Return the links from each place to each other one."""
    found = routes(trunks)
    pairs = [(a, b) for a in range(found.places) for b in range(found.places)]
    return {
        pair: found.link[found.start[k] : found.start[k + 1]].tolist()
        for k, pair in enumerate(pairs)
    }


def test_ways_go_up_and_down_again() -> None:
    trunks = Trunks((0, 0, 1, 2, 2), UP, (1.0, 2.0, 3.0, 4.0, 5.0, 6.0), (0.0,) * 6)
    assert ways(trunks) == {
        (0, 0): [],
        (1, 1): [],
        (2, 2): [],
        (0, 1): [0, 3],
        (1, 0): [2, 1],  # link 2 k goes up from switch k, 2 k + 1 down to it
        (0, 2): [0, 6, 9, 5],
        (2, 0): [4, 8, 7, 1],
        (1, 2): [2, 6, 9, 5],
        (2, 1): [4, 8, 7, 3],
    }
    found = routes(trunks)
    assert found.place_of.tolist() == [0, 0, 1, 2, 2]
    assert found.rate[:4].tolist() == [1.0, 1.0, 2.0, 2.0]


def test_a_node_on_an_upper_switch_and_trees_that_are_not_joined() -> None:
    high = Trunks((3, 0), UP, (1.0,) * 6, (0.0,) * 6)  # places in the order of the switches
    assert ways(high)[0, 1] == [0] and ways(high)[1, 0] == [1]
    apart = Trunks((0, 1), (-1, -1), (1.0, 2.0), (0.0, 0.0))
    assert ways(apart)[0, 1] == [0, 3] and ways(apart)[1, 0] == [2, 1]


def four(**more: Any) -> Network:
    """Return a network where all messages take as long, on links of 1 byte per ns."""
    own = line(0.0)
    path = Path(line(TRANSFER), own, own, 1000.0, True)
    paths = {0: replace(path, linked=False), 1: path}
    return Network(paths, **{"rate": 1.0, "trunks": TWO, **more})


def sent(messages: list[tuple[int, int, int]], net: Network, **more: Any) -> list[float]:
    """Return when messages (from, to, bytes) that begin at once arrive; a rank on each node."""
    b = Builder(4)
    for tag, (source, target, nbytes) in enumerate(messages):
        b.add(target, "MPI_Irecv", source, nbytes, tag=tag)
    for tag, (source, target, nbytes) in enumerate(messages):
        b.add(source, "MPI_Isend", target, nbytes, tag=tag)
    for rank in range(4):
        b.add(rank, "MPI_Waitall")
    steps = b.build()
    found: Simulated = simulate(steps, np.arange(4), net, **more)
    order = {int(steps.tag[i]): i for i in np.flatnonzero(steps.to >= 0)}
    return [float(found.arrival_ns[order[tag]]) for tag in range(len(messages))]


def test_a_narrow_link_holds_up_the_node_link_of_its_messages_only() -> None:
    """What waits between switches does not keep others from the sender's node."""
    net = four(rate=2.0)
    # At one time the lower rank is first.
    assert sent([(0, 2, 1000), (1, 3, 1000), (1, 0, 1000)], net) == [
        TRANSFER,
        TRANSFER + 2000,
        TRANSFER + 500,
    ]


def tree(rng: np.random.Generator) -> Trunks:
    """Return three nodes somewhere in a random tree or two."""
    up = [-1, *(int(rng.integers(-1 if rng.random() < 0.2 else 0, k)) for k in range(1, 6))]
    order = rng.permutation(6)
    shuffled = np.full(6, -1)
    for k, above in enumerate(up):
        shuffled[order[k]] = order[above] if above >= 0 else -1
    rate = np.where(rng.random(6) < 0.7, rng.uniform(0.3, 15, 6), math.inf)
    return Trunks(
        tuple(int(s) for s in rng.integers(0, 6, 3)),
        tuple(int(u) for u in shuffled),
        tuple(float(r) for r in rate),
        tuple(float(b) for b in rng.choice([0, 5000, 30000], 6)),
    )


@pytest.mark.parametrize("part", range(4))
def test_agrees_with_the_plain_simulation(part: int) -> None:
    delayed = 0
    for seed in range(20 * part, 20 * part + 20):
        rng = np.random.default_rng(5000 + seed)
        steps, costs = pattern(rng)
        net = network(rng, links=seed % 3 > 0, background=seed % 4 > 0)
        nodes, table = rng.integers(0, 3, RANKS), hops(rng)
        free = simulate(steps, nodes, net, distance=table, collective_ns=costs)
        net = replace(net, trunks=tree(rng))
        found = simulate(steps, nodes, net, distance=table, collective_ns=costs)
        begin, end, waiting = Simulation(steps, nodes, net, table, costs).run()
        for name, ours, theirs in (
            ("begin", found.begin_ns, begin),
            ("end", found.end_ns, end),
            ("waiting", found.waiting_ns, waiting),
        ):
            off = np.flatnonzero(~np.isclose(ours, theirs, rtol=1e-9, atol=1e-3))
            assert not len(off), (seed, name, off[:5], ours[off[:5]], theirs[off[:5]])
        delayed += bool((found.end_ns > free.end_ns + 1).any())
    assert delayed > 5


def test_links_that_are_no_limit_change_nothing() -> None:
    rng = np.random.default_rng(1)
    steps, costs = pattern(rng)
    net = network(rng, links=True)
    wide = Trunks((0, 1, 1), (2, 2, -1), (math.inf,) * 3, (0.0,) * 3)
    nodes = np.arange(RANKS) // 3
    one = simulate(steps, nodes, net, collective_ns=costs)
    other = simulate(steps, nodes, replace(net, trunks=wide), collective_ns=costs)
    assert (one.end_ns == other.end_ns).all()


def test_too_few_nodes_and_circles_are_refused() -> None:
    with pytest.raises(P3SError, match="known for 3 nodes, not 4"):
        sent([(0, 2, 10)], four(trunks=TWO.on((0, 0, 1))))
    with pytest.raises(P3SError, match="circle"):
        sent([(0, 2, 10)], four(trunks=replace(TWO, up=(2, 2, 0))))


def test_json_brings_them_back() -> None:
    text = json.dumps(four().to_json(), allow_nan=False)
    assert Network.from_json(json.loads(text)) == four()
    assert "trunks" not in four(trunks=None).to_json()


@pytest.mark.parametrize(
    "change, words",
    [
        ({"up": [2, 2, 0]}, "circle"),
        ({"up": [2, 2, 3]}, "not there"),
        ({"switch_of": [0, 0, 1, 9]}, "not there"),
        ({"burst_bytes": [0, 0]}, "differ in length"),
        ({"rate_bytes_per_ns": [0, 1, 1]}, "no rate"),
        ({"burst_bytes": [0, -1, 0]}, "burst"),
        ({"burst_bytes": None}, "iterable"),
    ],
)
def test_damaged_links_are_refused(change: dict[str, Any], words: str) -> None:
    data = four().to_json()
    with pytest.raises(Damaged, match=words):
        Network.from_json({**data, "trunks": {**data["trunks"], **change}})
