"""Names of functions as people wrote them: C++ demangled, Fortran without its decoration."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

#: What GCC adds to the name of a copy of a function: name.constprop.0, name.part.1.cold
_CLONE = re.compile(
    r"(\.(constprop|isra|part|cold|localalias|lto_priv|llvm|_omp_fn)(\.\d+)*|\.\d+)+$"
)
#: Module procedures: __mod_MOD_name (gfortran), mod_mp_name_ (Intel), _QMmodPname (Flang).
_MODULES = (
    re.compile(r"^__(?P<module>\w+?)_MOD_(?P<name>\w+)$"),
    re.compile(r"^(?P<module>[a-z]\w*?)_mp_(?P<name>\w+?)_?$"),
    re.compile(r"^_QM(?P<module>[a-z0-9_]+?)(?:F[a-z0-9_]+)?P(?P<name>[a-z0-9_]+)$"),
)
#: Bodies of parallel regions, which compilers make functions of their own: main._omp_fn.0 (GCC),
#: .omp_outlined. and main.omp_outlined (LLVM).
_REGION = re.compile(r"(?P<name>.*?)\._omp_fn\.\d+|(?P<other>.*?)\.omp_outlined\b")
REGION = "parallel region"
_MAINS = {"MAIN__", "MAIN_", "_QQmain"}


@functools.cache
def _demangler() -> Callable[[bytes], str | None] | None:
    """Return the C++ runtime's own demangler, or None where there is no C++ runtime."""
    import ctypes

    for library in ("libstdc++.so.6", "libc++abi.so.1"):
        try:
            runtime = ctypes.CDLL(library)
            function = runtime.__cxa_demangle
            break
        except (OSError, AttributeError):
            continue
    else:
        return None
    free = ctypes.CDLL(None).free
    free.argtypes, free.restype = [ctypes.c_void_p], None
    function.argtypes = [ctypes.c_char_p, *[ctypes.c_void_p] * 3]
    function.restype = ctypes.c_void_p

    def demangle(name: bytes) -> str | None:
        status = ctypes.c_int(-1)
        found = function(name, None, None, ctypes.byref(status))
        if not found:
            return None
        text = ctypes.string_at(found).decode("utf-8", "replace")
        free(found)
        return text if status.value == 0 else None

    return demangle


def readable(symbol: str) -> str:
    """Return the name of a function from its symbol, without parameters and template arguments.

    ``_ZN4Comm4sendEi`` becomes ``Comm::send``, ``__grid_MOD_halo`` ``grid::halo``, ``halo_``
    ``halo``; ``main._omp_fn.0`` is ``main (parallel region)``. Names that nothing is known of stay
    as they are.
    """
    symbol = symbol.partition("@")[0] or symbol  # the version of a symbol: name@@LIB_1.2
    if region := _REGION.match(symbol):
        around = region["name"] or region["other"]
        return f"{readable(around)} ({REGION})" if around else REGION
    name = _CLONE.sub("", symbol) or symbol
    if name.startswith("_Z"):
        demangle = _demangler()
        full = demangle(name.encode("utf-8", "surrogateescape")) if demangle is not None else None
        return without_parameters(full) if full else name
    if name in _MAINS:
        return "main program"
    for pattern in _MODULES:
        if found := pattern.match(name):
            return f"{found['module']}::{found['name']}"
    if name.startswith("_QP"):
        return name[3:] or name
    return name.rstrip("_") or name if name.endswith("_") else name


def without_parameters(name: str) -> str:
    """Return a C++ name without return type, parameters, template arguments and ABI tags."""
    name = name.replace("(anonymous namespace)", "{anonymous}")
    if "operator" in name or "{lambda" in name:  # their own names have brackets
        return name
    out, depth = [], 0
    for char in name:
        if char == "(" and depth == 0:
            break
        if char in "<[":
            depth += 1
        elif char in ">]" and depth:
            depth -= 1
        elif depth == 0:
            out.append(char)
    words = "".join(out).split()
    return words[-1] if words else name
