"""Sizes as laws: trained on small counts and blocks that do not divide evenly, checked far away."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from corpus import block

from p3s.base.extents import dims_balanced
from p3s.laws.exact import evaluate_int
from p3s.model.sizes.joint import law_alone
from p3s.model.sizes.observations import Observations

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


def check(law, dims_of, counts, far, turns=None, stages=None):
    """Fit at ``counts``, compare everything at the counts ``far``; return the law."""
    found = law_alone(observe(law, dims_of, counts, turns, stages))
    assert found is not None
    for n in far:
        truth = observe(law, dims_of, (n,), turns, stages)
        wrong = wrong_at(found, truth)
        assert not len(wrong), (n, len(wrong), len(truth.value), found.expr)
    return found


def test_blocks_of_which_some_ranks_have_none():
    check(lambda p, c, r, n, t, s: 8 * block(10, p[0], c[0]), line, (4, 8, 16), (6, 32))


PLAIN = [
    (
        "panel of the turn",
        lambda p, c, r, n, t, s: 8 * block(1001, n, t),
        line,
        LINES,
        FAR_LINES,
        lambda n: n,
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
