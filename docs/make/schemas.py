"""Write p3s/base/schemas: the schemas of all files, made from the records of their readers.

python docs/make/schemas.py
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from p3s.base import schemas
from p3s.base.artefacts import SCHEMA_VERSION, VERSIONS
from p3s.base.extensions import load_provided
from p3s.base.records import RUN_SCHEMA, ReplayRead, RunRead, StudyRead
from p3s.base.serialise import FileFormat, Range, is_array, number_of
from p3s.base.study import REPLAY_SCHEMA, REPLAY_VERSION, STUDY_SCHEMA
from p3s.costs import types as costs
from p3s.costs.parameters import laws as parameters
from p3s.machine import filesystem, machinefile
from p3s.methods.threads import stage as threads_stage
from p3s.methods.threads.advise import text as advice
from p3s.model import stage as model
from p3s.model.comparison import VALIDATION, Comparison
from p3s.model.types import Model
from p3s.predict import surface
from p3s.predict.types import WEAK
from p3s.program import types as program
from p3s.signature import phase_file, store, times

_SIMPLE = {bool: "boolean", int: "integer", float: "number", str: "string"}


def schema_of(kind: type, schema: str, version: int, *, more: bool = False) -> dict[str, Any]:
    """Return the schema (draft 2020-12) of a file with a record of a type; schema: "p3s.model".

    Descriptions are the first sentences of the records' docstrings. Rules with a form of their own
    (``to_json``) are open: the registry of their kinds reads them. more: keys that are not listed
    may be there.
    """
    made = _Made(more)
    whole = made.record(kind)
    own = {"schema": {"const": schema}, "schema_version": {"const": version}}
    digest = {"type": "string", "pattern": "^[0-9a-f]{32}$"}
    made_of = {"type": "object", "additionalProperties": digest}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:p3s:schema:{schema.removeprefix('p3s.')}:{version}",
        "title": f"{schema}, version {version}",
        **whole,
        "required": [*own, *whole["required"]],
        "properties": {**own, "digest": digest, "made_of": made_of, **whole["properties"]},
        "$defs": dict(sorted(made.records.items())),
    }


class _Made:
    """Schemas of types; those of records are kept by name."""

    def __init__(self, more: bool) -> None:
        self.more = more
        self.records: dict[str, Any] = {}

    def record(self, kind: type) -> dict[str, Any]:
        """Return the schema of a record: an object with one property per field."""
        hints = typing.get_type_hints(kind, include_extras=True)
        properties, required = {}, []
        for field in dataclasses.fields(kind):
            key = field.metadata.get("key", field.name)
            properties[key] = self.of(hints[field.name])
            if field.default is field.default_factory is dataclasses.MISSING:
                required.append(key)
        return {
            "description": _description(kind),
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": self.more,
        }

    def of(self, kind: Any) -> dict[str, Any]:
        """Return the schema of any type of a field."""
        origin, args = typing.get_origin(kind), typing.get_args(kind)
        if origin is typing.Annotated:
            return {**self.of(args[0]), **_ends(args[1:])}
        if origin is typing.Union or origin is types.UnionType:
            return {"anyOf": [self.of(each) for each in args]}
        if origin is typing.Literal:
            return {"enum": list(args)}
        if is_array(kind):
            return {"type": "array", "items": self.of(number_of(kind))}
        if origin is list:
            return {"type": "array"}
        if origin is tuple:
            if len(args) == 2 and args[1] is Ellipsis:
                return {"type": "array", "items": self.of(args[0])}
            items = [self.of(each) for each in args]
            return {"type": "array", "prefixItems": items, "minItems": len(args), "items": False}
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return {"type": "object", "additionalProperties": self.of(args[1])}
        if kind is type(None):
            return {"type": "null"}
        if kind in _SIMPLE:
            return {"type": _SIMPLE[kind]}
        if isinstance(kind, type) and issubclass(kind, Enum):
            return {"enum": [each.value for each in kind]}
        if isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields"):
            hints = typing.get_type_hints(kind, include_extras=True)
            return self.of(types.GenericAlias(tuple, tuple(hints.values())))
        if hasattr(kind, "to_json"):
            self.records.setdefault(kind.__name__, {"description": _description(kind)})
            return {"$ref": f"#/$defs/{kind.__name__}"}
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            if kind.__name__ not in self.records:
                self.records[kind.__name__] = {}  # a record may hold its like
                self.records[kind.__name__] = self.record(kind)
            return {"$ref": f"#/$defs/{kind.__name__}"}
        return {}


def _ends(said: typing.Iterable[Any]) -> dict[str, Any]:
    """Return what a schema says of a range: minimum and maximum, each where there is one."""
    ends: dict[str, Any] = {}
    for each in (one for one in said if isinstance(one, Range)):
        ends |= {} if each.least is None else {"minimum": each.least}
        ends |= {} if each.most is None else {"maximum": each.most}
    return ends


def _description(kind: type) -> str:
    """Return the first sentence of a docstring."""
    return " ".join((kind.__doc__ or "").split("\n\n")[0].split())


#: Those whose schemas are written by hand are not here: prediction, cluster, topology.
FORMATS: tuple[FileFormat[Any], ...] = (
    FileFormat(STUDY_SCHEMA, SCHEMA_VERSION, StudyRead, more=True),
    FileFormat(RUN_SCHEMA, SCHEMA_VERSION, RunRead, more=True),
    store.SIGNATURE,
    times.TIMES,
    FileFormat(model.SCHEMA, VERSIONS[model.SCHEMA], Model),
    costs.COMPUTE,
    program.SCALED,
    program.COMMS,
    program.ORDER,
    FileFormat(REPLAY_SCHEMA, REPLAY_VERSION, ReplayRead, more=True),
    FileFormat(VALIDATION, SCHEMA_VERSION, Comparison, more=True),
    parameters.FAMILY,
    surface.SURFACE,
    advice.ADVICE,
    threads_stage.THREADS_FILE,
    filesystem.FILE_SYSTEM,
    phase_file.PHASES,
    machinefile.MACHINE,
    WEAK,
    *load_provided("schemas"),
)


def made(form: FileFormat[Any]) -> dict[str, Any]:
    """Return the schema of a format as its types are now."""
    return schema_of(form.kind, form.schema, form.version, more=form.more)


def main() -> None:
    """Write the schemas of all formats into the package."""
    for each in FORMATS:
        path = Path(schemas.__file__).parent / f"{each.file}.json"
        path.write_text(json.dumps(made(each), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
