"""Studies with several numbers of threads: laws, messages, run times over both, advice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from commands import cli
from threads_study import ITERS, Hybrid, put_threads

import p3s
from p3s.base.artefacts import add_digest
from p3s.base.errors import DamagedFile, Defect, P3SError, UsageError
from p3s.base.progress import Progress
from p3s.base.settings import parse_setting
from p3s.base.study import Study
from p3s.cli.progress import Progress as Bar
from p3s.machine.topology.inside import read_node
from p3s.methods.threads import predicting as teams
from p3s.methods.threads import stage
from p3s.methods.threads import text as teams_text
from p3s.methods.threads.advise import text as advice_text
from p3s.methods.threads.advise.stage import Asked, advise_threads
from p3s.methods.threads.advise.types import Objective
from p3s.methods.threads.page import view_of, write_page
from p3s.methods.threads.runs import _made_up
from p3s.methods.threads.settings import check_messages
from p3s.model.stage import load
from p3s.pipeline import parameters as core_teams
from p3s.pipeline.parameters import ensure_family
from p3s.pipeline.predicting import PredictArguments, ensure_prediction, what_ifs_of
from p3s.pipeline.prediction import request_of
from p3s.predict import surface as surfaces
from p3s.predict.types import Prediction
from p3s.replay.settings import ReplaySettings
from p3s.report import surface as surface_text

HYBRID = Hybrid()
REQUEST = request_of("auto", "", True, ReplaySettings())
NODE = read_node("2x8")


@pytest.fixture(scope="module", autouse=True)
def _eight_cores() -> Iterator[None]:
    """Runs are on a machine of eight cores, whatever this one has."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(teams, "cores", lambda: 8)
        patch.setattr(core_teams, "cores", lambda: 8)
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return put_threads(tmp_path_factory.mktemp("threads") / "study")


@pytest.fixture(scope="module")
def surface(made: Study) -> surfaces.Surface:
    wanted = core_teams.PredictionRange([16, 32], [1, 2, 4, 8], node=NODE)
    return teams.surface(made, wanted, REQUEST, Progress())


@pytest.fixture(scope="module")
def found(made: Study) -> stage.ThreadFile:
    return teams.ensure_threads(made, NODE, Progress())


def test_messages_with_other_threads_are_those_of_the_equations(found: stage.ThreadFile) -> None:
    assert [(c.threads, c.n) for c in found.checks] == [(t, n) for t in (2, 4) for n in (2, 4, 8)]
    assert all(check.equal for check in found.checks)
    assert not teams_text.doubts(found)


def test_messages_of_threads_are_said(tmp_path: Path) -> None:
    study = put_threads(tmp_path / "s", Hybrid(chatty=True))
    file = teams.ensure_threads(study, NODE, Progress())
    assert not any(check.equal for check in file.checks)
    said = teams_text.doubts(file)
    assert {reason.code for reason in said} == {"threads-differ"}
    assert "threads=4 at 8 processes" in " ".join(reason.text for reason in said)


@pytest.mark.parametrize(("inside", "trusted"), [(0.005, True), (0.3, False)])
def test_calls_that_threads_make_in_regions_are_said(inside: float, trusted: bool) -> None:
    file = stage.ThreadFile(1, (1, 2), NODE, (), inside, ())
    (said,) = teams_text.doubts(file, messages=False)
    assert said.code == "threads-call" and said.untrustworthy is not trusted
    assert not teams_text.doubts(stage.ThreadFile(1, (1, 2), NODE, (), 0.0, ()))


@pytest.mark.parametrize(("longer", "trusted"), [(1, True), (10, False)])
def test_the_same_messages_more_often_are_told_as_such(
    tmp_path: Path, longer: int, trusted: bool
) -> None:
    study = put_threads(tmp_path / "s", Hybrid(longer=longer), threads=(1, 2))
    at = study.at_dir("threads=1")
    teams.ensure_model(Study(at), Progress())
    checks = check_messages("", teams.tables_of(study, ""), 1, load(at))
    assert all(check.alike and not check.equal for check in checks)
    file = stage.ThreadFile(1, (1, 2), NODE, tuple(checks), 0.0, ())
    (said,) = teams_text.doubts(file)
    assert said.untrustworthy is not trusted
    assert "the same messages, but" in said.text and "in 2 other runs" in said.text


