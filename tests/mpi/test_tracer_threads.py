"""Threads that call MPI at the same time lose no event."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tracer_helpers import PROGRAMS, compile_c, the_mpi, trace

pytestmark = [pytest.mark.skipif(the_mpi() is None, reason="no usable MPI")]

THREADS, TURNS = 4, 200


def test_every_thread_is_recorded(tmp_path: Path) -> None:
    program = compile_c(PROGRAMS / "threads.c", tmp_path / "threads", "-pthread")
    run = trace([str(program)], 2, tmp_path / "run")
    if "no threads" in (tmp_path / "run" / "stdout.txt").read_text():
        pytest.skip("this MPI has no MPI_THREAD_MULTIPLE")
    for rank in run.ranks:
        calls = [run.calls[number] for number in rank.call.tolist()]
        other = 1 - rank.rank
        counted = Counter((c.op, c.peer, c.tag) for c in calls)
        want = {("MPI_Init", -1, -1): 1, ("MPI_Finalize", -1, -1): 1}
        want[("MPI_Wait", -1, -1)] = THREADS * TURNS
        for thread in range(THREADS):
            want[("MPI_Send", other, thread)] = TURNS
            want[("MPI_Irecv", other, thread)] = TURNS
        assert counted == want
        assert int(rank.work.min()) >= 0
