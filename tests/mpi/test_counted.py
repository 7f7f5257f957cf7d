"""A signature is a trace of all calls: what it only counted is put back as the full trace has it."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_signature_run import INNER, NP, OUTER, nest_of, sample
from tracer_helpers import PROGRAMS, compile_c, the_mpi, trace

from p3s.capture import RunTrace, read_file
from p3s.capture.recording_plan import Enough

pytestmark = [pytest.mark.mpi, pytest.mark.skipif(the_mpi() is None, reason="no usable MPI")]


def calls(run: RunTrace, rank: int) -> list[tuple[object, ...]]:
    """Return all that a rank's calls say, in their order."""
    return [
        (c.op, run.sites[c.site].key, c.peer, c.tag, c.bytes, c.elem_bytes, c.root)
        for c in map(run.calls.__getitem__, run.ranks[rank].call.tolist())
    ]


def test_what_was_counted_is_put_back(tmp_path: Path) -> None:
    program = compile_c(PROGRAMS / "turns.c", tmp_path / "turns")
    words = [str(program), str(OUTER), str(INNER)]
    full = trace(words, NP, tmp_path / "full")
    sample(words, NP, tmp_path / "few", nest_of(full, Enough(early=1, smallest=2, largest=2)))
    for rank in range(NP):
        file = tmp_path / "few" / f"rank-{rank:06d}.p3t"
        recorded, whole = (read_file(file, whole=each) for each in (False, True))
        one, few = whole.ranks[rank], recorded.ranks[rank]
        assert calls(whole, rank) == calls(full, rank)
        assert len(few.call) < len(one.call) / 4 and not one.counted_events
        assert one.complete and one.gap is None
        counted = [sum(row[k] for row in few.counted.values()) for k in (1, 2)]
        assert one.work.sum() == few.work.sum() + counted[1]
        assert one.elapsed_ns.sum() == pytest.approx(few.elapsed_ns.sum() + counted[0], rel=0.05)
        assert (one.start_ns[1:] >= (one.start_ns + one.elapsed_ns)[:-1] - 2000).all()
