"""Reports of large predictions: small enough, and what is cut says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import models
from made_predictions import made_prediction, record
from report_studies import put_study

from p3s.model.types import Model
from p3s.pipeline.content import content_of
from p3s.pipeline.records import model_record
from p3s.report.html import render

MANY = tuple(2**k for k in range(1, 11))


def model_of(phases: int, calls: int) -> Model:
    """Return a model with that many phases of that many calls, no two with the same rule."""
    model = models.built("jacobi2d")
    loop = next(p for p in model.phases if p.parent is not None)
    first = next(model.items[i] for i in loop.items if model.items[i].kind == "send")
    start, there = len(model.items), len(model.phases)
    made = []
    for k in range(there, phases):
        at = start + (k - there) * calls
        numbers = tuple(range(at, at + calls))
        made.append(replace(loop, phase=k, name=f"loop {k}", items=numbers))
    added = range(start, start + len(made) * calls)
    return replace(
        model,
        phases=(*model.phases, *made),
        items=(*model.items, *(models.copied(first, number) for number in added)),
        sites={**model.sites, **{f"copy{k}": (f"prog+0x{k:x}",) for k in added}},
    )


def test_many_phases_at_10_counts_are_small(tmp_path: Path) -> None:
    prediction = made_prediction(MANY, 300)
    study = put_study(tmp_path / "study", prediction, model=model_of(300, 6))
    text = render(content_of(model_record(study), record(prediction)))
    assert len(text.encode()) < 5_000_000
    words = " ".join(text.split())
    assert "102 more phases with" in words and "prediction.json" in words
    assert "295 other phases" in words
    assert "The laws of 242 more phases are in prediction.json." in words
    assert "more phases: p3s model " in words


def test_many_counts_are_thinned_out_and_it_says_so(tmp_path: Path) -> None:
    prediction = made_prediction(tuple(range(2, 402)), 3)
    study = put_study(tmp_path / "study", prediction)
    text = render(content_of(model_record(study), record(prediction)))
    assert "60 of 400 counts; p3s report --csv has all" in text
    assert "24 of 400 counts have a bar." in text
    assert "<td>401</td>" in text, "the last count is listed"
    assert len(text) < 2_000_000
