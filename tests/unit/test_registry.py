"""A kind of rule that is defined elsewhere is found, evaluated, priced, printed and stored."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from corpus import table
from corpus.grids import _halo, split_by

from p3s.base.errors import P3SError
from p3s.base.serialise import from_data, to_data
from p3s.model.evaluate import generate
from p3s.model.grid.at import Atom, GridAt, GridRule, Guard
from p3s.model.grid.choose import choose_grid
from p3s.model.grid.grids import Line
from p3s.model.grid.guardfit import fit_guard
from p3s.model.grid.nodes import collect_nodes, find_communicators
from p3s.model.holdout import build_model
from p3s.model.partners import stencil
from p3s.model.partners.communicator_laws import CommunicatorLaw, CommunicatorSet, Tried, instances
from p3s.model.partners.infer_partners import infer_partners
from p3s.model.partners.pairs import Pairs
from p3s.model.partners.relation import Relation
from p3s.model.types import Model
from p3s.program.collectives.choose import chosen_name, library_of, schedule
from p3s.program.collectives.job import Job
from p3s.program.collectives.registry import COLLECTIVES, algorithm
from p3s.program.collectives.rooted import bcast_pipeline
from p3s.program.collectives.writer import Writer
from p3s.report.equations import render

LINE = Line(1)


@pytest.fixture
def kinds() -> Iterator[None]:
    """Let kinds be added that are gone after the test."""
    before = [(root, dict(root.kinds)) for root in (Relation, Atom, CommunicatorLaw, GridRule)]
    yield
    for root, known in before:
        root.kinds.clear()
        root.kinds.update(known)
        root._read.clear()


def doubled_relation() -> type[Relation]:
    @dataclass(frozen=True, kw_only=True)
    class Doubled(Relation, kind="doubled"):
        """(k r) mod n."""

        k: int

        @classmethod
        def read_off(cls, pairs: Sequence[Pairs]) -> Tried:
            yield from ((1.3, cls(k=k)) for k in (2, 3))

        def to(self, g: GridAt) -> np.ndarray:
            return np.asarray(self.k * g.r % g.n)

        def text(self) -> str:
            return f"rank {self.k} r mod n"

    return Doubled


def square_atom() -> type[Atom]:
    @dataclass(frozen=True)
    class Square(Atom, kind="square", opposite="nosquare"):
        """The rank is a square."""

        tried = ((),)
        price = (1.2, 1.2)
        words = ("r is a square", "r is no square")

        def hit(self, g: GridAt, peers: np.ndarray | None) -> np.ndarray:
            return np.sqrt(g.r) % 1 == 0

    return Square


def test_a_relation_from_elsewhere(kinds: None) -> None:
    pairs = [Pairs(LINE.at(n), np.arange(n), np.arange(n) * 3 % n) for n in (7, 11, 16)]
    assert infer_partners(pairs).relations == []  # a rule that nobody knows
    doubled = doubled_relation()
    found = infer_partners(pairs)
    assert found.relations == [doubled(k=3)] and found.cost == pytest.approx(1.3)
    data = json.loads(json.dumps(found.relations[0].to_json()))
    assert data == {"kind": "doubled", "k": 3}
    read = Relation.load(data)
    assert stencil.partners(read, LINE.at(20))[0].tolist() == [3 * r % 20 for r in range(20)]
    assert read.text() == "rank 3 r mod n" and read == doubled(k=3)


def test_an_atom_from_elsewhere(kinds: None) -> None:
    grids = [LINE.at(n) for n in (12, 20, 30, 40)]
    sets = [np.isin(np.arange(g.n), [0, 1, 4, 9, 16, 25, 36]) for g in grids]
    before = fit_guard(grids, sets)
    square_atom()
    guard = fit_guard(grids, [~s for s in sets])
    assert before is None and guard is not None and guard.cost == 1.2
    data = json.loads(json.dumps(guard.to_json()))
    read = Guard.from_json(data)
    assert data == [["nosquare"]] and read == guard
    assert read.holds(LINE.at(50)).sum() == 50 - 8
    assert read.text() == "r is no square"


def test_a_communicator_law_from_elsewhere(kinds: None) -> None:
    @dataclass(frozen=True, kw_only=True)
    class Digits(CommunicatorLaw, kind="digits"):
        """Ranks with as many bits."""

        @classmethod
        def proposed(cls, seen: CommunicatorSet) -> Tried:
            yield 0.9, cls()

        def colour(self, ranks: np.ndarray, n: int) -> np.ndarray:
            return np.array([int(r).bit_count() for r in ranks])

        def members_text(self) -> str:
            return "ranks with as many bits"

    tables = [table(split_by(lambda r, n: r.bit_count()), n) for n in (4, 6, 9, 13)]
    nodes = collect_nodes(tables, {})
    cover = choose_grid(nodes, tables).communicators.cover(
        find_communicators(next(n for n in nodes if n.site == "part"))
    )
    assert cover.laws == [Digits(ordinal=0)]
    data = json.loads(json.dumps(cover.laws[0].to_json()))
    read = CommunicatorLaw.load(data)
    assert data == {"kind": "digits", "ordinal": 0} and read.text() == "ranks with as many bits"
    assert instances(read, LINE.at(4))[1] == [(0,), (1, 2), (3,)]


def test_a_grid_from_elsewhere(kinds: None) -> None:
    @dataclass(frozen=True)
    class ByThree(GridRule, kind="by_three"):
        """One column more than three times the rows."""

        @classmethod
        def proposed(cls, ndims: int) -> Iterator[GridRule]:
            if ndims == 2:
                yield cls(2)

        def extents(self, n: int) -> tuple[int, ...] | None:
            return next(((k, 3 * k + 1) for k in range(1, n) if k * (3 * k + 1) == n), None)

        def words(self) -> str:
            return "2-D with thrice as many columns as rows, and one"

    tables = [table(_halo(lambda n: ByThree(2).dims(n)), n) for n in (4, 14, 30, 52)]
    choice = choose_grid(collect_nodes(tables, {}), tables)
    assert choice.family == ByThree(2)
    data = json.loads(json.dumps(choice.family.to_json()))
    assert GridRule.from_json(data) == ByThree(2) and data["kind"] == "by_three"
    assert "thrice" in choice.family.text()


def test_a_model_with_kinds_from_elsewhere(kinds: None) -> None:
    doubled_relation()
    square_atom()

    def program(rec):
        for _ in range(4):
            rec("Isend", site="a", peer=rec.rank * 3 % rec.n, nbytes=80)
            if int(np.sqrt(rec.rank)) ** 2 == rec.rank:
                rec("Allreduce", site="c", nbytes=8)

    built = build_model([table(program, n) for n in (8, 14, 20, 25)], holdout=False)
    data = json.loads(json.dumps(to_data(built)))
    send = next(i for i in data["items"] if i["site"] == "a")
    assert send["op"].endswith("Isend") and send["relation"] == {"kind": "doubled", "k": 3}
    model = from_data(Model, data)
    rows = generate(model, 50)
    assert "rank 3 r mod n" in render(model) and len(rows.rank)


@pytest.mark.parametrize(
    ("root", "data"),
    [
        (Relation, {"kind": "evil"}),
        (Relation, {"kind": "shift"}),
        (Relation, {"kind": "mirror", "axis": {"kind": "evil"}}),
        (Relation, {"kind": "self", "more": 1}),
        (Relation, ["shift"]),
        (Relation, {"kind": "shift", "vec": "ab", "wrap": [True]}),
        (Relation, {"kind": "shift", "vec": [1, 0.5], "wrap": [True, True]}),
        (Relation, {"kind": "place", "axis": None, "rank": None}),
        (Relation, {"kind": "transpose", "axes": [0, 1, 2]}),
        (Relation, {"kind": "sample", "pairs": {}}),
        (GridRule, {"kind": "balanced", "ndims": True}),
        (GridRule, {"kind": "listed", "ndims": 2, "listed": [[4, "2x2"]]}),
        (CommunicatorLaw, {"kind": "modulo"}),
        (Atom, ["evil"]),
        (Atom, ["first"]),
        (Atom, ["first", "x"]),
        (Atom, ["partner", ["evil"]]),
        (Atom, []),
    ],
)
def test_what_no_kind_reads_is_refused(root: type, data: object) -> None:
    with pytest.raises(P3SError, match="model: "):
        root.load(data)


def test_an_algorithm_from_elsewhere() -> None:
    try:

        @algorithm("around", "bcast")
        def bcast_around(w: Writer, job: Job) -> None:
            bcast_pipeline(w, job)

        library = library_of("openmpi", "4.1", "bcast=around")
        sizes = np.full(5, 800)
        assert chosen_name(library, "bcast", sizes) == "around"
        assert len(schedule(library, "bcast", sizes).op) > 0
    finally:
        COLLECTIVES["bcast"].algorithms.pop("around", None)
    with pytest.raises(P3SError, match="bcast has no algorithm 'around'"):
        library_of("openmpi", "4.1", "bcast=around")
