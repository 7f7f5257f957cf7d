"""Every kind of rule in a model's file is known to whoever reads it, whatever was imported."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from corpus import Program, cg, every_tenth, jacobi2d, ring, table

from p3s.base.artefacts import as_json
from p3s.base.serialise import from_data
from p3s.model.holdout import build_model
from p3s.model.stage import SCHEMA, as_file
from p3s.model.types import Model


def test_reading_a_model_knows_all_kinds_of_grids() -> None:
    code = (
        "import p3s.model.stage, p3s.model.stage\n"
        "from p3s.model.grid.at import GridRule\n"
        "known = set(GridRule.kinds)\n"
        "import p3s.model.fit\n"
        "assert known == set(GridRule.kinds), set(GridRule.kinds) - known\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


@pytest.mark.parametrize(
    ("program", "counts"),
    [(jacobi2d(), (2, 4, 6)), (ring(), (2, 3, 4)), (cg(), (2, 4, 8)), (every_tenth(), (2, 3, 5))],
    ids=["jacobi2d", "ring", "cg", "every_tenth"],
)
def test_what_is_read_is_what_was_fitted(program: Program, counts: tuple[int, ...]) -> None:
    """Commands go on with the model that they fitted as if they had read it."""
    model = build_model([table(program, n) for n in counts])
    data = json.loads(as_json(as_file(model)))
    assert data.pop("schema") == SCHEMA and data.pop("schema_version")
    read = from_data(Model, data)
    assert read == model and repr(read) == repr(model)  # numbers of the same type
