"""Loop nests recovered from event sequences; the expected trees are written by hand."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from p3s.signature.fold import END, START, Loop, fold


def edges(sequence):
    walk = [START, *sequence, END]
    return dict(Counter(zip(walk[:-1], walk[1:], strict=True)))


def tree(*sequences):
    """Fold sequences (one per rank) and return (nested lists, loops)."""
    position = {}
    for s in sequences:
        for i, v in enumerate(s):
            position.setdefault(v, []).append(i / len(s))
    root = fold(
        {r: edges(s) for r, s in enumerate(sequences)},
        {v: sum(p) / len(p) for v, p in position.items()},
    )
    return root, _shape(root)


def _shape(loop):
    return [_shape(c) if isinstance(c, Loop) else c for c in loop.children]


def turns(root, *path):
    for i in path:
        root = root.children[i]
    return root.turns


def test_straight_line():
    assert tree([1, 2, 3])[1] == [1, 2, 3]


def test_one_loop_with_start_and_end():
    root, shape = tree([9, *[1, 2, 3] * 7, 8])
    assert shape == [9, [1, 2, 3], 8]
    assert turns(root, 1) == {0: 7}


def test_nested_loops_that_share_a_header():
    root, shape = tree([*([1, 2] * 4 + [3]) * 5])
    assert shape == [[[1, 2], 3]]
    assert turns(root, 0) == {0: 5}
    assert turns(root, 0, 0) == {0: 20}


def test_a_loop_of_one_turn_on_one_rank():
    root, shape = tree([*[1, 2] * 5, 3], [1, 2, 3])
    assert shape == [[1, 2], 3]
    assert turns(root, 0) == {0: 5, 1: 1}


def test_guards_in_the_middle_and_every_fifth_turn():
    body = [1, 2]
    root, shape = tree([x for k in range(20) for x in (body + [3] if k % 5 == 4 else body)])
    assert sum(c == 3 for c in _flat(shape)) == 1
    assert turns(root, 0)[0] in (4, 20)  # as a guard, or as an outer loop of four


def _flat(shape):
    return [x for c in shape for x in (_flat(c) if isinstance(c, list) else [c])]


def test_several_entries_with_a_common_last_event():
    """Ranks on borders start a turn elsewhere; the reduction 9 ends every turn."""
    full, west, corner = [1, 2, 3, 4, 9] * 6, [2, 3, 4, 9] * 6, [3, 4, 9] * 6
    root, shape = tree(full, west, corner)
    assert shape == [[1, 2, 3, 4, 9]]
    assert turns(root, 0) == {0: 6, 1: 6, 2: 6}


def test_a_sweep_inside_an_iteration():
    """Receive W, N, send E, S in blocks; corners lack some; 9 ends an iteration of 4 blocks."""

    def rank(*own):
        return ([*own] * 4 + [9]) * 3

    root, shape = tree(rank(1, 2, 3, 4), rank(3, 4), rank(2, 3, 4), rank(1, 2), rank(1, 2, 4))
    assert shape == [[[1, 2, 3, 4], 9]]
    assert set(turns(root, 0).values()) == {3}
    assert set(turns(root, 0, 0).values()) == {12}


def test_disagreeing_orders_are_no_loop():
    root, shape = tree([1, 2, 3], [1, 3, 2])
    assert sorted(_flat(shape)) == [1, 2, 3]
    assert all(not isinstance(c, Loop) for c in root.children)


def test_trip_count_that_differs_by_rank():
    root, shape = tree([0, *[1] * 3, 2], [0, *[1] * 8, 2], [0, 2])
    assert shape == [0, [1], 2]
    assert turns(root, 1) == {0: 3, 1: 8}


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=40), min_size=1, max_size=4))
def test_any_sequence_folds_and_keeps_every_node_once(sequences):
    root, shape = tree(*sequences)
    assert sorted(_flat(shape)) == sorted({v for s in sequences for v in s})
    for r, s in enumerate(sequences):
        for loop in root.loops():
            inside = loop.nodes() & set(s)
            assert loop.turns.get(r, 0) <= max(len(s), 1)
            if inside and loop is not root and all(v in s for v in inside):
                assert loop.turns.get(r, 0) >= 1


def test_calls_that_no_rank_makes_after_each_other_are_ordered_as_in_the_code():
    ranks = {0: edges([1, 2, 5] * 4), 1: edges([3, 4, 5] * 4)}
    position = {1: 0.0, 3: 0.01, 2: 0.1, 4: 0.11, 5: 0.2}
    in_pairs, by_kind = (
        {v: k for k, v in enumerate(o)} for o in ((1, 2, 3, 4, 5), (1, 3, 2, 4, 5))
    )
    assert _shape(fold(ranks, position, in_pairs)) == [[1, 2, 3, 4, 5]]
    assert _shape(fold(ranks, position, by_kind)) == [[1, 3, 2, 4, 5]]
    del by_kind[4]  # places of some calls only say nothing of the others
    assert _shape(fold(ranks, {**position, 3: 0.3, 4: 0.4}, by_kind)) == [[1, 2, 3, 4, 5]]
