"""Memory of this process that nothing uses any more."""

from __future__ import annotations

import contextlib
import ctypes


def give_back() -> None:
    """Return freed memory to the system; the C library keeps it where others lie above it.

    Columns of a million entries come and go by the dozen, and those that stay lie between those
    that go. Without malloc_trim (it is glibc's) nothing happens.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))
