"""Checks JSON against a schema of this package, without a library.

It knows the part of JSON Schema (draft 2020-12) that these schemas use: type, const, enum, $ref to
$defs, required, properties, additionalProperties, items, minItems, maxItems and limits of numbers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from typing import Any

#: Larger numbers do not fit into the floating-point numbers of this and other readers.
LARGEST = 1.7e308

_TYPES: dict[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: _is_number(value) and value == int(value),
    "number": lambda value: _is_number(value),
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}
#: Keywords that are checked; a schema of this package uses no others.
CHECKED = frozenset(
    {
        "$ref",
        "type",
        "const",
        "enum",
        "minimum",
        "maximum",
        "minItems",
        "maxItems",
        "items",
        "required",
        "properties",
        "additionalProperties",
    }
)
#: Keywords that say something to people and other tools only.
TOLD = frozenset({"$schema", "$id", "$defs", "title", "description"})


@cache
def load_schema(name: str) -> Mapping[str, Any]:
    """Return the schema of this package with a name, for example "prediction-2"."""
    text = (resources.files("p3s.schemas") / f"{name}.json").read_text(encoding="utf-8")
    schema: Mapping[str, Any] = json.loads(text)
    return schema


def first_problem(value: Any, schema: Mapping[str, Any]) -> str:
    """Return where a value is not what the schema says and why, in words; "" where it is."""
    found = _problem(value, schema, schema)
    if found is None:
        return ""
    place, why = found
    return f"{place.removeprefix('.') or 'it'} {why}"


def _is_number(value: Any) -> bool:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    return -LARGEST <= value <= LARGEST  # neither infinite nor NaN


#: A place in the value, as ".counts[3].n", and what is wrong there; None: nothing.
_Found = tuple[str, str] | None


def _problem(value: Any, schema: Mapping[str, Any], whole: Mapping[str, Any]) -> _Found:
    if "$ref" in schema:
        return _problem(value, whole["$defs"][schema["$ref"].removeprefix("#/$defs/")], whole)
    kinds = schema.get("type", ())
    kinds = (kinds,) if isinstance(kinds, str) else kinds
    if kinds and not any(_TYPES[kind](value) for kind in kinds):
        return "", f"is {_shown(value)}, not {' or '.join(kinds)}"
    if "const" in schema and not _same(value, schema["const"]):
        return "", f"is {_shown(value)}, not {schema['const']!r}"
    if "enum" in schema and not any(_same(value, good) for good in schema["enum"]):
        return "", f"is {_shown(value)}, not one of {', '.join(map(str, schema['enum']))}"
    if isinstance(value, dict):
        return _object_problem(value, schema, whole)
    if isinstance(value, list):
        return _list_problem(value, schema, whole)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if value < schema.get("minimum", value):
            return "", f"is {_shown(value)}, less than {schema['minimum']}"
        if value > schema.get("maximum", value):
            return "", f"is {_shown(value)}, more than {schema['maximum']}"
    return None


def _list_problem(value: list[Any], schema: Mapping[str, Any], whole: Mapping[str, Any]) -> _Found:
    least, most = schema.get("minItems", 0), schema.get("maxItems", len(value))
    if not least <= len(value) <= most:
        return "", f"has {len(value)} entries, not {least if len(value) < least else most}"
    if "items" in schema:
        for index, entry in enumerate(value):
            found = _problem(entry, schema["items"], whole)
            if found is not None:
                return f"[{index}]{found[0]}", found[1]
    return None


def _object_problem(
    value: dict[str, Any], schema: Mapping[str, Any], whole: Mapping[str, Any]
) -> _Found:
    for key in schema.get("required", ()):
        if key not in value:
            return f".{key}", "is missing"
    known = schema.get("properties", {})
    others = schema.get("additionalProperties", True)
    for key, entry in value.items():
        rule = known.get(key, others)
        if rule is True:
            continue
        found = ("", "is not known") if rule is False else _problem(entry, rule, whole)
        if found is not None:
            return f".{_name(key)}{found[0]}", found[1]
    return None


def _same(value: Any, good: Any) -> bool:
    """Tell whether two values are equal in JSON, where true is not 1."""
    return isinstance(value, bool) == isinstance(good, bool) and bool(value == good)


def _shown(value: Any) -> str:
    """Return a value as one short printable line."""
    if isinstance(value, (dict, list)):
        return "a list" if isinstance(value, list) else "an object"
    if isinstance(value, int) and abs(value) >= 10**40:
        return "a huge number"
    return _name(value) if not isinstance(value, str) else f"'{_name(value)}'"


def _name(value: Any) -> str:
    text = str(value)[:40].encode("unicode_escape", "backslashreplace").decode("ascii")
    return text[:60]
