"""What the benchmarks share: memory of a whole process, ratios, history, pictures."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from figures import Figure, Point, keep, last_run, shown, whole
from loglog import picture


def test_memory_of_a_process_is_not_that_of_the_one_that_measures():
    held = np.ones(40 << 20)  # 320 MiB
    used = whole(["/bin/true"])
    assert used.code == 0
    assert used.peak_mib < 64
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
    assert text.splitlines()[-1] == "| time | 2 s | A | 4 | 2.00 | <= 1.5, not met | 4 |"
    assert str(Path.home()) not in history.read_text()


def test_a_picture_has_every_point():
    points = [Point("ranks", "a", n, n / 1e3, 50.0 + n) for n in (4, 64, 4096)]
    points += [Point("ranks", "b", 4, 0.5, 70.0), Point("events", "a", 9, 1.0, 1.0)]
    root = ElementTree.fromstring(picture(points, "ranks"))
    assert len(root.findall(".//{http://www.w3.org/2000/svg}circle")) == 2 * 4
