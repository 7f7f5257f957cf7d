"""Messages of more bytes than 31 and 32 bits hold, to the last byte, from a capture to its time."""

from __future__ import annotations

from pathlib import Path

import corpus
import numpy as np
import pytest
from sketch import irecv, send, sketched, wait
from steps_builder import Builder

from p3s.capture.layout import NAME
from p3s.capture.rewrite import Messages
from p3s.model.compare import compare
from p3s.model.evaluate import Evaluator
from p3s.model.holdout import build_model
from p3s.signature.matrix import communication_matrix
from p3s.signature.part import part_of
from p3s.simulate.network import Network, line
from p3s.simulate.network import Path as Way
from p3s.simulate.simulate import simulate

SIZES = [(1 << 31) - 1, 1 << 31, (1 << 31) + 8, (1 << 32) + 24, 3 << 33]


@pytest.mark.parametrize("nbytes", SIZES)
def test_a_capture_keeps_all_bytes(tmp_path: Path, nbytes: int) -> None:
    more = {"nbytes": nbytes, "elem": 1}
    raw = sketched(
        tmp_path,
        [send(1, **more), send(1, **more)],
        [irecv(0, **more), irecv(0, **more), irecv(0, **more), wait(0, 1, cancels=(2,), nbytes=3)],
    )
    assert communication_matrix(raw).bytes.tolist() == [2 * nbytes]
    files = [tmp_path / NAME.format(rank) for rank in range(2)]
    for path in files:
        table = part_of(Messages(files).read(path)).table
        assert table["count"][table["nbytes"] == nbytes].tolist() == [2]


@corpus.program
def _halo(rec, total: int):
    """Rows of a matrix of ``total`` bytes dealt to the processes; each sends its part around."""
    mine = corpus.block(total // 8, rec.n, rec.rank) * 8
    for _ in range(3):
        rec("Irecv", site="r", peer=(rec.rank - 1) % rec.n, nbytes=8 << 30, tag=1)
        rec("Isend", site="s", peer=(rec.rank + 1) % rec.n, nbytes=mine, tag=1)
        rec("Waitall", site="w", comm=-1, nbytes=2, elem=1)
        rec("Allgather", site="g", nbytes=mine)


@pytest.mark.parametrize("total", [(5 << 32) + 8 * 1013, (40 << 32) + 8 * 1013])
def test_laws_hold_to_the_last_byte(total: int) -> None:
    program = _halo(total)
    model = build_model([corpus.table(program, n) for n in (2, 3, 4, 6, 8)], holdout=False)
    truth = corpus.table(program, 16)
    found = compare(model, truth)
    assert found.p2p_triples.all_equal
    rows = Evaluator(model, 16).rows()
    assert rows.nbytes.dtype == np.int64
    parts = [corpus.block(total // 8, 16, rank) * 8 for rank in range(16)]
    assert set(parts) <= set(rows.nbytes.tolist())


@pytest.mark.parametrize("nbytes", SIZES)
def test_a_message_takes_as_long_as_all_its_bytes(nbytes: int) -> None:
    way = Way(line(1000.0, 0.5), line(40.0), line(60.0), 1000, False)
    b = Builder(2)
    b.add(0, "MPI_Send", 1, nbytes)
    b.add(1, "MPI_Recv", 0, nbytes)
    found = simulate(b.build(), np.zeros(2, dtype=np.int64), Network({0: way}, post=10.0))
    assert found.end_ns.max() == pytest.approx(1000 + 0.5 * nbytes, abs=200)
