"""The order of events inside each rank: fitted at small counts, equal at large ones."""

from __future__ import annotations

from dataclasses import replace

import corpus
import numpy as np
import pytest

from p3s.base.extents import dims_balanced
from p3s.model.comparison import Difference
from p3s.model.evaluate import generate
from p3s.model.fit import fit_model
from p3s.model.order.patterns import Turns, check, fit_when, holds, text
from p3s.model.order.unfold import compare_order

SMALL = (4, 8, 16)


@corpus.program
def octants(rec: corpus.Recorder, sweeps: int = 2, blocks: int = 3) -> None:
    """Sweeps whose direction changes inside one loop; border ranks leave out calls."""
    p = round(rec.n**0.5)
    cx, cy = divmod(rec.rank, p)
    for _ in range(sweeps):
        for octant in range(4):
            dx, dy = (1 if octant & 1 else -1), (1 if octant & 2 else -1)
            for _ in range(blocks):
                for op, s in (("Recv", -1), ("Send", 1)):
                    if 0 <= cx + s * dx < p:
                        rec(op, site=op + "x", peer=(cx + s * dx) * p + cy, nbytes=96)
                    if 0 <= cy + s * dy < p:
                        rec(op, site=op + "y", peer=cx * p + cy + s * dy, nbytes=96)
        rec("Allreduce", nbytes=8)


