"""Which algorithm Open MPI's "tuned" component chooses by default: a table of switch points.

openmpi-tuned.json says where it was read. Of each call it has the algorithms by number from 1, as
in coll_tuned_*_decision.c, and lines of members: each is for communicators with fewer members than
its first number ("-": any other); then the number of the algorithm below each size in bytes, the
last one for all bigger sizes. Sizes: the vector (Bcast, Reduce, Allreduce, Reduce_scatter), one
member's block (Allgather, Gather, Scatter, Reduce_scatter_block, Alltoall), the mean block
(Allgatherv). The fixed rules pass no segment size and no fan-out, which makes "chain" a pipeline of
one chain and "segmented ring" a ring; nothing is cut. Two-process algorithms are what the named
ones are for two.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

Row = tuple[int | None, tuple[tuple[int | None, int], ...]]


@cache
def switch_points() -> dict[str, dict[str, Any]]:
    """Return what openmpi-tuned.json holds by call: ``algorithms`` and ``members``."""
    found: dict[str, dict[str, Any]] = json.loads(
        Path(__file__).with_name("openmpi-tuned.json").read_text()
    )["calls"]
    return found


def algorithms(call: str) -> list[str]:
    """Return the names of a call's algorithms by number from 1; none where it has no table."""
    names: list[str] = switch_points().get(call, {}).get("algorithms", [])
    return names


@cache
def rows(call: str) -> tuple[Row, ...]:
    """Return (members below, ((bytes below, number), ...)) of a call; None: no limit."""
    found = []
    for line in switch_points()[call]["members"]:
        members, *words = line.split()
        sizes = []
        for word in words:
            limit, _, number = word.rpartition(":")
            sizes.append((int(limit[1:]) if limit else None, int(number)))
        found.append((None if members == "-" else int(members), tuple(sizes)))
    return tuple(found)


def tuned(call: str, members: int, nbytes: int) -> str:
    """Return the name of the algorithm for a communicator of this size and this many bytes."""
    for below, sizes in rows(call):
        if below is None or members < below:
            for limit, number in sizes:
                if limit is None or nbytes < limit:
                    return algorithms(call)[number - 1]
    raise AssertionError(call)
