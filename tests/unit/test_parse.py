"""Where events are in the nest, against counting by hand, one event after the other."""

from __future__ import annotations

import numpy as np
import pytest
from corpus import nests as programs
from corpus.trees import positions, sequences, transitions
from hypothesis import given, settings
from hypothesis import strategies as st

from p3s.signature.fold import Loop, fold
from p3s.signature.parse import Nest, loop_indices, nest_of, parse, trips, turns_with
from p3s.signature.structure import refine


def plainly(root: Loop, sequence: list[int]) -> tuple[list[list[int]], dict[int, list[int]]]:
    """Return the turns of the loops around each event, and loop -> turns of each entry."""
    paths: dict[int, tuple[list[Loop], list[int]]] = {}

    def walk(loop: Loop, around: list[Loop], places: list[int]) -> None:
        for k, child in enumerate(loop.children):
            if isinstance(child, Loop):
                walk(child, [*around, child], [*places, k])
            else:
                paths[child] = (around, [*places, k])

    walk(root, [], [])
    number = {id(loop): k for k, loop in enumerate(root.loops())}
    found: dict[int, list[int]] = {}
    rows, turns, before = [], [], None
    for node in sequence:
        loops, places = paths[node]
        if before is None:
            common, again = 0, False
        else:
            old_loops, old_places = paths[before]
            common = 0
            while common < min(len(loops), len(old_loops)) and loops[common] is old_loops[common]:
                common += 1
            again = common > 0 and places[common] <= old_places[common]
        turns = turns[:common]
        if again:
            turns[-1] += 1
            found[number[id(loops[common - 1])]][-1] += 1
        for loop in loops[common:]:
            turns.append(0)
            found.setdefault(number[id(loop)], []).append(1)
        rows.append(list(turns))
        before = node
    return rows, found


@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_indices_and_trips(name: str) -> None:
    top, counts = programs.PROGRAMS[name]
    members, nodes = sequences(top, counts[:2])
    root = fold({m: transitions(s) for m, s in members.items()}, positions(members))
    nest = nest_of(root, len(nodes))
    for sequence in members.values():
        in_order(nest, sequence)
        parsed = parse(nest, sequence)
        rows, found = plainly(root, sequence)
        got = loop_indices(parsed)
        wanted = np.full_like(got, -1)
        for k, row in enumerate(rows):
            wanted[k, : len(row)] = row
        assert np.array_equal(got, wanted)
        assert {k: v.tolist() for k, v in trips(parsed).items()} == found
        for node, (turn, total) in turns_with(parsed, np.arange(len(nest.depth))).items():
            mine = [k for k, v in enumerate(sequence) if v == node]
            assert turn.tolist() == [rows[k][-1] for k in mine]
            assert (turn < total).all()


def in_order(nest: Nest, sequence: list[int]) -> None:
    """Check that the tree, unrolled turn by turn and place by place, is the sequence."""
    parsed = parse(nest, sequence)
    turn = loop_indices(parsed)
    place = nest.place[parsed.node]
    key = np.empty((len(turn), turn.shape[1] + place.shape[1]), dtype=np.int64)
    key[:, 0::2], key[:, 1::2] = place, turn
    order = np.lexsort(key.T[::-1])
    assert (order == np.arange(len(order))).all()
    assert (np.diff(key, axis=0) != 0).any(axis=1).all()


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=40))
def test_any_sequence_unrolls_to_itself(sequence: list[int]) -> None:
    members = {(1, 0): sequence}
    edges = {(1, 0): transitions(sequence)}
    root = refine(fold(edges, positions(members)), edges, members, 5)[0].loops[0]
    in_order(nest_of(root, 5), sequence)


def test_nothing_is_nowhere() -> None:
    nest = nest_of(Loop([0, Loop([1])]), 2)
    parsed = parse(nest, [])
    assert loop_indices(parsed).shape == (0, 1) and trips(parsed) == {} == turns_with(
        parsed, np.arange(1)
    )
