"""Irregular programs: totals, pairs and degrees of a mixture of levels."""

from __future__ import annotations

from functools import cache

import corpus
import mesh_levels
import numpy as np
import pytest

from p3s.model.compare import predicted_tallies, true_triples
from p3s.model.evaluate import generate
from p3s.model.holdout import build_model
from p3s.model.partners.irregular import is_sample


@cache
def traced(one_site):
    """Return a program and its model."""
    program = mesh_levels.multigrid(6000, 3, 4, one_site)
    return program, build_model([corpus.table(program, n) for n in (4, 8, 16)])


def totals(triples):
    """Return messages, bytes and pairs, and how far the larger half is above the mean."""
    sizes = np.sort(np.repeat([k[2] for k in triples], list(triples.values())))
    above = sizes[len(sizes) // 2 :].mean() / sizes.mean()
    return np.array([len(sizes), sizes.sum(), len({k[:2] for k in triples}), above])


@pytest.mark.parametrize("one_site", [True, False])
def test_levels_of_an_irregular_multigrid_are_not_averaged(one_site):
    program, model = traced(one_site)
    assert all(i.verdict == "statistical" for i in model.items if is_sample(i.relation))
    found = totals(predicted_tallies(model, generate(model, 32))[0])
    truth = totals(true_triples(corpus.table(program, 32)))
    assert np.abs(found / truth - 1.0).max() < 0.1, (found, truth)


def test_every_time_at_a_partner_has_its_own_sizes():
    _, model = traced(True)
    (item,) = [i for i in model.items if is_sample(i.relation)]
    assert len(item.slots) == 3
    means = [slot.elements.means[-1][1] for slot in item.slots]
    assert means == sorted(means, reverse=True) and means[0] > 1.5 * means[2]


def signals(rec):
    """Neighbours of an irregular mesh tell each other that they are there: no bytes at all."""
    sent = mesh_levels.ghosts(6000, rec.n, 1)[0]
    for _ in range(5):
        for p, q in sent:
            if p == rec.rank:
                rec("Isend", site="signal", peer=q, nbytes=0)
        rec("Allreduce", nbytes=8)


def test_messages_of_no_bytes_on_an_irregular_mesh_stay_of_no_bytes():
    model = build_model([corpus.table(signals, n) for n in (4, 8, 16)])
    assert any(is_sample(i.relation) for i in model.items)
    triples, *_ = predicted_tallies(model, generate(model, 32))
    assert triples and {nbytes for _, _, nbytes in triples} == {0}
