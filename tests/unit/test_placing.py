"""Placements of a study, ranked, and how sure their ranking is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import synthetic
from replay_patterns import Trace, halo, ring
from sample_files import network

from p3s.base.progress import Progress
from p3s.base.settings import traces_of
from p3s.base.study import Study
from p3s.machine.machinefile import Facts
from p3s.machine.topology.read import name_nodes, read_fabric
from p3s.machine.topology.trees import one_switch
from p3s.methods.placement.allocation import allocation
from p3s.methods.placement.candidates import block_on, cyclic_on
from p3s.methods.placement.ranked.job import Job
from p3s.methods.placement.ranked.ranking import Search, placements
from p3s.methods.placement.ranked.result import sample_intervals
from p3s.methods.placement.ranked.types import (
    PLACEMENTS,
    Gain,
    PhaseUnder,
    Placements,
    Ranked,
    advice_of,
    layers,
    path_of,
    save,
)
from p3s.methods.placement.section import as_csv, notes, phase_rows, render, verdict
from p3s.predict.estimators.messages import measured_messages, networks
from p3s.predict.estimators.settings import Setting

NETWORK = {**network(10_000, 10, ["a", "b"]), "inside": network(500, 0.1, ["a", "a"])}


def job(root: Path, trace: Trace, nodes: int, ppn: int, told: str = "fat-tree:2,1,4") -> Job:
    study = Study.create(root, ["mpiexec", "-n", "{np}", "program"])
    trace.write(study.scaled_dir(trace.n))
    replace(synthetic(), network=NETWORK, facts=Facts(cores=ppn)).save(study.root / "machine.json")
    messages = measured_messages(traces_of(study), None, Setting())
    fabric = read_fabric(told, nodes) if told else one_switch(nodes)
    where = allocation(nodes, ppn)
    return Job(traces_of(study), trace.n, where, fabric, bool(told), messages)


def total(job: Job, where) -> float:
    times = job.times(where)
    return float((times.compute + times.mpi.comm).sum(axis=1).max())


def test_messages_inside_a_node_cost_what_was_measured_there() -> None:
    machine = replace(synthetic(), network=NETWORK)
    for found in networks(machine):
        assert found.path(0).transfer.at(1000) == pytest.approx(600)
        assert found.path(1).transfer.at(1000) == pytest.approx(20_000)
        assert not found.path(0).linked and "two ranks of one" in found.source


def test_a_ring_is_faster_in_blocks_with_and_without_a_network(tmp_path: Path) -> None:
    for told in ("fat-tree:2,1,4", ""):
        made = job(tmp_path / (told or "flat"), ring(16, nbytes=2000), 4, 4, told)
        assert total(made, block_on(16, made.where)) < total(made, cyclic_on(16, made.where))


def test_nodes_are_those_of_the_network_not_those_in_use(tmp_path: Path) -> None:
    """Two nodes of one leaf are nearer than two of different leaves, whatever else is empty."""
    made = job(tmp_path, ring(2, nbytes=2000), 4, 1, "fat-tree:2,1@0.8Gbit/s,50us")
    near, far = (replace_nodes(made, nodes) for nodes in ([0, 1], [0, 2]))
    assert total(made, far) > 1.5 * total(made, near)


def replace_nodes(job: Job, node_of: list[int]):
    from p3s.program.mapping import rank_map

    return rank_map("by hand", np.array(node_of), job.where.hosts)


def test_the_first_is_the_fastest_of_those_that_are_simulated(tmp_path: Path) -> None:
    made = job(tmp_path, halo(16), 4, 4)
    found = placements(made, (4, 4), None, Search(number=20, simulated=5), Progress())
    times = [one.time_s for one in found.timed]
    assert times == sorted(times) and 5 <= len(times) <= 7
    assert {"block", "cyclic"} <= {one.name for one in found.timed}
    assert len(found.ranked) >= 20 and not any(one.node_of for one in found.ranked[len(times) :])
    save(made.traces.root, found)
    assert PLACEMENTS.read(path_of(made.traces.root, 16)) == found
    assert render(found).startswith("16 processes on 4 nodes with room for 4 each, fat tree")


def test_where_nothing_is_sent_placement_does_not_matter(tmp_path: Path) -> None:
    trace = Trace(8)
    for rank in range(8):
        trace.add(rank, "MPI_Barrier", work=1e6)
    found = placements(job(tmp_path, trace, 4, 2), (), None, Search(4, 2), Progress())
    assert not found.matters and "does not matter" in " ".join(verdict(found))


def test_without_simulation_times_are_sums_of_phases(tmp_path: Path) -> None:
    trace = Trace(8)
    for rank in range(8):
        trace.add(rank, "MPI_Irecv", (rank - 1) % 8, 100, work=1e3)
        trace.add(rank, "MPI_Send", (rank + 1) % 8, 100, work=1e6 * (2 if rank == 0 else 1))
        trace.add(rank, "MPI_Wait", work=1e6)
    made = job(tmp_path, trace, 4, 2)
    found = placements(made, (), None, Search(4, 0), Progress())
    assert found.left_out == 0
    first = found.timed[0]
    compute = float(made.alone.compute.sum(axis=1).max())
    assert first.time_s == pytest.approx(compute + first.cost_s)


def test_hosts_name_the_nodes_of_a_network_that_has_none() -> None:
    fabric = read_fabric("torus:2x2", 4)
    assert name_nodes(fabric, ("a", "b")).about.hosts == ("a", "b")
    assert name_nodes(name_nodes(fabric, ("a",)), ("b",)).about.hosts == ("a",)
    with pytest.raises(Exception, match="has 4 nodes, 5 hosts are named"):
        name_nodes(fabric, tuple("abcde"))


def ranked(*named: tuple[str, float]) -> Placements:
    """Placements with these times, the fastest first."""
    rows = tuple(
        Ranked(
            name=name, cost_s=time, time_s=time, low_s=time, high_s=time, regret=0.0,
            chance=float(k == 0), busiest=1.0, node_of=(0, 1),
            phases=(PhaseUnder(phase=1, name="loop", time_s=time, comm_s=time),),
        )
        for k, (name, time) in enumerate(sorted(named, key=lambda pair: pair[1]))
    )  # fmt: skip
    gains = tuple(
        Gain(over=one.name, middle=1 - rows[0].time_s / one.time_s, low=0.0, high=0.5)
        for one in rows[1:]
        if one.name in ("block", "cyclic")
    )
    times = [one.time_s for one in rows]
    return Placements(
        n=2, hosts=("", ""), slots=(1, 2), topology="", network="", estimator="machine",
        cost="busiest link", matters=times[-1] > 1.05 * times[0], ranked=rows, gains=gains,
        left_out=0.25,
    )  # fmt: skip


def test_what_is_said_first() -> None:
    take = verdict(ranked(("tiles", 0.8), ("block", 1.0), ("cyclic", 1.6)))
    assert take[0] == "2 processes on 2 nodes with room for 1 to 2 each."
    assert take[1].startswith("Take tiles: 20.0 % faster than block (0.0 to 50.0 %) and 50.0 %")
    keep = verdict(ranked(("block", 1.0), ("cyclic", 2.0)))
    assert keep[1].startswith("Keep block") and keep[2].startswith(
        "It is 50.0 % faster than cyclic"
    )
    alike = verdict(ranked(("tiles", 1.0), ("block", 1.02), ("cyclic", 1.03)))
    assert alike[1] == (
        "Placement does not matter: the 3 that were looked at more closely differ by 3.0 %."
    )


def test_phases_and_notes_of_a_ranking() -> None:
    found = ranked(("tiles", 0.8), ("block", 1.0))
    assert phase_rows(found) == [["loop", "800 ms", "+20.0 %", "+20.0 %"]]
    assert any("leaves out 25.0 % of the calls" in line for line in notes(found))
    assert as_csv(found).splitlines()[1] == "tiles,0.8,0.8,0.8,0.0,1.0,1.0,0.8"


def test_calls_without_a_law_make_a_ranking_untrustworthy(tmp_path: Path) -> None:
    trace = ring(8)
    for rank in range(8):
        trace.add(rank, "MPI_Allreduce", nbytes=8, verdict="unknown", repeat=20)
    found = placements(job(tmp_path, trace, 4, 2), (), None, Search(4, 1), Progress())
    assert found.left_out == pytest.approx(20 / 30)
    assert [reason.code for reason in found.reasons if reason.untrustworthy][:1] == ["left-out"]


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(0.1, 10), st.floats(0, 0.2), st.floats(0, 0.2)), min_size=1, max_size=8
    )
)
def test_chances_are_all_there_are_and_regret_is_never_negative(
    rows: list[tuple[float, ...]],
) -> None:
    times = [t for t, _, _ in rows]
    low, high = [t * (1 - a) for t, a, _ in rows], [t * (1 + b) for t, _, b in rows]
    found = sample_intervals(times, low, high)
    assert found.chance.sum() == pytest.approx(1.0) and (found.regret >= 0).all()
    assert (sample_intervals(times, low, high).seconds == found.seconds).all()


def at(n: int, nodes: int, time: float) -> Placements:
    one = Ranked(
        name="block", cost_s=0.0, time_s=time, low_s=time, high_s=time, regret=0.0, chance=1.0,
        busiest=0.0, node_of=(), phases=(),
    )  # fmt: skip
    return Placements(
        n=n, hosts=("",) * nodes, slots=(n // nodes,) * nodes, topology="", network="",
        estimator="machine", cost="", matters=False, ranked=(one,), gains=(),
        left_out=0.0,
    )  # fmt: skip


def test_three_layers_with_ties() -> None:
    cores = [16, 16, 32, 32, 64, 64]
    times = [4.0, 4.0, 3.0, 3.5, 2.0, 3.6]
    found = advice_of(
        [at(n, n // 16 * (1 + k % 2), t) for k, (n, t) in enumerate(zip(cores, times, strict=True))]
    )
    by = {(one.n, one.time_s): one.cores_front for one in found.configurations}
    assert by == {(16, 4.0): 0, (32, 3.0): 0, (32, 3.5): 1, (64, 2.0): 0, (64, 3.6): 2}
    assert layers(cores, times).tolist() == [0, 0, 0, 1, 0, 2]
    assert found.configurations[0].n == 64 and found.breaks_at is None


def test_where_more_ranks_are_slower_that_is_said() -> None:
    found = advice_of([at(16, 1, 3.0), at(32, 2, 2.0), at(64, 4, 2.5)])
    assert found.breaks_at == 32 and found.configurations[0].n == 32
