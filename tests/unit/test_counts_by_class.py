"""How often, where classes of ranks differ: heads of rows, borders, roots; waits for some."""

from __future__ import annotations

from collections.abc import Callable

import corpus
import pytest

from p3s.model.compare import compare
from p3s.model.holdout import build_model
from p3s.model.reasons import Verdict

DIMS = {4: (2, 2), 9: (3, 3), 12: (4, 3), 16: (4, 4), 36: (6, 6), 64: (8, 8)}
TRACED, LARGER, STEPS = (4, 9, 12, 16), (36, 64), 6

Often = Callable[[int, int, tuple[int, int]], int]


@corpus.program
def swaps(rec: corpus.Recorder, often: Often, step: tuple[int, int]) -> None:
    """Messages along a torus, as often as the sender's place says."""
    dims = p0, p1 = DIMS[rec.n]
    i, j = divmod(rec.rank, p1)
    to = (i + step[0]) % p0, (j + step[1]) % p1
    back = (i - step[0]) % p0, (j - step[1]) % p1
    for _ in range(STEPS):
        for _ in range(often(i, j, dims)):
            rec("Send", peer=to[0] * p1 + to[1], nbytes=160)
        for _ in range(often(*back, dims)):
            rec("Recv", peer=back[0] * p1 + back[1], nbytes=160)
        rec("Barrier")


def border(i: int, j: int, dims: tuple[int, int]) -> bool:
    return i in (0, dims[0] - 1) or j in (0, dims[1] - 1)


CLASSES: dict[str, Often] = {
    "heads of rows": lambda i, j, dims: 4 if j == 0 else 1,
    "heads of rows, as many as rows": lambda i, j, dims: dims[0] + 1 if j == 0 else 1,
    "border": lambda i, j, dims: 3 if border(i, j, dims) else 1,
    "last of a column": lambda i, j, dims: 2 if i == dims[0] - 1 else 1,
    "root": lambda i, j, dims: dims[0] * dims[1] if i == j == 0 else 2,
    "corner": lambda i, j, dims: 5 if i == 0 and j == dims[1] - 1 else 2,
    "every border counts": lambda i, j, dims: (
        6 - (i == 0) - (i == dims[0] - 1) - (j == 0) - (j == dims[1] - 1)
    ),
}


@pytest.mark.parametrize("name", CLASSES)
def test_each_class_of_ranks_has_a_law(name: str) -> None:
    program = swaps(CLASSES[name], (1, 0))
    model = build_model([corpus.table(program, n) for n in TRACED], holdout=False)
    for n in LARGER:
        found = compare(model, corpus.table(program, n))
        assert found.p2p_triples.equal == found.p2p_triples.true == found.p2p_triples.predicted
        assert not found.items_wrong and found.order.equal == n


@corpus.program
def steps_of_some(rec: corpus.Recorder, alternating: bool) -> None:
    """A wait wherever a rank posted something in an iteration."""
    p0, p1 = DIMS[rec.n]
    i, j = divmod(rec.rank, p1)
    for t in range(STEPS):
        open_requests = 0
        if t % 3 == 0 or not alternating:
            down = i + 1 < p0 and (alternating or j == 0)
            up = i > 0 and (alternating or j == 0)
            if down:
                rec("Isend", site="down", peer=rec.rank + p1, nbytes=240)
            if up:
                rec("Irecv", site="up", peer=rec.rank - p1, nbytes=240)
            open_requests += down + up
        if t % 3 or not alternating:
            right, left = i == p0 - 1 and j + 1 < p1, i == p0 - 1 and j > 0
            if right:
                rec("Isend", site="right", peer=rec.rank + 1, nbytes=240)
            if left:
                rec("Irecv", site="left", peer=rec.rank - 1, nbytes=240)
            open_requests += right + left
        if open_requests:
            rec("Waitall", nbytes=open_requests)
        rec("Allreduce", nbytes=80)


@pytest.mark.parametrize("alternating", [False, True])
def test_a_wait_is_where_any_of_its_requests_is_posted(alternating: bool) -> None:
    program = steps_of_some(alternating)
    model = build_model([corpus.table(program, n) for n in TRACED])
    wait = next(item for item in model.items if item.op == "MPI_Waitall")
    assert wait.slots[0].count.follows and wait.verdict == Verdict.EXACT
    for n in LARGER:
        found = compare(model, corpus.table(program, n))
        assert found.all_equal and found.order.equal == n
