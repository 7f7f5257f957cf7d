"""The fold against a plain search for repeats (tests/repeats.py), on small traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np
import pytest
from corpus.nests import PROGRAMS
from corpus.trees import Member, positions, sequences, transitions
from hypothesis import given, settings
from hypothesis import strategies as st
from repeats import Repeat, fold_repeats, regular, unrolled

from p3s.signature.fold import Loop, fold
from p3s.signature.parse import Nest, loop_indices, nest_of, parse
from p3s.signature.structure import refine

#: Programs in which not every rank has a loop that the plain search finds whole: turns differ.
UNEVEN = {"irregular", "first-and-last", "master-worker", "every-tenth-inside", "octants-guards"}


def test_plain_search_by_hand():
    assert fold_repeats([7, 1, 2, 1, 2, 3, 1, 2, 1, 2, 3, 9]) == (
        7,
        Repeat(2, (Repeat(2, (1, 2)), 3)),
        9,
    )
    assert fold_repeats([1] * 12) == (Repeat(12, (1,)),)
    assert fold_repeats([1, 2, 2, 1, 2, 2, 2]) == (1, Repeat(2, (2,)), 1, Repeat(3, (2,)))
    assert regular(fold_repeats([1, 2, 2, 1, 2, 2, 2])) == {frozenset({2}): 5}
    assert regular(fold_repeats([5, 1, 2, 1, 2, 1])) == {}  # the last 1 stands alone
    assert regular(fold_repeats([1, 2, 2, 3, 1, 2, 3, 1, 2, 2, 3, 1, 2, 3])) == {}


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 3), max_size=60))
def test_plain_search_loses_nothing(sequence):
    folded = fold_repeats(sequence)
    assert list(unrolled(folded)) == sequence
    for period in range(1, len(folded) // 2 + 1):
        for i in range(len(folded) - 2 * period + 1):
            assert folded[i : i + period] != folded[i + period : i + 2 * period]


def folded(members: Mapping[Member, Sequence[int]], nodes: int) -> Loop:
    edges = {m: transitions(s) for m, s in members.items()}
    return refine(fold(edges, positions(members)), edges, members, nodes)[0].loops[0]


def check(members: Mapping[Member, Sequence[int]], nodes: int) -> int:
    """Compare the tree with the plain search on every rank; return how many loops agreed."""
    root = folded(members, nodes)
    tables = nest_of(root, nodes)
    compared = 0
    for member, sequence in members.items():
        in_order(tables, sequence)
        for inside, turns in regular(fold_repeats(sequence)).items():
            around = [t.turns.get(member, 0) for t in root.loops() if inside <= t.nodes()]
            assert turns in around[1:], (member, inside, turns, around)
            compared += 1
    return compared


def in_order(tables: Nest, sequence: Sequence[int]) -> None:
    """Check that the tree, unrolled turn by turn and place by place, is the sequence."""
    parsed = parse(tables, sequence)
    turn = loop_indices(parsed)
    place = tables.place[parsed.node]
    key = np.empty((len(turn), turn.shape[1] + place.shape[1]), dtype=np.int64)
    key[:, 0::2], key[:, 1::2] = place, turn
    order = np.lexsort(key.T[::-1])
    assert (order == np.arange(len(order))).all()
    assert (np.diff(key, axis=0) != 0).any(axis=1).all()


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_of_the_corpus(name):
    top, counts = PROGRAMS[name]
    members, nodes = sequences(top, counts[:2])
    assert check(members, len(nodes)) >= (0 if name in UNEVEN else sum(counts[:2]))


@settings(max_examples=100, deadline=None)
@given(
    st.recursive(
        st.integers(1, 3),
        lambda inner: st.lists(st.tuples(st.integers(1, 4), inner), min_size=1, max_size=3),
        max_leaves=8,
    )
)
def test_any_regular_nest(shape):
    numbers = count()

    def build(part: Any) -> list[int]:
        """Return a sequence: a number of new nodes, or repeats of parts after each other."""
        if isinstance(part, int):
            return [next(numbers) for _ in range(part)]
        return [v for times, inner in part for v in times * build(inner)]

    sequence = build(shape)
    found = regular(fold_repeats(sequence))
    assert check({(1, 0): sequence}, next(numbers)) == len(found)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=40))
def test_any_sequence_unrolls_to_itself(sequence):
    members = {(1, 0): sequence}
    in_order(nest_of(folded(members, 5), 5), sequence)
