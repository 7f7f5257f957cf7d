"""Sizes of whole programs: models trained on small counts against the truth at large ones."""

from __future__ import annotations

import corpus
import pytest
import size_programs as s

from p3s.model.compare import compare
from p3s.model.holdout import build_model

SQUARES = ((4, 9, 16, 25), (36, 49, 64, 100))
ANY = ((4, 6, 8, 9, 16), (36, 49, 64, 100, 125))
POWERS = ((4, 8, 16), (32, 64, 128))
PLANES = ((4, 6, 9, 12, 16), (36, 48, 64, 100))

CASES = [
    ("multipartition", s.multipartition(), *SQUARES),
    (
        "multipartition-buffers",
        s.multipartition((24, 24, 24), 0, 10, 30, 5, buffers=True),
        *SQUARES,
    ),
    pytest.param(
        "multipartition-extents",
        s.multipartition((30, 26, 33), 0, 5, 7, 3),
        *SQUARES,
        marks=pytest.mark.slow,
    ),
    ("allgather-ring", s.allgather_ring(), *ANY),
    ("halving", s.halving(), *POWERS),
    ("summa", s.summa(), *SQUARES),
    ("cannon", s.cannon(), *SQUARES),
    ("vcycle", s.vcycle(), *PLANES),
    ("pencils", s.pencils(), *PLANES),
    ("fused", s.fused(), *ANY),
    ("chunks", s.chunks(), *ANY),
    ("rounded", s.rounded(), (2, 4, 8), (16, 32)),
    ("rounded-up-and-down", s.rounded(1012), (3, 4, 8, 9, 12), (16, 18, 24, 28)),
    ("panels", s.panels(), *ANY),
    ("trimmed-halo", s.trimmed_halo(), *PLANES),
    ("scattered", s.scattered(), *ANY),
    ("faces3d", s.faces3d(), (4, 8, 16, 32), (64, 128)),
]


@pytest.mark.parametrize(("name", "program", "counts", "targets"), CASES)
def test_large_counts_are_exact(name, program, counts, targets):
    model = build_model([corpus.table(program, n) for n in counts], holdout=False)
    for n in targets:
        result = compare(model, corpus.table(program, n))
        for got in (result.p2p_triples, result.collectives):
            assert got.all_equal, (name, n, got)
        # where a dimension never had more than two ranks, the direction is open and said to be
        wrong = [model.items[i] for i in result.items_wrong]
        assert all(i.verdict == "ambiguous" for i in wrong), (n, [i.site for i in wrong])
