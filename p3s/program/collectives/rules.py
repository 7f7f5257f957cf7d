"""MPI libraries and rules for their algorithms, as far as the choice of an algorithm asks."""

from __future__ import annotations

from dataclasses import dataclass

OPENMPI = "openmpi"
MPICH = "mpich"


@dataclass(frozen=True)
class Rule:
    """Take this algorithm for a call, below these sizes (None: any); see ``Library``.

    ``segment``: messages are cut into pieces of so many bytes where the algorithm can, 0: not.
    """

    call: str
    algorithm: str
    segment: int = 0
    members_below: int | None = None
    bytes_below: int | None = None


@dataclass(frozen=True)
class Library:
    """An MPI library: family, (major, minor) version, and rules that come before its own.

    ``device``: MPICH's collectives that are aware of nodes are on (its default; off with
    MPIR_CVAR_DEVICE_COLLECTIVES=none). ``chosen_as``: (members, as of how many): communicators of
    so many members stand for larger ones, whose algorithms they take (p3s.program.fewer).
    """

    family: str
    version: tuple[int, int]
    rules: tuple[Rule, ...] = ()
    device: bool = True
    chosen_as: tuple[tuple[int, int], ...] = ()

    def members(self, p: int) -> int:
        """Return as of how many members the algorithm of a communicator of ``p`` is chosen."""
        return dict(self.chosen_as).get(p, p)

    def __str__(self) -> str:
        name = "Open MPI" if self.family == OPENMPI else "MPICH"
        return f"{name} {self.version[0]}.{self.version[1]}"