def test_what_the_model_misses_is_no_matter_of_threads(tmp_path: Path) -> None:
    study = put_threads(tmp_path / "s", threads=(1, 2))
    put_threads(tmp_path / "other", Hybrid(chatty=True), threads=(2,))
    other = Study(tmp_path / "other" / "at" / "threads=2")
    teams.ensure_model(other, Progress())
    checks = check_messages("", teams.tables_of(study, ""), 1, load(other.root))
    assert len(checks) == 3 and all(check.equal for check in checks)


def test_computation_follows_the_law_where_threads_were_traced(surface: surfaces.Surface) -> None:
    for threads in (1, 2, 4):
        cell = surface.at(16, threads)
        assert cell is not None and cell.traced
        true = ITERS * HYBRID.seconds(16, threads)
        assert cell.compute_s == pytest.approx(true, rel=0.1)


def test_more_threads_than_traced_have_a_wider_interval_that_holds(
    surface: surfaces.Surface,
) -> None:
    cell, traced = surface.at(16, 8), surface.at(16, 4)
    assert cell is not None and traced is not None and not cell.traced
    true = ITERS * HYBRID.seconds(16, 8)
    assert cell.low_s is not None and cell.high_s is not None
    assert cell.low_s - cell.comm_s <= true <= cell.high_s - cell.comm_s
    assert traced.low_s is not None and traced.high_s is not None
    assert cell.high_s / cell.low_s > traced.high_s / traced.low_s


class _Heard(Progress):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def done(self, text: str) -> None:
        self.told.append(text)

    def say(self, text: str) -> None:
        self.told.append(text)


def test_a_step_of_all_numbers_of_threads_is_told_once(tmp_path: Path) -> None:
    study, heard = put_threads(tmp_path / "s"), _Heard()
    wanted = core_teams.PredictionRange([16], [1, 2, 4], node=NODE)
    teams.surface(study, wanted, REQUEST, heard)
    assert sorted(heard.told) == sorted(set(heard.told))
    assert sum(text.startswith("model fitted") for text in heard.told) == 1
    assert sum(text.startswith("network: ") for text in heard.told) <= 1


def test_nodes_and_cores_are_those_of_the_layout(surface: surfaces.Surface) -> None:
    cell = surface.at(32, 4)
    assert cell is not None
    assert (cell.per_node, cell.nodes, cell.cores) == (4, 8, 128)
    assert cell.cost_core_h == pytest.approx(128 * cell.time_s / 3600)
    assert surface.base == (2, 1)
    first = surface.at(2, 1)
    assert first is not None
    assert cell.speedup == pytest.approx(first.time_s / cell.time_s)
    assert cell.efficiency == pytest.approx(cell.speedup * 2 / 128)


def test_surface_is_the_same_read_again(made: Study, surface: surfaces.Surface) -> None:
    path = surfaces.write(made.root, surface)
    assert surfaces.SURFACE.read(path) == surface
    path.write_bytes(add_digest(path.read_bytes().replace(b'"cells"', b'"sells"')))
    with pytest.raises(Defect, match="as p3s wrote it; this is a bug"):
        surfaces.SURFACE.read(path)
    path.write_bytes(path.read_bytes().replace(b'"sells"', b'"bells"'))
    with pytest.raises(DamagedFile, match="damaged, or changed"):
        surfaces.SURFACE.read(path)
    surfaces.write(made.root, surface)


def test_surface_as_text(surface: surfaces.Surface) -> None:
    text = surface_text.render(surface)
    assert "Fastest: " in text and "32 processes with" in text
    assert "no run had so many threads" in text
    assert text.count("~") >= 3


def test_threads_that_do_not_fit_on_a_node_are_refused(made: Study) -> None:
    with pytest.raises(UsageError, match="a node has 16 cores"):
        teams.surface(made, core_teams.PredictionRange([16], [32], node=NODE), REQUEST, Progress())


def test_laws_use_what_the_tracer_saw(found: stage.ThreadFile) -> None:
    (law,) = [law for law in found.laws if law.regions > 0 and law.fit < 0.2][:1]
    parts = {part.name: part for part in law.parts}
    assert parts["serial"].value > 0.02
    assert law.regions == pytest.approx(1.0)


