"""What the benchmarks share: memory of a whole process, ratios, history, pictures."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.append(str(BENCHMARKS))

from figures import Figure, Point, keep, last_run, shown, whole  # noqa: E402
from loglog import picture, power  # noqa: E402

everything = importlib.import_module("all")


def test_memory_of_a_process_is_not_that_of_the_one_that_measures():
    held = np.ones(40 << 20)  # 320 MiB
    used = whole(["/bin/true"])
    assert used.code == 0
    assert used.peak_mib < 64
    assert len(held)


def test_what_a_process_says_of_itself_is_not_that_of_its_parent():
    held = np.ones(40 << 20)  # 320 MiB
    words = "import sys; sys.path.append(sys.argv[1]); import figures; "
    words += "print(figures.resident_mib(True), figures.resident_mib(False))"
    said = subprocess.run(
        [sys.executable, "-c", words, str(BENCHMARKS)], capture_output=True, text=True, check=True
    )
    most, now = map(float, said.stdout.split())
    assert 0 < now < 128
    assert 0 < most < 128
    assert len(held)


def test_a_command_that_fails_is_told(tmp_path):
    said = tmp_path / "said"
    said.touch()
    with pytest.raises(SystemExit):
        whole(["/bin/sh", "-c", "exit 5"])
    assert whole(["/bin/sh", "-c", "echo bad >&2; exit 3"], str(said), (0, 3)).code == 3
    assert said.read_text() == "bad\n"


def test_a_ratio_says_how_many_times_better_it_is():
    assert Figure("rate", 6.0, "M/s", peer="A", peer_value=2.0, more=True).ratio == 3.0
    assert Figure("time", 1.0, "s", peer="A", peer_value=4.0).ratio == 4.0
    assert Figure("time", 1.0, "s", peer="A", missing="missing").ratio is None
    assert Figure("time", 1.0, "s", 2.0).met
    assert not Figure("rate", 1.0, "M/s", 2.0, more=True).met


def test_a_run_is_kept_and_shown_beside_the_next(tmp_path):
    history = tmp_path / "history.jsonl"
    first = [Figure("time", 1.0, "s", peer="A", peer_value=4.0), Figure("size", 7.0, "B")]
    assert last_run(history, True) == {}
    keep(history, first, [Point("ranks", "p3s", 4, 1.0, 2.0)], True, "2026-01-01T00:00:00")
    assert last_run(history, False) == {}
    text = shown([Figure("time", 2.0, "s", 1.5, peer="A", peer_value=4.0)], last_run(history, True))
    assert text.splitlines()[-1] == "| time | 2 s | A | 4 | 2.00 | at most 1.5, not met | 4 |"
    assert str(Path.home()) not in history.read_text()


def test_a_picture_has_every_point():
    points = [Point("ranks", "a", n, n / 1e3, 50.0 + n) for n in (4, 64, 4096)]
    points += [Point("ranks", "b", 4, 0.5, 70.0), Point("events", "a", 9, 1.0, 1.0)]
    root = ElementTree.fromstring(picture(points, "ranks"))
    assert len(root.findall(".//{http://www.w3.org/2000/svg}circle")) == 2 * 4


def test_a_picture_tells_the_power_of_the_last_step():
    line = [Point("ranks", "a", n, n**2 / 1e6 + (n < 50), 10.0 * n) for n in (10, 100, 1000)]
    assert power(line, False) == pytest.approx(2.0)
    assert power(line[::-1], True) == pytest.approx(1.0)
    assert power(line[:1], True) is None
    texts = [x.text for x in ElementTree.fromstring(picture(line, "ranks")).iter() if x.text]
    assert "a: 2.00" in texts
    assert "a: 1.00" in texts


def test_figures_are_put_into_a_page(tmp_path):
    page = tmp_path / "page.md"
    kept = "<!-- end of figures -->\nText\n<!-- figures: scale -->\nkept\n<!-- end of figures -->\n"
    page.write_text("# Page\n<!-- figures: laws -->\nold\n" + kept)
    everything.put_in(page, {"laws": [Figure("2: time", 1, "s", 4), Figure("2: size", 3, "B")]})
    assert page.read_text() == (
        "# Page\n<!-- figures: laws -->\n| case | time (at most 4) | size |\n"
        "| --- | --- | --- |\n| 2 | 1 s | 3 B |\n" + kept
    )


def test_every_page_names_benchmarks_that_have_figures():
    named = {
        name
        for page in (BENCHMARKS.parent / "docs").glob("*.md")
        for _, name, _ in everything._BLOCK.findall(page.read_text())
    }
    known = {name for group in everything.GROUPS.values() for name in group}
    assert named
    assert named <= known
    for name in known:
        assert "def figures(quick: bool" in (BENCHMARKS / f"{name}.py").read_text(), name
