"""Plots, frames and progress of the Python interface."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
import timed_study as ts
from corpus import jacobi2d
from test_estimators import machine_file

import p3s
from p3s.base.errors import P3SError, UsageError
from p3s.base.progress import Progress
from p3s.report.notebook import Shown, progress_here

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
    assert isinstance(progress, Shown)
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
