"""Smaller inputs: call sites looked up by place and by walk, and the report of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import corpus
import pytest
from corpus import Recorder
from test_far_match import reference, runs, times_of

from p3s.base.errors import P3SError
from p3s.costs.points import Point
from p3s.costs.small_runs.cells import PhaseCost, counts_upward, stop
from p3s.costs.small_runs.match import Found, OtherInput, match_all
from p3s.costs.small_runs.sites import BY_SIMILARITY, BY_SITE, SiteNames, list_nodes, names_in
from p3s.costs.types import FALLING, REACHED
from p3s.model.grid import admissible
from p3s.model.holdout import build_model
from p3s.report.small_runs import render
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
    return {prefix + site: site for site, _ in list_nodes(t)}


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
def test_by_what_the_calls_do(name: str) -> None:
    large, small = BUILDS[name]
    own = tables(large, (4, 9, 16) if name == "wavefront" else COUNTS)
    far = moved(corpus.table(small, 4))
    found = names_in(own, far)
    assert found.how == BY_SIMILARITY
    assert dict(found.twins) == sites_of(corpus.table(small, 4))
    assert list_nodes(found.table(far)) == list_nodes(corpus.table(small, 4))


@pytest.mark.parametrize("one", BUILDS)
def test_other_programs(one: str) -> None:
    own = tables(BUILDS[one][0], (4, 16) if one == "wavefront" else COUNTS)
    for two, (_, small) in BUILDS.items():
        if one != two:
            assert not names_in(own, moved(corpus.table(small, 4))).twins, two


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
        loops(("Send", "Recv", "Barrier")),  # another operation
        loops((*RING, "Allreduce+")),  # one more
        loops(RING, RING),
    ],
    ids=["loops", "operation", "more", "twice"],
)
def test_the_same_calls_in_another_structure(other: Program) -> None:
    own = tables(loops(RING, work=4000))
    same = moved(corpus.table(loops(RING, turns=40), 4))
    assert names_in(own, same).twins
    far = moved(corpus.table(other, 4))
    with pytest.raises(P3SError, match=r"a different program|other phases"):
        refuse(own, names_in(own, far).table(far))


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
    assert not names_in(own, swapped).twins


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
            found = names_in(own, moved(far))
            assert not found.twins or dict(found.twins) == sites_of(far)


def test_what_is_unknown_takes_no_name_of_the_study() -> None:
    own = tables(loops(RING))
    t = corpus.table(loops((*RING, "Barrier")), 4)
    sites = frozenset(site for site, _ in own[0].nodes)
    same = SiteNames({"Send.0": "Recv.0", "Recv.0": "Send.0", "Init": "Init"}, sites)
    renamed = same.table(t)
    assert [g.site for g in renamed.groups if g.op == "MPI_Send"] == ["Recv.0"] * sum(
        g.op == "MPI_Send" for g in t.groups
    )
    assert {site for site, op in renamed.nodes if op == "MPI_Allreduce"} == {"~Allreduce.0"}
    assert {site for site, op in renamed.nodes if op == "MPI_Barrier"} == {"Barrier.0"}
    assert set(renamed.sites) == {site for site, _ in renamed.nodes}
    assert SiteNames().table(t).nodes == t.nodes and SiteNames().how == BY_SITE
    assert same.site("Send.0#2") == "Recv.0#2"


def test_points_are_those_of_the_same_build() -> None:
    """The whole look-up with other addresses gives what it gives with the study's own."""
    from test_far_match import matched as looked_up
    from test_far_match import reference, ring, runs, times_of

    def work(size: int, n: int, rank: int) -> float:
        return 100 * size / n

    large, small = ring(1 << 16, 10, work), ring(1 << 12, 12, work)
    model, wanted = looked_up(large, small, COUNTS, (4,), ns=2.0)
    own = [replace(t, work_unit="instructions") for t in tables(large)]
    far = moved(replace(corpus.table(small, 4), work_unit="instructions"))
    t = names_in(own, far).table(far)
    names: list[Any] = [p.place for ph in model.phases for p in ph.work.places]
    far_runs = runs("far/w1", [t], {4: times_of(t, names, 2.0)})
    (found,) = match_all(reference(model, own), [far_runs])
    assert [p for g in found.rows for p in g.points] == [p for g in wanted[4] for p in g.points]
    assert any(g.points for g in found.rows)


