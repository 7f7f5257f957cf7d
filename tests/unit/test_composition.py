"""The composition: intervals from parts, residuals, knee, limits, laws per phase, start and end."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from handmade import phase, put_scaled
from made_predictions import count_at, made_prediction, phase_at
from phase_times import changed, times_by_hand
from test_predict import times_at

from p3s.base.errors import P3SError
from p3s.base.serialise import to_data
from p3s.base.study import Study, write_json
from p3s.base.text import processes
from p3s.model.law_types import LoopRule, OrderedItem, OrderedSlot, TraceOrder, Walk
from p3s.predict.case import Facts
from p3s.predict.estimated import ESTIMATORS, Communication
from p3s.predict.estimates import AUTO, choose
from p3s.predict.prediction import compose, phase_laws
from p3s.predict.residual import RunMeasurement, residuals
from p3s.predict.rows import crossing, limits, recommend_count, slowest_rank
from p3s.predict.times import (
    PhaseTimes,
    Rival,
    computation,
    draws,
    ends_of,
    own_parts,
    total,
    with_communication,
)
from p3s.predict.types import PREDICTION, Count, StartAndEnd, filter_untrusted
from p3s.report.terminal import render

WHY = "all nodes are one machine"


def times_of(compute: Any, comm: Any, n: int | None = None, **more: Any) -> PhaseTimes:
    """Return times from arrays (ranks, phases), without any spread."""
    work, talk = np.array(compute, dtype=float), np.array(comm, dtype=float)
    phases = [{**phase(k), "kind": "loop"} for k in range(work.shape[1])]
    head = {"share": {"exact": {"events": 1, "bytes": 1, "work": 1}}}
    made = times_by_hand(n or len(work), phases, work, talk, np.zeros(work.shape[1]), head)
    return changed(made, **more)


# ---- the run time ----------------------------------------------------------------------------


def test_a_delay_that_others_wait_for_is_counted_once() -> None:
    """Rank 0 computes 10 s in phase 0, rank 1 in phase 1; each waits for the other."""
    times = times_of([[10, 2], [2, 10]], [[0, 8], [8, 0]], waiting=np.array([[0, 8.0], [8, 0]]))
    row = compose({2: times}, {}, [2]).counts[0]
    assert row.time_s == 20.0, "not 10 + 10 and the waiting on top"
    assert [entry.time_s for entry in row.phases] == [10.0, 10.0]
    assert row.waiting_s == 8.0 and row.compute_s == 12.0
    assert total(times.compute + times.mpi.comm, "thesis") == 20.0
    uneven = times_of([[9, 1], [1, 9]], [[0, 0], [0, 0]])
    assert total(uneven.compute, "simulation") == 10.0 and total(uneven.compute, "thesis") == 18.0


def test_of_ranks_that_need_equally_long_the_busiest_is_shown() -> None:
    times = times_of([[1.0], [7.0], [8.0]], [[9.0], [2.9999], [1.999]])
    assert slowest_rank(times) == 2, "the others wait for it"
    assert slowest_rank(times_of([[1.0], [7.0]], [[9.0], [2.9]])) == 0


# ---- intervals -------------------------------------------------------------------------------


def test_draws_have_the_ends_of_their_parts_and_are_joint() -> None:
    for ends in ((0.9, 1.2), (1.0, 1.5), (0.8, 1.0)):
        assert ends_of(draws({"work": ends})) == pytest.approx(ends, rel=2e-3)
        assert ends_of(draws({"residual": ends})) == pytest.approx(ends, rel=2e-3)
    parts = {"work": (0.9, 1.0), "cost": (0.8, 1.5), "files": None}
    low, high = ends_of(draws(parts))
    assert low == pytest.approx(math.exp(-math.hypot(math.log(0.9), math.log(0.8))), rel=0.03)
    assert 1.45 < high < 1.55
    assert ends_of(draws({})) == (1.0, 1.0) and ends_of(draws({"work": (0.0, 1.0)}))[0] > 0.0
    assert (draws(parts) == draws(parts)).all(), "always the same"
    ratio = draws({"work": (0.5, 2.0)}) / draws({"work": (0.4, 2.5)})
    assert ends_of(ratio)[1] == pytest.approx(1.25, rel=0.01), "of the same draws"


def test_a_rival_moves_as_many_draws_as_it_is_likely() -> None:
    found = draws({}, [Rival("open", 0.3, 0.5)])
    assert np.mean(found != 1.0) == pytest.approx(0.3, abs=2e-3)
    low, high = ends_of(draws({}, [Rival("open", 1.0, 0.5)]))
    assert (low, high) == pytest.approx((0.75, 1.5), rel=5e-3)


def test_work_and_cost_are_told_apart() -> None:
    """The interval of a phase's time joined both in quadrature; work_error says the work's part."""
    told = {"compute_low": 0.5, "compute_high": 2.0, "work_error": 0.3}
    times = times_of(
        [[8.0]],
        [[2.0]],
        phases=[{**phase(0), **told}],
        comm_low=np.array([[1.0]]),
        comm_high=np.array([[4.0]]),
        n=2,
    )
    parts = own_parts(times) or {}
    assert parts["work"] == pytest.approx(((5.6 + 2) / 10, (10.4 + 2) / 10))
    below, above = math.sqrt(0.25 - 0.09), math.sqrt(1 - 0.09)
    assert parts["cost"] == pytest.approx(((8 * (1 - below) + 2) / 10, (8 * (1 + above) + 2) / 10))
    assert parts["replay"] == pytest.approx((0.9, 1.2))
    old = replace(times, phases=[{**phase(0), **told, "work_error": None}])
    assert own_parts(old) == {"work": None, "cost": (0.6, 1.8), "replay": (0.9, 1.2), "files": None}
    row = compose({2: old}, {}, [2]).counts[0]
    assert row.interval_parts.work is None
    assert row.low_s == pytest.approx(10 * ends_of(row.interval_parts.draws())[0])


def test_other_estimators_are_listed_and_widen_nothing() -> None:
    chosen = times_of([[9.0], [5.0]], [[1.0], [5.0]], waiting=np.array([[0.0], [4.0]]))
    machine = changed(chosen, estimator="machine", comm=np.array([[0.5], [4.0]]))
    others = {"simulation": chosen, "machine": machine, "simgrid": "is not installed"}
    row = compose({2: chosen}, {}, [2], Facts(others={2: others})).counts[0]
    alone = compose({2: chosen}, {}, [2]).counts[0]
    assert (row.low_s, row.high_s) == (alone.low_s, alone.high_s)
    assert list(row.estimators) == list(ESTIMATORS)
    assert row.estimators["machine"].time_s == pytest.approx(9.5)
    assert row.waiting_s == 0.0, "of the rank that computes most"
    assert row.estimators["simgrid"].why_not == "is not installed"
    assert row.estimators["simgrid"].time_s is None


def measured(n: int, wall: float, work: float, shared: bool = False) -> RunMeasurement:
    return RunMeasurement(n, wall, wall, work, shared)


def test_residuals_beyond_the_model_s_own_interval_widen_every_count() -> None:
    """At 2 the run takes 30 % longer where 10 % are explained; at 4 it is 5 % faster, explained."""
    times = {n: times_at(n, 8.0 / n) for n in (2, 4, 8)}
    runs = {2: measured(2, 4.0 * 1.3, 4.0), 4: measured(4, 2.0 * 0.95, 2.0)}
    result = compose(times, runs, [2, 4])
    walls = [entry for entry in result.residuals if entry.what == "run time"]
    assert [entry.ratio for entry in walls] == pytest.approx([1.3, 0.95])
    assert len(result.residuals) == 4 and all(e.representative for e in result.residuals)
    more = math.sqrt(math.log(1.3) ** 2 - math.log(1.09) ** 2)
    last = result.counts[-1].interval_parts.residual
    plain = compose(times, {4: runs[4]}, [4]).counts[-1].interval_parts.residual
    assert last is not None and plain is not None
    assert math.log(last[1]) == pytest.approx(0.7 * 2.1318 * more, rel=0.01)
    assert last[0] == pytest.approx(1 / last[1]) and plain[1] < 1.03, "on both sides"


def test_on_shared_cores_the_computation_is_compared() -> None:
    """Half of the time is computation, which takes 40 % longer; run times do not tell."""
    half = times_at(4, 1.0)
    comm = half.mpi.comm + 1.0
    times = {4: changed(half, comm=comm, comm_low=comm, comm_high=comm)}
    result = compose(times, {4: measured(4, 9.0, 1.4, shared=True)}, [4])
    assert [e.representative for e in result.residuals] == [False, True]
    more = math.sqrt(math.log(1.2) ** 2 - math.log(1.045) ** 2)
    found = result.counts[0].interval_parts.residual
    assert found is not None and math.log(found[1]) == pytest.approx(1.49 * more, rel=0.05)
    nothing = compose({4: times_at(4, 0.0)}, {4: measured(4, 1.0, 0.0)}, [4])
    assert nothing.residuals[0].ratio is None
    assert residuals([]) == ()


def test_a_run_that_is_nothing_like_the_model_is_a_reason() -> None:
    def against(wall: float, work: float = 1.0, why_not: str = "") -> list[str]:
        times = {4: changed(times_at(4, 1.0), why_not=why_not), 8: times_at(8, 0.5)}
        result = compose(times, {4: measured(4, wall, work)}, [4])
        return [
            reason.text for reason in filter_untrusted(result.reasons) if reason.code == "model-off"
        ]

    assert against(1.4) == [] == against(0.7)
    assert len(against(1.6)) == 1 and "program took 3 times as long" in against(3.0)[0]
    assert "took 0.5 times as long" in against(0.5)[0]
    assert "computation took 1.8 times as long" in against(1.0, 1.8)[0]
    assert len(against(3.0, why_not=WHY)) == 1, "speedups would compare a run with a model"


def test_computation_counts_by_its_part_of_the_time() -> None:
    """Twice the computation, where it is a tenth of the run, is not much of it."""
    small = times_at(4, 0.1)
    comm = small.mpi.comm + 0.9
    times = {4: changed(small, comm=comm, comm_low=comm, comm_high=comm)}
    result = compose(times, {4: measured(4, 9.0, 0.2, shared=True)}, [4])
    assert not filter_untrusted(result.reasons)


# ---- knee, recommended count, cost -----------------------------------------------------------


def curve(*points: tuple[int, float]) -> list[Count]:
    return [count_at(n, efficiency=e, time_from="model") for n, e in points]


def test_the_recommended_count_is_the_largest_efficient_one() -> None:
    rows = curve((2, 1.0), (8, 0.8), (32, 0.6), (128, 0.4))
    found = recommend_count(rows, 0.5)
    assert found is not None and found.n == 32 and found.efficiency == 0.6
    assert "falls to 50 % at about 64" in found.why
    few = recommend_count(rows, 0.5, lambda n: n < 32)
    assert few is not None and few.n == 8
    three = recommend_count(rows[:3], 0.5)
    assert three is not None and "not predicted" in three.why
    strict = recommend_count(rows, 0.9)
    assert strict is not None and strict.n == 2
    assert recommend_count(rows[:1], 0.5) is None and recommend_count(rows, 1.1) is None
    doubtful = [replace(row, model_representative=False) for row in rows]
    assert recommend_count(doubtful, 0.5) is None
    assert crossing(rows[0], rows[1], 0.5) is None


def test_cost_is_one_core_per_process() -> None:
    row = compose({8: times_at(8, 450.0)}, {}, [2]).counts[0]
    assert row.cost_core_h == pytest.approx(1.0)


# ---- what limits scaling ---------------------------------------------------------------------


def growing(n: int) -> PhaseTimes:
    """Phase 0 scales; phase 1 waits log2 n s; phase 2 computes 0.1 s everywhere."""
    compute = np.tile([64.0 / n, 1.0 / n, 0.1], (n, 1))
    waiting = np.tile([0.0, 0.1 * math.log2(n), 0.0], (n, 1))
    times = times_of(compute, waiting, n)
    return changed(times, waiting=waiting, transfer=waiting * 0, software=waiting * 0)


def test_limits_say_which_phase_by_what_and_from_which_count() -> None:
    counts = (4, 16, 64, 256)
    result = compose({n: growing(n) for n in counts}, {}, [4])
    first, second = result.limits
    lost = [256 * 0.8 - 4 * 0.2, 256 * 0.1 - 4 * 0.1]
    assert (first.phase, first.because) == (1, "waiting")
    assert (second.phase, second.because) == (2, "compute")
    assert [first.share, second.share] == pytest.approx([v / sum(lost) for v in lost])
    # 66.2 core seconds may be lost: between 64 (37.6) and 256 (204) on the logarithm of n
    spare = 4 * (16 + 0.25 + 0.2 + 0.1)
    part = (spare - (64 * 0.6 - 0.8)) / (256 * 0.8 - 64 * 0.6)
    assert first.n == math.ceil(64 * 4**part) and second.n is None
    assert "waiting for other ranks" in first.text and f"{first.n} processes" in first.text
    assert "50 %" not in second.text


def test_limits_without_the_parts_of_communication_and_of_weak_scaling() -> None:
    parts = {"compute_s": 1.0, "transfer_s": None, "waiting_s": None, "software_s": None}

    def rows(comm: float) -> list[Count]:
        return [
            count_at(n, phase_at(0, "x", time_s=1.0 + more, comm_s=more, **parts), model_s=1.0)
            for n, more in ((2, 0.0), (8, comm))
        ]

    (strong,) = limits(rows(0.1), 0.5)
    assert strong.because == "compute" and strong.n is not None
    (weak,) = limits(rows(0.1), 0.5, weak=True)
    assert weak.because == "transfer" and weak.n is None and weak.share == 1.0
    assert limits(rows(1.5), 0.5, weak=True)[0].n in range(3, 9)
    assert limits(rows(0.0), 0.5, weak=True) == () == limits(rows(0.0)[:1], 0.5)
    assert limits(rows(1.5), 0.0)[0].n is None
    dip = [*rows(1.5), *rows(0.0)[1:], *rows(1.5)[1:]]
    dip = [replace(row, n=n) for row, n in zip(dip, (2, 8, 32, 128), strict=True)]
    assert limits(dip, 0.5, weak=True)[0].n in range(33, 129), "at 32 it is not below"


# ---- laws per phase --------------------------------------------------------------------------


def test_laws_of_phases_go_through_the_counts() -> None:
    rows = compose({n: growing(n) for n in (4, 16, 64, 256)}, {}, [4]).counts
    laws = {law.phase: law.parts for law in phase_laws(rows)}
    assert laws[0]["compute"].text == "64/n" and laws[0]["compute"].latex == "\\frac{64}{n}"
    assert laws[0]["compute"].terms == ((pytest.approx(64), -1, 1, 0),)
    assert laws[1]["waiting"].text == "0.1*log2(n)" and laws[1]["waiting"].error < 1e-6
    assert laws[2]["time"].text == "0.1" and laws[2]["transfer"].text == "0"
    assert laws[0]["time"].counts == (4, 16, 64, 256)
    assert phase_laws(rows[:2])[0].parts["time"].text == "", "two counts tell no law"
    jumping = [
        replace(row, phases=(replace(row.phases[0], time_s=value),))
        for row, value in zip(rows, (1.0, 90.0, 2.0, 80.0), strict=True)
    ]
    found = phase_laws(jumping)[0].parts["time"]
    assert found.text == "" and found.error is None


# ---- start, end and rest ---------------------------------------------------------------------


def put_ordered(study: Study, n: int = 2, order: bool = True) -> None:
    """Write a trace of two loops with 1, 10, 2, 20 and 4 s before each call of rank r, times r+1.

    Before the loops 3 calls communicate, after them 1, between them none.
    """
    rows = [
        (rank, number, repeat, ns * (rank + 1))
        for rank in range(n)
        for number, repeat, ns in (
            (0, 3, 1e9 / 3),
            (1, 10, 1e9),
            (0, 1, 2e9),
            (2, 20, 1e9),
            (0, 1, 4e9),
        )
    ]
    phases = [
        {**phase(0, 1), "parent": None, "crm_i_ns": 5.0},
        {**phase(1), "parent": 0},
        {**phase(2, 20), "parent": 0},
    ]
    put_scaled(study, n, rows, phases)
    part = next(study.scaled_dir(n).glob("*.parquet"))
    table = pq.read_table(part)
    table = table.append_column("slot", pa.array(list(range(5)) * n, pa.int32()))
    kinds = ["collective", "send", "other", "send", "collective"]
    pq.write_table(table.append_column("kind", pa.array(kinds * n)), part)
    loops = [
        LoopRule(1, 0, (3,), None, ()),
        LoopRule(2, 0, (5,), None, ()),
        LoopRule(3, 0, (1,), Walk("peer"), ()),
    ]
    items = [
        OrderedItem(op, kind, None, at, (OrderedSlot(None),))
        for op, kind, at in (
            ("MPI_Bcast", "collective", (1,)),
            ("MPI_Send", "send", (3, 0)),
            ("MPI_Wtime", "other", (4,)),
            ("MPI_Send", "send", (5, 1)),
            ("MPI_Reduce", "collective", (6,)),
        )
    ]
    if order:
        made = to_data(TraceOrder(n, (n,), tuple(loops), tuple(items)))
        write_json(
            study.scaled_dir(n) / "order.json", {"schema": "p3s.order", "schema_version": 1, **made}
        )


def said(n: int = 2) -> Communication:
    comm = np.array([[8.0, 1.0, 2.0]] * n)
    seconds = np.stack([comm, comm, comm * 0, comm * 0, comm, comm])
    return Communication("simulation", n, (0, 1, 2), seconds)


def test_start_end_and_rest_are_told_apart_and_nothing_is_lost(tmp_path: Path) -> None:
    study = Study.create(tmp_path / "study", ["mpiexec", "-n", "{np}", "./app"])
    put_ordered(study)
    alone = computation(study.scaled_dir(2))
    assert [p["phase"] for p in alone.phases] == [-1, 0, 1, 2, -2]
    assert alone.compute.tolist() == [[1, 2, 10, 20, 4], [2, 4, 20, 40, 8]]
    times = with_communication(alone, said())
    assert times.mpi.comm.tolist() == [[6, 0, 1, 2, 2]] * 2, "8 s of phase 0, by its 3 and 1 calls"
    row = compose({2: times}, {}, [2]).counts[0]
    kinds = {entry.kind: entry for entry in row.phases if entry.kind != "loop"}
    assert {kind: entry.time_s for kind, entry in kinds.items()} == {
        "start": 8.0,
        "rest": 4.0,
        "end": 10.0,
    }
    assert kinds["start"].crm_i_s is None, "the thesis's law is of the whole of phase 0"
    assert row.time_s == sum(e.time_s for e in row.phases) == 8 + 4 + 21 + 42 + 10


def test_a_part_without_time_at_any_count_is_left_out(tmp_path: Path) -> None:
    study = Study.create(tmp_path / "study", ["mpiexec", "-n", "{np}", "./app"])
    put_ordered(study)
    times = computation(study.scaled_dir(2))
    times.compute[:, 1] = 0.0
    row = compose({2: times}, {}, [2]).counts[0]
    assert [entry.kind for entry in row.phases] == ["start", "loop", "loop", "end"]


def test_without_an_order_phase_0_stays_whole(tmp_path: Path) -> None:
    study = Study.create(tmp_path / "study", ["mpiexec", "-n", "{np}", "./app"])
    put_ordered(study, order=False)
    times = with_communication(computation(study.scaled_dir(2)), said())
    assert [p["kind"] for p in times.phases] == ["rest", "loop", "loop"]
    assert times.compute.tolist() == [[7, 10, 20], [14, 20, 40]]
    assert times.mpi.comm.tolist() == said().comm.tolist()


def test_what_is_not_of_the_trace_is_refused(tmp_path: Path) -> None:
    study = Study.create(tmp_path / "study", ["mpiexec", "-n", "{np}", "./app"])
    put_ordered(study)
    alone = computation(study.scaled_dir(2))
    for wrong in (said(3), replace(said(), phases=(0, 1, 9)), replace(said(), phases=(0, 1, -1))):
        with pytest.raises(P3SError, match="run p3s predict again"):
            with_communication(alone, wrong)
    path = study.scaled_dir(2) / "order.json"
    write_json(path, {"schema": "p3s.order", "schema_version": 1, "loops": [{}], "items": []})
    with pytest.raises(P3SError, match=r"order\.json: cannot be used"):
        computation(study.scaled_dir(2))


# ---- the choice of an estimator --------------------------------------------------------------


def made(**why: str | None) -> dict[str, Any]:
    """Return estimates of one count: a text is why it tells nothing, None that it does."""
    base = times_of([[1.0], [1.0]], [[1.0], [1.0]])
    return {
        name: changed(base, estimator=name, why_not=why[name] or "")
        if name in why
        else "is not there"
        for name in ESTIMATORS
    }


def test_the_first_that_tells_at_every_count_is_chosen() -> None:
    good, bad = {"simulation": None, "machine": None}, {"simulation": WHY, "machine": None}
    assert choose({2: made(**good), 4: made(**good)}).name == "simulation"
    both = choose({2: made(**good), 4: made(**bad)})
    assert both.name == "machine" and f"simulation: n=4: {WHY}" in both.why
    worse = choose({2: made(simulation=WHY, machine=WHY)})
    assert worse.name == "simulation" and WHY in worse.why
    missing = choose({2: made(thesis=None), 4: made(machine=None)})
    assert missing.name == "machine" and missing.times[2].mpi.estimator == "thesis"
    assert "not there at every count" in missing.why or "different ones" in missing.why
    with pytest.raises(P3SError, match="nothing says how long"):
        choose({2: made()})


def test_the_one_that_is_asked_for_is_taken_or_refused() -> None:
    found = {2: made(simulation=None, thesis=WHY)}
    chosen = choose(found, "thesis")
    assert chosen.name == "thesis" and WHY in chosen.why
    with pytest.raises(P3SError, match="estimator simgrid: n=2: is not there"):
        choose(found, "simgrid")
    assert choose(found, AUTO).name == "simulation"


def test_what_is_shorter_than_its_launch_and_has_no_loop_does_not_scale() -> None:
    phases = [{**phase, "kind": "rest"} for phase in growing(2).phases]
    made = compose({n: replace(growing(n), phases=phases) for n in (2, 4)}, {}, [2])
    launched = [StartAndEnd(row.n, 1e3, 1e3, 1e3) for row in made.counts]
    found = replace(made, start_and_end=tuple(launched))
    assert found.starts_only and not made.starts_only
    assert not replace(found, start_and_end=()).starts_only
    looped = tuple(replace(p, kind="loop") for p in found.last.phases)
    assert not replace(found, counts=(replace(found.last, phases=looped),)).starts_only
    text = render(found)
    assert "Nothing here scales" in text and "as fast" not in text and "limit:" not in text


@pytest.mark.parametrize("requested", [None, [8], [4, 8]])
def test_a_wide_interval_is_said_of_requested_counts(requested: list[int] | None) -> None:
    times = {n: growing(n) for n in (2, 4, 8)}
    for each in times.values():
        each.phases[0].update(compute_low=0.7, compute_high=1.4)
    made = compose(times, {}, [2], Facts(requested=requested))
    (text,) = [each.text for each in made.reasons if each.code == "wide"]
    assert text.startswith(f"the run time at {processes(requested or [2, 4, 8])} is uncertain")


# ---- the layout ------------------------------------------------------------------------------


@pytest.mark.parametrize("representative", [True, False])
def test_made_predictions_have_the_keys_of_composed_ones(representative: bool) -> None:
    """Readers are tested with made ones: what they find there must be what is written."""
    times = {n: changed(growing(n), why_not="" if representative else WHY) for n in (4, 8, 16, 32)}
    timed = {"x": [1.0, 1.0], "covered": [1.0, 1.0], "outside": 1.0, "below": False}
    for one in times.values():
        one.phases[:] = [{**entry, **timed} for entry in one.phases]
    others = {
        n: {"simulation": one, "thesis": changed(one, estimator="thesis", waiting=np.nan)}
        for n, one in times.items()
    }
    composed = compose(times, {4: measured(4, 17.0, 16.0)}, [4], Facts(others=others))
    real = PREDICTION.data(composed)
    like = made_prediction((4, 8, 16, 32), 3, measured=[4], representative=representative)
    assert set(real) == set(like)
    assert set(real["counts"][0]) == set(like["counts"][0])
    loop = next(p for p in like["counts"][0]["phases"] if p["kind"] == "loop")
    assert set(real["counts"][0]["phases"][0]) == set(loop)
    for key in ("residuals", "phase_laws", "limits"):
        assert {k for entry in real[key] for k in entry} == {k for e in like[key] for k in e}, key
    for one, other in zip(
        real["counts"][0]["estimators"].values(),
        like["counts"][0]["estimators"].values(),
        strict=True,
    ):
        assert set(one) == set(other)
    assert (real["recommended"] is None) is not representative
    text = json.dumps(real, allow_nan=False)
    assert json.loads(text)["schema_version"] == like["schema_version"] == 4


def test_a_large_prediction_has_all_its_phases() -> None:
    counts = [2**k for k in range(2, 12)]
    rng = np.random.default_rng(1)
    times = {}
    for n in counts:
        some = rng.uniform(0.5, 1.5, (min(n, 64), 500))
        times[n] = times_of(some / n, some * 1e-3, n)
    result = compose(times, {}, counts[:4])
    assert len(result.counts) == 10 and len(result.counts[0].phases) == 500


def test_a_law_of_a_phase_has_no_term_below_what_is_shown() -> None:
    def row(n: int) -> Count:
        time = 1.2e-3 / n + 2.273e-12 * n
        parts = {f"{part}_s": 0.0 for part in ("transfer", "waiting", "software")}
        phase = phase_at(0, "x", time_s=time, compute_s=time, **parts)
        return count_at(n, phase, model_s=time)

    laws = phase_laws([row(n) for n in (2, 4, 8, 16)])[0].parts
    assert laws["time"].text == laws["compute"].text == "0.0012/n"
