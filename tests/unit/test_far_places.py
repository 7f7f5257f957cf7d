"""Places of another build of a program: matched as a whole, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import corpus
import pytest
from corpus import Recorder

from p3s.capture.callpath import Where
from p3s.costs.small_runs.places import (
    FUNCTION,
    LINE,
    SITE,
    STRUCTURE,
    Same,
    correspond,
    known,
    used,
)
from p3s.signature.tables import PointTable

Program = Callable[[Recorder], None]
COUNTS = (2, 4, 8)


def tables(program: Program, counts: Sequence[int] = COUNTS) -> list[PointTable]:
    return [corpus.table(program, n) for n in counts]


def moved(t: PointTable, prefix: str = "@") -> PointTable:
    """Return a table with all calls at other addresses."""
    return replace(
        t,
        groups=tuple(g._replace(site=prefix + g.site) for g in t.groups),
        nodes=tuple((prefix + site, op) for site, op in t.nodes),
        sites={
            prefix + site: tuple(prefix + f for f in frames) for site, frames in t.sites.items()
        },
    )


def sites_of(t: PointTable, prefix: str = "@") -> dict[str, str]:
    return {prefix + site: site for site, _ in used(t)}


BUILDS: dict[str, tuple[Program, Program]] = {
    "jacobi2d": (corpus.jacobi2d(), corpus.jacobi2d(403, 301, 30)),
    "ring": (corpus.ring(), corpus.ring(200, 9)),
    "halo3d": (corpus.halo3d(), corpus.halo3d(25, 22, 18, 11)),
    "cg": (corpus.cg(), corpus.cg(707, 4, 5)),
    "wavefront": (corpus.wavefront(), corpus.wavefront(151, 101, 4, 5)),
    "packed halo": (corpus.packed_halo(), corpus.packed_halo(75, 66, 6, 5)),
    "root": (corpus.gather_to_root(), corpus.gather_to_root(301, 7)),
}


@pytest.mark.parametrize("name", BUILDS)
def test_by_structure(name: str) -> None:
    large, small = BUILDS[name]
    own = tables(large, (4, 9, 16) if name == "wavefront" else COUNTS)
    far = moved(corpus.table(small, 4))
    assert not known(own, far)
    found = correspond(own, far, {}, {})
    assert found is not None and found.how == STRUCTURE
    assert dict(found.sites) == sites_of(corpus.table(small, 4))
    again = found.renamed(far, own)
    assert known(own, again) and set(used(again)) == set(used(corpus.table(small, 4)))


@pytest.mark.parametrize("one", BUILDS)
def test_other_programs(one: str) -> None:
    own = tables(BUILDS[one][0], (4, 16) if one == "wavefront" else COUNTS)
    for two, (_, small) in BUILDS.items():
        if one != two:
            assert correspond(own, moved(corpus.table(small, 4)), {}, {}) is None, two


def loops(*parts: Sequence[str], turns: int = 6, work: float = 1000) -> Program:
    """One loop after the other; each makes these calls in every turn, "+" one of another line."""

    def program(rec: corpus.Recorder) -> None:
        for k, ops in enumerate(parts):
            for _ in range(turns + k):
                for op in ops:
                    name = op.rstrip("+")
                    peer = (rec.rank + (1 if name == "Send" else -1)) % rec.n
                    rec(
                        name,
                        site=f"{op}.{k}",
                        peer=peer if name in ("Send", "Recv") else -1,
                        nbytes=8,
                        work=work,
                    )

    return program


RING = ("Send", "Recv", "Allreduce")


@pytest.mark.parametrize(
    "other",
    [
        loops(("Send", "Recv"), ("Allreduce",)),  # the same calls in two loops
        loops(("Allreduce", "Send", "Recv"), turns=6),  # in another order
        loops(("Send", "Recv", "Barrier")),  # another operation
        loops((*RING, "Allreduce+")),  # one more
        loops(RING, RING),
    ],
    ids=["loops", "order", "operation", "more", "twice"],
)
def test_the_same_calls_in_another_structure(other: Program) -> None:
    own = tables(loops(RING))
    assert correspond(own, moved(corpus.table(loops(RING, turns=40), 4)), {}, {}) is not None
    far = moved(corpus.table(other, 4))
    assert correspond(own, far, {}, {}) is None
    names = {f: named(f, "main") for t in (*own, far) for fs in t.sites.values() for f in fs}
    assert correspond(own, far, names, names) is None, "one function of the same name is no proof"


def test_sites_that_both_have_stay_what_they_are() -> None:
    own = tables(loops(("Send", "Recv"), ("Send", "Recv")))
    far = corpus.table(loops(("Send", "Recv"), ("Send", "Recv"), turns=9), 4)
    swap = {"Send.0": "Send.1", "Send.1": "Send.0", "Recv.0": "x", "Recv.1": "y"}

    def name(site: str) -> str:
        return swap.get(site, site)

    swapped = replace(
        far,
        groups=tuple(g._replace(site=name(g.site)) for g in far.groups),
        nodes=tuple((name(site), op) for site, op in far.nodes),
        sites={name(site): (name(site),) for site in far.sites},
    )
    assert correspond(own, swapped, {}, {}) is None


@corpus.program
def split(rec: corpus.Recorder, early: int, late: int, turns: int) -> None:
    """Rank 0 and the others send from lines of their own, each after calls of their own."""
    first = rec.rank == 0
    for _ in range(early if first else late):
        rec("Bcast", comm=rec.comm((rec.rank,)), nbytes=8)
    for _ in range(turns):
        rec("Send", site="first" if first else "others", peer=(rec.rank + 1) % rec.n, nbytes=8)
    rec("Barrier")


def test_calls_of_different_ranks_are_not_mixed_up() -> None:
    for far_turns in (8, 30):
        for early, late in ((1, 9), (9, 1), (2, 3)):
            own = tables(split(2, 5, 8))
            far = corpus.table(split(early, late, far_turns), 4)
            found = correspond(own, moved(far), {}, {})
            assert found is None or dict(found.sites) == sites_of(far)


def named(frame: str, function: str, line: int = 0, offset: int = 0) -> Where:
    return Where(frame, "program", function, "src/program.c" if line else "", line, offset)


def places(t: PointTable, function: Callable[[str], tuple[str, int, int]]) -> dict[str, Where]:
    return {f: named(f, *function(f.lstrip("@"))) for fs in t.sites.values() for f in fs}


def test_names_decide_where_both_builds_have_them() -> None:
    own = tables(loops(RING))
    far = moved(corpus.table(loops(RING, turns=40), 4))
    order = {site: k for k, site in enumerate(own[0].sites)}

    def line(site: str) -> tuple[str, int, int]:
        return ("main", 10 + order[site], 5 * order[site])

    def function(site: str) -> tuple[str, int, int]:
        return ("main.constprop.0", 0, 9 * order[site])

    mine, theirs = places(own[-1], line), places(far, line)
    found = correspond(own, far, mine, theirs)
    assert found is not None and found.how == LINE and dict(found.sites) == sites_of(own[0])
    found = correspond(own, far, mine, places(far, function))
    assert found is not None and found.how == FUNCTION and dict(found.sites) == sites_of(own[0])
    other = {f: replace(w, function="work") for f, w in theirs.items()}
    assert correspond(own, far, mine, other) is None, "calls of another function are other calls"
    found = correspond(own, far, mine, {})
    assert found is not None and found.how == STRUCTURE


def test_calls_of_one_line_are_told_apart_by_their_order() -> None:
    one = ("Send", "Recv", "Send+", "Recv+")
    own = tables(loops(one))
    far = moved(corpus.table(loops(one, turns=40), 4))
    order = {site: k for k, site in enumerate(own[0].sites)}
    mine = places(own[-1], lambda site: ("step", 7, 10 * order[site]))
    theirs = places(far, lambda site: ("step", 7, 1000 + 3 * order[site]))
    found = correspond(own, far, mine, theirs)
    assert found is not None and found.how == LINE and dict(found.sites) == sites_of(own[0])
    fewer = moved(corpus.table(loops(("Send", "Recv", "Recv+")), 4))
    assert correspond(own, fewer, mine, theirs) is None


def test_what_is_unknown_takes_no_name_of_the_study() -> None:
    own = tables(loops(RING))
    t = corpus.table(loops((*RING, "Barrier")), 4)
    same = Same(LINE, {"Send.0": "Recv.0", "Recv.0": "Send.0", "Init": "Init"})
    renamed = same.renamed(t, own)
    assert [g.site for g in renamed.groups if g.op == "MPI_Send"] == ["Recv.0"] * sum(
        g.op == "MPI_Send" for g in t.groups
    )
    assert {site for site, op in renamed.nodes if op == "MPI_Allreduce"} == {"~Allreduce.0"}
    assert {site for site, op in renamed.nodes if op == "MPI_Barrier"} == {"Barrier.0"}
    assert set(renamed.sites) == {site for site, _ in renamed.nodes}
    assert Same().renamed(t, own) is t and Same().how == SITE
    assert same.site("Send.0#2") == "Recv.0#2"


def test_points_are_those_of_the_same_build() -> None:
    """The whole look-up with other addresses gives what it gives with the study's own."""
    from test_far_match import matched as looked_up
    from test_far_match import reference, ring, runs, times_of

    from p3s.costs.small_runs.match import match_input

    def work(size: int, n: int, rank: int) -> float:
        return 100 * size / n

    large, small = ring(1 << 16, 10, work), ring(1 << 12, 12, work)
    model, wanted = looked_up(large, small, COUNTS, (4,), ns=2.0)
    own = [replace(t, work_unit="instructions") for t in tables(large)]
    far = moved(replace(corpus.table(small, 4), work_unit="instructions"))
    same = correspond(own, far, {}, {})
    assert same is not None
    t = same.renamed(far, own)
    names: list[Any] = [p.place for ph in model.phases for p in ph.work.places]
    far_runs = runs("far/w1", [t], {4: times_of(t, names, 2.0)})
    found = match_input(reference(model, own), far_runs)
    assert [p for g in found[4] for p in g.points] == [p for g in wanted[4] for p in g.points]
    assert any(g.points for g in found[4])
