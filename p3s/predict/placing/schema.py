"""The published schema of placement/npNNNNNN.json.

``python -m p3s.predict.placing.schema`` writes it anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from p3s.base import schemas
from p3s.base.schemas.made import schema_of
from p3s.predict.placing.file import SCHEMA, VERSION
from p3s.predict.placing.types import Placements


def schema() -> dict[str, Any]:
    """Return the schema of placements as the types are now."""
    return schema_of(Placements, SCHEMA, VERSION)


if __name__ == "__main__":
    path = Path(schemas.__file__).parent / f"placement-{VERSION}.json"
    path.write_text(json.dumps(schema(), indent=1) + "\n", encoding="utf-8")
