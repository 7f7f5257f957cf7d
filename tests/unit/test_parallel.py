"""Signatures made rank by rank are those of the whole run."""

from __future__ import annotations

import pickle
import weakref

import corpus
import pytest

from p3s.signature import part
from p3s.signature.part import Part, join, part_of
from p3s.signature.phase_file import PHASES
from p3s.signature.phases import phases_of
from p3s.signature.structure import structure
from p3s.signature.tables import table_of

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
