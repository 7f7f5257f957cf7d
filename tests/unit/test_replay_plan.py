"""Plans of a replay: programs, classes of messages, pairs of ranges."""

from __future__ import annotations

import numpy as np
import pytest
from plan_patterns import halo, ring
from replay_made import classes_of
from steps_builder import Builder

from p3s.base.errors import P3SError
from p3s.machine.topology.switches import apart, read_topology
from p3s.program.collectives.choose import library_of
from p3s.program.collectives.expand import expand
from p3s.program.mapping import block, cyclic
from p3s.replay.plan.build_holes import noise_of
from p3s.replay.plan.check import check
from p3s.replay.plan.classes import classify
from p3s.replay.plan.loaded import load
from p3s.replay.plan.pairs import busiest, choose, direct_needs, needs_of
from p3s.replay.plan.plan import make_plan, timed_programs
from p3s.replay.plan.program import BLACK_HOLE, MEASURED, NOISE
from p3s.replay.plan.show import plan_text, why_not
from p3s.replay.settings import ReplaySettings
from p3s.simulate.network import rough_network
from p3s.simulate.simulate import simulate
from p3s.simulate.steps import Op, Section

NETWORK = rough_network()


def section(steps, name="loop 1", turns=2, run_turns=1000, entries=1.0, left_out=()):
    return Section(name, (1,), steps, turns, 0, run_turns, entries, tuple(left_out))


def planned(sections, mapping, topology=None, **settings):
    return make_plan(
        sections,
        mapping,
        topology,
        ReplaySettings(**{"budget_s": 600.0, **settings}),
        NETWORK,
        library_of("openmpi", "4.1.4"),
    )


def begins(plan):
    return [simulate(full, plan.mapping.node_of, NETWORK).begin_ns for full in plan.full]


def roles(plan):
    return [(p.node, p.role) for p in plan.world.processes]


def test_a_halo_on_sixteen_nodes():
    plan = planned(
        [section(halo(8, work_ns=1e6))],
        block(64, 4),
        timed=True,
        hosts=("a", "b", "c", "d"),
        noise="on",
    )
    assert [it.pair for it in plan.iterations] == [(0, 1)] and plan.iterations[0].placement == 0
    assert {p.what for p in plan.programs} == {"trace", "pair", "link"}
    assert len(plan.placement_of) == len(plan.programs)
    assert all(check(program).ends for program in plan.programs)
    assert {node for node, role in roles(plan) if role == MEASURED} == {0, 1}
    assert {node for node, role in roles(plan) if role in (BLACK_HOLE, NOISE)} == {2, 3}
    assert sum(role == BLACK_HOLE for _, role in roles(plan)) == 8
    assert [it.pair for it in plan.timed] == [(0, 1)]
    timed = timed_programs(plan, begins(plan))
    assert len(timed) == len(plan.timed) and all(p.timed for p in timed)
    e = plan.estimate
    assert "instead of 120 (all pairs of 16 nodes)" in plan.saved()
    assert e.run_s == pytest.approx(500 * e.section_ns[0] * 1e-9)
    assert e.section_ns[0] > 2e6 and e.needed_s >= e.total_s > 0
    assert why_not(plan) is None
    measured = {c for p in plan.programs if p.what == "pair" for c in classes_of(p)}
    assert measured == set(range(len(plan.messages)))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_one_range_only(n):
    b = Builder(n)
    for rank in range(n):
        b.add(
            rank, "MPI_Sendrecv", (rank + 1) % n, 64, work_ns=1000, peer2=(rank - 1) % n, bytes2=64
        )
        b.add(rank, "MPI_Barrier")
    plan = planned([section(b.build())], block(n, 4), timed=True)
    assert [it.pair for it in plan.iterations] == [(0, 0)] == [it.pair for it in plan.timed]
    assert roles(plan) == [(0, MEASURED)] * n
    assert all(check(p).ends for p in plan.programs)
    assert "not representative" not in plan_text(plan) and len(timed_programs(plan, begins(plan)))


def test_nothing_to_replay():
    plan = planned([section(Builder(1).build())], block(1, 4), timed=True)
    assert plan.programs == () and plan.world.size == 0
    assert "nothing is measured" in plan_text(plan)
    assert planned([], block(8, 4)).programs == ()


def test_ranges_at_several_distances(tmp_path):
    path = tmp_path / "topology.conf"
    path.write_text(
        "SwitchName=a Nodes=n[0-1]\nSwitchName=b Nodes=n[2-3]\nSwitchName=top Switches=a,b\n"
    )
    topology = read_topology(path)
    plan = planned(
        [section(ring(8, 70_000))],
        block(8, 2),
        topology,
        hosts=("n0", "n1", "n2", "n3"),
        timed=True,
    )
    assert {c.distance for c in plan.messages} == {0, 1, 3}
    assert sorted(p.hops for p in plan.placements) == [1, 3]
    for it in (*plan.iterations, *plan.timed):
        assert plan.placements[it.placement].hops == plan.distance[it.pair]
    for number, program in zip(plan.placement_of, plan.programs, strict=True):
        for c in classes_of(program) if program.what == "pair" else ():
            far = plan.messages[c].distance
            assert far == 0 or plan.placements[number].hops == far
    assert "over 1, 3 switches" in plan_text(plan)
    near = planned([section(ring(8, 70_000))], block(8, 2), topology, hosts=("n0", "n1"))
    assert any("3 switches apart are measured on n0 and n1, 1 apart" in n for n in near.notes)


