"""Segments of runs, what is similar, and phases of parts in parallel."""

from __future__ import annotations

import pickle
import weakref
from collections import Counter
from dataclasses import replace

import corpus
import numpy as np
import pytest
from corpus.cases import listed

from p3s.model.work.flows import _kinds
from p3s.signature import part
from p3s.signature.part import Part, join, part_of
from p3s.signature.phase_file import PHASES
from p3s.signature.phases import phases_of
from p3s.signature.segments import keep_least_work
from p3s.signature.similarity import align, match, uncross_pairs
from p3s.signature.structure import structure
from p3s.signature.tables import PointTable, table_of


def first_turn(rec):
    """The first turn's call is preceded by the set-up, all others by a step."""
    rec("Bcast", root=0, work=7)
    for i in range(5):
        rec("Send", peer=(rec.rank + 1) % rec.n if rec.rank else -3, work=100 if i else 5000)
        rec("Recv", peer=(rec.rank - 1) % rec.n, work=10)


def by_name(table, rank):
    nodes = [op for _, op in table.nodes]
    return {
        (nodes[a] if a >= 0 else "", nodes[b]): (k, w)
        for r, a, b, k, w in table.segments.tolist()
        if r == rank
    }


def test_the_first_turn_is_a_segment_of_its_own():
    got = by_name(corpus.table(first_turn, 3), 1)
    assert got[("MPI_Bcast", "MPI_Send")] == (1, 5000)
    assert got[("MPI_Recv", "MPI_Send")] == (4, 400)
    assert got[("MPI_Send", "MPI_Recv")] == (5, 50)
    assert got[("", "MPI_Init")] == (1, 0)


def test_work_before_calls_that_move_nothing_counts_with_the_next():
    got = by_name(corpus.table(first_turn, 3), 0)
    assert got[("MPI_Bcast", "MPI_Recv")] == (1, 5010)
    assert got[("MPI_Recv", "MPI_Recv")] == (4, 440)
    assert not any("MPI_Send" in key for key in got)


def test_segments_have_all_work_of_the_rows():
    t = corpus.table(corpus.wavefront(), 6)
    assert t.segments[:, 4].sum() == t.work.sum()
    assert t.segments[:, 3].sum() == t.count.sum()


def test_segments_survive_joining():
    part = part_of(corpus.run(first_turn, 3))
    assert (join([part]).segments == part.segments).all()


def test_repeats_give_the_least_work_where_calls_are_the_same():
    nodes = [("a", "X"), ("b", "Y")]
    one = np.array([[0, -1, 0, 1, 50], [0, 0, 1, 2, 90], [0, 1, 1, 3, 30]])
    two = np.array([[0, -1, 1, 1, 40], [0, 1, 0, 2, 80], [0, 0, 0, 9, 10]])  # numbered otherwise
    got = keep_least_work([(one, nodes), (two, nodes[::-1])])
    assert got[:, 4].tolist() == [40, 80, 30]


@pytest.mark.parametrize("columns", [1, 3, 12, 13, 40])
def test_calls_before_a_place_are_told_apart(columns: int) -> None:
    """Counted where they are few, sorted where they are many: the same kinds, in the same order."""
    there = np.random.default_rng(columns).random((500, columns)) < 0.3
    kinds, where = _kinds(there)
    assert np.array_equal(kinds[where], there)
    assert np.array_equal(kinds, np.unique(there.astype(int), axis=0))


#: Every so many programs of the corpus.
EVERY = 8


def elsewhere(t: PointTable) -> PointTable:
    """Return a table with all calls at other addresses."""
    return replace(
        t,
        groups=tuple(g._replace(site=f"@{g.site}") for g in t.groups),
        nodes=tuple((f"@{site}", op) for site, op in t.nodes),
        sites={f"@{site}": frames for site, frames in t.sites.items()},
    )


