"""The Python package otf2, which is optional."""

from __future__ import annotations

from typing import Any

from p3s.errors import P3SError


def library() -> Any:
    """Return the module otf2; P3SError says how to install it."""
    import importlib

    try:
        return importlib.import_module("otf2")
    except ImportError as err:
        raise P3SError(
            "the Python package otf2 is not installed; run: pip install 'p3s[otf2]'"
        ) from err


def errors(otf2: Any) -> tuple[type[Exception], ...]:
    """Return what the library raises: its own errors, and those of the C library below it."""
    import importlib

    return otf2.error.Error, importlib.import_module("_otf2").ErrorCodes.Error
