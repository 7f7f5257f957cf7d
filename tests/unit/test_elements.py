"""Sizes as laws: trained on small counts and blocks that do not divide evenly, checked far away."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from corpus import block

from p3s.base.extents import dims_balanced
from p3s.laws.exact import evaluate_int
from p3s.model.sizes.blocks import ExtentPool, Observations
from p3s.model.sizes.elements import distinct, fit_alone, fit_elements
from p3s.model.sizes.joint import joint_sizes

SQUARES, FAR_SQUARES = (4, 9, 16, 25), (36, 49, 64, 100)
LINES, FAR_LINES = (4, 6, 8, 9, 16), (36, 49, 64, 125)
POWERS, FAR_POWERS = (4, 8, 16), (32, 64, 128)
PLANES, FAR_PLANES = (4, 6, 9, 12, 16), (36, 48, 64, 100)


def line(n):
    return (n,)


def square(n):
    return (math.isqrt(n),) * 2


def plane(n):
    return tuple(dims_balanced(n, 2))


def box(n):
    k = n.bit_length() - 1
    return (1 << k // 3, 1 << (k + 1) // 3, 1 << (k + 2) // 3)


def observe(law, dims_of, counts, turns=None, stages=None):
    """Return the sizes of all ranks: law(p, c, r, n, t, s); turns(n), stages(n): how many."""
    rows, value = [], []
    for n in counts:
        dims = dims_of(n)
        for r, t, s in itertools.product(
            range(n), range(turns(n) if turns else 1), range(stages(n) if stages else 1)
        ):
            c = tuple(int(x) for x in np.unravel_index(r, dims))
            rows.append(
                [n, r, s, t, *dims, *c, *((x + 1) % p for x, p in zip(c, dims, strict=True))]
            )
            value.append(law(dims, c, r, n, t, s))
    d = len(dims_of(counts[0]))
    names = ["n", "r", "s", "t", *(f"{k}{i}" for k in "pcq" for i in range(d))]
    columns = np.array(rows, dtype=np.int64).T
    return Observations(
        dict(zip(names, columns, strict=True)), np.array(value, dtype=np.int64), d, whole=True
    )


def wrong_at(found, truth):
    got = np.broadcast_to(evaluate_int(found.expr, truth.env), truth.value.shape)
    return np.flatnonzero(got != truth.value)


def check(law, dims_of, counts, far, turns=None, stages=None, pool=None):
    """Fit at ``counts``, compare everything at the counts ``far``; return the law."""
    found = fit_alone(observe(law, dims_of, counts, turns, stages), pool or ExtentPool())
    assert found is not None
    for n in far:
        truth = observe(law, dims_of, (n,), turns, stages)
        wrong = wrong_at(found, truth)
        assert not len(wrong), (n, len(wrong), len(truth.value), found.expr)
    return found


def test_blocks_of_which_some_ranks_have_none():
    check(lambda p, c, r, n, t, s: 8 * block(10, p[0], c[0]), line, (4, 8, 16), (6, 32))


def check_program(laws, dims_of, counts, far, across=()):
    """Fit all slots of one program with one pool, (law, turns) each, and compare far away.

    across: for each slot the dimensions of its face; slots with most sizes come first.
    """
    pool = ExtentPool()
    seen = [observe(law, dims_of, counts, turns) for law, turns in laws]
    for obs, dims in zip(seen, across, strict=False):
        obs.across = dims
    for _ in range(2):
        alone = [fit_elements(obs, pool) for obs in seen]
    slots = {k: (distinct(obs), alone[k]) for k, obs in enumerate(seen)}
    together = joint_sizes(slots, frozenset())
    found = [together.get(k, law) for k, law in enumerate(alone)]
    for k, (law, turns) in enumerate(laws):
        for n in far:
            truth = observe(law, dims_of, (n,), turns)
            assert found[k] is not None
            assert not len(wrong_at(found[k], truth)), (k, n, found[k].expr)
    return found


def cells(c, p):
    """Return the cells of a rank of a multi-partition as (x, y, z)."""
    return [((c[1] + j) % p, (c[0] - j) % p, j) for j in range(p)]


def west(extents, factor, border=lambda x, p: x != 0):
    def law(p, c, r, n, t, s):
        return factor * sum(
            block(extents[1], p[0], y) * block(extents[2], p[0], z)
            for x, y, z in cells(c, p[0])
            if border(x, p[0])
        )

    return law


def south(extents, factor, at=0):
    def law(p, c, r, n, t, s):
        return factor * sum(
            block(extents[0], p[0], x) * block(extents[2], p[0], z)
            for x, y, z in cells(c, p[0])
            if y != (at if at >= 0 else p[0] - 1)
        )

    return law


def top(extents, factor):
    def law(p, c, r, n, t, s):
        return factor * sum(
            block(extents[0], p[0], x) * block(extents[1], p[0], y)
            for x, y, z in cells(c, p[0])
            if z != p[0] - 1
        )

    return law


def bottom(extents, factor):
    def law(p, c, r, n, t, s):
        return factor * sum(
            block(extents[0], p[0], x) * block(extents[1], p[0], y)
            for x, y, z in cells(c, p[0])
            if z
        )

    return law


DIAGONAL = [
    ("west", west((24, 24, 24), 10), (4, 9, 16, 25)),
    ("east", west((26, 26, 26), 10, lambda x, p: x != p - 1), SQUARES),
    ("south", south((24, 24, 24), 10), SQUARES),
    ("north", south((25, 25, 25), 10, -1), SQUARES),
    ("top", top((36, 36, 36), 4), SQUARES),
    ("three extents", west((30, 26, 33), 5), SQUARES),
    ("no border", west((26, 26, 26), 5, lambda x, p: True), SQUARES),
    ("both borders", west((27, 27, 27), 5, lambda x, p: 0 < x < p - 1), (9, 16, 25)),
]


@pytest.mark.parametrize(("law", "counts"), [c[1:] for c in DIAGONAL], ids=[c[0] for c in DIAGONAL])
def test_sums_over_the_cells_of_a_multi_partition(law, counts):
    """One slot alone may leave the arrangement open: then its law says so."""
    found = fit_alone(observe(law, square, counts), ExtentPool())
    assert found is not None
    for n in (*counts, *FAR_SQUARES):
        wrong = len(wrong_at(found, observe(law, square, (n,))))
        assert not wrong or (found.others and n not in counts), (n, wrong)


def sweep(extent, factor, trim, axis=0, back=False, later=0):
    """What a sweep hands on after stage t: the face of the cell at t along the axis."""

    def law(p, c, r, n, t, s):
        at = p[0] - 1 - t - later if back else t + later
        (cell,) = (x for x in cells(c, p[0]) if x[axis] == at)
        y, z = (k for d, k in enumerate(cell) if d != axis)
        width = [block(extent, p[0], k) - trim * ((k == 0) + (k == p[0] - 1)) for k in (y, z)]
        return factor * width[0] * width[1]

    return law


@pytest.mark.parametrize(
    ("extent", "factor", "trim", "later"),
    [(36, 22, 1, 0), (36, 10, 1, 1), (41, 5, 0, 0), (64, 7, 0, 1)],
)
def test_sweeps_of_a_multi_partition(extent, factor, trim, later):
    law = sweep(extent, factor, trim, later=later)
    found = fit_alone(observe(law, square, SQUARES, lambda n: math.isqrt(n) - 1), ExtentPool())
    assert found is not None
    for n in (*SQUARES, *FAR_SQUARES):
        wrong = len(wrong_at(found, observe(law, square, (n,), lambda n: math.isqrt(n) - 1)))
        assert not wrong or (found.others and n not in SQUARES), (n, wrong)


def faces(extents, factor):
    return [
        (west(extents, factor), None),
        (west(extents, factor, lambda x, p: x != p - 1), None),
        (south(extents, factor), None),
        (south(extents, factor, -1), None),
        (top(extents, factor), None),
        (bottom(extents, factor), None),
    ]


def sweeps(extent, factors, trim):
    return [
        (sweep(extent, f, trim, axis, back, later), lambda n: math.isqrt(n) - 1)
        for axis in range(3)
        for f, back in zip(factors, (False, True), strict=True)
        for later in (0, 1)
    ]


PROGRAMS = [
    ("24", faces((24,) * 3, 10)),
    ("36 with sweeps", faces((36,) * 3, 10) + sweeps(36, (22, 10), 1)),
    ("102 with sweeps", faces((102,) * 3, 10) + sweeps(102, (22, 10), 1)),
    ("64 with sweeps", faces((64,) * 3, 10) + sweeps(64, (5, 2), 0)),
    ("three extents", faces((30, 26, 33), 10)),
]


@pytest.mark.parametrize("laws", [c[1] for c in PROGRAMS], ids=[c[0] for c in PROGRAMS])
def test_all_slots_of_a_multi_partition_together(laws):
    check_program(laws, square, SQUARES, FAR_SQUARES)


@pytest.mark.parametrize("wider", [2, 0])
@pytest.mark.parametrize(
    "levels", [lambda t: 32, lambda t: 32 >> t, lambda t: 8 << t], ids=["one level", "down", "up"]
)
def test_faces_of_a_box_with_ghosts(levels, wider):
    """Two sizes at three counts say little; what a sibling's three sizes say holds for all."""

    def face(a, b):
        def law(p, c, r, n, t, s):
            return (levels(t) // p[a] + 2) * (levels(t) // p[b] + wider)

        return law

    turns = (lambda n: 1) if levels(0) == levels(1) else (lambda n: 3)
    faces = ((0, 2), (1, 2), (0, 1))
    check_program([(face(*f), turns) for f in faces], box, (4, 8, 16), (32, 64, 128), faces)


PLAIN = [
    (
        "block that travels",
        lambda p, c, r, n, t, s: 3 * block(1001, n, (r - t) % n),
        line,
        LINES,
        FAR_LINES,
        lambda n: n - 1,
    ),
    (
        "next block that travels",
        lambda p, c, r, n, t, s: block(1001, n, (r - t - 1) % n),
        line,
        LINES,
        FAR_LINES,
        lambda n: n - 1,
    ),
    (
        "panel of the turn",
        lambda p, c, r, n, t, s: 8 * block(1001, n, t),
        line,
        LINES,
        FAR_LINES,
        lambda n: n,
    ),
    (
        "SUMMA",
        lambda p, c, r, n, t, s: block(1001, p[0], c[0]) * block(701, p[0], t),
        square,
        SQUARES,
        FAR_SQUARES,
        lambda n: math.isqrt(n),
    ),
    (
        "Cannon",
        lambda p, c, r, n, t, s: (
            block(331, p[0], c[0]) * block(257, p[0], (c[0] + c[1] + t) % p[0])
        ),
        square,
        SQUARES,
        FAR_SQUARES,
        lambda n: math.isqrt(n),
    ),
    ("levels", lambda p, c, r, n, t, s: 1024 >> t, line, LINES, FAR_LINES, lambda n: 5),
    (
        "levels of a share",
        lambda p, c, r, n, t, s: (100_003 >> t) // n,
        line,
        LINES,
        FAR_LINES,
        lambda n: 5,
    ),
    (
        "levels of a block",
        lambda p, c, r, n, t, s: block(1001, n, r) >> t,
        line,
        LINES,
        FAR_LINES,
        lambda n: 4,
    ),
    (
        "blocks of a level",
        lambda p, c, r, n, t, s: block(10007 >> t, n, r),
        line,
        LINES,
        FAR_LINES,
        lambda n: 4,
    ),
    (
        "blocks of a level, rounded up",
        lambda p, c, r, n, t, s: 5 * block(-(-10007 >> t), n, r),
        line,
        LINES,
        FAR_LINES,
        lambda n: 4,
    ),
    ("levels upwards", lambda p, c, r, n, t, s: 3 << t, line, LINES, FAR_LINES, lambda n: 5),
    (
        "growing by the turn",
        lambda p, c, r, n, t, s: 40 * (t + 1),
        line,
        LINES,
        FAR_LINES,
        lambda n: n - 1,
    ),
    (
        "what is left",
        lambda p, c, r, n, t, s: 12 * (n - 1 - t),
        line,
        LINES,
        FAR_LINES,
        lambda n: n - 1,
    ),
    (
        "chunks",
        lambda p, c, r, n, t, s: min(64, 1001 - 64 * t),
        line,
        LINES,
        FAR_LINES,
        lambda n: 16,
    ),
    (
        "halo of levels",
        lambda p, c, r, n, t, s: (block(256, p[0], c[0]) >> t) + 2,
        plane,
        (4, 6, 9, 16),
        (36, 48, 64),
        lambda n: 4,
    ),
]


@pytest.mark.parametrize(
    ("law", "dims", "counts", "far", "turns"), [c[1:] for c in PLAIN], ids=[c[0] for c in PLAIN]
)
def test_sizes_that_follow_the_turn(law, dims, counts, far, turns):
    check(law, dims, counts, far, turns)


def log2(n):
    return n.bit_length() - 1


STAGED = [
    ("halving", lambda p, c, r, n, t, s: 1001 >> (s + 1)),
    ("halving, rounded up", lambda p, c, r, n, t, s: -(-1001 >> (s + 1))),
    ("doubling", lambda p, c, r, n, t, s: 5 << s),
    ("doubling shares", lambda p, c, r, n, t, s: (1 << 20) // n << s),
    (
        "doubling uneven blocks",
        lambda p, c, r, n, t, s: sum(block(1001, n, (r >> s << s) + k) for k in range(1 << s)),
    ),
    (
        "halving what the partner keeps",
        lambda p, c, r, n, t, s: sum(
            block(1001, n, (r >> (log2(n) - 1 - s) << (log2(n) - 1 - s)) + k)
            for k in range(1 << (log2(n) - 1 - s))
        ),
    ),
]


@pytest.mark.parametrize("law", [c[1] for c in STAGED], ids=[c[0] for c in STAGED])
def test_sizes_that_follow_the_stage(law):
    check(law, line, POWERS, FAR_POWERS, stages=log2)


STILL = [
    (
        "times p - 1",
        lambda p, c, r, n, t, s: 2 * (n - 1) * block(1001, n, r),
        line,
        LINES,
        FAR_LINES,
    ),
    ("times p", lambda p, c, r, n, t, s: p[0] * block(1001, p[1], c[1]), plane, PLANES, FAR_PLANES),
    (
        "times p - 2",
        lambda p, c, r, n, t, s: 5 * (n - 2) * block(1001, n, r),
        line,
        LINES,
        FAR_LINES,
    ),
    (
        "over both extents",
        lambda p, c, r, n, t, s: 7 * block(10007, p[0] * p[1], c[1] * p[0] + c[0]),
        plane,
        PLANES,
        FAR_PLANES,
    ),
    (
        "share of both extents",
        lambda p, c, r, n, t, s: 10007 // (p[0] * p[1]),
        plane,
        PLANES,
        FAR_PLANES,
    ),
    ("one more", lambda p, c, r, n, t, s: 30 * (24 // p[0] + 1) ** 2, square, SQUARES, FAR_SQUARES),
    (
        "trimmed at the border",
        lambda p, c, r, n, t, s: 3 * (block(1001, p[0], c[0]) - (c[0] == 0) - (c[0] == p[0] - 1)),
        plane,
        PLANES,
        FAR_PLANES,
    ),
    (
        "trimmed product",
        lambda p, c, r, n, t, s: (
            5
            * (block(131, p[0], c[0]) - (c[0] == 0) - (c[0] == p[0] - 1))
            * (block(101, p[1], c[1]) - (c[1] == 0) - (c[1] == p[1] - 1))
        ),
        plane,
        PLANES,
        FAR_PLANES,
    ),
    ("all but the own", lambda p, c, r, n, t, s: 1001 - block(1001, n, r), line, LINES, FAR_LINES),
    (
        "the partner's",
        lambda p, c, r, n, t, s: 4 * block(1001, n, (r + 1) % n),
        line,
        LINES,
        FAR_LINES,
    ),
    (
        "wide product",
        lambda p, c, r, n, t, s: (block(131, p[0], c[0]) + 2) * (block(101, p[1], c[1]) + 2),
        plane,
        PLANES,
        FAR_PLANES,
    ),
]


@pytest.mark.parametrize(
    ("law", "dims", "counts", "far"), [c[1:] for c in STILL], ids=[c[0] for c in STILL]
)
def test_sizes_by_position(law, dims, counts, far):
    check(law, dims, counts, far)
