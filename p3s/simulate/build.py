"""Compiles the core of the simulation (simulate.c) with the C compiler, once per source."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path

from p3s.base.errors import P3SError
from p3s.base.host import prebuilt
from p3s.base.host.compiling import c_compiler, compiled

FLAGS = ("-O2", "-std=gnu11", "-fPIC", "-shared", "-w")
SOURCES = [
    Path(__file__).with_name(name)
    for name in ("simulate.c", "ends.h", "fair.h", "messages.h", "pack.h", "state.h")
]


@functools.cache
def library() -> ctypes.CDLL:
    """Return the compiled core, loaded; from the cache if it is there.

    Errors: P3SError when it did not come with P3S and cannot be compiled, or no place is writable.
    """
    name = "simulate.so"
    made = prebuilt.taken(name, SOURCES, FLAGS) or compiled(
        name,
        SOURCES,
        FLAGS,
        compiler=c_compiler("the simulation"),
        what="the dependency simulation",
        libraries=["-lm"],
    )
    try:
        return ctypes.CDLL(str(made))
    except OSError as err:
        raise P3SError(f"{made}: cannot be loaded ({err}); remove it and try again") from err
