"""Whole plans: what is loaded, how long it takes, what is said about it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from plan_patterns import halo, ring
from replay_made import classes_of
from steps_builder import Builder

from p3s.base.errors import P3SError
from p3s.machine.topology.switches import read_topology
from p3s.program.collectives.choose import library_of
from p3s.program.mapping import block, cyclic
from p3s.replay.plan.check import check
from p3s.replay.plan.plan import make_plan, timed_programs
from p3s.replay.plan.program import BLACK_HOLE, MEASURED, NOISE
from p3s.replay.plan.show import plan_json, plan_text, why_not
from p3s.replay.settings import ReplaySettings
from p3s.simulate.network import rough_network
from p3s.simulate.simulate import simulate
from p3s.simulate.steps import LeftOut, Section

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


def test_what_a_user_reads():
    left = LeftOut("MPI_Test", "why not", 3.0, np.array([1]))
    plan = planned(
        [section(halo(8, work_ns=1e6), left_out=[left, left])],
        block(64, 4),
        timed=True,
        hosts=("a", "b", "c", "d"),
        noise="on",
    )
    text = plan_text(plan)
    for part in (
        "64 ranks on 16 nodes of 4, block",
        "a measured (4)",
        "18 = 8 measured",
        "1 pair of ranges loaded instead of 120",
        "loaded pairs of nodes: 0-1",
        "run: about",
        "MPI_Test: 6 calls",
    ):
        assert part in text, text
    data = plan_json(plan)
    assert json.loads(json.dumps(data)) == data
    assert data["schema"] == "p3s.replay-plan" and data["estimate"]["share_of_time"] > 0
    assert len(data["programs"]) == len(plan.programs)
    assert data["iterations"][0]["pair"] == [0, 1]
    assert {c["how"] for c in data["calls"]} == {"measured", "composed"}


def test_exhaustive_loads_all_pairs():
    plan = planned([section(halo(4))], block(16, 4), exhaustive=True, timed=True)
    assert len(plan.iterations) == 6
    assert len({it.pair for it in plan.timed}) == 6


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


def test_uneven_last_node():
    plan = planned([section(ring(10))], block(10, 4), timed=True)
    assert all(check(p).ends for p in (*plan.programs, *timed_programs(plan, begins(plan))))


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


def test_few_hosts_are_not_representative():
    for hosts, why in (((), "one machine"), (("a",), "one machine"), (("a", "b"), "same machine")):
        plan = planned([section(halo(4))], block(16, 4), hosts=hosts)
        assert why in (why_not(plan) or "")


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
