"""Tables of LEB128 numbers: 7 bits per byte, low bits first, the top bit set in all but the last.

Everything works on whole columns; ten bytes hold 64 bits and are the longest number there is. Long
tables are read by varint.c, ten times as fast, where that is compiled or can be.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ctypes

    import numpy as np
    from numpy.typing import NDArray

    Int64s = NDArray[np.int64]
    UInt64s = NDArray[np.uint64]

FLAGS = ("-O2", "-std=gnu11", "-fPIC", "-shared", "-w")
SOURCES = [Path(__file__).with_name("varint.c")]

_LONGEST_BYTES = 10
#: Bytes of a table from which on the compiled reader is worth looking for.
_LONG = 1 << 14
_TOO_LONG = ("a number of more than ten bytes", "a number of more than 64 bits")


@functools.cache
def _library() -> ctypes.CDLL | None:
    """Return the compiled reader, None where it did not come along and cannot be compiled."""
    import ctypes

    from p3s.base.errors import P3SError
    from p3s.base.host import prebuilt
    from p3s.base.host.compiling import c_compiler, compiled

    name, what = "varint.so", "the reader of captures"
    try:
        made = prebuilt.taken(name, SOURCES, FLAGS) or compiled(
            name, SOURCES, FLAGS, compiler=c_compiler(what), what=what
        )
        found = ctypes.CDLL(str(made))
    except (OSError, P3SError):
        return None
    found.p3s_numbers.restype = ctypes.c_int64
    found.p3s_numbers.argtypes = (ctypes.c_char_p, ctypes.c_int64)
    found.p3s_columns.argtypes = (ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
    return found


def decode(payload: bytes, columns: int) -> UInt64s:
    """Return the numbers of a table as an array of shape (columns, rows).

    Raises ValueError when the bytes end inside a number or a row, or hold a number of more than
    64 bits.
    """
    library = _library() if len(payload) >= _LONG and columns > 0 else None
    return _in_numpy(payload, columns) if library is None else _in_c(library, payload, columns)


def _in_c(library: ctypes.CDLL, payload: bytes, columns: int) -> UInt64s:
    import numpy as np

    numbers = library.p3s_numbers(payload, len(payload))
    if numbers < 0:
        raise ValueError("a number is cut off")
    if numbers % columns:
        raise ValueError("a row is cut off")
    out = np.empty((columns, numbers // columns), dtype=np.uint64)
    if bad := library.p3s_columns(payload, out.shape[1], columns, out.ctypes.data):
        raise ValueError(_TOO_LONG[bad - 1])
    return out


def _in_numpy(payload: bytes, columns: int) -> UInt64s:
    import numpy as np

    if columns < 1:
        raise ValueError("a table without columns")
    raw = np.frombuffer(payload, dtype=np.uint8)
    if not len(raw):
        return np.empty((columns, 0), dtype=np.uint64)
    ends = np.flatnonzero(raw < 0x80)
    if not len(ends) or ends[-1] != len(raw) - 1:
        raise ValueError("a number is cut off")
    if len(ends) % columns:
        raise ValueError("a row is cut off")
    starts = np.empty_like(ends)
    starts[0] = 0
    np.add(ends[:-1], 1, out=starts[1:])
    extra = ends - starts  # bytes after the first
    longest = int(extra.max())
    if longest >= _LONGEST_BYTES:
        raise ValueError("a number of more than ten bytes")
    seven = raw & 0x7F
    values = seven[starts].astype(np.uint64)
    more, at = np.flatnonzero(extra), starts
    for place in range(1, longest + 1):
        if place > 1:
            more = more[extra[more] >= place]
        at = starts[more] + place
        part = seven[at].astype(np.uint64)
        if place == _LONGEST_BYTES - 1 and (part > 1).any():
            raise ValueError("a number of more than 64 bits")
        values[more] |= part << np.uint64(7 * place)
    return np.ascontiguousarray(values.reshape(-1, columns).T)


def unzigzag(values: UInt64s) -> Int64s:
    """Return the signed numbers: 0, 1, 2, 3, ... stand for 0, -1, 1, -2, ..."""
    import numpy as np

    one = np.uint64(1)
    signs = (values & one).view(np.int64)
    np.negative(signs, out=signs)
    shifted = (values >> one).view(np.int64)
    shifted ^= signs
    return shifted


def zigzag(values: Int64s) -> UInt64s:
    """Return the unsigned numbers that stand for signed ones, as :func:`unzigzag` reads them."""
    import numpy as np

    return ((values << 1) ^ (values >> 63)).astype(np.int64).view(np.uint64)


def encode(table: UInt64s) -> tuple[NDArray[np.uint8], Int64s]:
    """Return the bytes of a table of shape (rows, columns), and where each of its rows ends."""
    import numpy as np

    flat = np.ascontiguousarray(table, dtype=np.uint64).reshape(-1)
    size = np.ones(len(flat), dtype=np.int64)
    for place in range(1, _LONGEST_BYTES):
        size += flat >> np.uint64(7 * place) > 0
    end = np.cumsum(size)
    out = np.empty(int(end[-1]) if len(end) else 0, dtype=np.uint8)
    for place in range(int(size.max(initial=0))):
        here = np.flatnonzero(size > place)
        seven = (flat[here] >> np.uint64(7 * place)).astype(np.uint8) & 0x7F
        out[end[here] - size[here] + place] = seven | ((size[here] > place + 1) << 7)
    return out, end.reshape(table.shape)[:, -1]
