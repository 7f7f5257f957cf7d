"""The nests of the corpus: their true trees, by hand, and the fold measured against all of them."""

from __future__ import annotations

import json
from typing import Any

import corpus
import pytest
from corpus import nests as programs
from corpus.trees import Leaf, lines, plain, plain_json, ranks_of, truth

from p3s.signature import phases
from p3s.signature.phase_file import PHASES
from p3s.signature.structure import structure


def text(top: corpus.Program, counts: tuple[int, ...]) -> list[str]:
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
    found, tree = phases_of(top, counts), truth(top, counts)
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