def test_noise_of_a_trunk_only(tmp_path):
    path = tmp_path / "topology.conf"
    path.write_text("SwitchName=a Nodes=n[0-3]\nSwitchName=b Nodes=n[4-7]\n")
    plan = planned(
        [section(halo(4, 70_000))],
        cyclic(16, 2),
        read_topology(path),
        exhaustive=True,
        hosts=("n0", "n1", "n4", "n5"),
    )
    wanted = {it.pair: it.noise_wanted for it in plan.iterations}
    assert wanted[0, 1] == 0 and wanted[0, 4] > 0
    noisy = {p.name: p.noise for p in plan.programs if p.what == "trace"}
    assert sum(noisy.values()) == sum(w > 0 for w in wanted.values())
    quiet = planned([section(halo(4, 70_000))], cyclic(16, 2), read_topology(path), noise="off")
    assert not any(role == NOISE for _, role in roles(quiet))


def test_the_budget_bounds_the_time():
    plan = planned([section(halo(8, work_ns=1e9))], block(64, 4), budget_s=10.0, timed=True)
    e = plan.estimate
    assert e.needed_s > 30 and e.total_s == pytest.approx(e.launch_s + 10) and e.work_scale < 1
    assert "budget 10.0 s" in plan_text(plan) and "emulated" in plan_text(plan)


def test_other_numbers_of_ranks_are_refused():
    with pytest.raises(P3SError, match="8 ranks, but the mapping has 16"):
        planned([section(ring(8))], block(16, 4))


def test_only_so_many_classes_are_measured(monkeypatch):
    monkeypatch.setattr("p3s.replay.plan.plan.MOST_CLASSES", 10)
    rng = np.random.default_rng(5)
    b = Builder(4)
    for k, nbytes in enumerate(rng.integers(1, 1 << 20, 400).tolist()):
        b.add(k % 2, "MPI_Isend", 2 + k % 2, nbytes, tag=k)
        b.add(2 + k % 2, "MPI_Irecv", k % 2, nbytes, tag=k)
    plan = planned([section(b.build())], block(4, 2))
    measured = sorted({c for p in plan.programs if p.what == "pair" for c in classes_of(p)})
    assert len(measured) == 10 < len(plan.messages)
    sizes = [m.bytes for m in plan.messages]
    assert {sizes.index(min(sizes)), sizes.index(max(sizes))} <= set(measured)
    assert any("10 of" in note for note in plan.notes)


def test_whole_iterations_are_bounded(monkeypatch):
    monkeypatch.setattr("p3s.replay.plan.plan.MOST_TIMED", 3)
    plan = planned([section(ring(32), "a"), section(halo(8), "b")][:1], block(32, 2), timed=True)
    assert 0 < len(plan.timed) <= 3


def test_nobody_shares_a_link_on_a_flat_network():
    plan = planned([section(halo(8))], block(64, 4), timed=True)
    assert not any(role == NOISE for _, role in roles(plan))
    assert not any(p.noise for p in plan.programs)
    loud = planned([section(halo(8))], block(64, 4), noise="on")
    assert sum(role == NOISE for _, role in roles(loud)) == 2
    with pytest.raises(P3SError, match="auto, on, off"):
        planned([section(ring(8))], block(8, 2), noise="loud")


def classified(steps, mapping, full=None, origin=None):
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
    c, _, _ = classified(steps, mapping)
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
    c, whole, needs = classified(steps, block(2, 1))
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
    c, _, needs = classified(b.build(), block(2, 1))
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
    c, _, needs = classified(steps, mapping)
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
    _, whole, _ = classified(steps, mapping)
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
    c, whole, needs = classified(steps, mapping, found.steps, found.origin)
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
    _, whole, _ = classified(steps, mapping)
    loaded = load(whole, mapping, (0, 1))
    assert loaded.steps.is_op(Op.COLLECTIVE).sum() == 8  # the rows', not the barriers
    rest = loaded.steps.is_op(Op.REST)
    assert rest.sum() == 8 and (loaded.steps.work_ns[rest] == 500).all()
    assert (loaded.call_class[rest] == -1).all()


# ---- noise -----------------------------------------------------------------------------------
def test_noise_is_what_others_have_on_the_way():
    steps, mapping = halo(8), block(64, 8)
    c, _, _ = classified(steps, mapping)
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
