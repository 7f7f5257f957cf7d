"""The published schema of model.json is that of its types, and says what models are."""

from __future__ import annotations

import json
from typing import Any

import models
import pytest
from jsonschema import Draft202012Validator
from schemas import FORMATS, made

from p3s.base.schemas import first_problem, load_schema
from p3s.base.serialise import Published
from p3s.model.stage import as_file


def test_what_is_no_model_does_not_meet_it() -> None:
    """Models do: test_serialise.py."""
    data = json.loads(json.dumps(as_file(models.built("cg"))))
    data["items"][0]["verdict"] = "sure"
    assert first_problem(data, load_schema("model-3")).startswith("items[0].verdict is 'sure'")
    data["items"][0]["verdict"] = "exact"
    data["phases"][0]["more"] = 1
    assert first_problem(data, load_schema("model-3")) == "phases[0].more is not known"


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.file)
def test_all_published_schemas_are_the_types(form: Published[Any]) -> None:
    schema = json.loads(json.dumps(made(form)))
    assert schema == load_schema(form.file), "python docs/make/schemas.py"
    Draft202012Validator.check_schema(schema)


def test_a_range_is_in_the_schema() -> None:
    properties = load_schema("scaled-1")["properties"]
    assert properties["n"] == {"type": "integer", "minimum": 1, "maximum": 1 << 24}
