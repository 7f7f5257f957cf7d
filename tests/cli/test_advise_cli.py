"""``p3s advise`` of a study without threads: which process count, and how sure that is."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import timed_study as ts
from commands import DEGENERATE, cli

from p3s.base.study import Study, write_json
from p3s.base.text import ends
from p3s.costs.fit import fit
from p3s.costs.gather import measured_at
from p3s.costs.types import COMPUTE
from p3s.model.stage import load as load_model
from p3s.predict.gate import answer_demand
from p3s.predict.types import PREDICTION


@pytest.fixture
def study(named: Callable[[str], Path], tmp_path: Path) -> Study:
    return Study.open(shutil.copytree(named("COSTED"), tmp_path / "study"))


def put(root: Path, cells: int) -> Study:
    """Make a study of sweeps over so few cells that messages soon take most of the time."""
    study, tables = ts.put_study(root / "study", ts.sweeps(cells, 10), (2, 4, 8))
    model = load_model(study.root)
    found = [measured_at(model, ts.times_of(t, 0.3 * t.segments[:, 4], noise=0.01)) for t in tables]
    write_json(study.compute_path, COMPUTE.data(fit(model, found, [])))
    return study


def test_the_fastest_count_up_to_four_times_the_traced_ones(study: Study) -> None:
    shown = cli(
        f"advise {study.root}",
        out=(
            "Take 32 processes: run time",
            "the least of 5 process counts (over 99 % likely)",
            "largest efficient count: 50 % or more at 32 processes: yes (over 99 %)",
            "turnover: slower than 16 at 32 processes: no (under 1 %)",
        ),
        err=f"next: p3s predict {study.root} -n 32\n",
    )
    assert len(shown.out.splitlines()) < 25


def test_probabilities_are_those_of_predict(tmp_path: Path) -> None:
    study = put(tmp_path, 1 << 13)
    data = cli(f"advise {study.root} -n 8,16,64,256 --json", code=(0, 3)).data
    best = data["advice"]["choices"][0]
    assert sum(c["chance"] for c in data["advice"]["choices"]) <= 1.0 + 1e-9
    found = PREDICTION.read(study.prediction_path)
    efficient, turn = data["answers"]
    same = answer_demand("50%", found, efficient["n"])
    assert efficient["chance"] == pytest.approx(same.chance) and efficient["said"] == same.said
    row = found.at(best["configuration"]["processes"])
    assert best["seconds"] == [row.time_s, row.low_s, row.high_s]
    assert row.n < 256 and turn["n"] > row.n and turn["said"] == "yes"  # it turns


def test_reasons_of_other_counts_do_not_head_the_advice(tmp_path: Path) -> None:
    study = put(tmp_path, 1 << 13)  # at 16384 each process has less than one cell
    shown = cli(f"advise {study.root} -n 8,16,16384", out="Other predictions are not to be relied")
    assert shown.out.startswith("Take ")
    data = cli(f"advise {study.root} -n 8,16,16384 --json").data
    assert not any(each["untrustworthy"] for each in data.get("reasons", []))
    assert data["others"]
    cli(f"advise {study.root} -n 16384", code=3, out="Do not rely on this advice: ")


def test_limits_and_objectives(study: Study) -> None:
    cli(f"advise {study.root} --cores 24", out="Take 16 processes")
    cli(f"advise {study.root} --nodes 1 --node 1x8", out="Take 8 processes")
    cli(f"advise {study.root} --objective core-hours --node 1x1", out="processes: core hours ")
    cli(f"advise {study.root} -n 8,64 --cores 4", code=2, err="within 4 cores")
    cli(f"advise {study.root} --threads 2", code=1, err="was not traced with threads")


def test_ranges_whose_ends_read_the_same_are_one_value() -> None:
    assert ends(2, 8) == "2 to 8" and ends(0.0155, 0.01551, ".3f") == "0.015 to 0.016"
    assert ends("15.5 ms", "15.5 ms") == "15.5 ms"
    assert DEGENERATE.search("measured from 15.5 ms to 15.5 ms")
    assert not DEGENERATE.search("from 1 to 16 processes, 1.5 ms to 1.55 ms")
