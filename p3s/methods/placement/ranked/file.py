"""placement/npNNNNNN.json: written, and read again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from p3s.base.artefacts import read_json, write_json
from p3s.base.errors import Damaged
from p3s.base.serialise import ShapeError, from_data, to_data
from p3s.methods.placement.ranked.types import Placements

SCHEMA, VERSION = "p3s.placement", 1


def as_file(found: Placements) -> dict[str, Any]:
    """Return placements as they are written: plain data with the name of its schema."""
    return {"schema": SCHEMA, "schema_version": VERSION, **to_data(found)}


def save(path: Path, found: Placements) -> None:
    """Write placements."""
    path.parent.mkdir(exist_ok=True)
    write_json(path, as_file(found))


def load(path: Path) -> Placements:
    """Read placements. Errors: P3SError, in one line, where they cannot be read."""
    data: Mapping[str, Any] = read_json(path, SCHEMA, VERSION)
    own = {key: value for key, value in data.items() if key not in _HEAD}
    try:
        return from_data(Placements, own)
    except ShapeError as err:
        raise Damaged(f"{path}: damaged ({err}); run p3s place again") from err


_HEAD = ("schema", "schema_version", "p3s_version")
