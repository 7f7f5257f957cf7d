"""Kinds of rules: each is one class, which says all that there is to say of the kind.

A root (relations, atoms of guards, communicator laws, grids) holds a table of its kinds, which a
class joins by being defined: ``class Mirror(Relation, kind="mirror")``. Stored rules name their
kind; those of one place in a file are read by ``Root.load``, whichever kind they are.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping
from dataclasses import Field, field, fields
from functools import cache
from itertools import repeat
from typing import Any, ClassVar, Self, get_args, get_origin, get_type_hints

from p3s.base.errors import P3SError


def left_out(default: Any, **how: Any) -> Any:
    """Return a field that a file names only where it has another value.

    last: named after the others; read: makes its value of stored data.
    """
    return field(default=default, metadata={"left out": True, **how})


class Rule:
    """A rule of some kind, as an object; subclasses are frozen dataclasses.

    what: the word for such a rule in errors; kinds: all kinds of the root, in the order in which
    they are tried, by the names that files have for them.
    """

    what: ClassVar[str] = "rule"
    kind: ClassVar[str] = ""
    kinds: ClassVar[dict[str, Any]] = {}
    _read: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls, *, what: str = "", kind: str = "", **more: Any) -> None:
        super().__init_subclass__(**more)
        if what:  # a root
            cls.what, cls.kinds, cls._read = what, {}, {}
        if kind in cls.kinds:
            raise TypeError(f"{cls.what} {kind!r} is there already")
        if kind:
            cls.kind = kind
            cls.kinds[kind] = cls
            cls._read.clear()

    @classmethod
    def load(cls, stored: Any) -> Self:
        """Return the rule of stored data (read once), or the rule itself."""
        if isinstance(stored, cls):
            return stored
        name = repr(stored)
        found = cls._read.get(name)
        if found is None:
            if len(cls._read) > 4096:
                cls._read.clear()
            found = cls._read[name] = cls.from_json(stored)
        return found

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Return the rule of :meth:`to_json` data. Raises P3SError where it cannot be one."""
        kind = data.get("kind") if isinstance(data, Mapping) else None
        made = cls.kinds.get(kind) if isinstance(kind, str) else None
        if made is None:
            raise cls.unknown(kind)
        known, hints = {f.name: f for f in fields(made)}, hints_of(made)
        try:
            values = {
                name: read_field(known[name], v) for name, v in data.items() if name != "kind"
            }
            if all(is_a(v, hints[name]) for name, v in values.items()):
                return made(**values)  # type: ignore[no-any-return]
        except (AttributeError, KeyError, TypeError, ValueError):  # unknown fields, missing ones
            pass
        raise P3SError(f"model: a {cls.what} ({kind}) is malformed; run `p3s model` again")

    @classmethod
    def unknown(cls, kind: object) -> P3SError:
        """Return the error for a kind that is not in the table."""
        return P3SError(f"model: unknown {cls.what} {kind!r}; the file was made by another version")

    def to_json(self) -> Any:
        """Return the rule as plain data."""
        out: dict[str, Any] = {"kind": self.kind}
        named = fields(self)  # type: ignore[arg-type]
        for f in sorted(named, key=lambda f: bool(f.metadata.get("last"))):
            value = getattr(self, f.name)
            if not (f.metadata.get("left out") and value == f.default):
                out[f.name] = plain(value)
        return out


def read_field(about: Field[Any], value: Any) -> Any:
    """Return the value of a field from its stored form."""
    convert: Callable[[Any], Any] = about.metadata.get("read", frozen)
    return convert(value)


def frozen(value: Any) -> Any:
    """Return stored data with tuples for its lists."""
    return tuple(map(frozen, value)) if isinstance(value, list) else value


@cache
def hints_of(kind: type) -> dict[str, Any]:
    """Return the types of the fields of a kind."""
    return get_type_hints(kind)


def is_a(value: Any, hint: Any) -> bool:
    """Return whether a value is of a type, of which tuples and unions may be made."""
    inner = get_args(hint)
    if get_origin(hint) is tuple:
        if not isinstance(value, tuple) or (inner[-1] is not ... and len(inner) != len(value)):
            return False
        each = repeat(inner[0]) if inner[-1] is ... else inner
        return all(map(is_a, value, each))
    if inner:
        return any(is_a(value, one) for one in inner)
    if hint in (int, float):
        wanted = numbers.Integral if hint is int else numbers.Real
        return isinstance(value, wanted) and not isinstance(value, bool)
    return isinstance(value, hint)


def plain(value: Any) -> Any:
    """Return data for a file: rules as their data, lists for tuples."""
    if hasattr(value, "to_json"):
        return value.to_json()
    return [plain(v) for v in value] if isinstance(value, tuple) else value
