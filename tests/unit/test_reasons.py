"""What makes a prediction untrustworthy, each from the figures that it follows from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from comparisons import comparison, held_out, work
from handmade import phase, put_model, put_replay, put_scaled
from phase_times import changed
from test_predict import codes, times_at

from p3s.base.artefacts import crc_of
from p3s.base.errors import DamagedFile, P3SError
from p3s.base.serialise import from_data, to_data
from p3s.base.study import Study, write_json
from p3s.base.text import join_words, over, plural, processes
from p3s.capture.other_calls import OtherCall
from p3s.model.comparison import Overlap, Unmodelled, WorkErrors
from p3s.pipeline.predicting import predict_study as predict
from p3s.pipeline.saved import PredictionFile
from p3s.predict.case import Facts
from p3s.predict.commands import NO_STUDY
from p3s.predict.doubts import judge_holdout, narrower_by, of_validation
from p3s.predict.estimated import Communication
from p3s.predict.prediction import compose
from p3s.predict.residual import RunMeasurement, contradictions
from p3s.predict.rows import comm_ends
from p3s.predict.times import PhaseTimes
from p3s.predict.types import (
    CODES,
    PREDICTION,
    Prediction,
    Reason,
    filter_untrusted,
    in_short,
    prefix_reasons,
)
from p3s.program.order.unstick import moved_earlier
from p3s.simulate.folded import SectionTimes, Settling
from p3s.simulate.totals import SimulationGaps, StandIns


def texts(result: Prediction, code: str) -> list[str]:
    """Return the sentences of a code, what to do included."""
    return [each.sentence for each in result.reasons if each.code == code]


def halving(*counts: int, seconds: float = 64.0) -> dict[int, PhaseTimes]:
    return {n: times_at(n, seconds / n) for n in counts}


def talking(made: PhaseTimes, seconds: float = 60.0) -> PhaseTimes:
    """Return times with so many seconds more in calls."""
    comm = made.mpi.comm + seconds
    return changed(made, comm=comm, comm_low=comm, comm_high=comm)


def run_of(n: int, total: float, *, wall: float | None = None, repeats: int = 1) -> RunMeasurement:
    """Return a run whose ranks together compute ``total`` seconds, all alike."""
    wall = total / n if wall is None else wall
    return RunMeasurement(n, wall, wall, total / n, False, 0.0, (total,) * repeats)


# ---- the reasons themselves ------------------------------------------------------------------
def test_every_reason_has_a_code_that_is_known_and_says_what_to_do() -> None:
    """All that can be wrong at once; what a file holds is what was made."""
    times = {
        n: changed(
            talking(times_at(n, 1.0 / n**2, 3.0), 0.13 / n**2), why_not="all nodes are one machine"
        )
        for n in (2, 4, 400)
    }
    held = held_out(4, p2p_triples=Overlap(9, 9, 0), work=work((1.0, 0.4), total=0.4))
    for each in times.values():
        each.head.update(
            not_modelled=[{"op": "MPI_Put", "share_of_time": 0.3}], share={"unknown": {"events": 1}}
        )
        each.phases[0].update(outside=99.0, below=True)
    validation = comparison(8, unmodelled=Unmodelled(9, 0.2), work=work((0.5, -1.0), (0.5, 0.0)))
    facts = Facts(holdout=held, validations=[validation])
    result = compose(times, {2: run_of(2, 1.0)}, [2, 4], facts)
    assert result.grade == "unusable"
    found = {each.code for each in result.reasons if each.untrustworthy or each.rough}
    assert found == {
        "not-representative",
        "model-off",
        "superlinear",
        "wide",
        "holdout-missed",
        "holdout-work",
        "validate-work",
        "left-out",
        "no-rule",
        "extrapolated",
        "outside",
    }
    assert found <= set(CODES)
    for each in result.reasons:
        assert each.advice and not each.text[0].isupper() and not each.sentence.endswith(".")
        assert from_data(Reason, to_data(each)) == each
    PredictionFile.of(PREDICTION.data(result))


def test_codes_in_short_name_each_once() -> None:
    one, two = Reason("wide", "a"), Reason("superlinear", "b", untrustworthy=False)
    assert in_short([one, one, two]) == f"{CODES['wide'].words}, and {CODES['superlinear'].words}"
    assert in_short([]) == "" and in_short([Reason("<b>", "x")]) == "another reason"
    assert filter_untrusted([one, two]) == [one] and filter_untrusted([one, two], {"wide"}) == []
    assert prefix_reasons([one], "base") == [Reason("wide", "base: a")]


# ---- what a prediction is worth ----------------------------------------------------------------
@pytest.mark.parametrize(
    ("part", "within", "grade"),
    [
        (0.08, None, "usable"),
        (0.3, None, "rough"),
        (0.3, 0.35, "usable"),
        (0.3, 0.2, "unusable"),
        (0.08, 0.05, "unusable"),
        (0.7, None, "unusable"),
    ],
)
def test_how_well_a_time_is_known_is_a_grade(part: float, within: float | None, grade: str) -> None:
    """A wide interval is an answer; beyond a factor of four it says nothing."""
    made = times_at(8, 1.0)
    made.phases[0].update(compute_low=1.0 - part, compute_high=1.0 + part)
    result = compose({8: made}, {}, [4], Facts(within=within))
    assert result.grade == grade
    assert PredictionFile.of(PREDICTION.data(result)).grade == grade


def test_messages_that_take_no_time_make_no_prediction_unusable() -> None:
    """What the model missed weighs what its messages may cost, iterations what they compute."""
    held = held_out(4, p2p_triples=Overlap(9, 9, 0))
    for comm, grade in ((0.0, "usable"), (0.05, "rough"), (1.0, "unusable")):
        made = changed(times_at(8, 1.0), comm=times_at(8, 1.0).mpi.comm + comm)
        result = compose({8: made}, {}, [4], Facts(holdout=held))
        assert result.grade == grade and texts(result, "holdout-missed")


# ---- each condition --------------------------------------------------------------------------
def test_communication_that_was_not_measured_as_in_a_run() -> None:
    times = {
        n: changed(made, why_not="" if n == 4 else "one host")
        for n, made in halving(2, 4, 8).items()
    }
    result = compose(times, {}, [2])
    assert codes(result) == [] and result.grade == "usable", "no time is spent in messages"
    slow = {n: talking(made) for n, made in times.items()}
    assert codes(compose(slow, {}, [2])) == ["not-representative"]
    assert "at 2 and 8 processes" in texts(result, "not-representative")[0]
    measured = {n: run_of(n, 64.0) for n in (2, 8)}
    result = compose(times, measured, [2, 8])
    assert codes(result) == [], "no time rests on it"
    assert texts(result, "not-representative")


def with_messages(n: int, followed: SimulationGaps) -> PhaseTimes:
    """One second of computation and three in calls, of a simulation that got so far."""
    return changed(talking(times_at(n, 1.0), 3.0), followed=followed)


@pytest.mark.parametrize(
    ("left", "grade"), [(0.0, "usable"), (1.0, "usable"), (5.0, "rough"), (40.0, "unusable")]
)
def test_messages_that_have_no_partner_in_the_model(left: float, grade: str) -> None:
    """One that is left out means that the rules contradict each other; it weighs what it takes."""
    made = with_messages(8, SimulationGaps(left, 100.0, ("MPI_Isend", "MPI_Irecv")))
    result = compose({4: times_at(4, 4.0), 8: made}, {}, [4])
    assert result.grade == grade
    if left:
        (said,) = texts(result, "unmatched")
        assert f"at 8 processes {left:.0f} of 100 messages (MPI_Isend and MPI_Irecv)" in said
    measured = {8: run_of(8, 8.0, wall=4.0)}
    assert codes(compose({8: made}, measured, [8])) == [], "the time there was measured"


@pytest.mark.parametrize(("off", "grade"), [(0.01, "usable"), (0.3, "rough"), (0.5, "unusable")])
def test_smaller_grids_that_are_far_off(off: float, grade: str) -> None:
    stand_ins = StandIns(3, 256, ("sides",), 0.01, off, 1024, -off)
    made = changed(with_messages(8, SimulationGaps()), stand_ins=stand_ins)
    result = compose({8: made}, {}, [4])
    assert result.grade == grade
    if grade != "usable":
        (said,) = texts(result, "stand-ins")
        assert "at 8 processes smaller process grids" in said and f"by {100 * off:.0f} %" in said
        (reason,) = result.reasons
        assert "--every-rank" in reason.advice and "-n 8" in reason.advice


def test_smaller_grids_for_more_ranks_than_can_be_simulated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("p3s.predict.checks.MOST_RANKS", 7)
    stand_ins = StandIns(3, 256, ("sides",), 0.01, 0.3, 1024, -0.3)
    made = changed(with_messages(8, SimulationGaps()), stand_ins=stand_ins)
    (reason,) = compose({8: made}, {}, [4]).reasons
    assert "--every-rank" not in reason.advice and "trend" in reason.advice


def test_smaller_grids_that_could_be_checked_nowhere() -> None:
    stand_ins = StandIns(3, 256, ("sides",), 0.01, 0.01)
    made = changed(with_messages(8, SimulationGaps()), stand_ins=stand_ins)
    result = compose({8: made}, {}, [4])
    (reason,) = result.reasons
    assert reason.code == "stand-ins" and reason.rough and reason.cost == pytest.approx(0.15)
    assert "at no smaller count" in reason.text and "--every-rank" in reason.advice
    comm = made.mpi.comm / 100
    little = changed(made, comm=comm, comm_low=comm, comm_high=comm)
    assert codes(compose({8: little}, {}, [4])) == []


@pytest.mark.parametrize("alike", [0.01, 0.2])
def test_communication_is_that_of_all_ranks_that_may_be_the_slowest(alike: float) -> None:
    """The last rank computes for long and hardly communicates, the others wait for it."""
    made = with_messages(4, SimulationGaps())
    compute, comm = np.full((4, 1), 1.0), np.full((4, 1), 3.0 * (1 - alike))
    compute[-1], comm[-1] = 3.5, 0.5
    times = changed(made, compute=compute, comm=comm, comm_low=comm * 0.9, comm_high=comm * 1.1)
    low, high = comm_ends(times)
    assert low == pytest.approx(0.45)
    assert high == pytest.approx(0.55 if alike > 0.1 else 3.3 * (1 - alike))
    stand_ins = StandIns(3, 256, ("sides",), 0.01, 0.01)
    wide = changed(times, comm_high=comm * 2, stand_ins=stand_ins)
    assert comm_ends(wide)[1] == pytest.approx(6.0 * (1 - alike))


@pytest.mark.parametrize(("share", "against"), [(0.1, False), (0.5, True)])
def test_a_simulation_that_did_not_settle(share: float, against: bool) -> None:
    """Three quarters of the time are communication: of 0.1 of that it is little."""
    made = with_messages(8, SimulationGaps(unsettled=share, change=6.2))
    result = compose({8: made}, {}, [4])
    assert codes(result) == ["not-settled"] * against
    if against:
        (said,) = texts(result, "not-settled")
        assert "38 % of the time" in said and "by up to 620 %" in said


def test_an_order_that_cannot_be_executed_is_not_trusted() -> None:
    made = with_messages(8, SimulationGaps(reordered=12))
    result = compose({4: halving(4)[4], 8: made}, {}, [4])
    assert "deadlock" in codes(result)
    (said,) = texts(result, "deadlock")
    assert "at 8 processes" in said and "12 calls" in said


def test_what_a_simulation_could_not_follow_outlives_its_file(tmp_path: Path) -> None:
    followed = SimulationGaps(3.0, 100.0, ("MPI_Isend",), 0.5, 6.2)
    part = np.ones((2, 1))
    made = Communication("typical", 2, (1,), np.stack([part] * 6), followed=followed)
    assert made.followed == followed
    assert (
        SimulationGaps(unsettled=0.5, change=6.2).with_unmatched(
            {"events": 3.0, "of": 100.0, "calls": ["MPI_Isend"]}
        )
        == followed
    )
    assert SimulationGaps().with_unmatched({}) == SimulationGaps(), "a replay of an older P3S"


def test_a_loop_that_goes_on_changing_is_told_from_one_that_has_settled() -> None:
    loop = SimpleNamespace(section=SimpleNamespace(name="loop 7, 24 of 60 iterations"))
    notes: list[str] = []
    found = Settling()
    found.add(loop, SectionTimes(np.full((4, 1), 30.0)), notes)
    found.add(loop, SectionTimes(np.full((4, 1), 10.0), settled=False, change=0.01), notes)
    assert found.into(SimulationGaps()) == SimulationGaps()
    found.add(loop, SectionTimes(np.full((4, 1), 60.0), settled=False, change=6.2), notes)
    assert found.into(SimulationGaps()) == SimulationGaps(unsettled=0.6, change=6.2)
    assert notes == [
        f"loop 7, 24 of 60 iterations: the time of an iteration still changes by {p} "
        "at the end of what was simulated; the last ones stand for the rest"
        for p in ("1.00 %", "620 %")
    ]
    assert moved_earlier(1).startswith("1 send is made earlier")


@pytest.mark.parametrize(("seconds", "against"), [(7.0, False), (6.6, True)])
def test_an_efficiency_that_cannot_be_believed(seconds: float, against: bool) -> None:
    """16 s at 4 are 8 s at 8: 7 s is 114 %, 6.6 s is 121 %."""
    result = compose({4: times_at(4, 16.0), 8: times_at(8, seconds)}, {}, [4])
    assert codes(result) == ["superlinear"] * against
    assert not against or "121 % at 8 processes" in texts(result, "superlinear")[0]


@pytest.mark.parametrize(("width", "against"), [(0.09, False), (0.7, True)])
def test_an_interval_of_more_than_ten_per_cent(width: float, against: bool) -> None:
    result = compose({8: times_at(8, 1.0, width)}, {}, [4])
    assert codes(result) == ["wide"] * against
    if against:
        (said,) = texts(result, "wide")
        assert "uncertain by more than 10 %: it lies between 301 ms and 1.70 s" in said
        assert "p3s next" in said


def test_how_wide_an_interval_would_be_with_another_count() -> None:
    (row,) = compose({32: times_at(32, 1.0, 0.6)}, {}, [4]).counts
    # three doublings from 4, two from 8: (1 + 2/2) / (1 + 3/2) of the logarithms
    said = narrower_by(row, [4], NO_STUDY)
    assert said == "tracing 8 too would narrow it from 60 % to about 49 % at 32"
    assert narrower_by(row, [16], NO_STUDY) == (
        "tracing 32 too would narrow it from 60 % to about 2 % at 32"
    )
    assert narrower_by(row, [32], NO_STUDY) == narrower_by(row, [], NO_STUDY) == ""
    (sure,) = compose({32: times_at(32, 1.0, 0.0)}, {}, [4]).counts
    assert narrower_by(sure, [4], NO_STUDY) == ""


def test_what_is_wide_names_the_run_that_would_make_it_narrower() -> None:
    """Messages on two shared cores: between a tenth of the time and ten times."""
    made = times_at(8, 0.1)
    comm = made.mpi.comm
    wide = changed(made, comm=comm + 0.9, comm_low=comm, comm_high=comm + 9.0)
    (said,) = texts(compose({8: wide}, {}, [4]), "wide")
    assert "measure messages on nodes with a core for each rank" in said
    assert "p3s predict -n 8 --network infiniband-hdr" in said
    typical = changed(wide, estimator="typical")
    (said,) = texts(compose({8: typical}, {}, [4]), "wide")
    assert "measure messages on nodes" in said and "--network" not in said, "it is taken already"


def test_what_is_not_known_of_locks_is_left_out() -> None:
    times = {8: times_at(8, 0.1)}
    told = [
        any(
            "MPI_Win_lock" in line
            for line in compose(times, {}, [4], Facts(calls=calls)).not_modelled
        )
        for calls in ({"MPI_Win_lock", "MPI_Put"}, {"MPI_Win_lock_all"})
    ]
    assert told == [True, False]


def test_what_is_wide_for_its_files_names_their_measurement() -> None:
    """Files take as long as computing: a tenth of that, or ten times it."""
    made = times_at(8, 0.1)
    words = dict.fromkeys(("op", "site", "what", "way", "files", "pattern"), "write")
    numbers = {"follows": 1.0, "processes": 8, "nbytes": 8.0, "calls": 8.0}
    use = {**words, **numbers, "seconds": 1.0, "low_s": 0.1, "high_s": 10.0}
    wide = replace(made, io=made.compute, head={**made.head, "files": [use]})
    (said,) = texts(compose({8: wide}, {}, [4]), "wide")
    assert "p3s machine measure --io DIRECTORY" in said


@pytest.mark.parametrize(
    ("errors", "off"),
    [
        (work((0.9, -0.2), (0.1, 0.6)), 0.24),
        (work((0.9, -0.2), (0.1, 0.8)), 0.26),
        (work((1.0, 0.1), total=0.4), 0.4),
        (work(mean=0.3, worst=0.9), 0.3),
        (work(), 0.0),
    ],
)
def test_work_that_was_off_where_the_model_was_checked(errors: WorkErrors, off: float) -> None:
    assert errors.off == pytest.approx(off)
    found = judge_holdout(held_out(16, work=errors))
    assert [each.code for each in found] == ["holdout-work"] * (off > 0.25)
    again = of_validation(comparison(16, work=errors))
    assert [each.code for each in again] == ["validate-work"] * (off > 0.25)
    for each in (*found, *again):
        assert f"{100 * off:.0f} %" in each.text and "16 processes" in each.text


@pytest.mark.parametrize(("share", "found"), [(0.09, []), (0.38, ["left-out"])])
def test_what_a_validation_leaves_out(share: float, found: list[str]) -> None:
    reasons = of_validation(comparison(12, unmodelled=Unmodelled(9, share)))
    assert [each.code for each in reasons] == found
    assert not found or "38 % of the time" in reasons[0].text


@pytest.mark.parametrize(
    ("rows", "unknown", "found"),
    [
        ([0.04, 0.07], 0.11, ["left-out"]),
        ([0.04], 0.2, ["no-rule"]),
        ([0.2], 0.4, ["left-out", "no-rule"]),
        ([0.04], 0.09, []),
    ],
)
def test_calls_that_are_not_modelled_are_told_from_those_without_a_rule(
    rows: list[float], unknown: float, found: list[str]
) -> None:
    """What is not modelled has no rule either: it is not counted twice."""
    head = {
        "not_modelled": [
            {"op": f"MPI_X{k}", "share_of_time": share} for k, share in enumerate(rows)
        ],
        "traced_share": {"unknown": {"time": unknown}},
    }
    result = compose({4: times_at(4, 1.0, **head)}, {}, [4])
    rough = [each.code for each in result.reasons if each.rough and each.code != "wide"]
    assert sorted(rough) == found and result.grade != "unusable"
    assert "left-out" not in found or "MPI_X0" in texts(result, "left-out")[0]


def test_validations_of_this_model_speak_against_a_prediction(tmp_path: Path) -> None:
    study = Study.create(tmp_path / "study", ["mpiexec", "-n", "{np}", "./app"])
    put_model(study)
    put_scaled(study, 2, [(0, 0, 1, 1e6), (1, 0, 1, 1e6)], [phase(0)])
    put_replay(study, 2, [(0, 0, 1.0, 1.0, 1.0), (1, 0, 1.0, 1.0, 1.0)])
    off = {
        "schema": "p3s.validation",
        "schema_version": 1,
        "model_crc": crc_of(study.model_path),
        **to_data(comparison(8, work=work((1.0, 0.5)))),
    }
    write_json(study.validate_path(8), off)
    result = predict(study, [2])
    (reason,) = [each for each in result.reasons if each.code == "validate-work"]
    assert reason.rough and reason.cost == pytest.approx(0.5, rel=0.1)
    write_json(study.validate_path(8), {**off, "model_crc": 1})
    assert not texts(predict(study, [2]), "validate-work"), "it was made with another model"
    study.validate_path(8).write_text("{")
    with pytest.raises(
        DamagedFile, match="np000008.json"
    ):  # it may be what speaks against the model
        predict(study, [2])


# ---- a run that contradicts the others -------------------------------------------------------
def found(**totals: float) -> dict[int, tuple[str, float]]:
    runs = {int(n[1:]): run_of(int(n[1:]), total) for n, total in totals.items()}
    return contradictions(runs, {n: run.wall_s for n, run in runs.items()})


def test_one_disturbed_count_is_found_by_the_law_of_the_others() -> None:
    ((n, (what, ratio)),) = found(n2=16.0, n4=10.1, n8=10.0, n16=10.2).items()
    assert (n, what, round(ratio, 1)) == (2, "computation", 1.6)
    assert list(found(n2=10.0, n4=10.1, n8=14.0, n16=10.2, n32=10.4)) == [8]
    assert list(found(n2=10.0, n4=11.0, n8=18.0, n16=13.3, n32=14.6)) == [8], "it may grow"
    assert list(found(n2=16.0, n4=10.1, n8=10.0)) == [2], "one against two that agree"


@pytest.mark.parametrize(
    "totals",
    [
        {"n2": 10.0, "n4": 10.3, "n8": 9.9, "n16": 10.1},
        {"n2": 10.0, "n4": 11.0, "n8": 12.0, "n16": 20.0},  # it may go on like that
        {"n2": 6.0, "n4": 10.1, "n8": 10.0, "n16": 10.2},  # no disturbance makes a run faster
        {"n2": 10.0, "n4": 13.0, "n8": 9.0, "n16": 16.0},  # nothing agrees with anything
        {"n2": 16.0, "n4": 10.0},
        {"n2": 16.0, "n4": 12.0, "n8": 10.0},
        {"n1": 38.6, "n4": 62.0, "n9": 135.0, "n16": 250.0},  # no power leads there from the others
        {"n1": 11.0, "n2": 12.0, "n4": 14.0, "n8": 18.0, "n16": 26.0},  # some of it on every rank
    ],
)
def test_what_is_no_contradiction(totals: dict[str, float]) -> None:
    assert found(**totals) == {}


def test_repeats_that_agree_are_believed() -> None:
    runs = {n: run_of(n, 10.0) for n in (4, 8, 16)}
    slow = {**runs, 2: run_of(2, 16.0, repeats=3)}
    model = {n: run.wall_s for n, run in slow.items()}
    assert contradictions(slow, model) == {}
    apart = replace(slow[2], totals_s=(10.0, 16.0, 19.0), wall_s=5.0, wall_max_s=9.0)
    assert list(contradictions({**slow, 2: apart}, {**model, 2: 5.0})) == [2]


def test_a_run_time_that_the_others_do_not_confirm() -> None:
    """The model is 10 % off everywhere, and by a factor of 1.8 at one count."""
    runs = {n: run_of(n, 10.0, wall=10.0 / n * (1.8 if n == 4 else 1.1)) for n in (2, 4, 8, 16)}
    model = {n: 10.0 / n for n in runs}
    ((n, (what, ratio)),) = contradictions(runs, model).items()
    assert (n, what) == (4, "run time") and ratio == pytest.approx(1.8 / 1.1, rel=0.01)


def test_what_contradicts_is_no_baseline() -> None:
    times = {**halving(4, 8, 16, 64), 2: times_at(2, 48.0)}
    runs = {n: run_of(n, 64.0) for n in (4, 8, 16)} | {2: run_of(2, 96.0, wall=48.0)}
    result = compose(times, runs, [2, 4, 8, 16])
    assert (result.baseline_n, result.counts[0].n) == (4, 2)
    first, base, *_, last = result.counts
    assert first.contradicts and not first.representative and not base.contradicts
    assert first.time_from == "model" and first.efficiency == pytest.approx(2 / 3)
    assert base.speedup == 1.0 and last.speedup == pytest.approx(16.0)
    assert codes(result) == [], "the others are as the model says"
    (said,) = texts(result, "contradicts")
    assert "the run at 2 processes contradicts the others: its computation is 1.5 times" in said
    assert "speedups relate to 4 processes" in said and "-n 2 -r 3" in said
    computed = [each for each in result.residuals if each.n == 2]
    assert not any(each.representative for each in computed), "it does not widen the interval"
    made = PredictionFile.of(PREDICTION.data(result))
    assert made.at(2)["contradicts"]
    with pytest.raises(P3SError, match="baseline_n is 2, not the smallest count, 4"):
        PredictionFile.of({**PREDICTION.data(result), "baseline_n": 2})


def test_an_interval_that_is_too_wide_by_what_contradicts_proposes_the_model_without_it() -> None:
    times = {**halving(1, 2, 8, 16), 4: times_at(4, 40.0)}
    times[64] = times_at(64, 1.0)
    times[64].phases[0]["no_trend"] = {"why": "so", "low": 0.3, "high": 2.0}
    runs = {n: run_of(n, 64.0) for n in (1, 2, 8, 16)} | {4: run_of(4, 160.0)}
    result = compose(times, runs, [1, 2, 4, 8, 16])
    (said,) = texts(result, "wide")
    assert "p3s model STUDY --without 4" in said or "p3s model --without 4" in said
    sound = compose(
        {n: made for n, made in times.items() if n != 4},
        {n: run for n, run in runs.items() if n != 4},
        [1, 2, 8, 16],
    )
    assert "--without" not in texts(sound, "wide")[0]


def test_without_it_the_same_runs_would_be_superlinear() -> None:
    times = {**halving(4, 8, 16), 2: times_at(2, 48.0)}
    result = compose(times, {}, [2, 4, 8, 16])
    assert codes(result) == ["superlinear"] and result.baseline_n == 2


# ---- below the traced counts -----------------------------------------------------------------
@pytest.mark.parametrize(
    ("total", "others", "wrong"),
    [
        (64.0, (64.0, 64.0, 64.0), False),
        (13.0, (64.0, 68.0, 75.0), True),  # computation is lost
        (150.0, (64.0, 64.0, 64.0), True),
        (16.0, (32.0, 64.0, 128.0), False),  # it grows with the count all along
        (16.0, (64.0, 128.0, 256.0), False),
        (64.0, (64.0, 200.0, 800.0), False),  # it need not go on growing
        (40.0, (64.0, 70.0, 70.0), False),
    ],
)
def test_work_below_the_traced_counts_goes_on_from_theirs(
    total: float, others: tuple[float, ...], wrong: bool
) -> None:
    times = {n: times_at(n, all_ / n) for n, all_ in zip((2, 4, 8), others, strict=True)}
    times[1] = times_at(1, total)
    result = compose(times, {}, [2, 4, 8])
    assert ("below-traced" in codes(result)) == wrong
    assert result.baseline_n == (2 if wrong else 1)
    assert [row.below_traced for row in result.counts] == [wrong, False, False, False]
    assert PredictionFile.of(PREDICTION.data(result))
    for said in texts(result, "below-traced"):
        assert "at 1 process all ranks together compute" in said and "-n 1" in said
        assert "speedups relate to 2 processes" in said


def test_one_count_below_is_compared_with_totals_that_were_measured() -> None:
    facts = Facts(totals={2: 64.0, 4: 66.0})
    result = compose({1: times_at(1, 13.0)}, {}, [2, 4], facts)
    assert codes(result) == ["below-traced"] and result.baseline_n == 1
    assert "compute 13.0 s" in texts(result, "below-traced")[0]
    assert codes(compose({1: times_at(1, 60.0)}, {}, [2, 4], facts)) == []


# ---- work without a trend --------------------------------------------------------------------
def test_laws_that_fit_as_well_widen_the_interval() -> None:
    """Half to three times the work fits, too; its own error is 10 %."""
    why = "the points fit laws that differ by more than a factor of 4 at 128 processes"
    made = times_at(8, 1.0)
    made.phases[0]["no_trend"] = {"why": why, "low": 0.5, "high": 1.5}
    result = compose({8: made}, {}, [4])
    row = result.counts[0]
    assert (row.low_s, row.high_s) == pytest.approx((0.5, 1.5), rel=5e-3)
    assert row.phases[0].compute_low_s == pytest.approx(0.5)
    (said,) = texts(result, "no-trend")
    assert why in said and result.grade == "rough"
    timed = times_at(8, 1.0)
    timed.phases[0].update(
        compute_low=0.9, compute_high=1.1, work_error=0.06, no_trend=made.phases[0]["no_trend"]
    )
    work, cost = timed.parts_of(0)
    assert work == (0.5, 1.5) and cost == pytest.approx((0.92, 1.08))
    timed.phases[0]["no_trend"] = None
    assert timed.parts_of(0)[0] == pytest.approx((0.94, 1.06))


# ---- data that runs out ----------------------------------------------------------------------
def test_where_the_data_runs_out_the_interval_is_open() -> None:
    times = halving(4, 8, 16)
    times[16].head["emptied"] = [{"op": "MPI_Isend", "site": "a", "ranks": 3}]
    result = compose(times, {}, [4])
    assert codes(result) == ["emptied"]
    (said,) = texts(result, "emptied")
    assert "at 16 processes" in said and "MPI_Isend on 3 of 16 processes" in said
    before, there = result.counts[1:]
    assert before.low_s is not None and before.model_high_s is not None
    assert {there.low_s, there.high_s, there.speedup_low, there.speedup_high} == {None}


def test_calls_that_no_run_came_to_are_rivals_above_the_traced_counts() -> None:
    times = {n: talking(made, 9.0) for n, made in halving(4, 8, 16).items()}
    found = (OtherCall("MPI_Alltoall", "pencils", "solve"),)
    result = compose(times, {}, [4, 8], Facts(other=found))
    assert codes(result) == [] and result.grade == "rough"
    (said,) = texts(result, "other-calls")
    assert "at 16 processes" in said and "its calls of MPI_Alltoall in pencils" in said
    before, there = (row.interval_parts.rivals for row in result.counts[1:])
    assert not before and [each.code for each in there] == ["other-calls"]
    assert not texts(compose(times, {}, [4, 16], Facts(other=found)), "other-calls")


def test_what_the_user_allows_is_minded_only() -> None:
    """Another way that an option of the program chooses is no rival then."""
    times = {n: talking(made, 9.0) for n, made in halving(4, 8, 16).items()}
    found = (OtherCall("MPI_Alltoall", "pencils", "solve"),)
    facts = Facts(other=found, allowed=("other-calls", "wide"))
    result = compose(times, {}, [4, 8], facts)
    (reason,) = result.reasons
    assert reason.code == "other-calls" and not reason.untrustworthy and result.grade == "usable"
    assert not result.counts[-1].interval_parts.rivals
    result = compose(times, {}, [4, 8], Facts(other=found, allowed=("wide",)))
    assert result.reasons[0].rough and "--allow other-calls" in result.reasons[0].advice


def test_what_may_be_a_copy_is_said_and_opens_nothing() -> None:
    times = halving(4, 8, 16)
    found = (OtherCall("MPI_Irecv", "main", "main", copied=True),)
    result = compose(times, {}, [4, 8], Facts(other=found))
    (reason,) = result.reasons
    assert reason.code == "copied-calls" and not reason.untrustworthy
    assert "some calls of MPI_Irecv in main" in reason.text and "-g" in reason.advice
    assert result.counts[-1].high_s is not None


# ---- words -----------------------------------------------------------------------------------
def test_numbers_with_their_nouns() -> None:
    assert [plural(k, "call") for k in (0, 1, 1200)] == ["0 calls", "1 call", "1,200 calls"]
    assert [processes(n) for n in (1, 2, 4096)] == ["1 process", "2 processes", "4,096 processes"]
    assert processes([1]) == "1 process" and processes([1, 2, 4]) == "1, 2 and 4 processes"
    assert join_words([]) == "" and join_words("ab", "or") == "a or b"


def test_processes_that_do_not_share_the_work_are_named() -> None:
    """A fixed input per process looks like a program that becomes slower."""
    same = {1: times_at(1, 1.0), 8: times_at(8, 1.1), 64: times_at(64, 1.25)}
    found = compose(same, {}, [1, 8])
    said = texts(found, "same-work")
    assert len(said) == 1 and "weak scaling, 80 %" in said[0]
    assert "same-work" not in codes(found), "to be minded only"
    assert not texts(compose(halving(1, 8, 64), {}, [1, 8]), "same-work")
    assert not texts(compose(same, {}, [1, 8], Facts(settings={8: {"size": "2"}})), "same-work")
    faster = {**same, 64: times_at(64, 0.9)}
    assert not texts(compose(faster, {}, [1, 8]), "same-work"), "111 %"


def test_work_that_the_traced_processes_share_does_not_grow_with_them() -> None:
    """Only the law of what is left says that a process computes as much further on."""
    shared = {4: times_at(4, 1.0), 16: times_at(16, 0.7), 64: times_at(64, 0.97)}
    assert not texts(compose(shared, {}, [4, 16]), "same-work")
    near = {4: times_at(4, 1.0), 6: times_at(6, 1.0), 64: times_at(64, 1.0)}
    assert not texts(compose(near, {}, [4, 6]), "same-work")
    assert texts(compose(near, {}, [4, 64]), "same-work")


@pytest.mark.parametrize(
    ("value", "said"), [(0.2519, "25.2 %"), (0.31, "31 %"), (0.25001, "25.001 %"), (4.0, "400 %")]
)
def test_a_share_above_its_limit_is_seen_to_be_above_it(value: float, said: str) -> None:
    assert over(value, 0.25) == f"{said} (limit 25 %)"
