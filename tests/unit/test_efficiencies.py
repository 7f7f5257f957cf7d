"""Efficiencies by the names of the POP project, where pencil and paper say what they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from made_predictions import made_prediction, record
from replay_patterns import Trace
from report_studies import put_study, shown
from test_what_if import MS, TURNS, asked, put_machine, study_of

from p3s.pipeline.saved import PredictionFile
from p3s.predict.rows import efficiencies, with_transfer
from p3s.predict.types import Efficiencies, Prediction
from p3s.report.details import efficiencies as part_of
from p3s.report.html import render
from p3s.report.show import lines_of

#: A message takes so many ns.
MESSAGE = 1.0 * MS


def alternating(n: int, work: float, messages: int = 1) -> Trace:
    """Return a trace of a token that goes round: only who has it computes, for ``work`` ns."""
    trace = Trace(n, weight=TURNS)
    for rank in range(n):
        if rank:
            trace.add(rank, "MPI_Recv", rank - 1)
        trace.add(rank, "MPI_Send", (rank + 1) % n, work=work)
        if not rank:
            trace.add(rank, "MPI_Recv", n - 1)
    return trace


def parts(prediction: Prediction, n: int) -> Efficiencies:
    found = prediction.at(n).pop
    assert found is not None
    return found


def test_ranks_that_take_turns_are_serialised(tmp_path: Path) -> None:
    """Two ranks, 3 ms of computation each, one after the other, and two messages of 1 ms.

    A turn takes 3 + 1 + 3 + 1 ms, and 6 ms on an ideal network; each rank computes for 3.
    """
    study = study_of(tmp_path, alternating(2, 3 * MS))
    put_machine(study, one_way=MESSAGE)
    found = parts(asked(study, [2], "network=ideal"), 2)
    assert found.load_balance == pytest.approx(1.0)
    assert found.transfer == pytest.approx(6 / 8, rel=1e-3)
    assert found.serialisation == pytest.approx(3 / 6, rel=1e-3)
    assert found.communication == pytest.approx(3 / 8, rel=1e-3)
    assert found.parallel == pytest.approx(3 / 8, rel=1e-3)
    assert found.computation_scalability == 1.0
    assert found.global_efficiency == pytest.approx(found.parallel)


def test_a_slow_rank_is_a_lack_of_balance(tmp_path: Path) -> None:
    """All wait for the rank with 4 ms; the mean is 2 ms, and messages take next to nothing."""
    trace = Trace(4, weight=TURNS)
    for rank, work in enumerate([1 * MS, 1 * MS, 4 * MS, 2 * MS]):
        trace.add(rank, "MPI_Allreduce", nbytes=8, work=work)
    found = parts(asked(study_of(tmp_path, trace), [4], "network=ideal"), 4)
    assert found.load_balance == pytest.approx(2 / 4)
    assert found.communication == pytest.approx(1.0, rel=5e-3)
    assert found.serialisation == pytest.approx(1.0, rel=1e-6)
    assert found.parallel == pytest.approx(found.load_balance * found.communication)


def test_more_work_with_more_ranks_scales_less(tmp_path: Path) -> None:
    """2 ranks of 6 ms, 4 of 4 ms: 12 ms of work become 16."""
    traces = [all_alike(2, 6 * MS), all_alike(4, 4 * MS)]
    found = asked(study_of(tmp_path, *traces), [2, 4], table=None)
    assert parts(found, 2).computation_scalability == 1.0
    assert parts(found, 4).computation_scalability == pytest.approx(12 / 16)
    for row in found.counts:
        assert row.pop is not None and row.pop.transfer is not None, "small counts are simulated"
        assert row.pop.serialisation is not None and row.pop.communication is not None
        assert row.pop.serialisation * row.pop.transfer == pytest.approx(row.pop.communication)
        base = parts(found, 2).global_efficiency
        assert base and row.pop.global_efficiency
        assert row.efficiency == pytest.approx(row.pop.global_efficiency / base, rel=1e-6)


def test_transfer_is_not_simulated_where_nobody_asks(tmp_path: Path) -> None:
    found = parts(asked(study_of(tmp_path, all_alike(2, 6 * MS)), [2], table=False), 2)
    assert found.parallel is not None and found.transfer is None and found.serialisation is None


def all_alike(n: int, work: float) -> Trace:
    trace = Trace(n, weight=TURNS)
    for rank in range(n):
        trace.add(rank, "MPI_Allreduce", nbytes=8, work=work)
    return trace


def test_what_is_not_known_stays_open() -> None:
    assert efficiencies(0.0, 0.0, 1.0, 1.0) is None
    assert efficiencies(float("nan"), 1.0, 1.0, 1.0) is None
    balance = efficiencies(1.0, 2.0, None, 0.5)
    assert balance == Efficiencies(
        load_balance=0.5,
        communication=None,
        serialisation=None,
        transfer=None,
        parallel=None,
        computation_scalability=0.5,
        global_efficiency=None,
    )
    row = replace(record(made_prediction((4,), 1)).counts[0], pop=balance)
    assert with_transfer(row, 0.5).pop == balance
    assert with_transfer(replace(row, pop=None), 0.5).pop is None


KNOWN = {
    "load_balance": 0.9,
    "communication": 0.8,
    "serialisation": 0.9412,
    "transfer": 0.85,
    "parallel": 0.72,
    "computation_scalability": 0.95,
    "global_efficiency": 0.684,
}


def test_they_are_in_file_text_frame_and_page(tmp_path: Path) -> None:
    made = made_prediction((4, 8), 2)
    made["counts"][0]["pop"], made["counts"][1]["pop"] = None, KNOWN
    made["counts"][0]["pop_measured"] = {**KNOWN, "serialisation": None, "transfer": None}
    file = PredictionFile.of(made)
    assert file.content.counts[1].pop == Efficiencies(**KNOWN)
    table = file.efficiency_columns()
    assert table["n"] == [4, 8] and table["transfer"] == [None, 0.85]
    part = part_of(file.content)
    assert part is not None and part.tables[1].rows[0][1] == "72.0 %"
    assert any(
        line.split()[:4] == ["Transfer", "efficiency", "85.0", "%"] for line in lines_of(part)
    )
    view = shown(put_study(tmp_path / "study", made))
    words = " ".join(render(view).split())
    assert "Serialisation efficiency" in words and "94.1 %" in words
    assert "co-design.pop-coe.eu/metrics" in words
    without = made_prediction()
    for row in without["counts"]:
        row["pop"] = None
    assert part_of(record(without)) is None
