"""Runs folded into loops, parsed, and beside the nests that sources state."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import corpus
import numpy as np
import pytest
from corpus import nests as programs
from corpus.trees import Leaf, lines, plain, plain_json, positions, ranks_of, sequences, transitions
from corpus.trees import truth as true_tree
from hypothesis import given, settings
from hypothesis import strategies as st

from p3s.model.order.iterations import with_turns
from p3s.signature import phases
from p3s.signature.fold import END, START, Loop, fold
from p3s.signature.parse import (
    Nest,
    Sequences,
    loop_indices,
    nest_of,
    nodes_of,
    parse,
    trips,
    turns_with,
)
from p3s.signature.part import join, part_of
from p3s.signature.phase_file import PHASES
from p3s.signature.structure import refine, structure
from p3s.signature.tables import PointTable, first_rows, node_of_row


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


@corpus.program
def multipartition(rec: corpus.Recorder, cells: int = 3, steps: int = 2) -> None:
    """Blocks of a size that depends on the turn, to one partner; a root that wanders."""
    p = round(rec.n**0.5)
    cx, cy = divmod(rec.rank, p)
    for _ in range(steps):
        for t in range(p):
            size = 8 * corpus.block(10, p, (cy + t) % p)
            rec("Isend", peer=(cx + 1) % p * p + cy, nbytes=size)
            rec("Irecv", peer=(cx - 1) % p * p + cy, nbytes=size)
            rec("Wait", nbytes=2)
        for k in range(rec.n):
            rec("Bcast", nbytes=8, root=k)
        rec("Allreduce", nbytes=8)


def truth(t: PointTable, rank: int) -> list[str]:
    codes = t.sequences[rank]
    nodes = nodes_of(codes, first_rows(t)[rank], node_of_row(t))
    return [t.nodes[v][1] for v in nodes.tolist()]


def test_sequences_hold_every_event_of_every_rank() -> None:
    run = corpus.run(corpus.jacobi2d(iters=3), 6)
    t = corpus.table(corpus.jacobi2d(iters=3), 6)
    assert sorted(t.sequences) == list(range(6))
    for rt in run.ranks:
        assert truth(t, rt.rank) == [run.calls[c].op for c in rt.call]
        rows = t.sequences[rt.rank] + first_rows(t)[rt.rank]
        assert t.nbytes[rows].tolist() == [run.calls[c].bytes for c in rt.call]
        assert [t.groups[g].peer for g in t.group[rows]] == [run.calls[c].peer for c in rt.call]


def test_events_that_move_nothing_are_in_the_sequence() -> None:
    def program(rec: corpus.Recorder) -> None:
        for q in (rec.rank - 1, rec.rank + 1):
            rec("Send", peer=q if 0 <= q < rec.n else -3, nbytes=8)

    t = corpus.table(program, 3)
    assert [int(c) < 0 for c in t.sequences[0]] == [False, True, False, False]
    assert truth(t, 0) == ["MPI_Init", "MPI_Send", "MPI_Send", "MPI_Finalize"]


def test_parts_of_a_run_join_to_the_sequences_of_the_run() -> None:
    def program(rec: corpus.Recorder) -> None:
        if rec.rank:
            rec("Barrier", site=f"own{rec.rank}")
        rec("Send", peer=-3 if rec.rank == 2 else 0, nbytes=8)

    run = corpus.run(program, 3)
    parts = []
    for rt in run.ranks:
        one = replace_ranks(run, [rt])
        parts.append(part_of(one))
    whole = join(parts)
    assert [whole.nodes[-1 - c][1] for c in whole.sequences[2].tolist() if c < 0] == ["MPI_Send"]
    assert {r: len(c) for r, c in whole.sequences.items()} == {0: 3, 1: 4, 2: 4}


def replace_ranks(run: object, ranks: list[object]) -> object:
    from types import SimpleNamespace

    return SimpleNamespace(**{**vars(run), "ranks": ranks})


def test_too_many_events_leave_no_sequences() -> None:
    kept = Sequences(most=5)
    kept.offer(0, np.array([0, 1, 2]))
    kept.offer(1, np.array([0, 1, 2]))  # the same again takes no room
    assert kept.kept[0] is kept.kept[1]
    kept.offer(2, np.array([0, 1, 3]))
    assert not kept.kept
    t = replace(corpus.table(multipartition(), 4), sequences={})
    (without,) = with_turns([t])
    assert without.turn is not None and not without.turn.any()
    whole = part_of(corpus.run(multipartition(), 1))
    assert join([whole]).sequences and not join([replace(whole, sequences={}), whole]).sequences


def test_turn_where_size_or_root_depends_on_the_loop_index() -> None:
    tables = with_turns([corpus.table(multipartition(), n) for n in (4, 9, 16)])
    for t in tables:
        assert t.turn is not None
        p = round(t.np**0.5)
        for rank, gi, size, turn, count in zip(
            t.rank, t.group, t.nbytes, t.turn, t.count, strict=True
        ):
            g = t.groups[gi]
            if g.op == "MPI_Isend":
                assert size == 8 * corpus.block(10, p, (rank % p + turn) % p) and count == 2
            elif g.op == "MPI_Bcast":
                assert g.root == turn and count == 2
            else:
                assert g.op == "MPI_Irecv" or turn == 0
        # every turn of a rank is there, with equal sizes in several turns too
        assert len(t.rank[(t.rank == 0) & (t.turn == p - 1)]) >= 3


def test_splitting_keeps_sums_and_sequences() -> None:
    before = [corpus.table(multipartition(), n) for n in (4, 9)]
    for a, b in zip(before, with_turns(before), strict=True):
        for column in ("count", "work", "elapsed_ns"):
            assert getattr(a, column).sum() == getattr(b, column).sum()
        for rank in range(a.np):
            for column in ("group", "nbytes", "rank"):
                x = getattr(a, column)[a.sequences[rank] + first_rows(a)[rank]]
                y = getattr(b, column)[b.sequences[rank] + first_rows(b)[rank]]
                assert np.array_equal(x, y)
            seen = np.unique(b.sequences[rank], return_index=True)[1]
            assert np.array_equal(b.first[b.rank == rank], seen)


def text(top: corpus.Program, counts: tuple[int, ...]) -> list[str]:
    return lines(plain(true_tree(top, counts)), counts, ranks_of(top, counts))


def test_truth_of_a_perfect_nest_and_of_loops_of_one_turn():
    assert text(programs.fused(), (4, 8)) == [
        "MPI_Barrier start",
        "loop 4: 12, 8: 12",
        "  MPI_Sendrecv shift",
        "  MPI_Sendrecv_recv shift",
        "MPI_Barrier end",
    ]
    assert text(programs.few_trips(), (9,)) == [
        "loop 9: 8",
        "  loop 9: 8..24",  # turns of ranks that take part: 1 to 3 in each of 8 steps
        "    MPI_Isend Isend",
        "  loop 9: 8..24",
        "    MPI_Recv Recv",
        "  MPI_Waitall Waitall",
        "  MPI_Barrier Barrier",
    ]


def test_truth_of_first_and_last_turns():
    assert text(programs.first_and_last(), (4,)) == [
        "MPI_Bcast before",
        "loop 4: 9",
        "  MPI_Sendrecv shift",
        "  MPI_Sendrecv_recv shift",
        "  MPI_Bcast setup (first)",
        "  MPI_Allreduce Allreduce",
        "  MPI_Gather result (last)",
        "  MPI_Barrier between",
        "  MPI_Scan Scan (some)",
        "MPI_Reduce after",
    ]


def test_truth_of_a_vcycle_with_idle_ranks():
    counts = (4, 8, 16)
    # Levels of rank 0: all 4; of the odd ranks: 1; 5 cycles.
    assert text(programs.vcycle(), counts)[2:8] == [
        "  loop 4: 5..20, 8: 5..20, 16: 5..20",
        "    MPI_Irecv smooth_r",
        "    MPI_Isend smooth_s",
        "    MPI_Waitall smooth_w",
        "    MPI_Send restrict",
        "  loop 4: 5..20, 8: 5..20, 16: 5..20",
    ]


def test_truth_of_every_tenth_turn():
    assert "  MPI_Gather output (every 10)" in text(programs.every_tenth(), (4,))


@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_weights_are_those_of_the_source(name):
    """What ranks on borders lack never hides a turn from all ranks."""
    top, counts = programs.PROGRAMS[name]
    for tree in true_tree(top, counts).loops():
        for n in counts:
            stated = max((t for (m, _), t in tree.stated.items() if m == n), default=0)
            assert tree.weight(n) == stated, (tree.name, n)


def phases_of(top: corpus.Program, counts: tuple[int, ...]) -> dict[str, Any]:
    """Return signature/phases.json of a nest; MPI_Init and MPI_Finalize are added around it."""
    found = structure([corpus.table(top, n) for n in counts])
    return PHASES.data(phases.phases_of(found))


def calls_of(loop: dict[str, Any]) -> list[dict[str, Any]]:
    return [x for c in loop["body"] for x in ([c] if "call" in c else calls_of(c))]


@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_phases_json_is_the_nest(name):
    """Turns, most and fewest, calls with their turns, ranks and events, walks and weights."""
    top, counts = programs.PROGRAMS[name]
    found, tree = phases_of(top, counts), true_tree(top, counts)
    ranks = ranks_of(top, counts)
    found["tree"]["body"] = found["tree"]["body"][1:-1]
    assert lines(plain_json(found["tree"]), counts, ranks) == lines(plain(tree), counts, ranks)

    leaf = {(x.site, x.op): x for t in tree.loops() for x in t.children if isinstance(x, Leaf)}
    for call in calls_of(found["tree"]):
        count = leaf[call["site"], call["op"]].count
        for n in counts:
            mine = [k for (m, _), k in count.items() if m == n]
            assert call["count"].get(str(n), 0) == sum(mine)
            assert call["ranks"].get(str(n), 0) == len(mine)

    assert weights(found) == sorted(
        [tree.weight(n) for n in counts] for tree in tree.loops() if not tree.walk
    )


def weights(found: dict[str, Any]) -> list[list[int]]:
    """Return the weights of all phases per count, sorted."""
    return sorted(
        [p["per_count"].get(str(n), {"weight": 0})["weight"] for n in found["counts"]]
        for p in found["phases"]
    )


def test_the_signature_does_not_grow_with_the_iterations():
    few, many = (json.dumps(phases_of(programs.jacobi(steps), (4, 9))) for steps in (10, 1000))
    assert len(many) < len(few) + 1000  # longer numbers only
