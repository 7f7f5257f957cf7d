"""The sequence of events in the tables, and the turn of a loop that rows belong to."""

from __future__ import annotations

from dataclasses import replace

import corpus
import numpy as np

from p3s.model.order.iterations import with_turns
from p3s.signature.parse import Sequences, nodes_of
from p3s.signature.part import join, part_of
from p3s.signature.tables import PointTable, first_rows, node_of_row


@corpus.program
def multipartition(rec: corpus.Recorder, cells: int = 3, steps: int = 2) -> None:
    """Blocks of a size that depends on the turn, to one partner; a root that wanders."""
    p = round(rec.n**0.5)
    cx, cy = divmod(rec.rank, p)
    for _ in range(steps):
        for t in range(p):
            size = 8 * corpus.block(10, p, (cy + t) % p)
            rec("Isend", peer=(cx + 1) % p * p + cy, nbytes=size)
            rec("Irecv", peer=(cx - 1) % p * p + cy, nbytes=size)
            rec("Wait", nbytes=2)
        for k in range(rec.n):
            rec("Bcast", nbytes=8, root=k)
        rec("Allreduce", nbytes=8)


def truth(t: PointTable, rank: int) -> list[str]:
    codes = t.sequences[rank]
    nodes = nodes_of(codes, first_rows(t)[rank], node_of_row(t))
    return [t.nodes[v][1] for v in nodes.tolist()]


def test_sequences_hold_every_event_of_every_rank() -> None:
    run = corpus.run(corpus.jacobi2d(iters=3), 6)
    t = corpus.table(corpus.jacobi2d(iters=3), 6)
    assert sorted(t.sequences) == list(range(6))
    for rt in run.ranks:
        assert truth(t, rt.rank) == [run.calls[c].op for c in rt.call]
        rows = t.sequences[rt.rank] + first_rows(t)[rt.rank]
        assert t.nbytes[rows].tolist() == [run.calls[c].bytes for c in rt.call]
        assert [t.groups[g].peer for g in t.group[rows]] == [run.calls[c].peer for c in rt.call]


def test_events_that_move_nothing_are_in_the_sequence() -> None:
    def program(rec: corpus.Recorder) -> None:
        for q in (rec.rank - 1, rec.rank + 1):
            rec("Send", peer=q if 0 <= q < rec.n else -3, nbytes=8)

    t = corpus.table(program, 3)
    assert [int(c) < 0 for c in t.sequences[0]] == [False, True, False, False]
    assert truth(t, 0) == ["MPI_Init", "MPI_Send", "MPI_Send", "MPI_Finalize"]


def test_parts_of_a_run_join_to_the_sequences_of_the_run() -> None:
    def program(rec: corpus.Recorder) -> None:
        if rec.rank:
            rec("Barrier", site=f"own{rec.rank}")
        rec("Send", peer=-3 if rec.rank == 2 else 0, nbytes=8)

    run = corpus.run(program, 3)
    parts = []
    for rt in run.ranks:
        one = replace_ranks(run, [rt])
        parts.append(part_of(one))
    whole = join(parts)
    assert [whole.nodes[-1 - c][1] for c in whole.sequences[2].tolist() if c < 0] == ["MPI_Send"]
    assert {r: len(c) for r, c in whole.sequences.items()} == {0: 3, 1: 4, 2: 4}


def replace_ranks(run: object, ranks: list[object]) -> object:
    from types import SimpleNamespace

    return SimpleNamespace(**{**vars(run), "ranks": ranks})


def test_too_many_events_leave_no_sequences() -> None:
    kept = Sequences(most=5)
    kept.offer(0, np.array([0, 1, 2]))
    kept.offer(1, np.array([0, 1, 2]))  # the same again takes no room
    assert kept.kept[0] is kept.kept[1]
    kept.offer(2, np.array([0, 1, 3]))
    assert not kept.kept
    t = replace(corpus.table(multipartition(), 4), sequences={})
    (without,) = with_turns([t])
    assert without.turn is not None and not without.turn.any()
    whole = part_of(corpus.run(multipartition(), 1))
    assert join([whole]).sequences and not join([replace(whole, sequences={}), whole]).sequences


def test_turn_where_size_or_root_depends_on_the_loop_index() -> None:
    tables = with_turns([corpus.table(multipartition(), n) for n in (4, 9, 16)])
    for t in tables:
        assert t.turn is not None
        p = round(t.np**0.5)
        for rank, gi, size, turn, count in zip(
            t.rank, t.group, t.nbytes, t.turn, t.count, strict=True
        ):
            g = t.groups[gi]
            if g.op == "MPI_Isend":
                assert size == 8 * corpus.block(10, p, (rank % p + turn) % p) and count == 2
            elif g.op == "MPI_Bcast":
                assert g.root == turn and count == 2
            else:
                assert g.op == "MPI_Irecv" or turn == 0
        # every turn of a rank is there, with equal sizes in several turns too
        assert len(t.rank[(t.rank == 0) & (t.turn == p - 1)]) >= 3


def test_splitting_keeps_sums_and_sequences() -> None:
    before = [corpus.table(multipartition(), n) for n in (4, 9)]
    for a, b in zip(before, with_turns(before), strict=True):
        for column in ("count", "work", "elapsed_ns"):
            assert getattr(a, column).sum() == getattr(b, column).sum()
        for rank in range(a.np):
            for column in ("group", "nbytes", "rank"):
                x = getattr(a, column)[a.sequences[rank] + first_rows(a)[rank]]
                y = getattr(b, column)[b.sequences[rank] + first_rows(b)[rank]]
                assert np.array_equal(x, y)
            seen = np.unique(b.sequences[rank], return_index=True)[1]
            assert np.array_equal(b.first[b.rank == rank], seen)
