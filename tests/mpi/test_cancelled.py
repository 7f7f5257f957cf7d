"""A real program that cancels receives: in time, too late, and without waiting for their end."""

from __future__ import annotations

from pathlib import Path

import pytest
from tracer_helpers import PROGRAMS, compile_c, the_mpi, trace

from p3s.capture.layout import NAME
from p3s.capture.rewrite import Messages
from p3s.methods.pas2p.match import match

TURNS, RANKS = 10, 3


def test_cancelled_receives_are_left_out_and_late_ones_stay(tmp_path: Path) -> None:
    if the_mpi() is None:
        pytest.skip("no MPI that works with ranks sharing cores")
    binary = compile_c(PROGRAMS / "patterns" / "modes.c", tmp_path / "modes")
    raw = trace([str(binary)], RANKS, tmp_path / "run")
    found = match(raw)
    assert found.messages == len(found.partner) == 9 * TURNS * RANKS
    files = [raw.path / NAME.format(rank) for rank in range(RANKS)]
    messages = Messages(files)
    for rank, path in enumerate(files):
        run = messages.read(path)
        rt = run.ranks[rank]
        assert len(rt.call) == len(raw.ranks[rank].call) - 6 * TURNS  # with a Wait and a Testany
        calls = [run.calls[number] for number in rt.call.tolist()]
        received = [call.tag for call in calls if call.op == "MPI_Irecv"]
        assert sorted(received) == sorted([1, 2, 6, 7, 8, 10] * TURNS)
        assert [call.bytes for call in calls if call.op == "MPI_Waitall"] == [1] * TURNS
