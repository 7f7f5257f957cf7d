"""Which calls of a program's file are looked for beside those that move its data."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from p3s.pipeline.prediction import _stacks

PLACES = {"a": ("app+0x10", "app+0x20"), "b": ("app+0x30",)}


def calls(*made: tuple[str, str, float]) -> Any:
    """A model of which this much is looked at: (call, place, share of the bytes)."""
    items = [SimpleNamespace(op=o, site=s, share=SimpleNamespace(bytes=b)) for o, s, b in made]
    return SimpleNamespace(items=items, sites=PLACES)


@pytest.mark.parametrize(
    ("made", "wanted"),
    [
        (("MPI_Isend", "a", 0.9), {"MPI_Isend"}),
        (("MPI_Isend", "a", 0.01), set()),
        # what makes a request moves nothing; it is started elsewhere
        (("MPI_Send_init", "a", 0.9), {"MPI_Start", "MPI_Startall"}),
        (("MPI_Allreduce_init", "a", 0.9), {"MPI_Start", "MPI_Startall"}),
        (("MPI_Neighbor_alltoall_init_send", "a", 0.9), {"MPI_Start", "MPI_Startall"}),
        # messages that stand for a call are looked for as the call
        (("MPI_Neighbor_alltoall_send", "a", 0.9), {"MPI_Neighbor_alltoall"}),
        (("MPI_Put_target_recv", "a", 0.9), {"MPI_Put"}),
    ],
)
def test_calls_are_looked_for_by_the_name_that_is_called_there(
    made: tuple[str, str, float], wanted: set[str]
) -> None:
    found = _stacks(calls(made))
    assert set(found) == wanted
    assert all(stacks == [[("app", 0x10), ("app", 0x20)]] for stacks in found.values())


def test_both_halves_of_a_call_count_together() -> None:
    halves = ("MPI_Neighbor_alltoall_recv", "a", 0.06), ("MPI_Neighbor_alltoall_send", "b", 0.06)
    assert set(_stacks(calls(*halves))) == {"MPI_Neighbor_alltoall"}