def test_no_call_of_the_corpus_is_matched_wrongly_and_most_are_matched() -> None:
    seen: Counter[str] = Counter()
    programs = [each for part in listed().values() for each in part]
    for _, program, counts, _ in programs[::EVERY]:
        tables = {n: corpus.table(program, n) for n in counts}
        for n in sorted(counts)[:-1]:
            found = match([tables[m] for m in counts if m > n], elsewhere(tables[n]))
            if found is None:
                seen["none"] += 1
                continue
            sites, how = found
            assert {site: site[1:] for site in sites} == sites
            seen["whole" if how.alike == how.calls else "part"] += 1
    assert seen["whole"] >= 0.85 * seen.total() > 40


def test_a_run_of_the_same_build_and_another_program_are_not_matched() -> None:
    own = [corpus.table(corpus.jacobi2d(), n) for n in (4, 8)]
    assert match(own, corpus.table(corpus.jacobi2d(), 16)) is None
    for other in (corpus.ring(), corpus.wavefront(), corpus.cg()):
        assert match(own, elsewhere(corpus.table(other, 16))) is None


@pytest.mark.parametrize(
    ("score", "pairs"),
    [
        ([[1, 1], [1, 1]], [(0, 0), (1, 1)]),
        ([[1], [1]], []),  # either of two may be meant
        ([[2], [1]], [(0, 0)]),
        ([[1, 0, 0], [0, 1, 0], [0, 0, 1]], [(0, 0), (1, 1), (2, 2)]),
        ([[1, 1, 0], [0, 0, 1]], [(1, 2)]),
    ],
)
def test_pairs_are_those_of_every_best_alignment(
    score: list[list[int]], pairs: list[tuple[int, int]]
) -> None:
    assert align(np.array(score)) == pairs


def test_calls_that_stand_the_other_way_round_match_only_if_they_cannot_change_partners() -> None:
    apart = np.array([[0, 3], [3, 0]])
    assert sorted(uncross_pairs(apart, [(0, 1)])) == [(0, 1), (1, 0)]
    alike = np.array([[0, 3, 3], [3, 3, 0]])
    assert uncross_pairs(alike, [(0, 2)]) == [(0, 2)]  # the other one has two that are as good
    assert uncross_pairs(np.array([[3, 3], [3, 3]]), [(0, 1)]) == []


PROGRAMS = [corpus.jacobi2d(), corpus.ring(), corpus.halo3d(), corpus.cg(), corpus.wavefront()]


def ranks_of(program: corpus.Program, n: int) -> list[Part]:
    """Return one part per rank, as if each had a file of its own."""
    run = corpus.run(program, n)
    every = run.ranks
    parts = []
    for rank in every:
        run.ranks = [rank]
        parts.append(part_of(run))
    return parts


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_parts_of_the_ranks_make_the_whole(program: corpus.Program) -> None:
    whole = PHASES.data(phases_of(structure([corpus.table(program, 16)])))
    parts = ranks_of(program, 16)
    sent = pickle.loads(pickle.dumps(parts))  # noqa: S301
    for made in (parts, sent):
        table = table_of([join(made)], [None], "here")
        again = PHASES.data(phases_of(structure([table])))
        assert without_numbers(again["tree"]) == without_numbers(whole["tree"])
        assert again["accounting"] == whole["accounting"]
        assert [p["per_count"] for p in again["phases"]] == [
            p["per_count"] for p in whole["phases"]
        ]


def without_numbers(node: dict) -> dict:
    """Drop the numbers of calls, which follow the order in which ranks are met."""
    return {
        k: [without_numbers(c) for c in v] if k == "body" else v
        for k, v in node.items()
        if k != "call"
    }


def test_ranks_of_a_whole_run_are_not_kept_until_all_are_read(monkeypatch) -> None:
    read, alive, most = part._Reading.part_of, [], []

    def watched(self: object, rank: int) -> Part:
        found = read(self, rank)
        alive.append(weakref.ref(found))
        most.append(sum(each() is not None for each in alive))
        return found

    monkeypatch.setattr(part._Reading, "part_of", watched)
    part_of(corpus.run(corpus.ring(), 16))
    assert len(most) == 16 and max(most) <= 2
