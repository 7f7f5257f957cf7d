"""The published schema of model.json; ``python -m p3s.model.schema`` writes it anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from p3s.base import schemas
from p3s.base.artefacts import VERSIONS
from p3s.base.schemas.made import schema_of
from p3s.model.stage import SCHEMA
from p3s.model.types import Model


def schema() -> dict[str, Any]:
    """Return the schema of model.json as the types are now."""
    return schema_of(Model, SCHEMA, VERSIONS[SCHEMA])


if __name__ == "__main__":
    path = Path(schemas.__file__).parent / f"model-{VERSIONS[SCHEMA]}.json"
    path.write_text(json.dumps(schema(), indent=1) + "\n", encoding="utf-8")
