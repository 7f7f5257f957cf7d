"""Classes of messages and calls, pairs of ranges that show them, what is loaded of a section."""

from __future__ import annotations

import numpy as np
import pytest
from plan_patterns import halo
from steps_builder import Builder

from p3s.machine.topology.switches import apart
from p3s.program.collectives.choose import library_of
from p3s.program.collectives.expand import expand
from p3s.program.mapping import block, cyclic
from p3s.replay.plan.build_holes import noise_of
from p3s.replay.plan.classes import classify
from p3s.replay.plan.loaded import load
from p3s.replay.plan.pairs import busiest, choose, direct_needs, needs_of
from p3s.simulate.steps import Op


def planned(steps, mapping, full=None, origin=None):
    full = steps if full is None else full
    origin = np.arange(len(full)) if origin is None else origin
    c = classify([steps], [full], [origin], mapping, apart(None, mapping.names))
    whole = c.wholes[0]
    needs = [
        (0, needs_of(full, c.wholes[0].call_of, mapping)),
        (0, direct_needs(steps, c.wholes[0].direct_of, mapping)),
    ]
    return c, whole, needs


def events(c):
    return np.array([call.events for call in c.calls])


# ---- classes ---------------------------------------------------------------------------------
def test_classes_of_a_halo():
    steps, mapping = halo(4), block(16, 4)
    c, _, _ = planned(steps, mapping)
    # Rows are nodes: left and right neighbours inside, eight messages leave a node at a time.
    assert [(m.bytes, m.distance, m.load, m.events) for m in c.messages] == [
        (32768, 0, 1, 640),
        (32768, 1, 8, 640),
    ]
    calls = {(k.call, k.kind, k.distance, k.requests, k.bytes): k.events for k in c.calls}
    assert calls["MPI_Waitall", "completion", 1, 8, 8 * 32768] == 320
    assert calls["MPI_Isend", "send", 0, 0, 32768] == 640
    assert calls["MPI_Irecv", "recv", 1, 0, 32768] == 640
    assert len(calls) == 5
    sends = steps.is_op(Op.ISEND)
    assert (c.wholes[0].message_of[steps.to[sends]] == c.wholes[0].message_of[sends]).all()
    assert (c.wholes[0].message_of[steps.is_op(Op.WAIT)] == -1).all()


def test_messages_to_itself_stay_inside_a_node():
    b = Builder(2)
    for rank in range(2):
        b.add(rank, "MPI_Isend", rank, 100)
        b.add(rank, "MPI_Recv", rank, 100)
        b.add(rank, "MPI_Wait")
    steps = b.build()
    c, whole, needs = planned(steps, block(2, 1))
    assert [(m.distance, m.load) for m in c.messages] == [(0, 1)]
    assert choose(needs, events(c), 2, 24).pairs == ((0, 1),)
    loaded = load(whole, block(2, 1), (0, 1))
    assert (loaded.steps.to[loaded.steps.is_op(Op.ISEND)] >= 0).all()


def test_merged_sizes_are_said():
    rng = np.random.default_rng(2)
    b = Builder(2)
    for nbytes in rng.integers(1, 1 << 20, 3000).tolist():
        b.add(0, "MPI_Send", 1, nbytes)
        b.add(1, "MPI_Recv", 0, nbytes)
    c, _, needs = planned(b.build(), block(2, 1))
    assert len(c.messages) < 250 and sum(m.events for m in c.messages) == 3000
    assert any("within 5 %" in note for note in c.notes)
    assert choose(needs, events(c), 2, 24).pairs == ((0, 1),)


# ---- pairs -----------------------------------------------------------------------------------


def test_every_class_that_a_pair_can_show_is_covered():
    rng = np.random.default_rng(3)
    b = Builder(24)
    for k in range(300):
        a, z = rng.choice(24, 2, replace=False).tolist()
        b.add(a, "MPI_Isend", z, int(8 << (k % 9)), tag=k)
        b.add(z, "MPI_Irecv", a, int(8 << (k % 9)), tag=k)
    steps, mapping = b.build(), cyclic(24, 3)
    c, _, needs = planned(steps, mapping)
    found = choose(needs, events(c), mapping.nodes, 100)
    assert len(found.uncovered) == 0 and len(found.pairs) < 28
    seen = {k for adds in found.adds for a in adds.values() for k in a.tolist()}
    assert seen == set(range(len(c.calls)))
    node = mapping.node_of[steps.rank]
    partner = np.maximum(steps.to, steps.source)
    for pair, adds in zip(found.pairs, found.adds, strict=True):
        for k in adds[0].tolist():
            mine = c.wholes[0].call_of == k
            assert (np.isin(node, pair) & np.isin(node[partner], pair))[mine].any()
    bounded = choose(needs, events(c), mapping.nodes, 1)
    assert len(bounded.pairs) == 1 and len(bounded.uncovered) > 0
    every = [(a, z) for a in range(8) for z in range(a + 1, 8)]
    assert choose(needs, events(c), 8, 1, every).pairs == tuple(every)


def test_the_busiest_pair_exchanges_the_most_bytes():
    b = Builder(6)
    for source, target, nbytes in ((0, 5, 8), (2, 4, 900), (5, 2, 1000)):
        b.add(source, "MPI_Isend", target, nbytes)
        b.add(target, "MPI_Irecv", source, nbytes)
    assert busiest([b.build()], block(6, 2)) == (1, 2)
    assert busiest([], block(6, 2)) == (0, 1) and busiest([], block(2, 2)) == (0, 0)


