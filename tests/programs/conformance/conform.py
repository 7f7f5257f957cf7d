"""A program under test counts its own MPI calls; the file it writes is that of conform.h."""

from __future__ import annotations

import sys

from mpi4py import MPI

events: dict[str, int] = {"MPI_Init": 1}
moved: dict[str, int] = {"MPI_Init": 0}
lines: list[str] = []
polls = 0

world = MPI.COMM_WORLD
me, p = world.Get_rank(), world.Get_size()
right, left = (me + 1) % p, (me - 1) % p


def did(*ops: tuple[str, int] | str) -> None:
    """Count calls that were made: (name without MPI_, bytes), or a name alone (any bytes)."""
    for op in ops:
        name, size = op if isinstance(op, tuple) else (op, -1)
        name = "MPI_" + name
        events[name] = events.get(name, 0) + 1
        before = moved.get(name, 0)
        moved[name] = -1 if size < 0 or before < 0 else before + size


def poll() -> None:
    """Count a poll that found nothing."""
    global polls
    polls += 1


def say(*values: object) -> None:
    """Note what was seen."""
    lines.append(" ".join(map(str, values)))


def finish() -> None:
    """Write everything down; MPI_Finalize comes at exit."""
    did(("Finalize", 0))
    with open(f"output-{me:06d}.txt", "w") as file:
        words = [f"{op}={n}/{moved[op] if moved[op] >= 0 else '-'}" for op, n in events.items()]
        file.write("counts " + " ".join(words) + f"\npolls {polls}\n")
        file.write("".join(line + "\n" for line in lines))
    sys.stdout.write(f"rank {me} of {p}: {len(lines)} lines\n")  # in one piece
    sys.stdout.flush()
