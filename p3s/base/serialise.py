"""Records to plain data and back, and the published formats of files that hold one record."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar, get_args, get_origin, get_type_hints

from p3s.base.artefacts import read_json, unusable
from p3s.base.errors import P3SError

T = TypeVar("T")


#: Ranks of a run are numbered in 24 bits: more processes there are not.
MOST_PROCESSES = 1 << 24
#: How far a number that was computed may be out of its range.
ROUNDING = 1e-9


@dataclasses.dataclass(frozen=True)
class Range:
    """What a number may be: least <= value <= most; None: no end. Part of a type, in Annotated.

    Of a number with a fraction up to ROUNDING more is let pass: a sum of shares may be 1 + 2e-16.
    """

    least: float | None = None
    most: float | None = None

    def check(self, value: Any) -> None:
        """Raise ValueError for a number that is outside."""
        slack = ROUNDING if isinstance(value, float) else 0
        if self.least is not None and value < self.least - slack:
            raise ValueError(f"{value!r:.40} is less than {self.least}")
        if self.most is not None and value > self.most + slack:
            raise ValueError(f"{value!r:.40} is more than {self.most}")


#: A number in the one way that it is written as a key: no two keys are the same number.
_KEY = re.compile(r"0|[1-9][0-9]{0,18}")


@dataclasses.dataclass(frozen=True)
class Key:
    """Part of a type, in Annotated: a whole number that is a key of an object, so text in files."""


#: Numbers as files have them: processes of a run, how many of something, from 1, no less than 0.
ProcessCount = Annotated[int, Range(1, MOST_PROCESSES)]
Natural = Annotated[int, Range(0, (1 << 63) - 1)]
Total = Annotated[int, Range(0)]
Positive = Annotated[int, Range(1, (1 << 63) - 1)]
NotNegative = Annotated[float, Range(0)]
Share = Annotated[float, Range(0, 1)]


def check_columns(record: Any, first: str, positive: str = "", may_lack: str = "") -> None:
    """Raise ValueError where the columns of a record, its tuples, are none of a table.

    ``first``: the one that ascends; each has an entry for each of its. ``positive``: one of numbers
    above 0; ``may_lack``: one that may be empty.
    """
    columns = {f.name: getattr(record, f.name) for f in dataclasses.fields(record)}
    at = columns[first]
    if not at or list(at) != sorted(set(at)):
        raise ValueError(f"{first} does not ascend")
    for name, column in columns.items():
        if isinstance(column, tuple) and len(column) != len(at) and (column or name != may_lack):
            raise ValueError(f"{name} has not one entry for each of {first}")
    if positive and min(columns[positive], default=1) <= 0:
        raise ValueError(f"{positive}: {min(columns[positive])} is not above 0")


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
        record: T = _converter(more).structure(data, kind)
        return record
    except RecursionError:
        raise ShapeError("it is nested too deeply") from None
    except Exception as err:
        raise ShapeError(
            _first(transform_error(err, path="", format_exception=_describe_error))
        ) from err


class _RequiredDefault:
    """The default of a field that has none: equal to nothing."""

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]
    __array_ufunc__ = None  # arrays leave the comparison to it


@cache
def _fields(kind: type) -> tuple[tuple[str, str, Any, Any], ...]:
    """Return name, key in the file, default, and when it is written with that, of all fields."""
    out = []
    for field in dataclasses.fields(kind):
        default = _RequiredDefault()
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

    def field_options(kind: type) -> dict[str, Any]:
        """Return how fields differ from what cattrs makes of them: their key, their range."""
        plain, whole = get_type_hints(kind), get_type_hints(kind, include_extras=True)
        return {
            name: override(
                rename=None if name == key else key,
                struct_hook=None if plain[name] == whole[name] else hook_of(whole[name]),
            )
            for name, key, _, _ in _fields(kind)
            if name != key or plain[name] != whole[name]
        }

    def hook_of(kind: Any) -> Any:
        return lambda value, _: converter.structure(value, kind)

    converter = Converter(forbid_extra_keys=not more)
    for kind in _NAMES:
        converter.register_structure_hook(kind, _exactly)
    converter.register_structure_hook(StrEnum, lambda value, kind: kind(value))
    converter.register_structure_hook_func(lambda t: t is Any, lambda value, _: value)
    converter.register_structure_hook_factory(
        dataclasses.is_dataclass,
        lambda kind: _valid(
            kind,
            make_dict_structure_fn(
                kind, converter, _cattrs_forbid_extra_keys=not more, **field_options(kind)
            ),
        ),
    )
    tuples = converter._structure_tuple  # would take text for a list of its letters
    converter.register_structure_hook_func(
        lambda t: getattr(t, "__origin__", None) is tuple,
        lambda value, kind: tuples(_check_list(value), kind),
    )
    converter.register_structure_hook_factory(
        lambda t: isinstance(t, type) and issubclass(t, tuple) and hasattr(t, "_fields"),
        lambda kind: _row_hook(kind, converter),
    )
    converter.register_structure_hook_func(
        lambda t: hasattr(t, "from_json"), lambda value, kind: kind.from_json(value)
    )
    converter.register_structure_hook_func(
        lambda t: hasattr(t, "__metadata__"), lambda value, t: _check_range(value, t, converter)
    )
    converter.register_structure_hook_func(
        is_array, lambda value, kind: _array(value, kind, converter)
    )
    return converter


def is_array(kind: Any) -> bool:
    """Tell whether a type is a column of numpy, NDArray[...]."""
    return getattr(get_origin(kind), "__name__", "") == "ndarray"


def number_of(kind: Any) -> type:
    """Return what a column of numpy holds: int or float."""
    import numpy as np

    (number,) = get_args(get_args(kind)[1])
    return int if issubclass(number, np.integer) else float


def _array(value: Any, kind: Any, converter: Any) -> Any:
    """Return a list of numbers as a column of numpy."""
    from types import GenericAlias

    import numpy as np

    number = number_of(kind)
    return np.array(converter.structure(value, GenericAlias(tuple, (number, ...))), dtype=number)


def _check_list(value: Any) -> Any:
    """Return what is a list; ValueError for text and objects, which can be gone through too."""
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"{value!r:.40} is no list")
    return value


def _check_range(value: Any, kind: Any, converter: Any) -> Any:
    """Return a value of an annotated type; ValueError where it is outside of its range."""
    base, *annotations = get_args(kind)
    if any(isinstance(each, Key) for each in annotations):
        if not (isinstance(value, str) and _KEY.fullmatch(value)):
            raise ValueError(f"{value!r:.40} is no key of an object that is a number")
        value = int(value)
    converted = converter.structure(value, base)
    for each in annotations:
        if isinstance(each, Range):
            each.check(converted)
    return converted


def _valid(kind: Any, structure: Any) -> Any:
    """Return what reads a record and lets it say what its fields must be to each other."""
    valid = getattr(kind, "valid", None)

    def checked(value: Any, target_type: Any) -> Any:
        if not isinstance(value, Mapping):  # a list lacks all keys, as an object may
            raise ValueError("it is no object")
        record = structure(value, target_type)
        if valid is not None:
            record.valid()
        return record

    return checked


def _row_hook(kind: Any, converter: Any) -> Any:
    """Return what reads a row as a named tuple."""
    from types import GenericAlias

    row = GenericAlias(tuple, tuple(get_type_hints(kind, include_extras=True).values()))
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


def _describe_error(err: BaseException, kind: type | None) -> str:
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


#: What stands before the record.
_HEAD = ("schema", "schema_version", "p3s_version")


@dataclass(frozen=True)
class FileFormat(Generic[T]):
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
        """The name of its schema: "model-3"."""
        return f"{self.schema.removeprefix('p3s.')}-{self.version}"

    def data(self, record: T) -> dict[str, Any]:
        """Return a record as the JSON object of its file."""
        return {"schema": self.schema, "schema_version": self.version, **to_data(record)}

    def read(self, path: Path) -> T:
        """Return the record of a file; P3SError, one line, Damaged for one that holds none."""
        content = read_json(path, self.schema, self.version)
        try:
            if not self.more:
                content = {key: value for key, value in content.items() if key not in _HEAD}
            return from_data(self.kind, content, more=self.more)
        except ShapeError as err:
            raise unusable(path, err, self.again) from err
