"""The nests of the corpus: their true trees, by hand, and the fold measured against all of them."""

from __future__ import annotations

import nest_programs as programs
import pytest
from nests import Nest, compare, lines, plain, positions, ranks_of, sequences, transitions, truth

from p3s.characterize.fold import fold
from p3s.characterize.refine import refine


def text(top: Nest, counts: tuple[int, ...]) -> list[str]:
    return lines(plain(truth(top, counts)), counts, ranks_of(top, counts))


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
    for tree in truth(top, counts).loops():
        for n in counts:
            stated = max((t for (m, _), t in tree.stated.items() if m == n), default=0)
            assert tree.weight(n) == stated, (tree.name, n)


@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_the_fold_finds_the_nest(name):
    top, counts = programs.PROGRAMS[name]
    members, nodes = sequences(top, counts)
    edges = {m: transitions(s) for m, s in members.items()}
    loop = refine(fold(edges, positions(members)), edges, members, len(nodes))
    true, got = compare(top, counts, loop, nodes)
    assert got == true
