"""The result of a replay: whole iterations, sum of calls, JSON and table."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
from replay_made import event, program_of, result_of, world_of
from steps_builder import Builder
from test_replay_costs import PAUSE, network

from p3s.base.artefacts import read_json
from p3s.base.study import REPLAY_VERSION
from p3s.program.order.calls import REASON_TEXT, Reason
from p3s.program.phase_cells import places
from p3s.replay.costs.evaluate import evaluate, simulate_replay, whole_times
from p3s.replay.costs.result import write_result
from p3s.replay.costs.thesis import (
    COMPOSED,
    MEASURED,
    NONE,
    CallCost,
    charge_steps,
    compose_costs,
    thesis_sum,
)
from p3s.replay.engine.results import Estimate, Place, ProgramResult
from p3s.replay.plan.classes import CallClass, MessageClass
from p3s.replay.plan.program import Code
from p3s.report.replayed import result_text
from p3s.simulate.simulate import simulate
from p3s.simulate.steps import LeftOut, Section


def exchange(weight: float = 1.0, rows: bool = False) -> Section:
    """Two ranks: a send and a receive each way, the second call of rank 1 counts ``weight``."""
    builder = Builder(2)
    for rank in range(2):
        builder.add(rank, "MPI_Isend", 1 - rank, 1024, row=0 if rows else -1)
        builder.add(
            rank, "MPI_Recv", 1 - rank, 1024, work_ns=1e6, weight=weight, row=1 if rows else -1
        )
        builder.add(rank, "MPI_Wait")
    steps = builder.build()
    return Section("all", (3,), steps, 1, 0, 1, 1.0, ())


def test_times_go_to_rank_and_phase_of_the_call_that_a_message_belongs_to() -> None:
    section = exchange(weight=10.0, rows=True)
    # every call became two messages; rows 0 and 1 are in phases 3 and 5
    steps = section.steps
    origin = np.repeat(np.arange(len(steps)), 1)
    where = places(2, [3, 5], [section], [steps], [origin], np.array([3, 5]))
    total = where.total([np.ones(len(steps))])
    assert total.tolist() == [[2.0, 10.0], [2.0, 10.0]]


def test_whole_iterations_are_summed_per_pass_with_weights() -> None:
    section = exchange(weight=10.0)
    world = world_of(1)
    lists = {
        0: [
            event(Code.ISEND, 1, bytes=1024, slot=0, sample=0, step=0),
            event(Code.RECV, 1, bytes=1024, sample=0, step=1),
            event(Code.WAIT, wait=[0], sample=0, step=2),
        ],
        1: [
            event(Code.ISEND, 0, bytes=1024, slot=0, sample=0, step=3),
            event(Code.RECV, 0, bytes=1024, sample=0, step=4),
            event(Code.WAIT, wait=[0], sample=0, step=5),
        ],
    }
    program = program_of(world, lists, what="timed")
    event_ns = np.array(
        [
            [1.0, 5.0, 0.0, 1.0, 1.0, 4.0],
            [1.0, 1.0, 4.0, 1.0, 5.0, 0.0],
            [1.0, 3.0, 2.0, 1.0, 3.0, 2.0],
        ]
    )
    result = ProgramResult(
        3,
        np.full((3, 4), 7.0),
        np.arange(6),
        event_ns,
        np.zeros(6),
        np.zeros((3, 0)),
        np.zeros((3, 0)),
        0.0,
        np.zeros(0),
    )
    where = places(2, [3], [section], [section.steps], [np.arange(6)], np.zeros(0, np.int64))
    whole = whole_times([program], {0: result}, world, [section.steps], where)
    assert whole.tolist() == [[33.0], [33.0]]  # 1 + 10 x 3 + 2
    nothing = whole_times([program], {}, world, [section.steps], where)
    assert np.isnan(nothing).all()


def test_sum_of_calls_and_waitall_over_several_nodes() -> None:
    builder = Builder(3)
    for peer in (1, 2):
        builder.add(0, "MPI_Irecv", peer, 65480)
        builder.add(peer, "MPI_Send", 0, 65480)
    builder.add(0, "MPI_Waitall", weight=4.0)
    steps = builder.build()
    section = Section("all", (0,), steps, 1, 0, 1, 1.0, ())
    net = network(burst=0.0)
    call_of = np.array([-1, -1, 1, 0, 0])
    measured = (
        CallCost(Estimate(100.0, 90.0, 110.0, 5), MEASURED),
        CallCost(Estimate(0.0, 0.0, 0.0), NONE),
    )
    costs = compose_costs(measured, [call_of], [steps], np.arange(3), None, net)
    assert costs[1].how == COMPOSED
    assert costs[1].estimate.cost_ns == pytest.approx(2 * 65480 / net.rate)
    where = places(3, [0], [section], [steps], [np.arange(5)], np.zeros(0, np.int64))
    total = thesis_sum(where, [call_of], costs)
    assert total[:, 0].tolist() == pytest.approx([4 * 2 * 65480 / net.rate, 100.0, 100.0])


def test_collectives_executed_as_such_are_charged_once() -> None:
    call_of = np.array([7, 7, 7, 7, 2])
    origin = np.array([0, 0, 0, 1, 2])
    known = CallCost(Estimate(1.0, 1.0, 1.0, 9), MEASURED)
    costs = [CallCost(Estimate(0.0, 0.0, 0.0), NONE)] * 3 + [known]
    assert charge_steps(call_of, origin, np.array([3, 2, -1]), costs).tolist() == [3, -1, -1, 7, 2]


def test_result_has_what_prediction_and_report_read(tmp_path: Path) -> None:
    section = exchange()
    world = world_of(1)
    sender, receiver = 0, 1
    pair = program_of(
        world,
        {
            sender: [event(Code.SEND, receiver, bytes=1024, work_ns=PAUSE)],
            receiver: [event(Code.RECV, sender, bytes=1024)],
        },
        what="pair",
        pairing=[(0, sender, receiver, 0, 0, 0, 1)],
    )
    classes = (MessageClass(1024, 1, 1, 2.0), MessageClass(99, 2, 1, 1.0))
    plan = SimpleNamespace(
        sections=(section,),
        full=(section.steps,),
        wholes=(
            SimpleNamespace(
                origin=np.arange(6),
                call_of=np.array([-1, 0, -1, -1, 0, -1]),
                direct_of=np.full(6, -1),
            ),
        ),
        messages=classes,
        calls=(CallClass("MPI_Recv", "recv", 1024, 1, 1, 0, 0, 2.0),),
        programs=(pair,),
        world=world,
        mapping=SimpleNamespace(node_of=np.arange(2), names=()),
        distance=np.array([[0, 1], [1, 0]]),
        notes=("a note",),
        iterations=(),
        topology=None,
        left_out=(
            LeftOut("MPI_Comm_free", REASON_TEXT[Reason.CONSTRUCTOR], 2.0, np.zeros(0)),
            LeftOut("MPI_Send", "its tag is not known", 3.0, np.zeros(0)),
        ),
    )
    nothing = np.zeros(0, dtype=np.int64)
    trace = SimpleNamespace(
        n=2,
        rows=0,
        weights={3: 1.0},
        phase=nothing,
        rank=nothing,
        work=nothing,
        repeat=nothing,
        op=nothing,
        ops=(),
        is_op=lambda *ops: np.zeros(0, dtype=bool),
        is_kind=lambda kind: np.zeros(0, dtype=bool),
    )
    results = {0: result_of(pair, world, network(), simulate, classes=classes)}
    found = simulate_replay(trace, plan, results)  # type: ignore[arg-type]
    places_of = tuple(Place(f"n{p.node}", f"k{p.node}", (0, 1)) for p in world.processes)
    content, table = evaluate(trace, plan, {0: replace(results[0], places=places_of)}, found)
    assert content["nodes"] == ["n0", "n1", "n2", "n3"]
    assert content["representative"] and content["why_not_representative"] is None
    assert content["measured_share"] == pytest.approx(2 / 3)
    assert {entry["op"] for entry in content["unmeasured"]} == {"message", "MPI_Send"}
    assert content["left_out"] == [{"op": "MPI_Comm_free", "events": 2.0}]
    assert content["phases"][0]["phase"] == 3 and content["phases"][0]["comm_ns_mean"] > 0
    write_result(tmp_path / "np000002.json", content, table)
    again = read_json(tmp_path / "np000002.json", "p3s.replay", REPLAY_VERSION)
    assert json.loads(json.dumps(again))["n"] == 2
    columns = pq.read_table(tmp_path / "np000002.parquet").to_pydict()
    ends = [np.array(columns[name]) for name in ("comm_low_ns", "comm_ns", "comm_high_ns")]
    assert set(columns["phase"]) == {3} and sorted(columns["rank"]) == [0, 1]
    assert (ends[1] > 0).all() and (ends[0] <= ends[1]).all() and (ends[1] <= ends[2]).all()
    text = result_text(again)
    assert "waiting" in text and "link of a node" in text
