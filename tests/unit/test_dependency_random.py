"""The simulation beside a plain one: random patterns, links between switches."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from slow_simulation import Simulation
from steps_builder import Builder

from p3s.base.errors import DamagedFile, P3SError
from p3s.simulate.network import Curve, Network, Path, line
from p3s.simulate.simulate import StepTimes, simulate
from p3s.simulate.switch_links import Trunks, routes

RANKS = 8


def network(rng: np.random.Generator, *, links: bool, background: bool = True) -> Network:
    """Return a network of random costs, rising in the bytes."""

    def curve(scale: float) -> Curve:
        return Curve((0.0, 1000.0, 50000.0), tuple(np.cumsum(rng.uniform(0.1, 1, 3)) * scale))

    paths = {
        d: Path(
            curve(500.0 * (d + 1)),
            curve(50.0),
            curve(80.0),
            float(rng.choice([0, 3000, 20000])),
            d > 0,
        )
        for d in (0, 1, 2)
    }
    return Network(
        paths,
        rate=float(rng.uniform(0.5, 20)) if links else math.inf,
        burst=float(rng.choice([0, 5000, 30000])),
        post=float(rng.uniform(1, 20)),
        sender_buffer=float(rng.choice([0, 4000])),
        background=background,
    )


def pattern(rng: np.random.Generator, *, choices: bool = True, collectives: bool = True):
    """Return steps of random calls in rounds: every round can be completed by itself."""
    b = Builder(RANKS, members={1: [5, 2, 0, 7]})
    costs = []

    def add(rank: int, call: str, *args, **more) -> int:
        costs.append((rank, float(rng.uniform(10, 3000))))
        return b.add(
            rank, call, *args, work_ns=float(rng.choice([0, 1]) * rng.exponential(2000)), **more
        )

    for turn in range(int(rng.integers(2, 7))):
        kind = rng.choice(
            ["nonblocking", "sendrecv", "blocking", "collective", "absent"],
            p=[0.5, 0.15, 0.15, 0.15, 0.05],
        )
        if kind == "nonblocking":
            mine: dict[int, list[int]] = {r: [] for r in range(RANKS)}
            ops: list[tuple[int, str, int, int]] = []
            for _ in range(int(rng.integers(3, 25))):
                a, c = (int(r) for r in rng.choice(RANKS, 2, replace=bool(rng.random() < 0.1)))
                size = int(rng.integers(0, 40000))
                send = str(rng.choice(["MPI_Isend", "MPI_Isend", "MPI_Issend", "MPI_Start"]))
                ops += [
                    (a, "MPI_Isend" if send == "MPI_Start" else send, c, size),
                    (c, "MPI_Irecv", a, size),
                ]
            for k in rng.permutation(len(ops)):
                rank, call, peer, size = ops[k]
                mine[rank].append(add(rank, call, peer, size, tag=100 * turn + int(k) // 2))
            for rank, them in mine.items():
                them = [int(q) for q in rng.permutation(them)]
                while them:
                    if choices and rng.random() < 0.3:
                        add(rank, "MPI_Waitany", done=them, number=1)
                        if rng.random() < 0.3:
                            add(
                                rank,
                                "MPI_Waitsome",
                                done=them,
                                number=int(rng.integers(1, len(them) + 1)),
                            )
                    cut = int(rng.integers(1, len(them) + 1))
                    add(rank, "MPI_Waitall", done=them[:cut])
                    them = them[cut:]
        elif kind == "sendrecv":
            shift, size = int(rng.integers(0, RANKS)), int(rng.integers(0, 40000))
            for rank in range(RANKS):
                add(
                    rank,
                    "MPI_Sendrecv",
                    (rank + shift) % RANKS,
                    size,
                    peer2=(rank - shift) % RANKS,
                    tag=100 * turn,
                )
        elif kind == "blocking":
            for k in range(6):
                a, c = (int(r) for r in rng.choice(RANKS, 2, replace=False))
                size = int(rng.integers(0, 40000))
                add(
                    a,
                    str(rng.choice(["MPI_Send", "MPI_Ssend", "MPI_Bsend"])),
                    c,
                    size,
                    tag=100 * turn + k,
                )
                add(c, "MPI_Recv", a, size, tag=100 * turn + k)
        elif kind == "absent":
            add(int(rng.integers(RANKS)), "MPI_Send", -1, 100)
            add(int(rng.integers(RANKS)), "MPI_Recv", -1, 100)
        elif collectives:
            comm = int(rng.integers(0, 2))
            call = str(rng.choice(["Barrier", "Bcast", "Reduce", "Scan", "Allreduce", "Ibcast"]))
            for rank in b.members[comm]:
                root = 5 if call in ("Bcast", "Reduce", "Ibcast") else -1
                q = add(int(rank), f"MPI_{call}", root, 3000, comm=comm)
                if call == "Ibcast":
                    add(int(rank), "MPI_Wait", done=[q])
    for rank in range(RANKS):
        b.add(rank, "REST", work_ns=100.0)
        costs.append((rank, 0.0))
    order = sorted(range(len(costs)), key=lambda k: (costs[k][0], k))
    return b.build(), np.array([costs[k][1] for k in order])


def hops(rng: np.random.Generator) -> np.ndarray:
    table = rng.integers(1, 3, (3, 3))
    return np.triu(table, 1) + np.triu(table, 1).T


@pytest.mark.parametrize("part", range(4))
def test_agrees_with_the_plain_simulation(part: int) -> None:
    for seed in range(25 * part, 25 * part + 25):
        rng = np.random.default_rng(seed)
        steps, costs = pattern(rng)
        net = network(rng, links=seed % 3 > 0, background=seed % 4 > 0)
        nodes = rng.integers(0, 3, RANKS)
        table = hops(rng) if seed % 2 else None
        extra = rng.normal(0, 500, len(steps)) if seed % 5 == 0 else None
        found = simulate(steps, nodes, net, distance=table, collective_ns=costs, extra_ns=extra)
        begin, end, waiting = Simulation(steps, nodes, net, table, costs, extra).run()
        for name, ours, theirs in (
            ("begin", found.begin_ns, begin),
            ("end", found.end_ns, end),
            ("waiting", found.waiting_ns, waiting),
        ):
            off = np.flatnonzero(~np.isclose(ours, theirs, rtol=1e-9, atol=1e-3))
            assert not len(off), (seed, name, off[:5], ours[off[:5]], theirs[off[:5]])


def test_parts_add_up_and_calls_follow_each_other() -> None:
    for seed in range(60):
        rng = np.random.default_rng(1000 + seed)
        steps, costs = pattern(rng)
        net = network(rng, links=True)
        found = simulate(steps, np.arange(RANKS) // 3, net, collective_ns=costs)
        for part in (found.waiting_ns, found.software_ns, found.transfer_ns):
            assert (part >= 0).all()
        whole = found.waiting_ns + found.software_ns + found.transfer_ns
        np.testing.assert_allclose(whole, found.end_ns - found.begin_ns, atol=1e-6)
        same = np.diff(steps.rank) == 0
        gap = found.begin_ns[1:] - found.end_ns[:-1] - steps.work_ns[1:]
        assert np.abs(gap[same]).max() < 1e-6
        sent = found.arrival_ns[steps.to >= 0]
        assert np.isfinite(sent).all() and (sent >= found.began_ns[steps.to >= 0]).all()


def test_more_cost_ends_no_call_earlier() -> None:
    """Without links and choices everything is sums and maxima, so more is never less."""
    for seed in range(60):
        rng = np.random.default_rng(2000 + seed)
        steps, costs = pattern(rng, choices=False)
        net = network(rng, links=False)
        nodes = np.arange(RANKS) // 3
        before = simulate(steps, nodes, net, collective_ns=costs).end_ns
        slower = net
        what = seed % 4
        if what == 0:
            work = steps.work_ns.copy()
            work[rng.integers(len(work))] += 500.0
            steps = replace(steps, work_ns=work)
        elif what == 1:
            costs = costs + rng.uniform(0, 100, len(costs))
        else:
            name = ("receive", "transfer")[what - 2]
            paths = {
                d: replace(
                    p,
                    **{
                        name: Curve(
                            getattr(p, name).nbytes, tuple(y + 40 for y in getattr(p, name).ns)
                        )
                    },
                )
                for d, p in net.paths.items()
            }
            slower = replace(net, paths=paths)
        after = simulate(steps, nodes, slower, collective_ns=costs).end_ns
        assert (after >= before - 1e-6).all(), seed


def test_same_steps_give_the_same_bits() -> None:
    rng = np.random.default_rng(5)
    steps, costs = pattern(rng)
    net = network(rng, links=True)
    runs = [simulate(steps, np.arange(RANKS) // 2, net, collective_ns=costs) for _ in range(3)]
    for run in runs[1:]:
        assert (run.end_ns == runs[0].end_ns).all()


def test_any_order_of_calls_ends_anyway() -> None:
    """Calls in an order by chance wait for each other for ever, mostly; else nothing changes."""
    circles = 0
    for seed in range(120):
        rng = np.random.default_rng(3000 + seed)
        b = Builder(5)
        lists: list[list[tuple[str, int, int]]] = [[] for _ in range(5)]
        for tag in range(int(rng.integers(3, 30))):
            a, c = (int(r) for r in rng.choice(5, 2, replace=False))
            lists[a].append((str(rng.choice(["Send", "Ssend", "Isend", "Sendrecv"])), c, tag))
            lists[c].append((str(rng.choice(["Recv", "Irecv"])), a, tag))
        for rank, calls in enumerate(lists):
            open_: list[int] = []
            for k in rng.permutation(len(calls)):
                call, peer, tag = calls[k]
                more = {"peer2": peer, "tag2": 10**6 + tag} if call == "Sendrecv" else {}
                q = b.add(
                    rank,
                    "MPI_" + call,
                    peer,
                    int(rng.integers(0, 9000)),
                    tag=tag,
                    work_ns=float(rng.uniform(0, 100)),
                    **more,
                )
                open_ += [q] if call[0] == "I" else []
                if open_ and rng.random() < 0.3:
                    b.add(rank, str(rng.choice(["MPI_Waitany", "MPI_Wait"])), done=open_)
                if rng.random() < 0.05:
                    b.add(rank, "MPI_Barrier", comm=1)
            b.add(rank, "MPI_Waitall", done=open_)
        b.members[1] = np.arange(5)
        steps = b.build()
        net = network(rng, links=seed % 2 > 0, background=seed % 3 > 0)
        found = simulate(steps, np.arange(5) // 2, net, anyway=True)
        assert np.isfinite(found.end_ns).all() and (found.end_ns >= found.begin_ns).all()
        if found.notes:
            circles += 1
            with pytest.raises(P3SError, match="wait for ever"):
                simulate(steps, np.arange(5) // 2, net)
        else:
            strict = simulate(steps, np.arange(5) // 2, net)
            assert (strict.end_ns == found.end_ns).all()
    assert 60 < circles < 120


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
    found: StepTimes = simulate(steps, np.arange(4), net, **more)
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
def test_trunks_agree_with_the_plain_simulation(part: int) -> None:
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
    with pytest.raises(DamagedFile, match=words):
        Network.from_json({**data, "trunks": {**data["trunks"], **change}})
