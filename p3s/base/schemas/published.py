"""Formats of files that hold one record: how they are read, written and published."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from p3s.base.artefacts import read_json, unusable
from p3s.base.serialise import ShapeError, from_data, to_data

T = TypeVar("T")
#: What stands before the record.
_HEAD = ("schema", "schema_version", "p3s_version")


@dataclass(frozen=True)
class Published(Generic[T]):
    """A format: its name, version, record.

    ``more``: readers pass over keys that they do not know. ``again``: what to do about a damaged
    file. ``show``: ``module:name`` of what makes of a file's path what p3s machine show prints, as
    JSON and as text; empty: it shows none.
    """

    schema: str
    version: int
    kind: type[T]
    more: bool = False
    again: str = ""
    show: str = ""

    @property
    def file(self) -> str:
        """The name of its schema: "model-2"."""
        return f"{self.schema.removeprefix('p3s.')}-{self.version}"

    def data(self, record: T) -> dict[str, Any]:
        """Return a record as the JSON object of its file."""
        return {"schema": self.schema, "schema_version": self.version, **to_data(record)}

    def read(self, path: Path) -> T:
        """Return the record of a file; P3SError, one line, Damaged for one that holds none."""
        found = read_json(path, self.schema, self.version)
        try:
            own = {key: value for key, value in found.items() if key not in _HEAD}
            return from_data(self.kind, own, more=self.more)
        except ShapeError as err:
            raise unusable(path, err, self.again) from err
