"""What is said of messages from device memory and of datatypes with gaps."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np

from p3s.signature import buffers


def call(op: str, size: int, block: int = 0, memory: int = 0) -> Any:
    """A call as the totals look at it."""
    return SimpleNamespace(op=op, bytes=size, block=block, memory=memory)


CALLS = [
    call("MPI_Send", 100),
    call("MPI_Send", 200, block=8),
    call("MPI_Recv", 200, block=8),
    call("MPI_Allreduce", 50, memory=3),
    call("MPI_Waitall", 2),
]


def test_sends_and_collectives_are_counted_by_rank() -> None:
    uses: buffers.Uses = Counter()
    columns = buffers.marks(CALLS)
    for sequence in ([0, 1, 2, 4, 3], [1, 1, 3]):
        buffers.add_rank(uses, columns, np.bincount(sequence, minlength=len(CALLS)))
    assert uses == {
        "messages": 6,
        "device": 2,
        "device_bytes": 100,
        "scattered": 3,
        "scattered_bytes": 600,
    }


def test_a_line_for_each_kind_at_the_largest_count() -> None:
    few = {"messages": 9, "device": 9, "device_bytes": 9, "scattered": 0, "scattered_bytes": 0}
    more = {"messages": 4, "device": 1, "device_bytes": 8, "scattered": 2, "scattered_bytes": 64}
    device, gaps = buffers.sentences({"2": few, "16": more})
    assert device.startswith("25 % of the messages (8 bytes) at 16 processes are in device memory")
    assert gaps.startswith("50 % of the messages (64 bytes) at 16 processes use non-contiguous")
    assert len(buffers.sentences({"2": few})) == 1


def test_nothing_is_said_of_usual_buffers_and_of_damaged_totals() -> None:
    usual = {"messages": 4, "device": 0, "device_bytes": 0, "scattered": 0, "scattered_bytes": 0}
    assert buffers.sentences({}) == buffers.sentences({"2": usual}) == []
    assert buffers.sentences({"2": {"messages": "many"}}) == buffers.sentences({"2": None}) == []