def test_advice_is_near_the_best(made: Study) -> None:
    asked = Asked(nodes=4, cores=64, node=NODE)
    result = advise_threads(made.root, asked, REQUEST, Progress())
    advice = result.advice
    assert advice.considered > 30
    assert all(c.configuration.processes * c.configuration.threads <= 64 for c in advice.choices)
    best = advice.best.configuration
    times = {
        (cell.processes, cell.threads): ITERS * HYBRID.seconds(cell.processes, cell.threads)
        for cell in result.cells
    }
    assert times[best.processes, best.threads] <= 1.25 * min(times.values())
    regrets = [choice.regret for choice in advice.choices]
    assert regrets == sorted(regrets) and regrets[0] >= 0
    file = advice_text.AdviceFile(
        "", NODE, 4, 64, advice, result.cells, result.next, "", result.reasons
    )
    path = advice_text.write(made.root, file)
    assert advice_text.load(made.root) == file
    assert "configurations that 4 nodes (2x8) and 64 cores admit" in advice_text.render(file, "")
    path.write_bytes(add_digest(path.read_bytes().replace(b'"advice":', b'"advise":')))
    with pytest.raises(Defect, match="as p3s wrote it; this is a bug"):
        advice_text.load(made.root)
    advice_text.write(made.root, file)


def test_core_hours_ask_for_fewer_nodes_than_time(made: Study) -> None:
    fast = advise_threads(made.root, Asked(4, 64, node=NODE), REQUEST, Progress()).advice.best
    cheap = advise_threads(
        made.root, Asked(4, 64, node=NODE, objective=Objective.CORE_HOURS), REQUEST, Progress()
    ).advice.best
    assert cheap.configuration.nodes < fast.configuration.nodes
    assert cheap.core_hours < fast.core_hours


def test_advice_keeps_to_the_counts_and_threads_that_are_named(made: Study) -> None:
    asked = Asked(nodes=4, cores=0, node=NODE, threads=(2,), counts=(4, 8))
    result = advise_threads(made.root, asked, REQUEST, Progress())
    at = {(c.processes, c.threads) for c in result.cells}
    assert at == {(4, 2), (8, 2)}


def test_report_has_heat_maps(made: Study, surface: surfaces.Surface, tmp_path: Path) -> None:
    surfaces.write(made.root, surface)
    page = tmp_path / "report.html"
    write_page(view_of(made.root, made.command(), teams.runs_of(made)), page)
    text = page.read_text()
    assert "<svg" in text
    assert '<p class="lead">Messages do not depend on threads' in text
    assert '<p class="soft">On 16 cores: ' in text
    assert 'fill="var(--m6)"' in text and 'stroke="var(--measured)"' in text


def test_workload_parameters_beside_threads(tmp_path: Path) -> None:
    sizes = (1 << 20, 1 << 21, 1 << 22)
    study = put_threads(tmp_path / "s", threads=(1, 2), sizes=sizes)
    family = ensure_family(study, Bar())
    assert family is not None and len(family.parts) == 1
    assert {s.name.split(",")[1] for s in family.settings} == {"threads=1"}
    wanted = core_teams.PredictionRange([16], [1, 2], rest=f"cells={3 << 20}", node=NODE)
    found = teams.surface(study, wanted, REQUEST, Progress())
    for threads in (1, 2):
        cell = found.at(16, threads)
        assert cell is not None
        assert cell.low_s is not None and cell.high_s is not None
        true = ITERS * Hybrid(3 << 20).seconds(16, threads)
        assert cell.low_s - cell.comm_s <= true <= cell.high_s - cell.comm_s


def test_draws_of_configurations_are_joint(found: stage.ThreadFile) -> None:
    law = found.laws[0]
    layout = stage.Layout(4, 4)
    work = np.array([1e-3, 1e-3])
    draws = law.draws(layout.uses([8, 8]), work)
    assert np.allclose(draws[:, 0], draws[:, 1])


