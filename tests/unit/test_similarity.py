"""Functional similarity: calls of other builds are matched by what they do, or not at all."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import corpus
import numpy as np
import pytest
from corpus.cases import listed

from p3s.signature.similarity import align, match, uncrossed
from p3s.signature.tables import PointTable

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
    assert sorted(uncrossed(apart, [(0, 1)])) == [(0, 1), (1, 0)]
    alike = np.array([[0, 3, 3], [3, 3, 0]])
    assert uncrossed(alike, [(0, 2)]) == [(0, 2)]  # the other one has two that are as good
    assert uncrossed(np.array([[3, 3], [3, 3]]), [(0, 1)]) == []
