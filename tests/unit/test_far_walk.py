"""Which counts a smaller workload is run at, and when its cost is least."""

from __future__ import annotations

from dataclasses import replace

import corpus
import pytest
from corpus import Recorder
from test_far_match import reference, runs, times_of

from p3s.base.errors import P3SError
from p3s.costs.small_runs.walk import PhaseCost, counts_upward, stop
from p3s.costs.thesis import FALLING, REACHED
from p3s.model.grid import admissible
from p3s.model.holdout import build_model
from p3s.signature.tables import PointTable


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