def test_a_study_in_python(made: Study) -> None:
    study = p3s.open(made.root)
    found = study.over_threads([16], [1, 2], node="2x8")
    assert found.at(16, 2) is not None
    assert study.advise(nodes=2, node="2x8").choices[0].configuration.nodes <= 2
    with pytest.raises(UsageError, match="how many there are"):
        study.advise()
    with pytest.raises(UsageError, match="not one of time"):
        study.advise(nodes=2, objective="joy")


def test_what_is_in_no_region_is_outside() -> None:
    parts = {"serial": np.array([0.1, 0.2]), "longest": np.array([0.3, 0.75])}
    made = _made_up(parts, np.array([1.0, 1.0]))
    assert made["serial"].tolist() == pytest.approx([0.7, 0.2])
    assert made["longest"].tolist() == [0.3, 0.75]


def test_regions_that_go_on_over_calls_tell_no_parts() -> None:
    parts = {"serial": np.array([0.0, 0.0, 0.2]), "longest": np.array([0.0, 9.0, 0.8])}
    made = _made_up(parts, np.array([1.0, 0.5, 1.0]))
    assert np.isnan(made["serial"]).tolist() == [True, True, False]
    assert np.isnan(made["longest"]).tolist() == [True, True, False]


# ---- what if there were more threads ------------------------------------------------------------
def predicted_with(study: Study, what_if: list[str], per_node: int = 4) -> Prediction:
    """Return the prediction of three threads at 16 processes, ``per_node`` of them on a node."""
    request = replace(REQUEST, settings=ReplaySettings(cores_per_node=per_node))
    teams.ensure_threads(study, NODE, Progress())
    at = teams.at_setting(study, parse_setting("threads=3"), Progress())
    changes = what_ifs_of(what_if)
    arguments = PredictArguments((16,), request, only=True, what_if=changes)
    return ensure_prediction(at, arguments, Progress())[1]


def test_what_more_threads_save_is_what_the_program_saves(made: Study) -> None:
    """Computation with other threads than three, as the formula has it, and its interval."""
    found = predicted_with(made, ["threads=6", "threads=1", "table"])
    rows = {row.text: row.last for row in found.what_if}
    now = ITERS * HYBRID.seconds(16, 3)
    for threads in (6, 1):
        true, row = now - ITERS * HYBRID.seconds(16, threads), rows[f"threads={threads}"]
        assert row.saved_low_s is not None and row.saved_high_s is not None
        assert row.saved_low_s < true < row.saved_high_s
        assert row.saved_s == pytest.approx(true, rel=0.1)
        assert row.low_s is not None and row.low_s < row.time_s
    texts = [row.text for row in found.what_if if not row.asked]
    assert "balanced" in texts and not any(text.startswith("threads") for text in texts)


def test_the_table_has_twice_the_threads_where_a_node_has_the_cores(made: Study) -> None:
    assert "threads=6" in [row.text for row in predicted_with(made, []).what_if if not row.asked]
    few = predicted_with(made, [], per_node=1)
    assert not any(row.text.startswith("threads") for row in few.what_if)


@pytest.mark.parametrize(
    ("text", "why"),
    [("threads=9", "no run had more than 4 threads"), ("threads=3", "is what the prediction has"),
     ("threads=73", "a node has 72 cores")],
)  # fmt: skip
def test_threads_of_which_nothing_is_known(made: Study, text: str, why: str) -> None:
    with pytest.raises(P3SError, match=why):
        predicted_with(made, [text], per_node=24)


def test_threads_that_send_messages_have_no_row(tmp_path: Path) -> None:
    found = predicted_with(put_threads(tmp_path / "s", Hybrid(chatty=True), threads=(1, 2)), [])
    assert not any(row.text.startswith("threads") for row in found.what_if)


def test_a_study_at_a_number_of_threads_fills_nodes_with_them(made: Study) -> None:
    at = Study(made.at_dir("threads=4"))
    request = core_teams.fill_node_slots(at, REQUEST)
    whole = core_teams.node_of(at, REQUEST).slots
    assert request.settings.cores_per_node == whole // 4
    assert core_teams.fill_node_slots(Study(made.at_dir("threads=1")), REQUEST) == REQUEST


def test_changes_of_a_study_with_several_numbers_of_threads_are_refused(made: Study) -> None:
    cli(
        f"predict {made.root} -n 16 --what-if latency/2",
        code=2,
        err="name one of them, as in --param threads=2",
    )
