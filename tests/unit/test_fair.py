"""Messages that share links: times worked out by hand, and a plain fluid to compare with."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from steps_builder import Builder

from p3s.machine.topology.read import read_fabric
from p3s.predict.estimators.settings import on_wires, said_of, wire_nodes
from p3s.program.mapping import block
from p3s.simulate.network import Network, Path, line
from p3s.simulate.simulate import simulate
from p3s.simulate.switch_links import Wires

TRANSFER = 5000.0


def four(told: str = "fat-tree:2,1@4Gbit/s", nodes: int = 4, **more: Any) -> Network:
    """Return nodes with links of 1 byte per ns, two a leaf, and 0.5 above each leaf."""
    own = line(0.0)
    path = Path(line(TRANSFER), own, own, 1e6, True)
    fabric = read_fabric(told, nodes)
    wires = Wires(fabric, tuple(range(nodes)), tuple(fabric.rate.tolist()))
    paths = {0: replace(path, linked=False), 1: path}
    return Network(paths, **{"rate": 1.0, "wires": wires, "fair": True, **more})


def sent(messages: list[tuple[int, int, int]], net: Network, begin: Any = None) -> list[float]:
    """Return when messages (from, to, bytes) arrive; ``begin``: when each is sent."""
    nodes = 1 + max(max(a, b) for a, b, _ in messages)
    b = Builder(nodes)
    for tag, (source, target, nbytes) in enumerate(messages):
        b.add(target, "MPI_Irecv", source, nbytes, tag=tag)
    clock = dict.fromkeys(range(nodes), 0.0)
    for tag, (source, target, nbytes) in enumerate(messages):
        work = 0.0 if begin is None else begin[tag] - clock[source]
        clock[source] += work
        b.add(source, "MPI_Isend", target, nbytes, tag=tag, work_ns=work)
    for rank in range(nodes):
        b.add(rank, "MPI_Waitall")
    steps = b.build()
    found = simulate(steps, np.arange(nodes), net)
    order = {int(steps.tag[i]): i for i in np.flatnonzero(steps.to >= 0)}
    return [float(found.arrival_ns[order[tag]]) for tag in range(len(messages))]


def test_two_messages_share_the_link_of_their_node() -> None:
    # Both at half the rate: 1,000 and 2,000 bytes; the longer one is alone for the last 1,000.
    found = sent([(0, 1, 1000), (0, 1, 2000)], four())
    # Alone they arrive together: the longer one begins 1,000 ns earlier.
    assert found == pytest.approx([TRANSFER + 1000, TRANSFER + 1000])


def test_two_nodes_share_the_link_above_their_leaf() -> None:
    found = sent([(0, 2, 1000), (1, 3, 1000)], four())
    assert found == pytest.approx([TRANSFER + 2000] * 2)  # alone 2,000 ns, together 4,000
    assert sent([(0, 2, 1000), (3, 1, 1000)], four()) == pytest.approx([TRANSFER] * 2)
    alone = sent([(0, 2, 1000), (1, 3, 1000)], four("fat-tree:2,2@4Gbit/s"))
    assert alone == pytest.approx([TRANSFER] * 2)  # each has a link above the leaf for itself


def test_what_is_held_up_elsewhere_leaves_its_share_to_others() -> None:
    # To nodes 2, 3 and 1 at once: two of them get a quarter each above the leaf, the third a half.
    found = sent([(0, 2, 1000), (0, 3, 1000), (0, 1, 1000)], four())
    # The first two start 3,000 ns after the send, at 0.25 each; the third 1,000 ns later, at 0.5.
    assert found == pytest.approx([3000 + 4000, 3000 + 4000, 4000 + 2000], rel=1e-3)


def test_answers_take_their_share_of_the_way_back() -> None:
    both = [(0, 2, 1000), (2, 0, 1000)]
    found = sent(both, four(back=0.05))
    assert found == pytest.approx([TRANSFER + 2000 * 0.05] * 2)
    assert sent(both[:1], four(back=0.05)) == pytest.approx([TRANSFER])


def test_links_of_nodes_alone_are_shared_too() -> None:
    net = four(wires=None)
    assert sent([(0, 2, 1000), (1, 2, 1000)], net) == pytest.approx([TRANSFER + 1000] * 2)


class Plain:
    """Max-min fair flows, worked out anew at every change."""

    def __init__(self, ways: list[list[int]], rate: np.ndarray) -> None:
        self.ways, self.rate = ways, rate

    def share(self, flow: int) -> float:
        return 1 / len(self.ways[flow])

    def rates(self, active: list[int]) -> dict[int, float]:
        left, open_, found = self.rate.copy(), set(active), {}
        while open_:
            level = {
                link: left[link] / shares
                for link in range(len(left))
                if (shares := sum(self.share(flow) for flow in open_ if link in self.ways[flow]))
            }
            least = min(level, key=lambda link: level[link])
            for flow in [flow for flow in open_ if least in self.ways[flow]]:
                found[flow] = level[least] * self.share(flow)
                open_.remove(flow)
                for link in self.ways[flow]:
                    left[link] -= found[flow]
        return found

    def run(self, start: list[float], nbytes: list[float]) -> list[float]:
        left, end, now = list(nbytes), [math.nan] * len(nbytes), 0.0
        while any(math.isnan(x) for x in end):
            active = [k for k in range(len(end)) if math.isnan(end[k]) and start[k] <= now]
            rate = self.rates(active)
            later = [x for k, x in enumerate(start) if x > now]
            ends = [now + left[k] / rate[k] for k in active]
            then = min([*later, *ends])
            for k in active:
                left[k] -= rate[k] * (then - now)
                if left[k] <= 1e-6 * nbytes[k]:
                    end[k] = then
            now = then
        return end


@pytest.mark.parametrize("told", ["fat-tree:4,2@4Gbit/s", "torus:4x2@4Gbit/s", "mesh:8@6Gbit/s"])
def test_agrees_with_a_plain_fluid(told: str) -> None:
    net = four(told, 8)
    assert net.wires is not None
    fabric = net.wires.fabric
    rate = np.where(np.isnan(fabric.rate), 1.0, fabric.rate)
    rate[:8] = 1.0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        pairs = [(int(a), int(b)) for a, b in rng.integers(0, 8, (40, 2)) if a != b]
        nbytes = rng.integers(100, 2000, len(pairs))
        begin = np.sort(rng.uniform(0, 10000, len(pairs)))
        ways = [fabric.routes(np.array([a]), np.array([b])).of(0) for a, b in pairs]
        alone = [nbytes[k] / min(rate[link // 2] for link in way) for k, way in enumerate(ways)]
        start = [begin[k] + TRANSFER - alone[k] for k in range(len(pairs))]
        messages = [(*pair, int(size)) for pair, size in zip(pairs, nbytes, strict=True)]
        theirs = Plain(ways, np.repeat(rate, 2)).run(start, [float(x) for x in nbytes])
        ours = sent(messages, net, begin)
        long = np.array(theirs) - np.array(start)
        off = np.abs(np.array(ours) - np.array(theirs)) / long
        assert off.max() < 0.05 and off.mean() < 0.01, (seed, off.max(), off.mean())


def test_costs_on_a_network() -> None:
    there = wire_nodes("fat-tree:2,1@4Gbit/s,300ns", block(8, 2))
    assert there.distance.tolist() == [[0, 1, 3, 3], [1, 0, 3, 3], [3, 3, 0, 1], [3, 3, 1, 0]]
    net = on_wires(four(wires=None, fair=False), there)
    assert net.fair and net.wires is not None
    times = [float(net.path(d).transfer.at([100])[0]) for d in (0, 1, 3)]
    assert times == [TRANSFER, TRANSFER, TRANSFER + 600]
    (said,) = said_of(there, net)
    assert "4.00 Gbit/s" in said and "share" in said
    unknown = wire_nodes("fat-tree:2,1", block(8, 2))
    assert len(said_of(unknown, on_wires(net, unknown))) == 3
