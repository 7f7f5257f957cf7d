"""The thesis's phases as a view; labels where one site stands for everything."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import corpus
import numpy as np
import pytest
from order import traced
from sketch import sketched

from p3s.base.errors import P3SError
from p3s.capture import RankTrace
from p3s.methods.pas2p.phases import Similarity, loop_of, thesis_phases
from p3s.signature.part import Sites, part_of

LONG = 1_000_000  # ns: far above what the clock cannot tell apart


def run_of(program, n: int):
    return traced(corpus.run(program, n))


def weights(phases) -> list[tuple[int, int]]:
    """Return (ticks, weight) of each phase."""
    return [(phase.ticks, phase.weight) for phase in phases]


def test_the_defaults_are_those_of_the_thesis() -> None:
    limits = Similarity()
    assert (limits.volume, limits.compute, limits.events, limits.relevance) == (
        0.05,
        0.90,
        0.80,
        0.01,
    )


def test_an_iteration_is_one_phase_and_its_weight_the_iterations() -> None:
    def program(rec) -> None:
        rec("Bcast", root=0)
        for _ in range(20):
            rec("Sendrecv", peer=(rec.rank + 1) % rec.n, nbytes=800, tag=1)
            rec("Sendrecv_recv", peer=(rec.rank - 1) % rec.n, nbytes=800, tag=1, work=0)
            rec("Allreduce", nbytes=8, work=LONG)

    run = run_of(program, 4)
    phases = thesis_phases(run)
    (body,) = [phase for phase in phases if phase.weight > 1]
    assert body.weight == 20 and body.ticks == 2 and body.events == 12
    assert body.operations == {"MPI_Allreduce": 4, "MPI_Sendrecv": 4, "MPI_Sendrecv_recv": 4}
    assert body.sites == {"Sendrecv", "Sendrecv_recv", "Allreduce"}
    assert body.relevant and body.similar
    assert len(body.occurrences) == body.weight
    assert np.diff(body.occurrences).tolist() == [2] * 19
    # Everything after the first computation is in some phase, once.
    events = sum(len(rank.call) for rank in run.ranks) - 2 * run.np
    assert sum(phase.events * phase.weight for phase in phases) == events
    time = sum(int(rank.work[2:].sum() + rank.elapsed_ns[1:].sum()) for rank in run.ranks)
    assert sum(phase.time for phase in phases) == time - sum(
        int(rank.elapsed_ns[-1]) for rank in run.ranks
    )


@pytest.mark.parametrize(
    ("share", "phases"), [(0.96, 1), (0.94, 2)], ids=["within 5 %", "beyond 5 %"]
)
def test_volume_may_differ_by_five_per_cent(share: float, phases: int) -> None:
    def program(rec) -> None:
        for turn in range(10):
            rec("Allreduce", nbytes=1000 if turn < 5 else int(1000 * share))

    assert len(thesis_phases(run_of(program, 2))) == phases
    assert len(thesis_phases(run_of(program, 2), Similarity(volume=0.1))) == 1


@pytest.mark.parametrize(("share", "phases"), [(0.91, 1), (0.89, 2)], ids=["90 % similar", "less"])
def test_computation_must_be_similar(share: float, phases: int) -> None:
    def program(rec) -> None:
        rec("Barrier")
        for turn in range(12):
            rec("Allreduce", nbytes=8, work=LONG if turn % 2 else share * LONG)
        rec("Barrier", site="last", work=LONG)

    found = thesis_phases(run_of(program, 2))
    body = [phase for phase in found if phase.operations == {"MPI_Allreduce": 2}]
    assert len(body) == phases and sum(phase.weight for phase in body) == 12
    blind = thesis_phases(run_of(program, 2), Similarity(compute_floor=2 * LONG))
    assert [phase.weight for phase in blind] == [2, 12]


def test_eighty_per_cent_of_the_events_are_enough() -> None:
    def program(rec, odd: int) -> None:
        for turn in range(6):
            for k in range(10):
                rec("Allreduce", site=f"s{k}", root=k, nbytes=8 + 800 * (turn % 2 and k < odd))

    for odd, phases in ((2, 1), (3, 2)):
        found = thesis_phases(run_of(lambda rec, odd=odd: program(rec, odd), 2))
        assert weights(found) == ([(10, 6)] if phases == 1 else [(10, 3), (10, 3)])


def test_different_numbers_of_ticks_are_different_phases() -> None:
    def program(rec) -> None:
        for turn in range(8):
            rec("Allreduce", root=1)
            rec("Reduce", root=0)
            if turn >= 4:
                rec("Bcast", root=0)

    assert weights(thesis_phases(run_of(program, 3))) == [(2, 4), (3, 4)]


def test_the_correction_takes_a_merged_phase_apart() -> None:
    """The example of figure A.20: A A A B B B, where B begins with computation."""

    def program(rec) -> None:
        for _ in range(3):
            rec("Allreduce", nbytes=8, work=LONG)
        rec("Bcast", nbytes=64, root=0, work=5 * LONG)  # the first computation of B
        for _ in range(2):
            rec("Bcast", nbytes=64, root=0, work=3 * LONG)
        rec("Barrier", work=3 * LONG)

    found = thesis_phases(run_of(program, 2))
    a, union, b, last = found
    assert (a.found_weight, union.found_weight, b.found_weight) == (2, 1, 3)
    assert union.joins == a.number and a.joins == b.joins == -1
    assert a.weight == 3, "the weight of the union is added to that of the phase before"
    assert union.work == 2 * (5 - 1) * LONG and union.found_work == 2 * 5 * LONG
    assert b.weight == 3 and last.operations == {"MPI_Barrier": 2}


def test_relevant_phases_take_one_per_cent_of_the_time() -> None:
    def program(rec) -> None:
        rec("Barrier")
        rec("Barrier", site="again", tag=1)
        for _ in range(50):
            rec("Allreduce", nbytes=8, work=LONG)

    found = thesis_phases(run_of(program, 2))
    assert [phase.relevant for phase in found] == [phase.share >= 0.01 for phase in found]
    assert {phase.relevant for phase in found} == {True, False}
    none = thesis_phases(run_of(program, 2), Similarity(relevance=1.0))
    assert not any(phase.relevant for phase in none)


def test_wavefronts_and_halos_have_the_iterations_of_their_source() -> None:
    found = thesis_phases(run_of(corpus.wavefront(sweeps=3), 16))
    assert [phase.weight for phase in found if phase.relevant] == [3]
    found = thesis_phases(run_of(corpus.jacobi2d(iters=20), 16))
    assert [phase.weight for phase in found] == [1, 20]


def test_what_is_unlike_everything_is_put_together() -> None:
    def program(rec) -> None:
        for turn in range(30):
            rec("Allreduce", nbytes=8 * 2**turn)

    found = thesis_phases(run_of(program, 2), Similarity(most_phases=10))
    assert len(found) == 11 and [phase.similar for phase in found] == [True] * 10 + [False]
    assert sum(phase.weight for phase in found) == 30


def test_runs_that_are_too_large_or_empty(tmp_path: Path) -> None:
    run = run_of(corpus.ring(), 4)
    with pytest.raises(P3SError, match="more than 50 events") as caught:
        thesis_phases(run, Similarity(most_events=50))
    assert "\n" not in str(caught.value)
    (tmp_path / "one").mkdir()
    assert thesis_phases(sketched(tmp_path / "one", [])) == []
    (tmp_path / "two").mkdir()
    (only,) = thesis_phases(sketched(tmp_path / "two", [("Barrier",)]))
    assert (only.ticks, only.events, only.weight) == (1, 1, 1)


def test_the_same_run_gives_the_same_phases() -> None:
    one, other = (thesis_phases(run_of(corpus.cg(), 8)) for _ in range(2))
    assert repr(one) == repr(other)


def test_the_loop_of_a_phase_is_the_smallest_with_its_sites() -> None:
    phase = SimpleNamespace(sites=frozenset({"a", "b"}))
    loops = {0: {"a", "b", "c", "d"}, 1: {"a", "b", "c"}, 2: {"a", "b", "c"}, 3: {"a"}}
    assert loop_of(phase, loops) == 2
    assert loop_of(phase, {3: {"a"}}) is None


class OneRank(list[RankTrace]):
    """The ranks of a run of which one has a file."""

    def __init__(self, ranks: Iterable[RankTrace], rank: int) -> None:
        super().__init__(ranks)
        self.present = [rank]


def test_labels_in_order_are_common_to_ranks_and_counts() -> None:
    """Sizes and partners differ by rank and count, what is done does not."""

    def program(rec) -> None:
        for _ in range(3):
            for step in (1, 2):
                rec(
                    "Send",
                    site="w",
                    peer=(rec.rank + step * rec.n // 4) % rec.n,
                    nbytes=1000 * step // rec.n + rec.rank,
                )
            rec("Allreduce", site="w", nbytes=8)
            rec("Allreduce", site="w", nbytes=8 * rec.n * rec.n)

    found = []
    for n in (4, 8):
        run = run_of(program, n)
        for rank in range(n):
            one: Any = SimpleNamespace(**{**vars(run), "ranks": OneRank(run.ranks, rank)})
            part = part_of(one, Sites(frozenset({"w"})))
            found.append([part.nodes[node] for node in part.samples[rank]])
    assert all(names == found[0] for names in found)
    assert found[0][1:5] == [
        ("w#0", "MPI_Send"),
        ("w#1", "MPI_Send"),
        ("w#0", "MPI_Allreduce"),
        ("w#1", "MPI_Allreduce"),
    ]