@corpus.program
def patterned(rec: corpus.Recorder, iters: int = 12) -> None:
    """First, all but the first, every third, listed turns, an inner loop now and then."""
    for k in range(iters):
        rec("Allreduce", site="all", nbytes=8)
        if k == 0:
            rec("Bcast", site="first", nbytes=8, root=0)
        if k > 0:
            rec("Reduce", site="not first", nbytes=8, root=0)
        if k % 3 == 1:
            rec("Gather", site="third", nbytes=8, root=0)
        if k in (2, 3, 7):
            rec("Barrier", site="listed")
        if k % 4 == 3:
            for _ in range(rec.n // 2):
                rec("Isend", peer=(rec.rank + 1) % rec.n, nbytes=16)
                rec("Recv", peer=(rec.rank - 1) % rec.n, nbytes=16)
                rec("Wait", nbytes=1)
        rec("Scan", site="end", nbytes=8)


@corpus.program
def around(rec: corpus.Recorder, sweeps: int = 5) -> None:
    """From partner to partner once, a barrier, and then several times without a pause."""
    for k in range(sweeps):
        if k == 1:
            rec("Barrier")
        for step in range(1, rec.n):
            rec("Irecv", peer=(rec.rank + step) % rec.n, nbytes=64)
            rec("Isend", peer=(rec.rank - step) % rec.n, nbytes=64)
            rec("Wait", site="received", nbytes=1)
            rec("Wait", site="sent", nbytes=1)


@corpus.program
def panels(rec: corpus.Recorder, dealt: bool, number: int = 48) -> None:
    """The owner of a panel sends it around its row and its column; the last one keeps it."""
    p0, p1 = dims_balanced(rec.n, 2)
    c0, c1 = divmod(rec.rank, p1)
    for k in range(number):
        rec("Allreduce", site="pivot", nbytes=16)
        for side, c, p, step in (("row", c1, p1, 1), ("column", c0, p0, p1)):
            owner = k % p if dealt else k * p // number
            here = rec.rank - c * step
            if c != owner:
                rec("Recv", site=f"from {side}", peer=here + (c - 1) % p * step, nbytes=800)
            if (c + 1) % p != owner:
                rec("Send", site=f"to {side}", peer=here + (c + 1) % p * step, nbytes=800)
    rec("Allreduce", nbytes=8)


@corpus.program
def pickled(rec: corpus.Recorder, rounds: int = 3, ends: bool = False) -> None:
    """Objects reduced in a tree: at each stage a rank sends size and data to one partner, or
    receives both from one; ends: it leaves the tree once it has sent."""
    for _ in range(rounds):
        for s in range((rec.n - 1).bit_length()):
            to, above = rec.rank ^ 1 << s, rec.rank >> s & 1
            for what, nbytes in (("size", 8), ("data", 21)) if to < rec.n else ():
                op = "Send" if above else "Recv"
                rec(op, site=f"{op} {what}", peer=to, nbytes=nbytes)
            if above and ends:
                break
        rec("Bcast", nbytes=8, root=0)


@corpus.program
def scanned(rec: corpus.Recorder, rounds: int = 3) -> None:
    """A prefix sum of objects: size and data are exchanged with one partner after the other."""
    for _ in range(rounds):
        for s in range((rec.n - 1).bit_length()):
            if (to := rec.rank ^ 1 << s) < rec.n:
                for what, nbytes in (("size", 8), ("data", 21)):
                    rec.exchange(what, to, nbytes=nbytes)
        rec("Barrier")


PROGRAMS = {
    "objects reduced in a tree": (pickled(), (3, 4, 6, 8), 13),
    "objects reduced, once sent away": (pickled(ends=True), (3, 4, 6, 8), 13),
    "objects scanned": (scanned(), (3, 4, 6, 8), 13),
    "panels in blocks": (panels(dealt=False), (4, 16, 36), 64),
    "panels dealt": (panels(dealt=True), (4, 16, 36), 64),
    "around": (around(), SMALL, 32),
    "halo": (corpus.jacobi2d(iters=4), (4, 8, 9, 16), 48),
    "halo in one loop": (corpus.halo3d(iters=2, tags=False), (8, 12, 18, 27), 64),
    "cg": (corpus.cg(outer=2, inner=2), (2, 4, 8, 16), 64),
    "wavefront": (corpus.wavefront(sweeps=2), (4, 9, 16, 25), 49),
    "stages of a loop in a loop": (corpus.hypercube(iters=3), SMALL, 64),
    "binomial tree": (corpus.binomial_broadcast(rounds=2), (4, 8, 11, 16), 37),
    "root and others": (corpus.gather_to_root(), SMALL, 32),
    "patterns": (patterned(), SMALL, 64),
    "octants": (octants(), (4, 9, 16, 25), 49),
}


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_every_rank_does_its_calls_in_the_order_of_the_program(name: str) -> None:
    program, counts, target = PROGRAMS[name]
    model = fit_model([corpus.table(program, n) for n in counts])
    for n in (counts[0], counts[-1], target):
        t = corpus.table(program, n)
        result = compare_order(model, t, generate(model, n))
        assert result is not None
        assert result.first is None and result.equal == result.ranks == n
        assert result.events["true"] == result.events["equal"] == t.events


@pytest.mark.parametrize("first", [1, -1])
def test_neighbours_on_both_sides_that_are_one_rank_come_in_turn(first: int) -> None:
    """A torus from one call: dimensions of two ranks have both neighbours in one place."""

    def program(rec: corpus.Recorder) -> None:
        dims = dims_balanced(rec.n, 3)
        grid = rec.comm(tuple(range(rec.n)), 1, dims, (True, True, True))
        here = np.unravel_index(rec.rank, dims)
        rec("Cart_create", comm=0)
        for _ in range(4):
            for d in range(3):
                for s in (first, -first):
                    there = list(here)
                    there[d] += s
                    peer = int(np.ravel_multi_index(there, dims, mode="wrap"))
                    if peer != rec.rank:
                        rec("Send", "swap", peer=peer, nbytes=80, comm=grid)

    model = fit_model([corpus.table(program, n) for n in (4, 8, 12, 16)])
    for n in (24, 36):
        found = compare_order(model, corpus.table(program, n), generate(model, n))
        assert found is not None and found.equal == found.ranks == n


def test_the_first_difference_is_named() -> None:
    model = fit_model([corpus.table(corpus.every_tenth(), n) for n in SMALL])

    def swapped(rec: corpus.Recorder) -> None:
        corpus.every_tenth()(rec)
        if rec.rank == 5:  # the receive of the third step comes before its send
            k = 1 + 1 + 3 + 1 + 3
            rec.events[k], rec.events[k + 1] = rec.events[k + 1], rec.events[k]

    t = corpus.table(swapped, 8)
    result = compare_order(model, t, generate(model, 8))
    assert result is not None and result.equal == 7
    assert result.first == Difference(
        rank=5,
        position=9,
        expected="MPI_Recv with 4, 400 bytes",
        found="MPI_Isend with 6, 400 bytes",
    )

    def longer(rec: corpus.Recorder) -> None:
        corpus.every_tenth()(rec)
        if rec.rank == 2:
            rec("Barrier", site="more")

    result = compare_order(model, corpus.table(longer, 8), generate(model, 8))
    assert result is not None and result.first is not None
    assert result.first.rank == 2 and result.first.expected == "MPI_Barrier, 0 bytes"


def test_without_sequences_there_is_no_order() -> None:
    tables = [replace(corpus.table(corpus.ring(), n), sequences={}) for n in SMALL]
    model = fit_model(tables)
    assert model.order is None
    assert compare_order(model, tables[0], generate(model, 4)) is None


def turns(trips: int, outer: int = 1, stage: int = 0) -> Turns:
    index = np.array([[i, j] for i in range(outer) for j in range(trips)])
    m = len(index)
    return Turns(
        index,
        np.tile([outer, trips], (m, 1)),
        np.full(m, stage),
        np.zeros(m, dtype=int),
        np.full((m, 2), -1),
        np.ones((m, 2), dtype=int),
    )


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (lambda i, j: True, [["all"], ["all"]]),
        (lambda i, j: j == 0, [["all"], ["is", 0]]),
        (lambda i, j: j == 6, [["all"], ["from end", 0]]),
        (lambda i, j: j > 0, [["all"], ["not", 0]]),
        (lambda i, j: j % 3 == 1, [["all"], ["every", 3, 1]]),
        (lambda i, j: i == 2 and j < 6, [["from end", 0], ["not from end", 0]]),
        (lambda i, j: j in (1, 2, 5), [["all"], ["runs", [[1, 2], [5, 1]]]]),
        (
            lambda i, j: (i, j) in ((0, 1), (0, 2), (2, 5)),
            [["all"], ["turns", [[0, 1, 2], [2, 5, 1]]]],
        ),
    ],
)
def test_patterns_are_the_simplest_that_fit(made: object, expected: object) -> None:
    at = turns(7, 3)
    truth = np.array([made(i, j) for i, j in at.index.tolist()])  # type: ignore[operator]
    assert fit_when(at, truth) == expected
    assert check(expected) == expected and all(text(p) for p in expected)


