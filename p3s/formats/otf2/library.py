"""The Python package otf2, which is optional."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from p3s.base.errors import P3SError


def library() -> Any:
    """Return the module otf2; P3SError says how to install it."""
    import importlib

    try:
        otf2 = importlib.import_module("otf2")
    except ImportError as err:
        raise P3SError(
            "the Python package otf2 is not installed; run: pip install 'p3s[otf2]'"
        ) from err
    _mend(otf2.definitions)
    return otf2


def _mend(definitions: Any) -> None:
    """Let archives with intercommunicators be read.

    Releases up to 3.2 take those of InterComm for the fields of Comm and some more, and fail.
    """
    kind = definitions.InterComm
    names = [field.name for field in kind._fields]
    if len(set(names)) < len(names):
        of = {field.name: field for field in reversed(kind._fields)}
        kind._fields = tuple(of[name] for name in ("name", "groupA", "groupB", "parent", "flags"))


@contextmanager
def quiet() -> Iterator[None]:
    """Keep what the library itself prints of damaged archives off stderr; it also raises."""
    import os
    import sys
    from contextlib import redirect_stderr

    sys.stderr.flush()
    saved_fd = os.dup(2)
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        try:
            os.dup2(nowhere.fileno(), 2)  # of the C library
            with redirect_stderr(nowhere):  # of its Python half
                yield
        finally:
            os.dup2(saved_fd, 2)
            os.close(saved_fd)


def errors(otf2: Any) -> tuple[type[Exception], ...]:
    """Return what the library raises: its own errors, and those of the C library below it."""
    import importlib

    return otf2.error.Error, importlib.import_module("_otf2").ErrorCodes.Error
