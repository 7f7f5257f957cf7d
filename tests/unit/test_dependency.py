"""The dependency simulation on small programs whose times can be worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from steps_builder import Builder

from p3s.base.errors import P3SError
from p3s.simulate import core
from p3s.simulate.network import Curve, Network, Path, line
from p3s.simulate.simulate import StepTimes, simulate
from p3s.simulate.steps import Steps

L, G, S, R, POST = 1000.0, 0.5, 40.0, 60.0, 10.0
EAGER = 1000


def network(**more) -> Network:
    """Return one where 0 + bytes cost L + G bytes; between nodes ten times L."""
    inside = Path(line(L, G), line(S), line(R), EAGER, False)
    outside = Path(line(10 * L, G), line(S), line(R), EAGER, True)
    return Network({0: inside, 1: outside}, **{"post": POST, **more})


def run(b: Builder | Steps, nodes=None, net: Network | None = None, **more):
    """Return steps and their times; by default on one node."""
    steps = b if isinstance(b, Steps) else b.build()
    nodes = np.zeros(steps.n, dtype=np.int64) if nodes is None else np.array(nodes)
    return steps, simulate(steps, nodes, net or network(), **more)


def ends(steps: Steps, found: StepTimes, rank: int) -> list[float]:
    return found.end_ns[steps.of(rank)].tolist()


def parts(found: StepTimes, i: int) -> tuple[float, float, float]:
    return found.waiting_ns[i], found.transfer_ns[i], found.software_ns[i]


def test_ping_pong() -> None:
    b = Builder(2)
    for _ in range(3):
        b.add(0, "MPI_Send", 1, 100)
        b.add(1, "MPI_Recv", 0, 100)
        b.add(1, "MPI_Send", 0, 100)
        b.add(0, "MPI_Recv", 1, 100)
    steps, found = run(b)
    way = L + 100 * G
    assert ends(steps, found, 0)[1::2] == [2 * way, 4 * way, 6 * way]
    assert ends(steps, found, 1)[0::2] == [way, 3 * way, 5 * way]
    # The first receive begins with its send: all of it is transfer and its own time.
    assert parts(found, steps.of(1).start) == (0, way - R, R)
    assert parts(found, steps.of(0).start) == (0, 0, S)
    # The answer to a send of S is begun by then for way - S less: that is waiting.
    assert parts(found, 1) == (way - S, way - R, R)


def test_eager_message_that_is_there_costs_its_receive() -> None:
    b = Builder(2)
    b.add(0, "MPI_Send", 1, 100)
    b.add(1, "MPI_Recv", 0, 100, work_ns=1e6)
    steps, found = run(b)
    assert ends(steps, found, 0) == [S]
    assert ends(steps, found, 1) == [1e6 + R]
    assert parts(found, 1) == (0, 0, R)
    assert found.arrival_ns[0] == L + 50


def test_rendezvous_waits_for_a_late_receiver() -> None:
    b = Builder(2)
    b.add(0, "MPI_Send", 1, 2000, work_ns=100)
    b.add(1, "MPI_Recv", 0, 2000, work_ns=5000)
    steps, found = run(b)
    assert ends(steps, found, 1) == [5000 + L + 1000]
    assert ends(steps, found, 0) == [5000 + 1000]  # gone: a latency before it is there
    assert parts(found, 0) == (4900, 1000 - POST, POST)
    assert parts(found, 1) == (0, L + 1000 - R, R)


def test_rendezvous_waits_for_a_late_sender() -> None:
    b = Builder(2)
    b.add(0, "MPI_Send", 1, 2000, work_ns=5000)
    b.add(1, "MPI_Recv", 0, 2000, work_ns=100)
    steps, found = run(b)
    assert ends(steps, found, 1) == [5000 + L + 1000]
    assert found.waiting_ns.tolist() == [0, 4900]


@pytest.mark.parametrize(
    "call, end", [("MPI_Ssend", 5000.0 + 50), ("MPI_Send", S), ("MPI_Bsend", S)]
)
def test_synchronous_and_buffered_sends(call: str, end: float) -> None:
    b = Builder(2)
    b.add(0, call, 1, 100)
    b.add(1, "MPI_Recv", 0, 100, work_ns=5000)
    steps, found = run(b)
    assert ends(steps, found, 0) == [end]
    b = Builder(2)
    b.add(0, "MPI_Bsend", 1, 10**6)
    b.add(1, "MPI_Recv", 0, 10**6, work_ns=5000)
    steps, found = run(b)
    assert ends(steps, found, 0) == [S]


def test_sender_buffer_lets_the_sender_go() -> None:
    b = Builder(2)
    b.add(0, "MPI_Send", 1, 20_000)
    b.add(1, "MPI_Recv", 0, 20_000)
    for held, end in ((0, 10_000.0), (6000, 7000.0), (10**6, S)):
        steps, found = run(b, [0, 1], network(rate=2.0, sender_buffer=held))
        assert ends(steps, found, 0) == [end]
        assert ends(steps, found, 1) == [20_000.0]


def fan_out(senders: int, nbytes: int, call: str = "MPI_Send") -> Builder:
    b = Builder(2 * senders)
    for k in range(senders):
        b.add(k, call, senders + k, nbytes)
        b.add(senders + k, "MPI_Recv", k, nbytes)
    return b


def test_messages_of_a_node_queue_for_its_link() -> None:
    """Two bytes per ns, 4,000 bytes: 2,000 ns each, one after the other; by rank at one time."""
    steps, found = run(fan_out(3, 4000), [0, 0, 0, 1, 2, 3], network(rate=2.0))
    there = [ends(steps, found, rank)[0] for rank in (3, 4, 5)]
    alone = 10 * L + 4000 * G
    assert there == [alone, alone + 2000, alone + 4000]
    assert found.queued == 2
    # The queue is at the other node's link if they come from three nodes: the same.
    steps, found = run(fan_out(3, 4000), [1, 2, 3, 0, 0, 0], network(rate=2.0))
    assert [ends(steps, found, rank)[0] for rank in (3, 4, 5)] == there
    # Inside of a node there is no link.
    steps, found = run(fan_out(3, 4000), None, network(rate=2.0))
    assert [ends(steps, found, rank)[0] for rank in (3, 4, 5)] == [L + 2000] * 3


def test_token_bucket_lets_a_burst_pass() -> None:
    """Rate 1, burst 1,500: of four messages of 1,000 at once the first passes, then they queue."""
    net = network(rate=1.0, burst=1500.0)
    steps, found = run(fan_out(4, 1000), [0, 0, 0, 0, 1, 2, 3, 4], net)
    alone = 10 * L + 1000 * G
    there = [ends(steps, found, rank)[0] - alone for rank in range(4, 8)]
    assert there == [0, 500, 1500, 2500]
    # After a pause the bucket is full again; after a short one the rest of the queue goes first.
    for pause, delayed in ((10_000.0, False), (750.0, True)):
        b = Builder(2)
        for nbytes, work in ((1000, 0.0), (1000, 0.0), (500, pause)):
            b.add(0, "MPI_Send", 1, nbytes, work_ns=work)
            b.add(1, "MPI_Recv", 0, nbytes)
        steps, found = run(b, [0, 1], net)
        began = 2 * S + pause
        passed = 2500 - 1500 if delayed else began  # all bytes at the rate, less the burst
        assert found.arrival_ns[2] == pytest.approx(passed + 10 * L + 250)


def test_sendrecv_ring() -> None:
    n = 6
    b = Builder(n)
    for rank in range(n):
        for _ in range(4):
            b.add(rank, "MPI_Sendrecv", (rank + 1) % n, 2000, peer2=(rank - 1) % n, work_ns=700)
    steps, found = run(b)
    each = 700 + L + 1000
    for rank in range(n):
        assert ends(steps, found, rank) == [each, 2 * each, 3 * each, 4 * each]
    assert (found.waiting_ns == 0).all()
    slow = steps.work_ns.copy()
    slow[0] += 100
    steps, found = run(replace(steps, work_ns=slow))
    assert found.end_ns.max() == 4 * each + 100  # it goes round, and is not made up for
    assert found.waiting_ns[steps.of(1)].tolist() == [100, 0, 0, 0]


def test_waitany_takes_what_is_there_first() -> None:
    b = Builder(3)
    first = b.add(0, "MPI_Irecv", 1, 0)
    second = b.add(0, "MPI_Irecv", 2, 0)
    b.add(0, "MPI_Waitany", done=[first, second])
    b.add(0, "MPI_Waitany", done=[first, second])
    b.add(0, "MPI_Waitany", done=[first, second])  # nothing is left: returns
    b.add(1, "MPI_Send", 0, 0, work_ns=9000)
    b.add(2, "MPI_Send", 0, 0, work_ns=3000)
    steps, found = run(b)
    last = 9000 + L
    assert ends(steps, found, 0)[2:] == [3000 + L, last, last + POST]
    assert found.waiting_ns[2] == 3000 - 2 * POST


def test_waitsome_waits_for_its_number() -> None:
    b = Builder(4)
    requests = [b.add(0, "MPI_Irecv", peer, 0) for peer in (1, 2, 3)]
    b.add(0, "MPI_Waitsome", done=requests, number=2)
    b.add(0, "MPI_Waitall", done=requests)
    for peer, work in ((1, 8000.0), (2, 1000.0), (3, 4000.0)):
        b.add(peer, "MPI_Send", 0, 0, work_ns=work)
    steps, found = run(b)
    assert ends(steps, found, 0)[3:] == [4000 + L, 8000 + L]


def test_partner_that_is_not_there() -> None:
    b = Builder(3, ranks=[0])
    b.add(0, "MPI_Recv", 1, 100)
    b.add(0, "MPI_Send", 2, 10**6)
    b.add(0, "MPI_Irecv", 2, 100)
    b.add(0, "MPI_Wait")
    b.add(0, "MPI_Send", -1, 100)
    b.add(0, "MPI_Recv", -1, 100)
    steps, found = run(b, [0, 1, 1])
    assert np.diff([0, *ends(steps, found, 0)]).tolist() == [R, S, POST, R, POST, POST]


@pytest.mark.parametrize(
    "call, ends_at",
    [
        ("MPI_Barrier", [400, 400, 400, 400]),
        ("MPI_Alltoall", [400, 400, 400, 400]),
        ("MPI_Bcast", [300, 300, 300, 400]),  # root: rank 1, at 200
        ("MPI_Reduce", [0 + S, 400, 100 + S, 300 + S]),
        ("MPI_Scan", [100, 300, 400, 500]),
    ],
)
def test_collectives(call: str, ends_at: list[float]) -> None:
    """Members begin at 0, 200, 100, 300; each call costs 100."""
    b = Builder(4)
    for rank, work in enumerate((0, 200, 100, 300)):
        b.add(rank, call, 1 if call in ("MPI_Bcast", "MPI_Reduce") else -1, 8, work_ns=work)
    steps, found = run(b, collective_ns=np.full(4, 100.0))
    assert found.end_ns.tolist() == ends_at
    total = found.waiting_ns + found.transfer_ns + found.software_ns
    assert total.tolist() == (found.end_ns - found.begin_ns).tolist()
    if call == "MPI_Barrier":
        assert found.waiting_ns.tolist() == [300, 100, 200, 0]


def test_collectives_of_communicators_are_matched_by_order() -> None:
    b = Builder(4, members={1: [0, 1], 2: [3, 2]})
    for rank in range(4):
        for k in range(3):
            b.add(rank, "MPI_Barrier", comm=1 + rank // 2, work_ns=100 * (rank + 1) * (k + 1))
    steps, found = run(b, collective_ns=np.full(12, 10.0))
    assert ends(steps, found, 0) == ends(steps, found, 1) == [210, 620, 1230]
    assert ends(steps, found, 3) == [410, 1220, 2430]


def test_nonblocking_collective_goes_on_beside_work() -> None:
    b = Builder(2)
    for rank, work in enumerate((0, 700)):
        b.add(rank, "MPI_Iallreduce", nbytes=8, work_ns=work)
        b.add(rank, "MPI_Wait", work_ns=200)
    steps, found = run(b, collective_ns=np.full(4, 1000.0))
    assert ends(steps, found, 0) == ends(steps, found, 0)[:1] + [1700]
    assert ends(steps, found, 1)[1] == 1700
    assert found.waiting_ns[1] == 700 - (POST + 200)


@pytest.mark.parametrize(
    "call, cost",
    [
        ("MPI_Barrier", 2 * L),
        ("MPI_Allreduce", 2 * L + 200 * G),
        ("MPI_Bcast", 2 * L + 100 * G),
        ("MPI_Allgather", 2 * L + 300 * G),
        ("MPI_Alltoall", 2 * L + 300 * G),
    ],
)
def test_rough_cost_of_collectives_without_one(call: str, cost: float) -> None:
    b = Builder(4)
    for rank in range(4):
        b.add(rank, call, 0 if call == "MPI_Bcast" else -1, 0 if "Barrier" in call else 100)
    _, found = run(b)
    assert found.end_ns.tolist() == [cost] * 4
    if call == "MPI_Alltoall":  # two ranks of a node send 300 bytes each through its link
        _, found = run(b, [0, 0, 1, 1], network(rate=0.01))
        assert found.end_ns.tolist() == [600 / 0.01] * 4


def test_extra_times_are_added_to_transfers() -> None:
    b = Builder(2)
    for rank in range(2):
        b.add(rank, "MPI_Sendrecv", 1 - rank, 0)
        b.add(rank, "MPI_Barrier")
    steps, found = run(b, collective_ns=np.full(4, 5.0), extra_ns=np.array([70.0, 0, -9e9, 20]))
    assert found.arrival_ns[[0, 2]].tolist() == [L + 70, 0]
    assert ends(steps, found, 1) == [L + 70, L + 70 + 25]
    assert ends(steps, found, 0) == [S + R, L + 70 + 5]
    with pytest.raises(P3SError, match="extra_ns"):
        run(steps, extra_ns=np.zeros(3))


def test_distances_choose_the_path() -> None:
    near, far = network().paths[0], Path(line(7e4), line(S), line(R), EAGER, True)
    net = replace(network(), paths={0: near, 1: network().paths[1], 3: far})
    table = np.array([[0, 1, 3], [1, 0, 2], [3, 2, 0]])
    b = Builder(6)
    for peer in range(1, 6):
        b.add(0, "MPI_Send", peer, 0)
        b.add(peer, "MPI_Recv", 0, 0)
    steps, found = run(b, [0, 0, 1, 1, 2, 2], net, distance=table)
    took = found.arrival_ns[steps.of(0)] - found.began_ns[steps.of(0)]
    np.testing.assert_allclose(took, [L, 10 * L, 10 * L, 7e4, 7e4])


@pytest.mark.parametrize(
    "make, words",
    [
        (
            "sends",
            ["2 of 3 cannot go on", "rank 0 in MPI_Send (step 0)", "rank 1 in MPI_Send (step 0)"],
        ),
        ("receives", ["rank 0 in MPI_Recv (step 0)"]),
        ("wait", ["rank 0 in MPI_Waitall (step 1)", "rank 1 in MPI_Recv (step 0)"]),
        ("barrier", ["rank 0 in MPI_Barrier (step 0)", "rank 1 in MPI_Recv (step 0)"]),
    ],
)
def test_ranks_that_wait_for_ever_are_named(make: str, words: list[str]) -> None:
    b = Builder(3)
    if make == "sends":
        for rank in range(2):
            b.add(rank, "MPI_Send", 1 - rank, 5000, tag=7)
            b.add(rank, "MPI_Recv", 1 - rank, 5000, tag=7)
    elif make == "receives":
        for rank in range(2):
            b.add(rank, "MPI_Recv", 1 - rank, 1, tag=7)
            b.add(rank, "MPI_Send", 1 - rank, 1, tag=7)
    elif make == "wait":
        b.add(0, "MPI_Irecv", 1, 1, tag=7)
        b.add(0, "MPI_Waitall")
        b.add(0, "MPI_Send", 1, 1, tag=7)
        b.add(1, "MPI_Recv", 0, 1, tag=7)
        b.add(1, "MPI_Send", 0, 1, tag=7)
    else:
        b.add(0, "MPI_Barrier")
        b.add(2, "MPI_Barrier")
        b.add(0, "MPI_Send", 1, 1, tag=7)
        b.add(1, "MPI_Recv", 0, 1, tag=7)
        b.add(1, "MPI_Barrier")
    with pytest.raises(P3SError) as failure:
        run(b)
    for word in words:
        assert word in str(failure.value)
    assert "\n" not in str(failure.value)


def test_sends_in_a_circle_go_on_as_if_buffered() -> None:
    """All at once, and only where they must: the third round has its receives posted."""
    n, way = 5, L + 5000 * G
    b = Builder(n)
    for rank in range(n):
        for _ in range(2):
            b.add(rank, "MPI_Send", (rank + 1) % n, 5000)
            b.add(rank, "MPI_Recv", (rank - 1) % n, 5000)
        b.add(rank, "MPI_Irecv", (rank - 1) % n, 5000)
        b.add(rank, "MPI_Send", (rank + 1) % n, 5000)
        b.add(rank, "MPI_Wait")
    found = simulate(b.build(), np.zeros(n, int), network(), anyway=True)
    assert found.notes == (
        "10 MPI_Send of ranks 0, 1, 2, 3 and 1 more wait for their receivers for "
        "ever: taken as buffered",
    )
    assert found.end_ns[:7].tolist() == [
        S,
        way,
        way + S,
        2 * way,
        2 * way + POST,
        2 * way + POST + 2500,
        3 * way + POST,
    ]
    links = simulate(b.build(), np.arange(n), network(rate=1.0), anyway=True)
    assert len(links.notes) == 1 and np.isfinite(links.end_ns).all()


def test_receives_in_a_circle_are_cut_once() -> None:
    b = Builder(3)
    for rank in range(3):
        b.add(rank, "MPI_Recv", (rank - 1) % 3, 100, work_ns=10.0 * (3 - rank))
        b.add(rank, "MPI_Send", (rank + 1) % 3, 100)
    steps = b.build()
    found = simulate(steps, np.zeros(3, int), network(), anyway=True)
    assert found.notes == ("1 MPI_Recv of rank 2 cannot end in this order: taken as not waiting",)
    way = L + 50
    assert ends(steps, found, 2) == [10 + POST, 10 + POST + S]
    assert ends(steps, found, 0)[0] == 10 + POST + way
    assert ends(steps, found, 1)[0] == 10 + POST + 2 * way


def test_waits_and_collectives_in_a_circle_end() -> None:
    b = Builder(2)
    for rank in range(2):
        requests = [b.add(rank, "MPI_Irecv", 1 - rank, 10, tag=t) for t in (1, 2)]
        requests.append(b.add(rank, "MPI_Isend", 1 - rank, 9000, tag=3))
        b.add(rank, ("MPI_Waitall", "MPI_Waitany")[rank], done=requests)
        b.add(rank, "MPI_Waitall", done=requests)
        b.add(rank, "MPI_Recv", 1 - rank, 9000, tag=3)
        for t in (1, 2):
            b.add(rank, "MPI_Send", 1 - rank, 10, tag=t)
    found = simulate(b.build(), np.zeros(2, int), network(), anyway=True)
    assert np.isfinite(found.end_ns).all() and found.notes
    b = Builder(2)
    b.add(0, "MPI_Barrier")
    b.add(0, "MPI_Send", 1, 10)
    b.add(1, "MPI_Recv", 0, 10)
    b.add(1, "MPI_Barrier")
    steps = b.build()
    found = simulate(steps, np.zeros(2, int), network(), collective_ns=np.full(4, 7.0), anyway=True)
    (note,) = found.notes
    assert note == "1 MPI_Barrier of rank 0 cannot end in this order: taken as not waiting"
    assert ends(steps, found, 1) == [L + 5, L + 5 + 7]


def test_bad_steps_are_refused_in_one_line() -> None:
    b = Builder(2)
    b.add(0, "MPI_Isend", 1, 10)
    b.add(0, "MPI_Wait")
    b.add(1, "MPI_Recv", 0, 10)
    good = b.build()
    for change, words in (
        ({"to": np.array([99, -1, -1])}, "step 0 of rank 0: what it sends"),
        ({"to": np.array([1, -1, -1])}, "step 0 of rank 0: what it sends"),
        ({"source": np.array([-1, -1, -1])}, "what it sends"),
        ({"done": np.array([2])}, "step 1 of rank 0: what it completes"),
        ({"peer": np.array([7, -1, 0])}, "its partner is no rank"),
        ({"bytes": np.array([-1, 0, 0])}, "negative bytes"),
        ({"work_ns": np.array([0.0, math.nan, 0.0])}, "its work"),
        ({"op": np.array([4, 99, 8])}, "no operation"),
        ({"op": np.array([4, 256 + 12, 8])}, "op of step 1 is 268"),
        ({"peer": np.array([1 + 2**32, -1, 0])}, "peer of step 0 is 4294967297"),
        ({"done": np.array([-(2**32)])}, "done of step 0 is -4294967296"),
        ({"start": np.array([0, 2, 9])}, "cut into ranks"),
        ({"peer": np.array([1, -1])}, "entries of peer"),
    ):
        with pytest.raises(P3SError, match=words):
            run(replace(good, **change))
    with pytest.raises(P3SError, match="nodes of 1 ranks"):
        run(good, [0])
    with pytest.raises(P3SError, match="negative"):
        run(good, None, replace(network(), post=-1.0))


def test_no_compiler_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CC", raising=False)
    core.library.cache_clear()
    try:
        with pytest.raises(P3SError, match="no C compiler .* install gcc"):
            core.library()
    finally:
        core.library.cache_clear()


def test_handshake_waits_at_busy_links() -> None:
    """A rendezvous message behind bulk data: its announcement waits for the link, then itself."""
    builder = Builder(4)
    builder.add(0, "MPI_Isend", 2, 1_000_000, tag=1)
    builder.add(0, "MPI_Wait")
    builder.add(1, "MPI_Send", 3, 1000, tag=2, work_ns=100.0)
    builder.add(2, "MPI_Recv", 0, 1_000_000, tag=1)
    builder.add(3, "MPI_Recv", 1, 1000, tag=2)
    steps = builder.build()
    path = Path(Curve((0.0,), (50.0,)), Curve((0.0,), (10.0,)), Curve((0.0,), (5.0,)), 0.0, True)
    plain = Network({1: path}, rate=1.0, burst=0.0, post=1.0)
    node_of = np.array([0, 0, 1, 1])
    small = int(steps.of(3).start)
    without = simulate(steps, node_of, plain)
    shaken = simulate(steps, node_of, replace(plain, handshake=True))
    # Without it the small message is queued behind the data; with it only after the answer.
    assert without.began_ns[steps.source[small]] == 100.0
    assert shaken.began_ns[steps.source[small]] >= 1_000_000.0
    alone = Builder(2)
    alone.add(0, "MPI_Send", 1, 1000)
    alone.add(1, "MPI_Recv", 0, 1000)
    one = alone.build()
    ends = [
        simulate(one, np.array([0, 1]), net).end_ns
        for net in (plain, replace(plain, handshake=True))
    ]
    assert (ends[0] == ends[1]).all()
