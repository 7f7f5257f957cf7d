"""Compiles the kernels with the system's C compiler, once per compiler and source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from p3s.host.compiling import compiled, version_of

#: Of the base instruction set, as most programs are: a binary that runs on both machines.
FLAGS = ("-O2", "-ftree-vectorize", "-std=gnu11", "-w")


@dataclass(frozen=True)
class Built:
    """A compiled program: its path, compiler, that compiler's first line of --version, flags."""

    path: Path
    compiler: str
    version: str
    flags: str


def built(source: str, compiler: str, more: Sequence[str] = ()) -> Built:
    """Return ``source`` (a file of this package) compiled, from the cache if it is there.

    more: flags beside FLAGS. Errors: P3SError when the compiler fails or no place is writable.
    """
    path = Path(__file__).with_name(source)
    flags = (*FLAGS, *more)
    made = compiled(f"machine-{path.stem}", [path], flags, compiler=compiler, what=path.name)
    return Built(made, compiler, version_of(compiler), " ".join((*FLAGS[:-2], *more)))