# ---- loaded ranges ---------------------------------------------------------------------------
def test_loaded_ranges_know_their_partners():
    steps, mapping = halo(4), cyclic(16, 4)
    _, whole, _ = planned(steps, mapping)
    begin = np.arange(len(steps), dtype=float)
    loaded = load(whole, mapping, (1, 3), begin)
    s = loaded.steps
    assert s.ranks.tolist() == [1, 3, 5, 7, 9, 11, 13, 15]
    assert (mapping.node_of[s.rank] == np.array([1, 3])[loaded.side]).all()
    assert (loaded.slot == s.rank // 4).all()
    inside = np.isin(s.peer, s.ranks)
    sends = s.is_op(Op.ISEND)
    assert ((s.to >= 0) == (sends & inside)).all()
    assert (s.source[s.to[sends & inside]] == np.flatnonzero(sends & inside)).all()
    assert (loaded.takes_mine_ns[sends] == steps.to[loaded.step][sends]).all()
    receives = s.is_op(Op.IRECV)
    assert (loaded.sends_to_me_ns[receives] == steps.source[loaded.step][receives]).all()
    assert (loaded.arrives[receives] == 32768).all()
    assert (s.rank[s.done] == np.repeat(s.rank, np.diff(s.done_start))).all()
    alone = load(whole, mapping, (2, 2))
    assert set(alone.steps.ranks.tolist()) == {2, 6, 10, 14} and (alone.side == 0).all()
    assert np.isnan(alone.sends_to_me_ns).all()


def grid(side: int, call: str = "MPI_Allreduce", wait: bool = False):
    """Return rows that reduce among themselves, then everybody, with a message in between."""
    n = side * side
    b = Builder(n, {1 + y: range(y * side, y * side + side) for y in range(side)})
    for rank in range(n):
        b.add(rank, call, nbytes=64, comm=1 + rank // side, work_ns=1000)
        b.add(rank, "MPI_Sendrecv", (rank + side) % n, 8, peer2=(rank - side) % n, bytes2=8)
        if wait:
            b.add(rank, "MPI_Wait")
        b.add(rank, "MPI_Barrier", work_ns=500)
    return b.build()


@pytest.mark.parametrize("wait", [False, True])
def test_collectives_that_fit_stay_and_others_are_messages(wait):
    steps, mapping = grid(4, "MPI_Iallreduce" if wait else "MPI_Allreduce", wait), block(16, 4)
    found = expand(steps, library_of("openmpi", "4.1.4"))
    c, whole, needs = planned(steps, mapping, found.steps, found.origin)
    direct = [k for k in c.calls if k.members]
    assert [(k.members, k.distance, k.events) for k in direct] == [(4, 0, 16)]
    loaded = load(whole, mapping, (0, 2))
    s = loaded.steps
    stay = s.is_op(Op.COLLECTIVE, Op.ICOLLECTIVE)
    assert stay.sum() == 8 and (np.diff(s.start) > 3).all()
    assert s.work_ns.sum() == steps.work_ns.sum() / 2
    assert (c.wholes[0].direct_of[loaded.origin[stay]] == loaded.call_class[stay]).all()
    for i in range(8):  # program order: the row's collective, the message, the barrier's messages
        mine = s.of(int(s.ranks[i]))
        assert (np.diff(loaded.origin[mine]) >= 0).all()
        assert stay[mine.start] and s.op[mine.start + 1] == Op.SENDRECV
    waits = np.flatnonzero(s.is_op(Op.WAIT) & (loaded.origin >= 0))
    owned = {int(s.done[s.done_start[w]]) for w in waits if s.done_start[w + 1] > s.done_start[w]}
    assert (set(np.flatnonzero(stay).tolist()) <= owned) == wait
    pairs = choose(needs, events(c), 4, 24)
    assert len(pairs.uncovered) == 0


def test_collectives_that_nobody_expanded_are_computation_where_they_do_not_fit():
    steps, mapping = grid(4), block(16, 4)
    _, whole, _ = planned(steps, mapping)
    loaded = load(whole, mapping, (0, 1))
    assert loaded.steps.is_op(Op.COLLECTIVE).sum() == 8  # the rows', not the barriers
    rest = loaded.steps.is_op(Op.REST)
    assert rest.sum() == 8 and (loaded.steps.work_ns[rest] == 500).all()
    assert (loaded.call_class[rest] == -1).all()


# ---- noise -----------------------------------------------------------------------------------
def test_noise_is_what_others_have_on_the_way():
    steps, mapping = halo(8), block(64, 8)
    c, _, _ = planned(steps, mapping)
    transit = c.wholes[0].transit
    assert (steps.to >= 0).sum() == 2 * len(transit.source)
    noise = noise_of(transit, (0, 1), None, 1e6)
    assert noise.counts.max() == 16 and noise.nbytes == 32768
    assert noise.tick_ns * len(noise.counts) == pytest.approx(1e6)
    # Messages in transit of the full run less those of the loaded ranks (Eq. 7.1).
    others = ~(np.isin(transit.source, (0, 1)) | np.isin(transit.target, (0, 1)))
    mean = (transit.taken - transit.sent)[others].sum() / transit.ticks
    assert noise.wanted == pytest.approx(mean, rel=0.02)
    none = np.zeros((8, 8), dtype=bool)
    assert noise_of(transit, (0, 1), none, 1e6) is None
    shared = none.copy()
    shared[2, 3] = shared[3, 2] = True
    trunk = noise_of(transit, (0, 1), shared, 1e6)
    assert trunk.wanted < noise.wanted
    assert trunk.nbytes * trunk.counts.sum() == pytest.approx(
        32768 * trunk.wanted * len(trunk.counts), rel=0.1
    )
