"""Far points: which count of the original workload a smaller one stands for."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import corpus
import models
import numpy as np
import pytest
from corpus import Recorder, block

from p3s.base.extents import dims_balanced
from p3s.costs.gather import Spent
from p3s.costs.small_runs.cells import InputRuns, Reference
from p3s.costs.small_runs.lookup import Role, ladder, ranks_like
from p3s.costs.small_runs.match import Found, match_all
from p3s.model.holdout import build_model
from p3s.model.types import Admissible, Model
from p3s.signature.tables import PointTable

Program = Callable[[Recorder], None]
Groups = Mapping[int, Sequence[Found]]


def tables(program: Program, counts: Sequence[int], unit: str = "instructions") -> list[PointTable]:
    return [replace(corpus.table(program, n), work_unit=unit) for n in counts]


def matched(
    original: Program,
    other: Program,
    counts: Sequence[int],
    far: Sequence[int],
    unit: str = "instructions",
    ns: float | None = None,
) -> tuple[Model, Groups]:
    """Return the model of the original and the groups of the other; ns: time per work."""
    own = tables(original, counts, unit)
    model = build_model(own, holdout=False)
    here = tables(other, far, unit)
    times = {}
    if ns is not None:
        places = [p.place for ph in model.phases for p in ph.work.places]
        times = {t.np: times_of(t, places, ns) for t in here}
    (one,) = match_all(reference(model, own), [runs("far/w1", here, times)])
    assert one.error is None
    return model, {n: [row for row in one.rows if row.np == n] for n in far}


@dataclass(frozen=True)
class Runs(InputRuns):
    """Runs whose times are given by count."""

    took: Mapping[int, Spent] = field(default_factory=dict)

    def spent(self, t: PointTable, places: Sequence[Any]) -> Spent | None:
        return self.took.get(t.np)


def runs(name: str, tables: Sequence[PointTable], took: Mapping[int, Spent]) -> Runs:
    return Runs(name, (), tuple(t.np for t in tables), tables, took=took)


def reference(
    model: Model, own: Sequence[PointTable], took: Mapping[int, Spent] | None = None
) -> Reference:
    return Reference(model, runs("own", own, took or {}))


def times_of(t: PointTable, places: Sequence[Any], ns: float) -> Spent:
    work = np.zeros((len(places), t.np))
    for rank, group, value in zip(t.rank, t.group, t.work, strict=True):
        g = t.groups[group]
        work[places.index((g.site, g.op)), rank] += value
    return Spent(ns * work, 1.1 * ns * work, work, 3)


def of_phase(found: Sequence[Found], model: Model, op: str) -> list[Found]:
    (phase,) = [p.phase for p in model.phases if op in p.name.split("+")]
    return [f for f in found if f.phase == phase]


def ranks_of(found: Found) -> list[int]:
    return [rank for first, last in found.ranks for rank in range(first, last + 1)]


def ring(
    size: int, turns: int, work: Callable[[int, int, int], float], nbytes: bool = True
) -> Program:
    """A ring in which every turn computes ``work(size, n, rank)`` and sends a part of ``size``."""

    def program(rec: Recorder) -> None:
        for _ in range(turns):
            rec(
                "Send",
                peer=(rec.rank + 1) % rec.n,
                work=work(size, rec.n, rec.rank),
                nbytes=8 * (size // rec.n) if nbytes else 8,
            )
            rec(
                "Recv",
                peer=(rec.rank - 1) % rec.n,
                work=0,
                nbytes=8 * (size // rec.n) if nbytes else 8,
            )

    return program


def test_constant_total() -> None:
    def share(size: int, n: int, rank: int) -> float:
        return 100 * size / n

    model, found = matched(
        ring(1 << 16, 10, share), ring(1 << 12, 10, share), (2, 4, 8, 16), (4, 16), ns=2.0
    )
    for np_ in (4, 16):
        (group,) = of_phase(found[np_], model, "Send")
        assert group.n == pytest.approx(16 * np_, rel=1e-3)
        (point,) = group.points
        assert point.place == ("Send", "MPI_Send") and point.cost == pytest.approx(2.0)
        assert point.work == pytest.approx(10 * point.x) and point.traced == np_
        assert point.typical_ns == pytest.approx(1.1 * point.least_ns)
        assert (point.ranks, point.repeats, point.source) == (np_, 3, "far/w1")


def test_between_admissible_counts_with_the_distance_to_the_nearest() -> None:
    def share(size: int, n: int, rank: int) -> float:
        return 1000 * size / n

    model, found = matched(ring(1 << 16, 3, share), ring(3000, 3, share), (4, 9, 16, 25), (4,))
    (group,) = of_phase(found[4], model, "Send")
    true = 4 * (1 << 16) / 3000
    assert model.admissible.kind == "squares"
    assert group.n == pytest.approx(true, rel=2e-3)


def test_total_that_grows_with_the_count() -> None:
    """Work per process falls as log2(n)/n: a power law in 1/n would be off by the logarithm."""

    def sort(size: int, n: int, rank: int) -> float:
        return 100 * size / n * (1 + np.log2(n))

    model, found = matched(
        ring(1 << 20, 4, sort, nbytes=False),
        ring(1 << 14, 4, sort, nbytes=False),
        (2, 4, 8, 16, 32),
        (4, 8),
    )
    for np_ in (4, 8):
        (group,) = of_phase(found[np_], model, "Send")
        there = 2.0**20 / group.n * (1 + math.log2(group.n))
        assert there == pytest.approx(2.0**14 / np_ * (1 + math.log2(np_)), rel=0.03)
        assert group.n > 1.4 * 64 * np_  # what the total alone would say


def test_work_that_does_not_change_with_the_count_still_gives_a_point() -> None:
    def same(size: int, n: int, rank: int) -> float:
        return float(size)

    model, found = matched(ring(5000, 4, same), ring(700, 4, same), (2, 4, 8), (4,), ns=3.0)
    (group,) = of_phase(found[4], model, "Send")
    assert group.n is None and "same at every count" in group.why
    (point,) = group.points
    assert point.n is None and point.x == 700 and point.cost == pytest.approx(3.0)


def test_more_work_than_at_any_count_has_no_match() -> None:
    def part(size: int, n: int, rank: int) -> float:
        return 1000 + size / n

    model, found = matched(ring(1 << 16, 4, part), ring(1 << 20, 4, part), (2, 4, 8, 16), (2,))
    (group,) = of_phase(found[2], model, "Send")
    assert group.n is None and "no count" in group.why


def workers(size: int, turns: int) -> Program:
    """Rank 0 hands out and collects, its work grows with n; the others share the computation."""

    def program(rec: Recorder) -> None:
        for _ in range(turns):
            if rec.rank == 0:
                for q in range(1, rec.n):
                    rec("Send", site="out", peer=q, nbytes=8, work=500)
                for q in range(1, rec.n):
                    rec("Recv", site="in", peer=q, nbytes=8, work=300)
            else:
                rec("Recv", site="take", peer=0, nbytes=8, work=10)
                rec("Send", site="give", peer=0, nbytes=8, work=1000 * size / rec.n)
            rec("Barrier", work=0)

    return program


def test_two_instruction_groups_are_matched_each_by_its_own_ranks() -> None:
    model, found = matched(workers(40000, 5), workers(1250, 5), (3, 5, 9, 17), (5,), ns=1.0)
    groups = of_phase(found[5], model, "Barrier")
    by_ranks = {tuple(ranks_of(g)): g for g in groups}
    crew, master = by_ranks[(1, 2, 3, 4)], by_ranks[(0,)]
    assert crew.n == pytest.approx(160, rel=0.02)
    assert master.n == pytest.approx(5, rel=0.02)  # serves as many as at 5 processes
    assert {p.place[0] for p in crew.points} == {"take", "give"}


def blocks(nx: int, ny: int, turns: int, rows: int = 0) -> Program:
    """A periodic 2-D halo on a grid of ``rows`` rows (0: as square as it can be)."""

    def program(rec: Recorder) -> None:
        px, py = (rows, rec.n // rows) if rows else dims_balanced(rec.n, 2)
        cx, cy = divmod(rec.rank, py)
        lx, ly = block(nx, px, cx), block(ny, py, cy)
        for _ in range(turns):
            for site, q, size in (
                ("n", (cx - 1) % px * py + cy, ly),
                ("s", (cx + 1) % px * py + cy, ly),
                ("w", cx * py + (cy - 1) % py, lx),
                ("e", cx * py + (cy + 1) % py, lx),
            ):
                rec("Isend", site=site, peer=q, nbytes=8 * size, work=30 * lx * ly)
            for site, q, size in (
                ("rn", (cx + 1) % px * py + cy, ly),
                ("rs", (cx - 1) % px * py + cy, ly),
                ("rw", cx * py + (cy + 1) % py, lx),
                ("re", cx * py + (cy - 1) % py, lx),
            ):
                rec("Recv", site=site, peer=q, nbytes=8 * size, work=0)
            rec("Allreduce", nbytes=8, work=10)

    return program


def test_blocks_of_another_shape_are_matched_by_their_work() -> None:
    model, found = matched(blocks(1920, 1920, 5), blocks(1920, 120, 5), (4, 9, 16, 25), (16,))
    groups = of_phase(found[16], model, "Allreduce")
    assert sum(g.number for g in groups) == 16
    for g in groups:
        assert g.n == pytest.approx(16 * 16, rel=0.01)  # 480 x 30 cells are as many as 120 x 120


def test_where_work_is_time_another_shape_gives_no_point() -> None:
    """Its work cannot be known: neither from the messages nor from the time itself."""
    model, found = matched(
        blocks(1920, 1920, 5), blocks(1920, 120, 5), (4, 9, 16, 25), (16,), unit="cpu_ns", ns=1.0
    )
    for g in of_phase(found[16], model, "Allreduce"):
        assert g.n is None and g.x is None and not g.points
        assert "another shape" in g.why
    model, found = matched(
        blocks(1920, 1920, 5), blocks(240, 240, 5), (4, 9, 16, 25), (16,), unit="cpu_ns", ns=1.0
    )
    for g in of_phase(found[16], model, "Allreduce"):
        assert g.n == pytest.approx(64 * 16, rel=0.05) and g.points


def test_where_work_is_time_messages_of_one_size_tell_nothing() -> None:
    """How often they are sent changes from run to run; how much is computed for each is unknown."""

    def tasks(points: int, shares: Sequence[int]) -> Program:
        def program(rec: Recorder) -> None:
            if rec.rank == 0:
                for t in range(60):
                    rec("Recv", site="ask", peer=1 + t % (rec.n - 1), nbytes=16, work=10)
                    rec("Send", site="give", peer=1 + t % (rec.n - 1), nbytes=16, work=10)
            else:
                for _ in range(len(range(rec.rank - 1, 60, rec.n - 1)) + shares[rec.rank % 4]):
                    rec("Send", site="want", peer=0, nbytes=16, work=points)
                    rec("Recv", site="have", peer=0, nbytes=16, work=0)

        return program

    model, found = matched(
        tasks(9000, (0, 0, 0, 0)),
        tasks(3000, (2, -1, -1, 0)),
        (2, 3, 4, 6),
        (4,),
        unit="cpu_ns",
        ns=1.0,
    )
    assert found[4] and not any(g.points for g in found[4])
    whys = [g.why for g in found[4] if g.nbytes]
    assert whys and all(
        "as large as those of the original" in why
        or "no count" in why
        or "same at every count" in why
        for why in whys
    )


def test_where_work_is_time_strangers_give_no_point() -> None:
    """At two processes each has one neighbour, which no process has at a larger count."""
    model, found = matched(
        corpus.packed_halo(960, 960),
        corpus.packed_halo(240, 240),
        (2, 4, 8, 16),
        (2, 4),
        unit="cpu_ns",
        ns=1.0,
    )
    assert any(g.points for g in of_phase(found[4], model, "Waitall"))
    for g in of_phase(found[2], model, "Waitall"):
        assert not g.points and "no process makes just these calls" in g.why


def test_borders_are_matched_with_borders() -> None:
    """All ranks of a 2x2 grid are corners; they stand for the corners of the large one."""
    model, found = matched(
        corpus.jacobi2d(1600, 1600), corpus.jacobi2d(400, 400, 7), (2, 4, 8, 16), (4, 16)
    )
    for np_, kinds in ((4, 1), (16, 3)):
        groups = of_phase(found[np_], model, "Waitall")
        assert len(groups) == kinds
        assert [g.n for g in groups] == pytest.approx([16.0 * np_] * kinds, rel=0.01)


def test_turns_are_those_of_the_other_workload() -> None:
    """More turns are no more work per turn; a loop that turns once is still that loop."""

    def share(size: int, n: int, rank: int) -> float:
        return 64.0 * size / n

    for turns in (1, 77):
        model, found = matched(
            ring(1 << 14, 10, share), ring(1 << 10, turns, share), (2, 4, 8, 16), (2, 4), ns=1.0
        )
        for np_ in (2, 4):
            (group,) = of_phase(found[np_], model, "Send")
            assert group.turns == turns
            assert group.x == pytest.approx(64.0 * 1024 / np_)
            assert group.n == pytest.approx(16 * np_, rel=1e-3)
            assert group.points[0].work == pytest.approx(turns * group.x)


def nested(size: int, outer: int) -> Program:
    """Turns of the inner loop follow the number of processes."""

    def program(rec: Recorder) -> None:
        for _ in range(outer):
            for _ in range(rec.n - 1):
                rec(
                    "Send",
                    peer=(rec.rank + 1) % rec.n,
                    nbytes=8 * size // rec.n,
                    work=100.0 * size * size / rec.n**2,
                )
                rec("Recv", peer=(rec.rank - 1) % rec.n, nbytes=8 * size // rec.n, work=0)
            rec("Allreduce", nbytes=8, work=3.0 * size / rec.n)

    return program


def test_unequal_turns_of_nested_loops() -> None:
    model, found = matched(nested(4096, 6), nested(512, 11), (2, 4, 8, 16), (4,))
    (inner,) = of_phase(found[4], model, "Send")
    (outer,) = of_phase(found[4], model, "Allreduce")
    assert (inner.turns, outer.turns) == (33, 11)
    assert inner.n == pytest.approx(32, rel=0.01) and outer.n == pytest.approx(32, rel=0.01)


def test_where_work_is_time_the_messages_say_which_count_it_is() -> None:
    """The other workload's time is no measure of its work: that is the model's at the count."""

    def share(size: int, n: int, rank: int) -> float:
        return 1000.0 * size / n

    def cheap(size: int, n: int, rank: int) -> float:  # the smaller one fits the cache
        return 400.0 * size / n

    def two(size: int, turns: int, work: Callable[[int, int, int], float]) -> Program:
        one = ring(size, turns, work)

        def program(rec: Recorder) -> None:
            one(rec)
            for _ in range(turns):
                rec("Barrier", work=work(size, rec.n, rec.rank) / 4)

        return program

    model, found = matched(
        two(1 << 16, 10, share), two(1 << 12, 10, cheap), (2, 4, 8, 16), (4,), unit="cpu_ns", ns=1.0
    )
    (send,) = of_phase(found[4], model, "Send")
    (barrier,) = of_phase(found[4], model, "Barrier")  # no messages: by those of the other phase
    for g, x in ((send, 1000 * 1024.0), (barrier, 250 * 1024.0)):
        assert g.n == pytest.approx(64, rel=0.01)
        assert g.x == pytest.approx(x, rel=0.02)
        assert g.points[0].cost == pytest.approx(0.4, rel=0.02)


def test_where_work_is_time_the_own_runs_refute_a_match() -> None:
    """Every rank works on all bodies, and sends its own: both are not of one count."""

    def pairs(size: int, n: int, rank: int) -> float:
        return size * size / n

    def share(size: int, n: int, rank: int) -> float:
        return 1000 * size / n

    counts = (2, 4, 8, 16, 32)
    for work, held in ((share, True), (pairs, False)):
        model, found = matched(
            ring(1 << 14, 10, work), ring(1 << 12, 10, work), counts, (4, 16), unit="cpu_ns", ns=1.0
        )
        for np_ in (4, 16):  # 16 is among the counts, 64 is not
            (group,) = of_phase(found[np_], model, "Send")
            assert bool(group.points) == held
            if held:
                assert group.n == pytest.approx(4 * np_, rel=0.01)
            else:
                assert group.n is None and group.x is None
                assert "at 16 processes, its computation takes 0.25 times" in group.why


def test_what_one_workload_shows_holds_for_the_others() -> None:
    """The smallest has no count in common with the study: nothing speaks against it but w1."""

    def pairs(size: int, n: int, rank: int) -> float:
        return size * size / n

    own = tables(ring(1 << 14, 10, pairs), (2, 4, 8, 16), "cpu_ns")
    model = build_model(own, holdout=False)
    places = [p.place for ph in model.phases for p in ph.work.places]
    inputs = []
    for name, size, n in (("far/w2", 1 << 10, 16), ("far/w1", 1 << 12, 4)):
        (t,) = tables(ring(size, 10, pairs), (n,), "cpu_ns")
        inputs.append(runs(name, [t], {n: times_of(t, places, 1.0)}))
    study = reference(model, own)
    (alone,) = match_all(study, inputs[:1])
    (group,) = of_phase(alone.rows, model, "Send")
    assert group.points and group.n == pytest.approx(256, rel=0.01)
    broken = InputRuns("far/w3", (), (), problem="damaged")
    again, _, failed = match_all(study, [*inputs, broken])
    assert failed.error == "damaged"
    (group,) = of_phase(again.rows, model, "Send")
    assert not group.points and group.n is None
    assert group.why.endswith("as far/w1 shows")


def test_another_program_and_another_unit_are_refused() -> None:
    def elsewhere(rec: Recorder) -> None:
        for k in range(9):
            rec("Allreduce", site=f"other{k}", nbytes=8)

    def share(size: int, n: int, rank: int) -> float:
        return size / n

    own = tables(ring(4096, 5, share), (2, 4, 8))
    model = build_model(own, holdout=False)
    study = reference(model, own)
    for other, words in (
        (tables(elsewhere, (4,)), r"far/w1 at np=4: a different program: \d+ of its \d+ places"),
        (tables(ring(512, 5, share), (4,), "cpu_ns"), "in cpu_ns and in instructions in the study"),
    ):
        (one,) = match_all(study, [runs("far/w1", other, {})])
        assert re.search(words, one.error or "") and not one.rows


def accepting(kind: str, k: int, counts: tuple[int, ...], failed: tuple[int, ...] = ()) -> Model:
    known = Admissible(kind, k, bool(failed), counts, failed)
    return replace(models.built("ring"), counts=counts, admissible=known)


def test_the_ladder_keeps_to_the_kind_of_count() -> None:
    found = ladder(accepting("squares", 1, (4, 9, 16)))
    assert {4, 9, 16} <= set(found) and all(math.isqrt(n) ** 2 == n for n in found)
    evens = accepting("multiples", 6, (6, 12, 24), failed=(48,))
    assert 48 not in ladder(evens) and 96 in ladder(evens) and 3 not in ladder(evens)


def test_ranks_like_prefers_equal_calls_then_the_same_part_of_the_most() -> None:
    calls = np.array([[63.0, 1, 1, 1], [0, 2, 4, 2]])
    level = np.array([5.0, 1, 1, 1])
    master = Role((3.0, 0.0), (3.0, 2.0), 1.0, 0.0, 1.0)
    assert ranks_like(master, level, calls).tolist() == [0]
    corner = Role((1.0, 2.0), (3.0, 2.0), 1.0, 0.0, 1.0)
    assert ranks_like(corner, level, calls).tolist() == [1, 3]