def test_the_walk_keeps_to_the_admissible_counts() -> None:
    squares = admissible.learn([16, 25, 36], [18, 20])
    assert counts_upward(squares, [16, 25, 36], 100) == [16, 25, 36, 64, 100]
    powers = admissible.learn([2, 4, 8, 16], [3])
    assert counts_upward(powers, [2, 4, 8, 16], 16) == [2, 4, 8, 16]
    anything = admissible.learn([1, 4, 6, 24], [])
    assert counts_upward(anything, [1, 4, 6, 24], 24) == [4, 6, 12, 24]
    assert counts_upward(anything, [4, 6, 24], 3) == []
    assert counts_upward(admissible.learn([4, 8, 16], [12]), [4, 8, 16], 15) == [4, 8]


def two_phases(size: int, turns: int = 10) -> corpus.Program:
    def program(rec: Recorder) -> None:
        for _ in range(turns):
            rec(
                "Send",
                peer=(rec.rank + 1) % rec.n,
                nbytes=8 * size // rec.n,
                work=100 * size // rec.n,
            )
            rec("Recv", peer=(rec.rank - 1) % rec.n, nbytes=8 * size // rec.n, work=0)
        for _ in range(turns):
            rec("Allreduce", nbytes=8, work=50 * size // rec.n)

    return program


def table(size: int, n: int, turns: int = 10, unit: str = "instructions") -> PointTable:
    return replace(corpus.table(two_phases(size, turns), n), work_unit=unit)


def test_costs_of_both_phases_stop_the_walk_only_together() -> None:
    own = [table(1 << 16, n) for n in (2, 4, 8)]
    far = [table(1 << 10, n) for n in (2, 4, 8)]
    model = build_model(own, holdout=False)
    places = [p.place for phase in model.phases for p in phase.work.places]
    study = reference(model, own, {t.np: times_of(t, places, 2.0) for t in own})

    def costs(send: tuple[float, ...], reduce_: tuple[float, ...]) -> list[PhaseCost]:
        took = {}
        for k, t in enumerate(far):
            cost = [[{"MPI_Send": send[k]}.get(op, reduce_[k])] for _, op in places]
            spent = times_of(t, places, 1.0)
            took[t.np] = replace(spent, least=spent.least * cost)
        return study.costs(runs("far/w1", far, took))

    found = costs((1.0, 0.5, 0.5), (1.8, 1.0, 0.7))
    assert {c.name: (c.status, c.at) for c in found} == {
        "Send+Recv": (REACHED, 8),
        "Allreduce": (FALLING, None),
    }
    assert not stop(found)
    assert {c.name: c.cost for c in found}["Send+Recv"] == pytest.approx((1.0, 0.5, 0.5), rel=1e-3)
    assert stop(costs((1.0, 0.5, 0.5), (1.8, 1.0, 1.0)))
    assert not stop(study.costs(runs("far/w1", far, {}))), "no times, no minimum"


def refuse(own: list[PointTable], far: PointTable) -> None:
    reference(build_model(own, holdout=False), own).refuse(far)


def test_more_turns_of_a_smaller_workload_are_no_larger_workload() -> None:
    own = [table(1 << 14, n) for n in (2, 4, 8)]
    refuse(own, table(1 << 12, 4, turns=200))
    refuse(own, table(1 << 12, 3))  # between the study's counts
    refuse(own, table(1 << 12, 16))  # beyond them


def test_beyond_the_traced_counts_turns_and_totals_go_on_as_they_did() -> None:
    """A ring of n - 1 turns: at 32 processes it turns more often than it ever did."""

    def rounds(size: int) -> corpus.Program:
        def program(rec: Recorder) -> None:
            for _ in range(4):
                for _ in range(rec.n - 1):
                    rec(
                        "Send",
                        peer=(rec.rank + 1) % rec.n,
                        nbytes=8 * size // rec.n,
                        work=90 * size // rec.n,
                    )
                    rec("Recv", peer=(rec.rank - 1) % rec.n, nbytes=8 * size // rec.n, work=0)

        return program

    own = [replace(corpus.table(rounds(1 << 14), n), work_unit="instructions") for n in (4, 8, 16)]
    for size, words in ((1 << 12, ""), (3 << 13, "a larger workload: 1.5")):
        far = replace(corpus.table(rounds(size), 32), work_unit="instructions")
        if not words:
            refuse(own, far)
            continue
        with pytest.raises(P3SError, match=words):
            refuse(own, far)


@pytest.mark.parametrize(
    ("size", "n", "turns", "unit", "words"),
    [
        (1 << 15, 4, 10, "instructions", "np=4: a larger workload: 2 times its work and 2 times"),
        (1 << 15, 4, 1, "instructions", "a larger workload: 2 times its work"),
        (1 << 14, 4, 30, "instructions", "no smaller workload than the study's own"),
        (1 << 15, 3, 10, "instructions", "a larger workload: 2 times its work"),
        (1 << 15, 4, 10, "cpu_ns", "a larger workload: 2 times its time"),
        (1 << 12, 1, 10, "instructions", "np=1: one process has nobody"),
    ],
)
def test_workloads_that_are_no_far_points(
    size: int, n: int, turns: int, unit: str, words: str
) -> None:
    own = [table(1 << 14, m, unit=unit) for m in (2, 4, 8)]
    with pytest.raises(P3SError) as caught:
        refuse(own, table(size, n, turns, unit))
    assert words in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("unit", ["cpu_ns", "wall_ns"])
@pytest.mark.parametrize("n", [3, 4])
def test_a_run_that_took_longer_is_no_larger_workload(unit: str, n: int) -> None:
    """Times wander, on a busy machine by any factor; messages do not."""
    own = [table(1 << 14, m, unit=unit) for m in (2, 4, 8)]
    same = table(1 << 14, n, unit=unit)
    refuse(own, replace(same, work=same.work * 3))
    refuse(own, replace(table(1 << 12, n, unit=unit), work=same.work * 3))
    with pytest.raises(P3SError, match="a larger workload: 0.25 times its time and 2 times"):
        refuse(own, replace(table(1 << 15, 4, unit=unit), work=table(1 << 12, 4).work))


def test_units_are_not_mixed() -> None:
    with pytest.raises(P3SError, match="measured in cpu_ns and in instructions in the study"):
        refuse([table(1 << 14, n) for n in (2, 4, 8)], table(1 << 10, 4, unit="cpu_ns"))
    time = [table(1 << 14, n, unit="cpu_ns") for n in (2, 4, 8)]
    refuse(time, table(1 << 10, 4, unit="wall_ns"))  # both are time


def row(phase: int, n: float | None, cost: float | None = 0.257, why: str = "") -> Found:
    ns = 512345.0 * (cost or 0.0)
    place = ("Send", "MPI_Send")
    point = Point(place, phase, n, 512345.0, 51234.5, ns, ns, 4, 1, "far/w1", 4)
    points = (point,) if cost else ()
    name = f"Send{phase}"
    return Found(4, phase, name, ((0, 3),), 10.0, 51234.5, 80.0, n, why, points)


def page(unit: str, rows: Sequence[Found], **more: Any) -> str:
    command = ("mpiexec", "-n", "{np}", "./a\x1b[31m")
    made = OtherInput("far/w1", command, (4,), None, BY_SITE, tuple(rows))
    return "\n".join(render(replace(made, **more), unit))


def test_a_row_says_what_it_stands_for() -> None:
    text = page("instructions", [row(1, 1681.0)])
    assert "\x1b" not in text
    (line,) = [x for x in text.splitlines() if "Send1" in x]
    assert line.split() == ["1", "Send1", "4", "4", "5.123e+04", "0.257", "1681.0"]


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("reached", "least cost per unit of work reached at 16"),
        ("falling", "still falls at 16"),
        ("steady", "has not fallen at 4 to 16"),
        ("unknown", "is not known"),
    ],
)
def test_the_minimum_in_words(status: str, words: str) -> None:
    minimum = (PhaseCost(1, "Send1", (4, 16), (1.0, 0.5), status, 16),)
    assert words in page("instructions", [row(1, 64.0)], minimum=minimum)


def test_what_stands_for_no_count_says_why() -> None:
    same = row(2, None, why="is the same at every count")
    text = page("instructions", [row(1, 64.0), same])
    assert (
        "phase 2 Send2 stands for no count: its work per iteration is the same at every count"
        in text
    )
    why = "cannot be compared: its messages are as large as those of the original"
    text = page("cpu_ns", [row(1, None, None, why)]).replace("\n    ", " ")
    assert f"stands for no count: {why}" in text and "--work instructions" in text


def test_how_the_call_sites_of_another_build_were_matched() -> None:
    text = page("instructions", [row(1, 64.0)], places=BY_SIMILARITY)
    assert "its places were matched by functional similarity" in text
    assert "matched" not in page("instructions", [row(1, 64.0)])


def test_another_program() -> None:
    assert "far/w1: another program" in page("instructions", [], error="far/w1: another program")
