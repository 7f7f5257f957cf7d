"""Published JSON Schemas of files (draft 2020-12), and the first problem of a file in words."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jsonschema import ValidationError

#: Larger numbers do not fit into the floating-point numbers of this and other readers.
LARGEST = 1.7e308


@cache
def load_schema(name: str) -> Mapping[str, Any]:
    """Return the schema of this package with a name, for example "prediction-2"."""
    text = (resources.files("p3s.base.schemas") / f"{name}.json").read_text(encoding="utf-8")
    schema: Mapping[str, Any] = json.loads(text)
    return schema


def first_problem(value: Any, schema: Mapping[str, Any]) -> str:
    """Return where a value is not what the schema says and why, in words; "" where it is."""
    error = next(_validator()(schema).iter_errors(value), None)
    if error is None:
        return ""
    key, why = _explain_error(error)
    place = "".join(map(_step, [*error.absolute_path, *key]))
    return f"{place.removeprefix('.') or 'it'} {why}"


def _finite(_: Any, value: Any) -> bool:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    return -LARGEST <= value <= LARGEST  # neither infinite nor NaN


@cache
def _validator() -> Any:
    """Return the class that checks; importing its library takes 25 ms."""
    from jsonschema import Draft202012Validator, validators

    return validators.extend(
        Draft202012Validator,
        type_checker=Draft202012Validator.TYPE_CHECKER.redefine_many(
            {"number": _finite, "integer": lambda _, v: _finite(_, v) and v == int(v)}
        ),
    )


def _explain_error(error: ValidationError) -> tuple[list[Any], str]:
    """Return the member of the place that is meant, if it is one, and what is wrong, in words."""
    value, rule = error.instance, error.validator_value
    words_for: dict[str, Callable[[], str]] = {
        "type": lambda: f"not {rule if isinstance(rule, str) else ' or '.join(rule)}",
        "const": lambda: f"not {rule!r}",
        "enum": lambda: f"not one of {', '.join(map(str, rule))}",
        "minimum": lambda: f"less than {rule}",
        "maximum": lambda: f"more than {rule}",
    }
    if error.validator == "required":
        return [next(key for key in rule if key not in value)], "is missing"
    if error.validator == "additionalProperties":
        properties = error.schema.get("properties", {})
        return [next(key for key in value if key not in properties)], "is not known"
    if error.validator == "anyOf":  # the first alternative that is of the value's type, else any
        inner = next((e for e in error.context if e.validator != "type"), error.context[0])
        key, why = _explain_error(inner)
        return [*inner.relative_path, *key], why
    if error.validator in ("minItems", "maxItems"):
        return [], f"has {len(value)} entries, not {rule}"
    return [], f"is {_format_value(value)}, {words_for[str(error.validator)]()}"


def _step(key: Any) -> str:
    return f"[{key}]" if isinstance(key, int) else f".{_name(key)}"


def _format_value(value: Any) -> str:
    """Return a value as one short printable line."""
    if isinstance(value, (dict, list)):
        return "a list" if isinstance(value, list) else "an object"
    if isinstance(value, int) and abs(value) >= 10**40:
        return "a huge number"
    return _name(value) if not isinstance(value, str) else f"'{_name(value)}'"


def _name(value: Any) -> str:
    text = str(value)[:40].encode("unicode_escape", "backslashreplace").decode("ascii")
    return text[:60]
