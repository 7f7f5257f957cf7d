"""A program that came compiled with P3S, started as a rank: python loaded.py LIBMPI PROGRAM ARGS.

Run by its path: it needs nothing of P3S, so that hundreds of ranks start quickly.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence


def main(libmpi: str, words: Sequence[str]) -> int:
    """Load a libmpi, then the library ``words[0]``, and return what its main does with words."""
    ctypes.CDLL(libmpi, ctypes.RTLD_GLOBAL)
    argv = (ctypes.c_char_p * (len(words) + 1))(*(word.encode() for word in words), None)
    return int(ctypes.CDLL(words[0]).main(len(words), argv))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
