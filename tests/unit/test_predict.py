"""Eq. 8.1 on hand-made scaled traces and replays."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from comparisons import held_out
from handmade import phase, put_model, put_replay, put_scaled
from phase_times import changed, times_by_hand

from p3s.base.errors import P3SError
from p3s.base.settings import traces_of
from p3s.base.study import Study, read_json, write_json
from p3s.capture import Call, RankTrace, RunTrace
from p3s.model.comparison import HoldOut, Overlap, Weights
from p3s.pipeline.predicting import predict_study as predict
from p3s.predict.case import Facts
from p3s.predict.doubts import unknown_share
from p3s.predict.estimates import Estimation
from p3s.predict.estimators import estimate
from p3s.predict.prediction import compose
from p3s.predict.residual import RunMeasurement, run_times
from p3s.predict.times import PhaseTimes, computation, with_communication
from p3s.predict.types import Prediction
from p3s.signature.unmodelled import sentences

MS = 1e6  # ns


@pytest.fixture
def study(tmp_path: Path) -> Study:
    made = Study.create(tmp_path / "study", ["mpiexec", "-n", "{np}", "./app"])
    put_model(made)
    return made


def phase_times(study: Study, n: int) -> PhaseTimes:
    return with_communication(
        computation(study.scaled_dir(n)), estimate("simulation", traces_of(study), n)
    )


def put_two_phases(study: Study) -> None:
    """Phase 0 is bound by rank 1, phase 7 and the whole by rank 0; phases 18 and 2 turns."""
    rows: list[tuple[Any, ...]] = [
        (0, 0, 10, 1 * MS),
        (1, 0, 10, 2 * MS),
        (0, 7, 5, 4 * MS),
        (1, 7, 5, 1 * MS),
    ]
    rows += [(0, 0, 10, 0.5 * MS)]
    rows += [(0, 0, 1, 900 * MS, "MPI_Init"), (1, 7, 1, 900 * MS, "MPI_Init_thread")]
    put_scaled(study, 2, rows, [phase(7), phase(0)], parts=2)
    put_replay(
        study,
        2,
        [
            (0, 0, 3 * MS, 2 * MS, 4 * MS),
            (1, 0, 1 * MS, 1 * MS, 1 * MS),
            (0, 7, 2 * MS, 2 * MS, 2 * MS),
            (1, 7, 0, 0, 0),
        ],
    )


def test_time_is_the_sum_over_phases_of_the_slowest_rank(study: Study) -> None:
    """Sums are over repeat x work, plus communication; what precedes the end of MPI_Init is not."""
    put_two_phases(study)
    result = predict(study, [2])
    row = result.counts[0]
    by_phase = {entry.phase: entry for entry in row.phases}
    assert by_phase[0].compute_s == pytest.approx(15e-3)
    assert by_phase[0].comm_s == pytest.approx(3e-3)
    assert by_phase[7].compute_s == pytest.approx(20e-3)
    assert by_phase[7].comm_s == pytest.approx(2e-3)
    assert row.time_s == pytest.approx(40e-3)
    assert row.time_s == pytest.approx(row.compute_s + row.comm_s)
    assert row.time_s == pytest.approx(sum(entry.time_s for entry in row.phases))
    # 10 % of the work, and 1 ms of the messages; rank 1 needs 26 ms at most and is nowhere last
    for end, work, replay in (("low_s", 36.5, 39.0), ("high_s", 43.5, 41.0)):
        width = math.hypot(math.log(work / 40), math.log(replay / 40))
        sign = -1 if end == "low_s" else 1
        assert getattr(row, end) == pytest.approx(40e-3 * math.exp(sign * width), rel=0.01)
    assert row.work_s == pytest.approx(35e-3)


def test_the_sum_of_the_thesis_is_over_the_slowest_rank_of_each_phase(study: Study) -> None:
    """Eq. 8.1: 21 ms of rank 1 in phase 0, 22 ms of rank 0 in phase 7."""
    put_two_phases(study)
    row = predict(study, [2], Estimation("thesis")).counts[0]
    assert [entry.time_s for entry in row.phases] == pytest.approx([22e-3, 21e-3])
    assert row.time_s == pytest.approx(43e-3)
    assert row.waiting_s is None and row.phases[0].transfer_s is None
    assert row.low_s == pytest.approx(39e-3, rel=0.01), "work is 10 % off"
    assert row.interval_parts.replay == (1.0, 1.0), "the sum of calls has no interval"
    assert row.estimators["simulation"].time_s == pytest.approx(40e-3)


def times_at(n: int, seconds: float, width: float = 0.09, **head: Any) -> PhaseTimes:
    zero = np.zeros((n, 1))
    head = {"share": {"exact": {"events": 1, "bytes": 1, "work": 1}}, **head}
    return times_by_hand(n, [phase(0)], zero + seconds, zero, np.array([width]), head)


def codes(result: Prediction) -> list[str]:
    """Return the codes of what makes a prediction untrustworthy."""
    return [reason.code for reason in result.reasons if reason.untrustworthy]


def test_speedup_efficiency_and_knee() -> None:
    times = {2: times_at(2, 8.0), 4: times_at(4, 4.0), 8: times_at(8, 4.0), 16: times_at(16, 4.0)}
    result = compose(times, {}, [2, 4, 8])
    assert [row.speedup for row in result.counts] == pytest.approx([1, 2, 2, 2])
    assert [row.efficiency for row in result.counts] == pytest.approx([1, 1, 0.5, 0.25])
    assert result.knee == 16 and result.baseline_n == 2
    assert compose(times, {}, [2], Facts(threshold=0.6)).knee == 8
    assert compose(times, {}, [2], Facts(threshold=0.1)).knee is None
    dip = {**times, 8: times_at(8, 8.0), 16: times_at(16, 0.5), 32: times_at(32, 4.0)}
    assert compose(dip, {}, [2]).knee == 32  # 8 is below as well, 16 is not
    assert compose({n: dip[n] for n in (2, 8, 16)}, {}, [2]).knee is None
    for row in result.counts:
        assert row.speedup_low == pytest.approx(row.speedup, rel=0.02), "of the same draws"
        assert row.speedup_low <= row.speedup <= row.speedup_high
    assert result.extrapolation_ratio == 2 and result.reasons == ()


def test_representative_measurement_is_the_time_and_the_model_stays_beside_it() -> None:
    runs = {
        2: RunMeasurement(2, 10.0, 11.0, 7.5, False),
        4: RunMeasurement(4, 50.0, 50.0, 4.5, True),
    }
    result = compose({2: times_at(2, 8.0), 4: times_at(4, 4.0)}, runs, [2, 4])
    two, four = result.counts
    assert (two.time_s, two.model_s, two.time_from) == (10.0, 8.0, "measured")
    assert (two.low_s, two.high_s) == (10.0, 11.0)
    assert (four.time_s, four.measured_s, four.time_from) == (4.0, 50.0, "model")
    assert (four.work_s, four.measured_work_s) == (4.0, 4.5)
    assert two.representative and not four.representative
    assert four.speedup == pytest.approx(2.5)
    shared = next(each for each in result.reasons if each.code == "shared-cores")
    assert "at 4 processes" in shared.text and not shared.untrustworthy
    assert result.baseline_measured


def test_unknown_spread_gives_no_interval_and_says_so() -> None:
    result = compose({4: times_at(4, 1.0, math.nan)}, {}, [2])
    row = result.counts[0]
    assert row.low_s is None and row.speedup_high is None
    assert any("no interval at 4" in note for note in result.notes)


def test_unknown_spread_of_a_phase_without_work_does_not_matter() -> None:
    row = compose({4: times_at(4, 0.0, math.nan)}, {}, [2]).counts[0]
    assert row.low_s == 0.0 == row.speedup


@pytest.mark.parametrize(
    ("share", "unknown", "doubted"),
    [
        ({"exact": {"events": 95, "work": 91}, "unknown": {"events": 5, "work": 9}}, 0.09, False),
        ({"exact": {"events": 90, "work": 80}, "not seen": {"events": 10, "work": 20}}, 0.2, True),
        ({"statistical": {"events": 1, "work": 1}}, 0.0, False),
        ({"exact": {"events": 0.5, "work": 1.0}, "unknown": {"events": 0.5}}, 0.5, True),
    ],
)
def test_unknown_share_lowers_confidence(
    share: dict[str, Any], unknown: float, doubted: bool
) -> None:
    result = compose({4: times_at(4, 1.0, share=share)}, {}, [2])
    assert result.unknown_share == pytest.approx(unknown)
    assert bool(codes(result)) is doubted


@pytest.mark.parametrize(
    ("held", "said"),
    [
        (held_out(16), None),
        (held_out(16, p2p_triples=Overlap(100, 90, 90)), None),
        (held_out(16, p2p_triples=Overlap(100, 120, 100)), "20 of 120 messages"),
        (held_out(16, collectives=Overlap(10, 8, 8)), "2 of 10 collectives"),
        (held_out(16, weights=Weights(3, 2)), "1 of 3 phase weights"),
        (HoldOut(16, possible=False, problem="too few counts"), "too few counts"),
    ],
)
def test_missed_holdout_lowers_confidence(held: HoldOut, said: str | None) -> None:
    times = {4: times_at(4, 1.0)}
    found = compose(times, {}, [2], Facts(holdout=held)).reasons
    assert found == () if said is None else len(found) == 1 and said in found[0].text


def test_soft_rules_are_noted() -> None:
    share = {"exact": {"events": 60, "work": 50}, "statistical": {"events": 40, "work": 50}}
    notes = compose({4: times_at(4, 1.0, share=share)}, {}, [2]).notes
    assert any("40.0 % of the events, and the calls behind 50.0 %" in note for note in notes)


@pytest.mark.parametrize(("n", "grade"), [(64, "usable"), (65, "rough")])
def test_far_extrapolation_lowers_confidence(n: int, grade: str) -> None:
    result = compose({n: times_at(n, 1.0)}, {}, [2])
    assert codes(result) == [] and result.grade == grade


def test_replay_on_shared_cores_is_noted_once() -> None:
    times = {n: changed(times_at(n, 1.0), why_not="4 ranks shared 2 cores") for n in (4, 8)}
    result = compose(times, {}, [4])
    noted = [each for each in result.reasons if "shared 2 cores" in each.text]
    assert len(noted) == 1 and "4 and 8 processes" in noted[0].text
    assert noted[0].code == "not-representative"
    assert not result.counts[0].representative


def test_one_process_needs_no_replay(study: Study) -> None:
    put_scaled(study, 1, [(0, 0, 1, 5 * MS)], [phase(0)])
    row = predict(study, [1]).counts[0]
    assert row.time_s == pytest.approx(5e-3) and row.comm_s == 0


@pytest.mark.parametrize(
    ("rows", "phases"), [([], []), ([], [phase(0)]), ([(0, 0, 1, 0.0)], [phase(0)])]
)
def test_a_run_time_of_nothing_is_refused(
    study: Study, rows: list[tuple[Any, ...]], phases: list[dict[str, Any]]
) -> None:
    put_scaled(study, 1, rows, phases)
    with pytest.raises(P3SError, match="run time of 0 s"):
        predict(study, [1])
    assert not study.prediction_path.exists()


@pytest.mark.parametrize(
    "rows",
    [
        [(2, 0, 1, 1.0)],
        [(-1, 0, 1, 1.0)],
        [(0, 5, 1, 1.0)],
        [(0, 0, -1, 1.0)],
        [(0, 0, 1, -1.0)],
        [(0, 0, 1, math.nan)],
        [(0, 0, 1, math.inf)],
    ],
)
def test_damaged_rows_are_refused(study: Study, rows: list[tuple[int, int, int, float]]) -> None:
    put_scaled(study, 2, rows, [phase(0)])
    put_replay(study, 2, [(0, 0, 1.0, 1.0, 1.0)])
    with pytest.raises(P3SError, match="damaged"):
        phase_times(study, 2)


@pytest.mark.parametrize(
    "head",
    [
        {"n": 3},
        {"phases": None},
        {"phases": [{"phase": 0}]},
        {"phases": [phase(0), phase(0)]},
        {"phases": [{"phase": "0", "weight": 1}]},
        {"work_unit": "instructions"},
    ],
)
def test_damaged_head_is_refused(study: Study, head: dict[str, Any]) -> None:
    put_scaled(study, 2, [(0, 0, 1, 1.0)], [phase(0)])
    path = study.scaled_path(2)
    write_json(path, {**read_json(path, "p3s.scaled"), **head})
    put_replay(study, 2, [(0, 0, 1.0, 1.0, 1.0)])
    with pytest.raises(P3SError, match=r"scaled\.json"):
        phase_times(study, 2)


def test_truncated_tables_are_refused(study: Study) -> None:
    put_scaled(study, 2, [(0, 0, 1, 1.0)], [phase(0)])
    put_replay(study, 2, [(0, 0, 1.0, 1.0, 1.0)])
    for path, again in (
        (next(study.scaled_dir(2).glob("*.parquet")), "p3s scale"),
        (study.replay_table(2), "p3s replay"),
    ):
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(P3SError, match=again):
            phase_times(study, 2)
        path.write_bytes(whole)
    phase_times(study, 2)


def test_missing_parts_are_refused(study: Study) -> None:
    put_scaled(study, 2, [(0, 0, 1, 1.0)], [phase(0)])
    next(study.scaled_dir(2).glob("*.parquet")).unlink()
    with pytest.raises(P3SError, match="no part"):
        phase_times(study, 2)


def test_nothing_asked_is_refused() -> None:
    with pytest.raises(P3SError, match="nothing to predict"):
        compose({}, {}, [2])


OPS = ("MPI_Init", "MPI_Barrier", "MPI_Finalize")


def run_of(*ranks: dict[str, list[int]], failed_poll_ns: int = 0) -> RunTrace:
    """Return a run of MPI_Init, MPI_Barrier, MPI_Finalize with these times per rank."""
    return RunTrace(
        np=len(ranks),
        path=Path("."),
        calls=tuple(Call(op, 0, 0, -1, 0, 1, -1, -1) for op in OPS),
        comms=(),
        sites=(),
        ranks=tuple(
            RankTrace(
                rank=number,
                complete=True,
                call=np.array([0, 1, 2], dtype=np.int32),
                failed_poll_ns=failed_poll_ns,
                **{name: np.array(column, dtype=np.int64) for name, column in columns.items()},
            )
            for number, columns in enumerate(ranks)
        ),
    )


def test_run_time_lies_between_init_and_finalize() -> None:
    """The slowest rank counts; what MPI_Init is preceded by does not."""
    elapsed = [100, 7, 0]
    times = run_times(
        run_of(
            {"start_ns": [-100, 500, 2000], "elapsed_ns": elapsed, "work": [10**9, 40, 3]},
            {"start_ns": [-100, 500, 1000], "elapsed_ns": elapsed, "work": [10**9, 90, 3]},
        )
    )
    assert (times.wall_s, times.work_s, times.off_core) == (2000e-9, 93e-9, 0.0)


def test_time_without_a_core_is_noticed() -> None:
    """1 s between the calls, of which 0.4 s on a core; 0.1 s in failed polls does not count."""
    columns = {
        "start_ns": [-5, 600_000_000, 1_100_000_000],
        "elapsed_ns": [5, 100_000_000, 0],
        "work": [0, 300_000_000, 100_000_000],
    }
    run = run_times(run_of(columns, failed_poll_ns=100_000_000))
    assert run.off_core == pytest.approx(0.5 / 1.1, rel=1e-4)
    worst = RunMeasurement(2, run.wall_s, run.wall_s, run.work_s, False, run.off_core)
    result = compose({2: times_at(2, 0.5)}, {2: worst}, [2])
    assert result.counts[0].time_from == "model"
    found = {each.code: each for each in result.reasons}
    assert "without a core for 45 %" in found["off-core"].text
    assert not found["off-core"].untrustworthy


def test_what_the_scaled_trace_leaves_out_counts_as_unknown() -> None:
    """Events without a rule are in no row of the scaled trace; the traced run remembers them."""
    head = {
        "share": {"exact": {"events": 1.0, "bytes": 1.0, "work": 1.0}},
        "traced_share": {"unknown": {"events": 0.4, "bytes": 0.0, "time": 0.1}},
    }
    assert unknown_share(head) == 0.4
    assert sentences(head.get("not_modelled")) == []
    shares = {"share_of_events": 0.5, "share_of_time": 0.03}
    row = {"op": "MPI_T_call", "kind": "other", "np": 8, "events": 1200, **shares}
    assert sentences([row]) == [
        "seen, not modelled: MPI_T_call 1,200 events at 8 processes (50.0 % of the events,"
        " 3.0 % of the time)"
    ]
    assert sentences([None]) == []
    assert unknown_share({"share": head["share"]}) == 0.0
