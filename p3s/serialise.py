"""Records to plain data and back: one way for every file that a frozen dataclass is kept in.

A field is written unless it has the default it would be read as (with ``always`` in its metadata
then too, or where that, called with the record, says so). Where the name in the file is no name in
Python, the metadata has it as ``key``. Classes with ``to_json`` and ``from_json`` of their own
(rules, of which there are several kinds) are written and read by these. Named tuples are rows:
lists without keys. What is read is checked: types exactly (no text for a number, no infinities),
missing and unknown keys.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from enum import Enum, StrEnum
from functools import cache
from typing import Any, TypeVar

from p3s.errors import P3SError

T = TypeVar("T")
#: Deepest nesting of lists and objects in a file.
MAX_DEPTH = 64


class ShapeError(P3SError):
    """Plain data is not of the type it is read as; the message says where and why."""


def to_data(value: Any) -> Any:
    """Return records, tuples and numbers of numpy as what JSON has: objects, lists, numbers."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value.value if isinstance(value, Enum) else value
    if hasattr(value, "to_json"):
        return to_data(value.to_json())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            key: to_data(each)
            for name, key, default, always in _fields(type(value))
            if (each := getattr(value, name)) is not default
            and each != default
            or (always(value) if callable(always) else always)
        }
    if isinstance(value, Mapping):
        return {str(k): to_data(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_data(v) for v in value]
    if hasattr(value, "tolist"):  # arrays and numbers of numpy
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be written to a file")


def from_data(kind: type[T], data: Any, *, more: bool = False) -> T:
    """Return plain data as a record of a type; ShapeError says what is wrong, and where.

    more: keys that are not known are passed over; else they are wrong.
    """
    from cattrs import transform_error

    try:
        made: T = _converter(more).structure(data, kind)
        return made
    except RecursionError:
        raise ShapeError("it is nested too deeply") from None
    except Exception as err:
        raise ShapeError(_first(transform_error(err, path="", format_exception=_said))) from err


class _Required:
    """The default of a field that has none: equal to nothing."""

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]


@cache
def _fields(kind: type) -> tuple[tuple[str, str, Any, Any], ...]:
    """Return name, key in the file, default, and when it is written with that, of all fields."""
    out = []
    for field in dataclasses.fields(kind):
        default = _Required()
        if field.default is not dataclasses.MISSING:
            default = field.default
        elif field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        key, always = field.metadata.get("key", field.name), field.metadata.get("always", False)
        out.append((field.name, key, default, always))
    return tuple(out)


@cache
def _converter(more: bool) -> Any:
    from cattrs import Converter
    from cattrs.gen import make_dict_structure_fn, override

    def renamed(kind: type) -> dict[str, Any]:
        return {name: override(rename=key) for name, key, _, _ in _fields(kind) if name != key}

    converter = Converter(forbid_extra_keys=not more)
    for kind in _NAMES:
        converter.register_structure_hook(kind, _exactly)
    converter.register_structure_hook(StrEnum, lambda value, kind: kind(value))
    converter.register_structure_hook_func(lambda t: t is Any, lambda value, _: value)
    converter.register_structure_hook_factory(
        dataclasses.is_dataclass,
        lambda kind: make_dict_structure_fn(
            kind, converter, _cattrs_forbid_extra_keys=not more, **renamed(kind)
        ),
    )
    converter.register_structure_hook_factory(
        lambda t: isinstance(t, type) and issubclass(t, tuple) and hasattr(t, "_fields"),
        lambda kind: _row_hook(kind, converter),
    )
    converter.register_structure_hook_func(
        lambda t: hasattr(t, "from_json"), lambda value, kind: kind.from_json(value)
    )
    return converter


def _row_hook(kind: Any, converter: Any) -> Any:
    """Return what reads a row as a named tuple."""
    from types import GenericAlias
    from typing import get_type_hints

    row = GenericAlias(tuple, tuple(get_type_hints(kind).values()))
    return lambda value, _: kind(*converter.structure(value, row))


def _exactly(value: Any, kind: Any) -> Any:
    """Return a value that is of a simple type already; whole numbers count as real ones."""
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise ValueError(f"{value!r:.40} is no {_NAMES[kind]}")
    if kind is float and not math.isfinite(value):
        raise ValueError(f"{value} is no finite number")
    return value


_NAMES = {int: "whole number", float: "number", bool: "true or false", str: "text"}


def _said(err: BaseException, kind: type | None) -> str:
    """Return what is wrong in a few words."""
    if isinstance(err, AttributeError):
        return "it is no object"
    if isinstance(err, KeyError):
        return f"{err.args[0]} is missing"
    return " ".join(str(err).split())[:120] or type(err).__name__


def _first(problems: list[str]) -> str:
    """Return the first of the problems that were found, with its place."""
    text, _, place = (problems[0] if problems else "it has another form").partition(" @ ")
    return f"{place.lstrip('.') or 'it'}: {text}" if place else text
