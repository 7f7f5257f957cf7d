"""What was traced against the rules, as kept in the model."""

from __future__ import annotations

import corpus
import models
import pytest

from p3s.model.fit import build_model
from p3s.model.types import Values


def model_of(program, counts):
    return build_model([corpus.table(program, n) for n in counts])


def differing(item):
    return sum(
        c.ranks for point in item.measured for c in point.classes if c.rule is not None
    ) + sum(point.more.differ for point in item.measured if point.more)


@pytest.mark.parametrize("name", ["jacobi2d", "cg", "halo3d", "turned"])
def test_rules_that_hold_show_no_difference(name):
    model = models.built(name)
    for item in model.items:
        assert [p.n for p in item.measured] == sorted({n for s in item.slots for n in s.seen})
        assert differing(item) == 0, item
        for point in item.measured:
            more = point.more.ranks if point.more else 0
            assert point.ranks[0] == sum(c.ranks for c in point.classes) + more
    for what in ("events", "bytes", "time"):
        assert sum(getattr(item.share, what) for item in model.items) == pytest.approx(1)


def test_uneven_blocks_are_classes_of_ranks():
    def program(rec):
        size = 1001 // rec.n + (rec.rank < 1001 % rec.n)
        rec("Sendrecv", peer=(rec.rank + 1) % rec.n, nbytes=8 * size)

    sent = next(i for i in model_of(program, (2, 4, 8, 12)).items if i.kind == "send")
    last = sent.measured[-1]
    assert last.n == 12 and last.ranks == (12, 12) and last.calls == (12, 12)
    assert [(c.ranks, c.traced.sizes) for c in last.classes] == [
        (7, ((8 * 83, 1),)),
        (5, ((8 * 84, 1),)),
    ]


def test_what_the_rule_misses_is_kept_beside_what_was_traced():
    def program(rec):
        if rec.rank in (0, 3) or (rec.n == 16 and rec.rank % 5 == 1):
            rec("Barrier")
        rec("Allreduce", nbytes=8)

    model = model_of(program, (4, 7, 11, 16))
    item = next(i for i in model.items if i.op == "MPI_Barrier")
    assert item.slots[0].guard is None
    at_16 = item.measured[-1]
    assert at_16.ranks == (5, 0) and at_16.calls == (5, 0)
    assert at_16.classes[0].traced.calls == 1
    assert at_16.classes[0].rule == Values(calls=0)


def test_two_partners_that_coincide_share_their_calls():
    """With two ranks in a row the one below is the one above."""

    def program(rec):
        for _ in range(3):
            for step in (1, -1):
                rec("Sendrecv", peer=(rec.rank + step) % rec.n, nbytes=80)

    model = model_of(program, (2, 4, 8))
    sends = [i for i in model.items if i.kind == "send"]
    assert sends and all(differing(i) == 0 for i in sends)
    for item in sends:
        assert item.measured[0].calls in ((6, 6), (12, 12))
