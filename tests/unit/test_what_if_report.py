"""What changes would save, on the terminal and in the page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from made_predictions import made_prediction
from report_studies import put_study

from p3s.base.errors import DamagedFile
from p3s.pipeline.content import content_of
from p3s.pipeline.records import model_record
from p3s.pipeline.saved import PredictionFile
from p3s.predict.types import PREDICTION, Prediction, WhatIf, WhatIfAt
from p3s.report.details import what_if
from p3s.report.html import render as page
from p3s.report.terminal import render

COUNTS = (4, 8, 512)


def at(n: int, saved: float, half: float | None) -> WhatIfAt:
    known = half is not None
    return WhatIfAt(
        n=n,
        time_s=2.0 - saved,
        low_s=1.0 if known else None,
        high_s=3.0 if known else None,
        saved_s=saved,
        saved_low_s=saved - half if half is not None else None,
        saved_high_s=saved + half if half is not None else None,
        speedup=50.0,
        speedup_low=40.0 if known else None,
        speedup_high=60.0 if known else None,
    )


def changed(*, html: str = "latency / 2", why: str = "") -> Prediction:
    prediction = PredictionFile.of(made_prediction(COUNTS)).content
    more = {"asked": True, "estimator": "machine", "why": why}
    return replace(
        prediction,
        what_if=(
            WhatIf(text=html, counts=tuple(at(n, 0.5, 0.1) for n in COUNTS), **more),
            WhatIf(
                text="balanced",
                asked=False,
                estimator="machine",
                why=why,
                counts=(at(512, 0.01, 0.2),),
                notes=("all ranks are on one node",),
            ),
            WhatIf(text="bcast=linear", counts=tuple(at(n, -0.25, None) for n in COUNTS), **more),
        ),
    )


def test_the_table_on_a_terminal() -> None:
    found = changed(why="the prediction rests on simulation")
    text = render(found, verbose=True)
    assert "What if, at 512 processes:" in text
    part = what_if(found)
    assert part is not None
    table, curves = part.tables
    assert [row[0] for row in table.rows] == ["latency / 2", "balanced", "bcast=linear"]
    assert table.rows[0][1:3] == ["500 ms", "400–600 ms"]
    assert table.rows[2][1:4] == ["-250 ms", "unknown", table.rows[2][3]]
    assert table.rows[2][3].startswith("-")
    # those that were asked for, at all counts; the first row is the program as it is
    assert curves.head == ["speedup", "4", "8", "512"]
    assert [row[0] for row in curves.rows] == ["as it is", "latency / 2", "bcast=linear"]
    for said in ("rests on simulation", "save nothing", "on one node"):
        assert said in text


def test_nothing_is_said_where_nothing_was_changed() -> None:
    prediction = replace(changed(), what_if=())
    assert "hat if" not in render(prediction, verbose=True) and what_if(prediction) is None


def test_the_page_has_it_as_text(tmp_path: Path) -> None:
    found = changed(html="network=<b>&x")
    study = put_study(tmp_path / "study", PREDICTION.data(found))
    text = page(content_of(model_record(study), found))
    assert 'id="what-if"' in text
    assert "network=&lt;b&gt;&amp;x" in text and "<b>&x" not in text


def test_one_count_has_no_curves() -> None:
    found = changed()
    last = replace(found, counts=found.counts[-1:])
    part = what_if(last)
    assert part is not None and len(part.tables) == 1


@pytest.mark.parametrize("key", ["saved_s", "n"])
def test_a_file_without_a_value_is_refused(key: str) -> None:
    data = PREDICTION.data(changed())
    del data["what_if"][0]["counts"][0][key]
    with pytest.raises(DamagedFile, match="what_if"):
        PredictionFile.of(data)


@pytest.mark.parametrize(
    ("change", "says"),
    [({"n": 7}, "not some of the prediction's"), ({"saved_s": 99.0}, "outside of its interval")],
)
def test_senseless_changes_are_refused(change: dict[str, float], says: str) -> None:
    data = PREDICTION.data(changed())
    data["what_if"][0]["counts"][0] |= change
    with pytest.raises(DamagedFile, match=says):
        PredictionFile.of(data)
