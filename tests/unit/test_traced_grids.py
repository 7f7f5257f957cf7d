"""Process grids that no common rule gives, or one that fails at the smallest count."""

from __future__ import annotations

import corpus
import numpy as np
import pytest

from p3s.base.errors import P3SError
from p3s.base.extents import dims_balanced
from p3s.model.compare import compare
from p3s.model.grid.at import GridRule
from p3s.model.holdout import build_model
from p3s.model.verdicts import judged_at

ANYHOW = {4: (2, 2), 6: (2, 3), 8: (4, 2), 12: (2, 6), 24: (6, 4)}


@corpus.program
def halo(rec, extents, cells=(120, 90)):
    """Faces with both neighbours in two dimensions, open at the border."""
    dims = extents(rec.n)
    here = [int(x) for x in np.unravel_index(rec.rank, dims)]
    for _ in range(5):
        for op, towards in (("Irecv", -1), ("Isend", 1)):
            for d in range(2):
                for s in (-1, 1):
                    to = list(here)
                    to[d] += s * towards
                    if 0 <= to[d] < dims[d]:
                        peer = int(np.ravel_multi_index(to, dims))
                        face = 8 * (cells[1 - d] // dims[1 - d])
                        rec(op, f"{op}{d}{s}", peer=peer, nbytes=face)
        rec("Waitall", nbytes=12)


def test_extents_are_read_off_the_traces_and_none_are_made_up():
    model = build_model([corpus.table(halo(ANYHOW.get), n) for n in (4, 6, 8, 12)])
    assert dict(model.grid.dims) == {str(n): ANYHOW[n] for n in (4, 6, 8, 12)}
    with pytest.raises(P3SError, match="--grid states another"):
        compare(model, corpus.table(halo(ANYHOW.get), 24))
    (first,) = model.next
    assert first.n >= 24 and "extents" in first.why


def test_one_small_count_cut_along_another_dimension_spoils_no_other():
    def extents(n):
        return (1, 4) if n == 4 else dims_balanced(n, 2)

    model = build_model([corpus.table(halo(extents), n) for n in (4, 8, 9, 12, 16)])
    assert model.grid.dims["4"] == (1, 4)
    assert GridRule.load(model.grid.family.to_json()) == model.grid.family
    for n in (24, 36):
        found = compare(model, corpus.table(halo(extents), n))
        triples = found.p2p_triples
        assert triples.true == triples.predicted == triples.equal
        there = judged_at(model, n)
        assert not any(there.items[i].verdict == "exact" for i in found.items_wrong)