@pytest.mark.parametrize(
    ("op", "owner"), [("block", lambda x, t, p: x * p // t), ("dealt", lambda x, t, p: x % p)]
)
@pytest.mark.parametrize("ahead", [0, 1])
def test_an_iteration_may_belong_to_a_place_in_the_grid(op: str, owner: object, ahead: int) -> None:
    """As in a factorisation: who owns the panel of an iteration only sends it."""
    parts, made = [], []
    for p0, p1 in ((2, 2), (2, 4), (4, 4)):
        for rank in range(p0 * p1):
            at = turns(16)
            m = len(at.index)
            coords = np.tile([rank // p1, rank % p1, rank], (m, 1))
            parts.append(replace(at, coords=coords, extents=np.tile([p0, p1, p0 * p1], (m, 1))))
            mine = owner(at.index[:, 1], 16, p1) == (rank + ahead) % p1  # type: ignore[operator]
            made.append(~mine)
    at, truth = Turns.joined(parts), np.concatenate(made)
    expected = [["all"], [f"not {op}", 1, ahead]]
    assert fit_when(at, truth) == expected
    assert fit_when(at, ~truth) == [["all"], [op, 1, ahead]]
    assert check(expected) == expected and f"c1{ahead:+d}" in text(expected[1])


def test_longer_blocks_come_first() -> None:
    at = turns(7)
    at = replace(at, coords=np.tile([1, 1], (7, 1)), extents=np.tile([3, 3], (7, 1)))
    assert np.flatnonzero(holds(["block", 0, 0], at, 1)).tolist() == [3, 4]
    assert np.flatnonzero(holds(["dealt", -1, 1], at, 1)).tolist() == [2, 5]
    assert not holds(["block", 4, 0], at, 1).any(), "there is no such dimension"


def test_malformed_patterns_are_refused() -> None:
    for bad in ([["every", 0, 1]], [["is"]], [["sometimes"]], [["block", "x", 0]]):
        with pytest.raises(ValueError):
            check(bad)


@corpus.program
def swaps(rec: corpus.Recorder, steps: int = 8) -> None:
    """Atoms go to the neighbours on all sides of a periodic grid, one side after the other."""
    dims = dims_balanced(rec.n, 3)[::-1]
    at = np.array(np.unravel_index(rec.rank, dims))
    for step in range(steps):
        for d in range(3):
            for sign in (-1, 1):
                to, fro = at.copy(), at.copy()
                to[d], fro[d] = (at[d] + sign) % dims[d], (at[d] - sign) % dims[d]
                to, fro = (int(np.ravel_multi_index(x, dims)) for x in (to, fro))
                atoms = (37 * rec.rank + 11 * fro + 5 * step + 3 * sign) % 89
                mine = (37 * to + 11 * rec.rank + 5 * step + 3 * sign) % 89
                rec("Irecv", peer=fro, nbytes=24 * (100 + atoms))
                rec("Send", peer=to, nbytes=24 * (100 + mine))
                rec("Wait", nbytes=1)
        rec("Allreduce", nbytes=8)


def test_messages_whose_sizes_are_chance_keep_the_order_of_their_neighbours() -> None:
    model = fit_model([corpus.table(swaps(), n) for n in (8, 12, 18, 27)])
    order = compare_order(model, corpus.table(swaps(), 32), generate(model, 32))
    assert order is not None
    assert order.equal_but_bytes == 32, order.first


@corpus.program
def heard(rec: corpus.Recorder, backwards: bool = False) -> None:
    """The first rank receives from all others, from the last one first where ``backwards``."""
    for _ in range(6):
        for other in range(rec.n - 1, 0, -1) if backwards else range(1, rec.n):
            if rec.rank == 0:
                rec("Recv", peer=other, nbytes=64)
        if rec.rank:
            rec("Send", peer=0, nbytes=64)
        rec("Barrier")


def test_partners_in_another_order_are_told_from_other_events() -> None:
    model = fit_model([corpus.table(heard(), n) for n in (4, 6, 8)])
    rows = generate(model, 12)
    order = compare_order(model, corpus.table(heard(), 12), rows)
    assert order is not None and order.holds and not order.shuffled
    order = compare_order(model, corpus.table(heard(backwards=True), 12), rows)
    assert order is not None
    assert (order.equal, order.shuffled) == (11, (0,)) and not order.holds
    assert replace(order, by_chance=1).holds


@corpus.program
def late_waits(rec: corpus.Recorder, iters: int = 7) -> None:
    """Requests of the iteration before are waited for: of none in the first iteration.

    The ranks of a row have one or two neighbours, so that their number has no equation.
    """
    near = [r for r in (rec.rank - 1, rec.rank + 1) if 0 <= r < rec.n]
    for k in range(iters + 1):
        rec("Waitall", nbytes=2 * len(near) * (k > 0))
        if k < iters:
            for other in near:
                side = "up" if other > rec.rank else "down"
                rec("Irecv", site="r" + side, peer=other, nbytes=64)
                rec("Isend", site="s" + side, peer=other, nbytes=64)
    rec("Barrier")


def test_waits_for_no_request_in_the_first_iteration_are_told_from_the_others() -> None:
    model = fit_model([corpus.table(late_waits(), n) for n in (4, 6, 9)])
    order = compare_order(model, corpus.table(late_waits(), 16), generate(model, 16))
    assert order is not None
    assert order.equal == 16, order.first


def test_few_iterations_are_looked_at_first_and_all_of_them_decide() -> None:
    at = turns(4000)
    x = at.index[:, 1]
    # even ones, as are all that are looked at first, and one more or one less
    for made in (x % 2 == 0, (x % 2 == 0) | (x == 2345), (x % 2 == 0) & (x != 2346)):
        found = fit_when(at, made)
        if found is not None:
            assert np.array_equal(holds(found[1], at, 1), made)
    assert fit_when(at, x % 2 == 0) == [["all"], ["every", 2, 0]]
