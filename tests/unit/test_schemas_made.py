"""The published schema of model.json is that of its types, and says what models are."""

from __future__ import annotations

import json

import corpus
import pytest
from jsonschema import Draft202012Validator

from p3s.base.schemas import first_problem, load_schema
from p3s.model.holdout import build_model
from p3s.model.stage import as_file
from p3s.report.schemas import FORMATS, Published


@pytest.mark.parametrize(
    ("program", "counts"),
    [
        (corpus.jacobi2d(97, 61, 3), (2, 4, 6, 9)),
        (corpus.cg(), (2, 4, 8)),
        (corpus.wavefront(), (4, 6, 9)),
    ],
)
def test_models_meet_it(program: object, counts: tuple[int, ...]) -> None:
    data = json.loads(json.dumps(as_file(build_model([corpus.table(program, n) for n in counts]))))
    assert first_problem(data, load_schema("model-2")) == ""
    data["items"][0]["verdict"] = "sure"
    assert first_problem(data, load_schema("model-2")).startswith("items[0].verdict is 'sure'")
    data["items"][0]["verdict"] = "exact"
    data["phases"][0]["more"] = 1
    assert first_problem(data, load_schema("model-2")) == "phases[0].more is not known"


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.file)
def test_all_published_schemas_are_the_types(form: Published) -> None:
    made = json.loads(json.dumps(form.made()))
    assert made == load_schema(form.file), "python -m p3s.report.schemas"
    Draft202012Validator.check_schema(made)


def test_a_range_is_in_the_schema() -> None:
    properties = load_schema("scaled-1")["properties"]
    assert properties["n"] == {"type": "integer", "minimum": 1, "maximum": 1 << 24}
