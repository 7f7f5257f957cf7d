"""Charts in reports and in notebooks."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import combinations
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
import timed_study as ts
from corpus import jacobi2d
from made_predictions import made_prediction, phase_at, reason, record
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from report_studies import hostile_prediction
from test_estimators import machine_file

import p3s
from p3s import report
from p3s.base.errors import P3SError, UsageError
from p3s.base.progress import Progress
from p3s.methods.baseline.agreement import curve_of
from p3s.predict.types import Prediction
from p3s.report.charts import bars, cells, curves
from p3s.report.charts.figures import ON_PAGE, Chart, as_markup, draw, on_page
from p3s.report.costs import kinds_of, law_rows, limit_text, phase_curves, stacks_of
from p3s.report.html import breakable, unbroken
from p3s.report.notebook import NotebookProgress, progress_here
from p3s.report.pictures import PLOTS, picture_of
from p3s.signature.matrix import CommMatrix

WARNED = [reason("wide", "nobody knows", "run it")]


def charts_of(prediction: Prediction) -> list[Chart]:
    """Return every chart of a prediction."""
    stacks = stacks_of(prediction)
    found: list[Any] = [partial(PLOTS[plot], prediction=prediction) for plot in PLOTS]
    for measure in bars.MEASURES:
        for by in (False, True):
            found.append(partial(bars.stack, stacks=stacks, measure=measure, by_phase=by))
    found += [partial(curves.phase, curves=each) for each in phase_curves(prediction)]
    if bars.interval_rows(prediction.last):
        found.append(partial(bars.interval, row=prediction.last))
    return found


def axes_of(chart: Any, *content: Any, **more: Any) -> Axes:
    """Return the axes of a new figure that a chart was drawn onto."""
    return draw(lambda axes: chart(axes, *content, **more), 560.0, 420.0).axes[0]


def values_of(axes: Axes, label: str) -> dict[float, float]:
    """Return the points of a line by the process count."""
    (line,) = (line for line in axes.get_lines() if line.get_label().replace("\n", " ") == label)
    return dict(line.get_xydata().tolist())


def check_room(figure: Figure) -> None:
    """Assert that labels, title and legend are inside of the figure and none covers another one."""
    renderer: Any = FigureCanvasAgg(figure)
    figure.draw(renderer.get_renderer())
    (axes,) = figure.axes
    texts: list[Text] = [axes.xaxis.label, axes.yaxis.label, axes.title, axes._left_title]  # type: ignore[attr-defined]
    for axis in (axes.xaxis, axes.yaxis):
        low, high = sorted(axis.get_view_interval())
        ticks = axis.get_major_ticks(len(axis.get_majorticklocs()))
        inside = [tick for tick in ticks if low <= tick.get_loc() <= high]
        texts += [text for tick in inside for text in (tick.label1, tick.label2)]
    texts += [text for legend in figure.legends for text in legend.get_texts()]
    shown = [text for text in texts if text.get_visible() and text.get_text()]
    boxes = {text: text.get_window_extent() for text in shown}
    for text, box in boxes.items():
        assert min(box.x0, box.y0) > -1 and box.x1 < figure.bbox.x1 + 1, text
        assert box.y1 < figure.bbox.y1 + 1, text
    for one, other in combinations(shown, 2):
        shared = Bbox.intersection(boxes[one], boxes[other])
        assert shared is None or shared.width < 1 or shared.height < 1, (one, other)


MADE = {
    "eight": made_prediction(),
    "one": made_prediction((8,), 1),
    "none-measured": made_prediction((1, 2), 40, measured=[]),
    "many-counts": made_prediction(tuple(range(1, 300)), 2),
    "hostile": hostile_prediction(),
    "doubtful": made_prediction(representative=False, reasons=WARNED),
}


@pytest.mark.parametrize("name", MADE)
def test_every_chart_is_markup_with_the_colours_of_the_page(name: str) -> None:
    for chart in charts_of(record(MADE[name])):
        figure = draw(chart, 560.0, 420.0)
        check_room(figure)
        markup = as_markup(figure, ON_PAGE)
        assert markup == on_page(chart), "the same each time"
        root = ElementTree.fromstring(markup)
        assert root.get("role") == "img" and len(root.get("aria-label", "")) > 20
        names = [part.get("id") for part in root.iter() if part.get("id")]
        used = re.findall(r'(?:href="#|url\(#)([\w-]+)', markup)
        assert len(names) == len(set(names)) and set(used) <= set(names)
        for part in root.iter():
            assert not set(part.keys()) & {"style", "onload"} and part.tag not in ("style", "image")
            colours = {part.get("fill", "none"), part.get("stroke", "none")}
            assert all(re.match(r"none|var\(--\w+\)$|url\(#", each) for each in colours), colours


@pytest.mark.parametrize("size", [(1.5, 1.5), (3.4, 2.4), (12.0, 3.0)])
@pytest.mark.parametrize("plot", PLOTS)
def test_texts_of_pictures_have_room(plot: str, size: tuple[float, float]) -> None:
    check_room(picture_of(record(made_prediction(reasons=WARNED)), plot, size).figure)


def test_figures_leave_the_settings_of_matplotlib_alone() -> None:
    before = dict(matplotlib.rcParams)
    on_page(partial(curves.speedup, prediction=record()))
    assert dict(matplotlib.rcParams) == before


def test_a_curve_has_a_mark_at_every_count() -> None:
    made = record()
    axes = axes_of(curves.speedup, made)
    predicted, measured = values_of(axes, "predicted"), values_of(axes, "measured")
    assert {**measured, **predicted} == pytest.approx({row.n: row.speedup for row in made.counts})
    assert list(measured) == [4, 8, 16] and values_of(axes, "ideal") == {4: 1, 512: 128}
    (band,) = (each for each in axes.collections if each.get_label() == "interval")
    last = made.last
    edge = [y for x, y in band.get_paths()[0].vertices if x == 512]
    assert {min(edge), max(edge)} == {last.speedup_low, last.speedup_high}
    assert made.recommended is not None
    assert [*values_of(axes, "worth using")] == [made.recommended.n]
    told = [patch.get_gid() for patch in axes.patches if patch.get_gid()]
    assert len(told) == 8 and told[-1].startswith("512 processes, predicted\ntime 5.36 s")
    assert f"{100 * last.efficiency:.1f} %" in told[-1]
    efficiency = values_of(axes_of(curves.efficiency, made), "predicted")
    assert efficiency[512] == pytest.approx(last.efficiency)
    assert values_of(axes_of(curves.run_time, made), "predicted")[512] == last.time_s


def test_a_regression_of_the_run_times_is_drawn_above_what_it_was_fitted_to() -> None:
    made = record()
    beside = curve_of(made)
    assert beside.counts == (16, 32, 64, 128, 256, 512) and len(beside.sentences) == 2
    for chart in (curves.speedup, curves.efficiency):
        assert tuple(values_of(axes_of(chart, made, [beside]), beside.legend)) == beside.counts
        assert "regression" not in str(axes_of(chart, made).get_legend_handles_labels()[1])


@pytest.mark.parametrize("measure", bars.MEASURES)
@pytest.mark.parametrize("by_phase", [False, True])
def test_bars_are_as_high_as_the_time(by_phase: bool, measure: str) -> None:
    made = record()
    axes = axes_of(bars.stack, stacks_of(made), measure, by_phase)
    heights = np.array([[bar.get_height() for bar in layer] for layer in axes.containers])
    unit = {"core": lambda row: row.model_s * row.n, "time": lambda row: row.model_s}
    expected = [unit.get(measure, lambda _: 1.0)(row) for row in made.counts]
    assert heights.sum(axis=0) == pytest.approx(expected, rel=0.01)
    tops = [layer[-1].get_y() + layer[-1].get_height() for layer in axes.containers]
    assert tops[-1] == pytest.approx(heights[:, -1].sum()), "one on top of the other"
    told = [patch.get_gid() for patch in axes.patches if patch.get_gid()]
    assert len(told) == 8 and len(told[0].splitlines()) == 1 + len(axes.containers)


def test_the_matrix_is_drawn_cell_by_cell() -> None:
    source = np.arange(8)
    ring = CommMatrix(8, source, (source + 1) % 8, np.full(8, 3), 3 * (100 + source), 0, 0)
    axes = axes_of(cells.matrix, ring, "bytes")
    shapes = [patch for patch in axes.patches if isinstance(patch, PathPatch)]
    inside = {
        (row, column)
        for row in range(8)
        for column in range(8)
        if any(shape.get_path().contains_point((column, row)) for shape in shapes)
    }
    assert inside == {(k, (k + 1) % 8) for k in range(8)}, "row sends, column receives"
    assert [shape.get_label() for shape in shapes] == ["300 B–321 B"]
    none = CommMatrix(2, *(np.zeros(0, dtype=np.int64) for _ in range(4)), 0, 0)
    assert not [p for p in axes_of(cells.matrix, none, "bytes").patches if isinstance(p, PathPatch)]


def test_powers_of_speedups_are_written_out() -> None:
    texts = [curves.times_label(2.0**k) for k in (-2, 0, 4, 10, 16)]
    assert texts == ["0.25x", "1x", "16x", "1,024x", "65,536x"]


def test_what_is_not_to_be_trusted_is_hatched_where_its_interval_is_narrow_too() -> None:
    for made in (made_prediction(), made_prediction((8,), 1)):
        for row in made["counts"]:
            row.update(speedup_low=row["speedup"], speedup_high=row["speedup"])
        axes = axes_of(curves.speedup, record({**made, "reasons": WARNED}))
        (hatched,) = (each for each in axes.collections if each.get_hatch())
        box = hatched.get_paths()[0].get_extents(hatched.get_transform())
        assert box.width > 5 and box.height > 5
        assert "worth using" not in axes.get_legend_handles_labels()[1]
        assert not any(
            each.get_hatch() for each in axes_of(curves.speedup, record(made)).collections
        )


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
    given = Figure().add_subplot()
    assert getattr(study.plot, name)(ax=given).figure is given.figure and given.get_label()
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
