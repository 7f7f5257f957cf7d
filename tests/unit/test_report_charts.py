"""Charts in reports and in notebooks."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import timed_study as ts
from corpus import jacobi2d
from made_predictions import made_prediction, phase_at, record
from report_studies import hostile_prediction
from test_estimators import machine_file

import p3s
from p3s import report
from p3s.base.errors import P3SError, UsageError
from p3s.base.progress import Progress
from p3s.methods.baseline.agreement import curve_of
from p3s.predict.types import Prediction
from p3s.report.charts.cells import matrix_chart
from p3s.report.charts.curves import LEFT, efficiency_chart, phase_chart, speedup_chart
from p3s.report.charts.draw import Linear, Log, fit_labels, log_ends, nice_top, times_label
from p3s.report.charts.ranges import interval_chart
from p3s.report.charts.stacks import MEASURES, stack_chart
from p3s.report.costs import kinds_of, law_rows, limit_text, phase_curves, stacks_of
from p3s.report.html import breakable, unbroken
from p3s.report.notebook import NotebookProgress, progress_here
from p3s.signature.matrix import CommMatrix

NUMBER = re.compile(r"-?\d+(\.\d+)?$")


def drawn(markup: str) -> ElementTree.Element:
    """Return an SVG as a tree; asserts that it is well formed and all its places are numbers."""
    root = ElementTree.fromstring(markup)
    for part in root.iter():
        assert part.tag in {
            "svg",
            "g",
            "title",
            "line",
            "rect",
            "circle",
            "polyline",
            "polygon",
            "path",
            "text",
        }
        assert "style" not in part.attrib
        for key in ("x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "width", "height"):
            assert NUMBER.match(part.attrib.get(key, "0")), (part.tag, part.attrib)
        for pair in part.attrib.get("points", "").split():
            assert all(NUMBER.match(value) for value in pair.split(","))
    return root


def test_powers_of_speedups_are_written_out_and_fit_beside_the_axis() -> None:
    texts = [times_label(2.0**k) for k in (-2, 0, 4, 10, 16)]
    assert texts == ["0.25x", "1x", "16x", "1,024x", "65,536x"]
    assert 6.6 * max(map(len, texts)) < LEFT - 8


def of_class(root: ElementTree.Element, kind: str) -> list[ElementTree.Element]:
    return [part for part in root.iter() if kind in part.attrib.get("class", "").split()]


def charts(prediction: Prediction) -> list[str]:
    """Return every chart of a prediction."""
    stacks = stacks_of(prediction)
    found = [
        speedup_chart(prediction),
        efficiency_chart(prediction),
        *(stack_chart(stacks, measure, by) for measure in MEASURES for by in (False, True)),
        *(phase_chart(curve) for curve in phase_curves(prediction)),
        interval_chart(prediction.last),
    ]
    return [chart for chart in found if chart]


@pytest.mark.parametrize(
    "made",
    [
        made_prediction(),
        made_prediction((8,), 1),
        made_prediction((1, 2), 40, measured=[]),
        made_prediction(tuple(range(1, 300)), 2),
        hostile_prediction(),
        made_prediction(representative=False),
    ],
    ids=["eight", "one", "none-measured", "many-counts", "hostile", "doubtful"],
)
def test_every_chart_is_well_formed(made: dict[str, Any]) -> None:
    for chart in charts(record(made)):
        drawn(chart)


def test_a_curve_has_a_mark_at_every_count() -> None:
    made = record()
    root = drawn(speedup_chart(made))
    assert len(of_class(root, "predicted")) == 5 and len(of_class(root, "measured")) == 3
    assert len(of_class(root, "hit")) == 8 and len(of_class(root, "band")) == 1
    assert len(of_class(root, "best")) == 1, "the recommended count has a ring"
    places = [float(part.attrib["cx"]) for part in of_class(root, "predicted")]
    steps = np.diff(places)
    assert steps.min() > 0 and np.ptp(steps) < 0.3, "doubled counts are equally far apart"
    tip = of_class(root, "hit")[-1][0].text or ""
    last = made.last
    assert "512 processes, predicted" in tip and f"{100 * last.efficiency:.1f} %" in tip


def test_a_regression_of_the_run_times_is_drawn_above_what_it_was_fitted_to() -> None:
    made = record()
    beside = curve_of(made)
    assert beside.counts == (16, 32, 64, 128, 256, 512) and len(beside.sentences) == 2
    root = drawn(speedup_chart(made, [beside]))
    line = of_class(root, "otherline")[0].attrib["points"].split()
    ticks = {part.attrib["x1"] for part in of_class(root, "tick")}
    assert len(line) == 6 and {pair.partition(",")[0] for pair in line} <= ticks
    assert len(of_class(drawn(efficiency_chart(made, [beside])), "otherline")) == 1
    assert not of_class(drawn(speedup_chart(made)), "otherline")


@pytest.mark.parametrize("by_phase", [False, True])
def test_bars_are_as_high_as_the_time(by_phase: bool) -> None:
    made = record()
    stacks = stacks_of(made)
    for measure in ("core", "time"):
        root = drawn(stack_chart(stacks, measure, by_phase))
        heights: dict[str, float] = {}
        for bar in of_class(root, "bar"):
            title = bar[0].text or ""
            n = title.partition(" ")[0]
            heights[n] = heights.get(n, 0.0) + float(bar.attrib["height"])
        assert list(map(int, heights)) == [row.n for row in made.counts]
        expected = np.array(
            [row.model_s * (row.n if measure == "core" else 1) for row in made.counts]
        )
        found = np.array(list(heights.values()))
        assert np.allclose(found / found.max(), expected / expected.max(), atol=0.01)


def test_a_share_is_of_all() -> None:
    root = drawn(stack_chart(stacks_of(record()), "share", True))
    heights: dict[str, float] = {}
    for bar in of_class(root, "bar"):
        n = (bar[0].text or "").partition(" ")[0]
        heights[n] = heights.get(n, 0.0) + float(bar.attrib["height"])
    assert len(heights) == 8 and np.ptp(list(heights.values())) < 1.0


def test_communication_that_is_not_told_apart_stays_whole() -> None:
    none: dict[str, Any] = dict.fromkeys(("waiting_s", "transfer_s", "software_s"))
    whole = phase_at(1, "x", **{**none, "compute_s": 2.0, "comm_s": 1.0})
    row = replace(whole, waiting_s=0.25)
    assert kinds_of(row) == {"compute": 2.0, "waiting": 0.25, "comm": 0.75}
    assert kinds_of(whole) == {"compute": 2.0, "comm": 1.0}
    assert kinds_of(replace(row, transfer_s=0.5, software_s=0.25)) == {
        "compute": 2.0,
        "software": 0.25,
        "transfer": 0.5,
        "waiting": 0.25,
    }


def test_a_phase_that_matters_at_any_count_has_a_colour() -> None:
    made = made_prediction((2, 4, 8), 30)
    for phase in made["counts"][0]["phases"]:
        if phase["name"] == "loop 25":
            phase.update(time_s=1e6, high_s=None)
    stacks = stacks_of(record(made))
    assert stacks.names[0] == "loop 25" and stacks.names[-1] == "25 other phases"
    assert all(len(row.phases) == len(stacks.names) for row in stacks.rows)


def test_the_matrix_is_drawn_cell_by_cell() -> None:
    source = np.arange(8)
    ring = CommMatrix(8, source, (source + 1) % 8, np.full(8, 3), 3 * (100 + source), 0, 0)
    root = drawn(matrix_chart(ring, "bytes"))
    cells = [
        step
        for part in of_class(root, "cell")
        if part.tag == "path"
        for step in re.findall(r"M([\d.]+) ([\d.]+)h([\d.]+)v", part.attrib["d"])
    ]
    assert len(cells) == 8
    side = float(cells[0][2])
    found = {(round((float(y) - 30) / side), round((float(x) - 56) / side)) for x, y, _ in cells}
    assert found == {(k, (k + 1) % 8) for k in range(8)}, "row sends, column receives"
    none = CommMatrix(2, *(np.zeros(0, dtype=np.int64) for _ in range(4)), 0, 0)
    assert matrix_chart(none, "bytes") == ""


def test_laws_and_limits_without_what_is_not_known() -> None:
    made = record()
    laws, cut = law_rows(made)
    assert "<mfrac><mn>635.2</mn><mi>n</mi></mfrac>" in laws[0].parts["compute"][0]
    older = made_prediction()
    for entry in older["phase_laws"]:
        del entry["parts"]["compute"]["terms"]
    assert law_rows(record(older))[0][0].parts["compute"][0] == "635.2/n"
    assert [law.name for law in laws][:2] == ["Allreduce", "Irecv+Isend+Waitall"] and not cut
    assert set(laws[0].parts) == {"time", "compute", "transfer", "software"}, "waiting has none"
    assert laws[0].parts["compute"][1] == "within 1.2 %"
    limits = made.limits
    assert limits[0].name == "Allreduce" and limits[0].because == "waiting"
    assert not limit_text(limits[0]).startswith("Allreduce"), "the name stands beside it"
    assert law_rows(replace(made, phase_laws=())) == ([], "")


def test_numbers_stay_with_their_units_and_names_may_break() -> None:
    found = unbroken("51 % of 3.00 ms to 4 s, 7 sites")
    assert found == "51\u00a0% of 3.00\u00a0ms to 4\u00a0s, 7 sites"
    assert breakable("Isend+<b>") == "Isend+<wbr>&lt;b&gt;"


def test_ticks_are_round_and_hold_the_values() -> None:
    assert Linear(0, 1, 0, 1).ticks() == [0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]
    assert nice_top(0.83) >= 0.83 and nice_top(0.0) == 1.0
    assert Log(1, 1024, 0, 10)(32) == pytest.approx(5)
    assert Log(1, 1024, 0, 10).powers(most=6) == [1, 4, 16, 64, 256, 1024]
    assert log_ends([3, 40]) == (2, 64) and log_ends([0.0]) == (1, 2) and log_ends([4]) == (2, 8)
    assert fit_labels([0, 10, 20, 100], ["1000", "2000", "3000", "4000"]) == [
        True,
        False,
        False,
        True,
    ]


def luminance(colour: str) -> float:
    """Return the relative luminance of #rrggbb, as WCAG 2.1 defines it."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_numbers_on_every_shade_can_be_read() -> None:
    """At least 4.5 to 1 (WCAG AA): light shades have the text's colour, dark ones the page's."""
    css = (Path(report.__file__).parent / "templates" / "report.css").read_text()
    blocks = [f"--ink:{block}" for block in css.split("--ink:")[1:]]
    themes = [dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", block)) for block in blocks]
    assert len(themes) >= 2
    for theme in themes:
        for level in range(1, 7):
            text = luminance(theme["page" if level > 3 else "ink"])
            low, high = sorted((text, luminance(theme[f"m{level}"])))
            assert (high + 0.05) / (low + 0.05) >= 4.5, (level, theme)


COUNTS = (2, 4, 8, 16)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> p3s.Study:
    root = tmp_path_factory.mktemp("plots") / "study"
    made, tables = ts.put_study(root, jacobi2d(), COUNTS, "cpu_ns")
    for table in tables:
        ts.times_of(table, table.segments[:, 4])
    machine_file(root / "machine.json")
    study = p3s.open(made.root)
    with pytest.raises(P3SError, match="nothing was predicted yet"):
        study.plot.speedup()
    study.predict([16, 32, 64])
    return study


@pytest.mark.parametrize("name", ["speedup", "efficiency", "time", "phases", "parts", "interval"])
def test_plots_show_the_last_prediction(name: str, study: p3s.Study) -> None:
    picture = getattr(study.plot, name)()
    root = ElementTree.fromstring(picture._repr_svg_())
    texts = [text.text or "" for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert len(texts) > 3, texts
    if name != "interval":
        assert any(text.strip() == "64" for text in texts), texts
    assert "Picture(" in repr(picture)


def test_a_plot_is_written_in_the_format_of_its_name(study: p3s.Study, tmp_path: Path) -> None:
    picture = study.plot.speedup(size=(4.0, 3.0))
    for name, start in (("a.png", b"\x89PNG"), ("a.svg", b"<"), ("a.pdf", b"%PDF")):
        picture.save(tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(start)
    with pytest.raises(UsageError, match="the name of a picture ends with"):
        picture.save(tmp_path / "a.bmp")


def test_the_interval_is_that_of_the_count(study: p3s.Study) -> None:
    assert study.plot.interval(32)._repr_svg_() != study.plot.interval(64)._repr_svg_()
    with pytest.raises(P3SError, match="48 processes were not predicted yet"):
        study.plot.interval(48)


def test_the_matrix_is_a_heat_map(study: p3s.Study) -> None:
    drawn = study.plot.matrix(16)._repr_svg_()
    assert "bytes" in drawn and drawn != study.plot.matrix(16, "messages")._repr_svg_()
    with pytest.raises(UsageError, match="neither messages nor bytes"):
        study.plot.matrix(16, "words")


def test_frames_of_phases_and_arrays(study: p3s.Study) -> None:
    pytest.importorskip("pandas")
    prediction = p3s.Prediction.load(study.path)
    frame = prediction.phase_frame()
    assert {"n", "phase", "time_s"} <= set(frame.columns)
    pytest.importorskip("xarray", reason="xarray is optional")
    found = prediction.to_xarray()
    assert float(found.time_s.sel(n=64)) == prediction.at(64)["time_s"]
    row = frame[(frame.n == 64) & (frame.phase == frame.phase.max())]
    there = found.phase_time_s.sel(n=64, phase=int(frame.phase.max()))
    assert float(there) == float(row.time_s.iloc[0])
    matrix = study.matrix(16)
    assert (matrix.to_xarray("messages").values == matrix.array("messages").toarray()).all()


class Told(Progress):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def done(self, text: str) -> None:
        self.lines.append(text)

    def say(self, text: str) -> None:
        self.lines.append(text)


def test_what_cannot_be_traced_is_one_line(tmp_path: Path) -> None:
    told = Told()
    with pytest.raises(UsageError, match=r"has no \{np\}"):
        p3s.Study.trace(tmp_path / "s", "mpiexec -n 4 ./program", [2, 4], progress=told)
    assert not (tmp_path / "s").exists()


@pytest.fixture
def ipython(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Stand in for the display of IPython; gives what was shown and updated."""
    seen: list[Any] = []
    module, inside = ModuleType("IPython"), ModuleType("IPython.display")
    shell = SimpleNamespace(kernel=object(), execution_count=1)

    def display(shown: str, display_id: bool) -> Any:
        seen.append(("new", shown))
        return SimpleNamespace(update=lambda text: seen.append(("same", text)))

    module.get_ipython = lambda: shell  # type: ignore[attr-defined]
    module.display = inside  # type: ignore[attr-defined]
    inside.HTML, inside.display = str, display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", module)
    monkeypatch.setitem(sys.modules, "IPython.display", inside)
    yield seen


def test_a_notebook_shows_progress_in_the_cell_that_runs(ipython: list[Any]) -> None:
    progress = progress_here()
    assert isinstance(progress, NotebookProgress)
    progress.expect(2)
    progress.start("np=4: <tracing>")
    progress.done("np=4: 1.0 s")
    assert [kind for kind, _ in ipython] == ["new", "same"]
    assert "&lt;tracing&gt;" in ipython[0][1] and 'value="1" max="2"' in ipython[1][1]
    sys.modules["IPython"].get_ipython().execution_count = 2
    progress.start("next")
    assert ipython[-1][0] == "new"


def test_scripts_show_nothing() -> None:
    code = "import p3s.report.notebook as n; print(type(n.progress_here()).__name__)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.strip() == "Progress"
