"""Intervals and communicators that are cut in two again and again."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

import corpus
import pytest
from corpus import neighbours as nb

from p3s.model.compare import compare
from p3s.model.holdout import build_model
from p3s.model.reasons import Verdict
from p3s.model.verdicts import judged_at

FORMS = list(product(("first", "like", "mirror", "tree"), (1, -1, 0)))


def each_pair(others: Iterable[object]) -> list[object]:
    """Return all forms with both others; half of them, with each pair of values, are quick."""
    cases = enumerate((*form, other) for form in FORMS for other in others)
    # in turn the one and the other of a form's two, the other way round in the next three forms
    quick = {2 * k + sum(divmod(k, 3)) % 2 for k in range(len(FORMS))}
    return [pytest.param(*case, marks=() if k in quick else pytest.mark.slow) for k, case in cases]


@pytest.mark.parametrize(("form", "sign", "ceil"), each_pair([False, True]))
def test_halves_of_intervals_are_exact_at_any_count(form, sign, ceil):
    program = nb.intervals(form, sign, ceil)
    model = build_model([corpus.table(program, n) for n in (3, 5, 6, 7, 9)], holdout=False)
    for n in (12, 21, 32):
        assert compare(model, corpus.table(program, n)).p2p_triples.all_equal, n


@pytest.mark.parametrize(("form", "sign", "counts"), each_pair([(4, 8, 16), (4, 6, 8, 12)]))
def test_what_is_exact_at_a_count_is_right_there(form, sign, counts):
    """Powers of two do not tell intervals from binomial trees and exchanges: 24 is open then."""
    program = nb.intervals(form, sign)
    model = build_model([corpus.table(program, n) for n in counts])
    for n in (24, 27, 64):
        there = judged_at(model, n)
        for i in compare(model, corpus.table(program, n)).items_wrong:
            assert there.items[i].verdict != Verdict.EXACT, (n, there.items[i].relation)


def test_the_next_count_tells_rivals_apart():
    model = build_model([corpus.table(nb.intervals("first"), n) for n in (4, 8, 16)])
    assert any("differ there in" in each.why and "the partners" in each.why for each in model.next)


@pytest.mark.parametrize(
    ("ceil", "least", "counts"),
    [
        (False, 2, (4, 6, 8, 12, 16)),
        (True, 2, (3, 5, 6, 9, 12)),
        (False, 4, (4, 8, 12, 16)),
        (False, 1, (2, 3, 4, 6, 8)),
    ],
)
def test_communicators_that_are_halved_have_a_law_for_each_stage(ceil, least, counts):
    """The stages that were traced are right at larger counts, and nothing is invented."""
    program = nb.halved_communicators(ceil, least)
    model = build_model([corpus.table(program, n) for n in counts], holdout=False)
    for n in counts:
        assert compare(model, corpus.table(program, n)).collectives.all_equal, n
    for n in (24, 37, 48):
        found = compare(model, corpus.table(program, n)).collectives
        assert found.predicted == found.equal and found.equal >= 0.6 * found.true, n
