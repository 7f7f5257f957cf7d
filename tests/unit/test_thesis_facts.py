"""Facts of the thesis's programs at 512 to 4,096 processes, from models of 16 to 64 (ch. 5.4, B).

The programs are written here as the thesis describes them, with sizes that let them be traced in
an instant; only volumes and weights are those of the thesis.
"""

from __future__ import annotations

import corpus
import numpy as np
import pytest

from p3s.model.evaluate import generate, phase_weight
from p3s.model.fit import fit_model

pytestmark = pytest.mark.slow
COUNTS = (16, 32, 64)


def cg(rec):
    """NPB CG class D: sums over a row of the grid by XOR stages, halves of vectors of 1,500,000."""
    k = rec.n.bit_length() - 1
    rows, columns = 2 ** (k // 2), 2 ** (k - k // 2)
    i, j = divmod(rec.rank, columns)
    size = -(-1_500_000 // rows)
    for _ in range(5):
        for s in range(columns.bit_length() - 1):
            rec("Irecv", peer=i * columns + (j ^ (1 << s)), nbytes=8 * size)
            rec("Send", peer=i * columns + (j ^ (1 << s)), nbytes=8 * size)
            rec("Wait", nbytes=1)
        rec("Allreduce", nbytes=8)


def sweep3d(rec):
    """Sweep3D: a wavefront over a 2-D grid, 200 (log2 n - 3) + 1000 turns at a hundredth."""
    k = rec.n.bit_length() - 1
    columns = 2 ** (k - k // 2)
    i, j = divmod(rec.rank, columns)
    for _ in range(2 * (k - 3) + 10):
        for op, s in (("Recv", -1), ("Send", 1)):
            if 0 <= j + s < columns:
                rec(op, site=f"{op}j", peer=rec.rank + s, nbytes=8000)
            if 0 <= rec.rank + s * columns < rec.n:
                rec(op, site=f"{op}i", peer=rec.rank + s * columns, nbytes=8000)


def nbody(rec):
    """N-Body, 4 million particles in a ring: 159 turns at 16 processes, in proportion to n."""
    for _ in range(159 * rec.n // 16):
        rec("Send", peer=(rec.rank + 1) % rec.n, nbytes=128_000_000 // rec.n)
        rec("Recv", peer=(rec.rank - 1) % rec.n, nbytes=128_000_000 // rec.n)


@pytest.fixture(scope="module")
def model_of():
    made = {}

    def get(program):
        if program not in made:
            made[program] = fit_model([corpus.table(program, n) for n in COUNTS])
        return made[program]

    return get


def sends(model, rows, rank=0):
    kinds = np.array([it.kind for it in model.items])
    mine = (rows.rank == rank) & (kinds[rows.item] == "send")
    return rows.peer[mine].tolist(), set(rows.nbytes[mine].tolist())


def test_cg_at_4096(model_of):
    model = model_of(cg)
    rows = generate(model, 4096)
    peers, sizes = sends(model, rows)
    assert sorted(peers) == [1, 2, 4, 8, 16, 32]
    assert sizes == {187_504}
    weights = [phase_weight(p, rows.grid) for p in model.phases if p.parent is not None]
    assert weights == [5]


def test_sweep3d_at_4096(model_of):
    model = model_of(sweep3d)
    rows = generate(model, 4096)
    inner = 10 * 64 + 10
    around = {rows.peer[(rows.rank == inner) & (rows.peer >= 0)][k] - inner for k in range(4)}
    assert around == {-64, -1, 1, 64}
    weights = [phase_weight(p, rows.grid) for p in model.phases if p.parent is not None]
    assert weights == [28]  # a hundredth of 2,800


def test_nbody_at_512(model_of):
    model = model_of(nbody)
    rows = generate(model, 512)
    assert sends(model, rows, 511) == ([0], {250_000})
    received = (rows.rank == 0) & np.array([it.kind == "recv" for it in model.items])[rows.item]
    assert rows.peer[received].tolist() == [511]
    weights = [phase_weight(p, rows.grid) for p in model.phases if p.parent is not None]
    assert weights == [5088]
