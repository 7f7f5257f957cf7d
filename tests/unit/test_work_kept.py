"""No computation is lost or counted twice where calls vanish: at the borders, at one process."""

from __future__ import annotations

from collections.abc import Callable

import corpus
import numpy as np
import pytest
from corpus import Program, block

from p3s.base.extents import dims_balanced
from p3s.model.compare import compare
from p3s.model.evaluate import generate
from p3s.model.fit import fit_model
from p3s.model.grid.stated import Statement
from p3s.model.work.workload import rank_work

NULL = -3
#: Laws of time are fitted to whole numbers; sites of several counts share them.
TOLERANCE = 0.01


@corpus.program
def halo(
    rec: corpus.Recorder,
    nx: int = 400,
    ny: int = 300,
    iters: int = 6,
    *,
    dims: int = 2,
    joined: bool = True,
    posted: bool = False,
    guarded: bool = False,
) -> None:
    """A bordered halo whose computation is done before its first message, whoever gets that.

    joined: an Allreduce ends every step; posted: non-blocking messages; guarded: a rank asks for
    its neighbours itself instead of sending to MPI_PROC_NULL.
    """
    p = dims_balanced(rec.n, dims)
    c = np.unravel_index(rec.rank, p)
    sides = [block(extent, q, int(x)) for extent, q, x in zip((nx, ny, 260), p, c, strict=False)]
    volume = float(np.prod(sides))
    left = 0.0

    def at(d: int, step: int) -> int:
        to = [int(x) + step * (e == d) for e, x in enumerate(c)]
        inside = all(0 <= x < q for x, q in zip(to, p, strict=True))
        return int(np.ravel_multi_index(to, p)) if inside else NULL

    def call(op: str, site: str, peer: int, size: int, work: float) -> None:
        nonlocal left
        if guarded and peer == NULL:
            left += work
        else:
            rec(op, site=site, peer=peer, nbytes=8 * size, work=work + left)
            left = 0.0

    for _ in range(iters):
        first = 2 * volume + 50
        for d in range(dims):
            for step in (-1, 1):
                size, site = int(volume / sides[d]), f"{d}{step}"
                if posted:
                    call("Irecv", "r" + site, at(d, -step), size, first)
                else:
                    call("Sendrecv", site, at(d, step), size, first)
                    call("Sendrecv_recv", site, at(d, -step), size, 0)
                first = 40.0
        if posted:
            for d in range(dims):
                for step in (-1, 1):
                    call("Isend", f"s{d}{step}", at(d, step), int(volume / sides[d]), 30)
            rec("Waitall", nbytes=4, work=25)
        if joined:
            rec("Allreduce", nbytes=8, work=volume + left)
            left = 0.0


@corpus.program
def chain(
    rec: corpus.Recorder, length: int = 4000, iters: int = 7, *, all_of_it: bool = False
) -> None:
    """Ranks in a line: all calls of the loop vanish at one process, the loop with them.

    all_of_it: messages hold all that a rank computes, so that the work goes with their bytes.
    """
    work = 10.0 * block(length, rec.n, rec.rank)
    size = 8 * length // rec.n if all_of_it else 80
    for _ in range(iters):
        rec("Send", peer=rec.rank + 1 if rec.rank + 1 < rec.n else NULL, nbytes=size, work=work)
        rec("Recv", peer=rec.rank - 1 if rec.rank else NULL, nbytes=size, work=20)


@corpus.program
def swaps(rec: corpus.Recorder, length: int = 40000, iters: int = 12) -> None:
    """Two exchanges a step in a line of ranks, each there and back in a loop over one set of calls.

    A rank makes no calls for a neighbour it has not; a rank at an end starts with another call.
    """
    left = 0.0

    def call(op: str, site: str, **what: int) -> None:
        nonlocal left
        rec(op, site=site, work=left, **what)
        left = 0.0

    def exchange(site: str) -> None:
        nonlocal left
        for step in (-1, 1):
            to, source = rec.rank + step, rec.rank - step
            if 0 <= source < rec.n:
                call("Irecv", f"{site}r", peer=source, nbytes=800)
            if 0 <= to < rec.n:
                call("Send", f"{site}s", peer=to, nbytes=800)
            if 0 <= source < rec.n:
                call("Wait", f"{site}w")
            left += 30.0

    rec("Barrier", work=500)
    for step in range(iters):
        left += 10.0 * block(length, rec.n, rec.rank)
        exchange("forward")
        left += 30.0 * block(length, rec.n, rec.rank)
        exchange("back")
        if step:
            call("Allreduce", "sum", nbytes=8)


@corpus.program
def sweep(rec: corpus.Recorder, length: int = 4000, iters: int = 7) -> None:
    """There and back along a line of ranks, computing before each message."""
    work = 10.0 * block(length, rec.n, rec.rank)
    up = rec.rank + 1 if rec.rank + 1 < rec.n else NULL
    down = rec.rank - 1 if rec.rank else NULL
    for _ in range(iters):
        for site, source, target, factor in (("there", down, up, 1), ("back", up, down, 2)):
            rec("Recv", site=site, peer=source, nbytes=80, work=7)
            rec("Send", site=site, peer=target, nbytes=80, work=factor * work)
        rec("Barrier", work=3)


@corpus.program
def alone(rec: corpus.Recorder, length: int = 4000, iters: int = 9) -> None:
    """A ring whose exchange is guarded by the number of processes."""
    work = 10.0 * length / rec.n
    for _ in range(iters):
        if rec.n > 1:
            rec.exchange(
                "Sendrecv", (rec.rank + 1) % rec.n, (rec.rank - 1) % rec.n, 800, work=work, rest=0
            )
        rec("Allreduce", nbytes=8, work=5 * work if rec.n > 1 else 6 * work)


@corpus.program
def doubling(rec: corpus.Recorder, length: int = 4000, iters: int = 5) -> None:
    """Stages of a reduction, none at one process, after the computation of a step."""
    for _ in range(iters):
        work, mask = 10.0 * length / rec.n, 1
        while mask < rec.n:
            peer = rec.rank ^ mask
            rec.exchange("Sendrecv", peer, nbytes=80, work=work, rest=0)
            work, mask = 0.0, 2 * mask
        rec("Barrier", work=work + 5)


@corpus.program
def set_up(rec: corpus.Recorder, rows: int = 4000, iters: int = 9) -> None:
    """Sets up by other functions on one process than on several, as libraries do."""
    work, name = 10.0 * rows / rec.n, "one" if rec.n == 1 else "several"
    rec("Bcast", nbytes=8, root=0, work=100)
    for step in range(3):
        rec("Allreduce", site=f"{name}-{step}", nbytes=8, work=(1 + step) * work)
    rec("Barrier", site="ready", work=50)
    for _ in range(iters):
        rec("Allreduce", nbytes=8, work=work)


PROGRAMS: dict[str, Program] = {
    "halo": halo(),
    "halo-open": halo(joined=False),
    "halo-3d": halo(dims=3),
    "halo-1d-open": halo(40000, dims=1, joined=False),
    "halo-posted": halo(posted=True),
    "halo-posted-open": halo(posted=True, joined=False),
    "halo-guarded": halo(guarded=True),
    "halo-1d-guarded": halo(40000, dims=1, guarded=True),
    "chain": chain(),
    "sweep": sweep(),
    "swaps": swaps(),
    "chain-by-bytes": chain(all_of_it=True),
    "alone": alone(),
    "doubling": doubling(),
}


def truth(program: Program, n: int) -> np.ndarray:
    table = corpus.table(program, n)
    return np.bincount(table.segments[:, 0], weights=table.segments[:, 4], minlength=n)


def predicted(model: dict, n: int) -> np.ndarray:
    rows = generate(model, n)
    return np.bincount(rows.rank, weights=rows.work * rows.repeat, minlength=n)


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_process_computes_what_several_do(name: str) -> None:
    """All of it is there at the traced counts, rank by rank, and at one process nobody traced."""
    program, counts = PROGRAMS[name], (2, 4, 8, 16)
    if name == "doubling":
        counts = (2, 4, 8)
    model = fit_model([corpus.table(program, n) for n in counts])
    for n in (*counts, 1):
        assert predicted(model, n) == pytest.approx(truth(program, n), rel=TOLERANCE), n


@pytest.mark.parametrize("name", ["chain", "sweep", "alone", "halo-1d-guarded"])
def test_what_one_process_shows_does_not_disturb_larger_counts(name: str) -> None:
    """Segments that only one of the traced counts has scale as others of their place do."""
    program = PROGRAMS[name]
    model = fit_model([corpus.table(program, n) for n in (1, 2, 4)])
    for n in (1, 2, 4, 8, 32):
        assert predicted(model, n).sum() == pytest.approx(truth(program, n).sum(), rel=0.03), n


@pytest.mark.parametrize("name", PROGRAMS)
def test_any_counts_give_back_the_work_that_was_traced(name: str) -> None:
    program = PROGRAMS[name]
    for counts in ((1, 2, 4), (2, 3, 5)):
        if name == "doubling" and 3 in counts:
            continue
        model = fit_model([corpus.table(program, n) for n in counts])
        for n in counts:
            assert predicted(model, n) == pytest.approx(truth(program, n), rel=TOLERANCE), n


def test_calls_without_a_rule_leave_their_computation_to_the_next() -> None:
    """What is before calls that are not modelled goes to the next call that is."""

    def program(rec: corpus.Recorder) -> None:
        for _ in range(9):
            rec("Allreduce", nbytes=8, work=4e4 / rec.n)
        for _ in range(9):
            rec("Neighbor_alltoall", nbytes=8, work=12e4 / rec.n)

    tables = [corpus.table(program, n) for n in (2, 4, 8)]
    for table in tables:
        table.unmodelled["MPI_Neighbor_alltoall"] = 9 * table.np
    model = fit_model(tables)
    for n in (2, 4, 8, 1, 32):
        rows = generate(model, n)
        ops = {model.items[i].op for i in rows.item.tolist()}
        assert ops == {"MPI_Init", "MPI_Allreduce", "MPI_Finalize"}
        assert predicted(model, n) == pytest.approx(truth(program, n), rel=TOLERANCE), n
        found = rank_work(
            model, rows.grid, {c: getattr(rows, c) for c in ("rank", "item", "nbytes", "repeat")}
        )
        assert found.work.sum() == pytest.approx(found.carried(found.work).sum())
        # beside a run it is compared where the run has it
        work = compare(model, corpus.table(program, n)).work
        assert work.max_abs_error < TOLERANCE
        assert {1, 2} <= {entry.phase for entry in work.each}


def test_calls_of_one_count_are_not_made_at_the_others() -> None:
    """What is computed before calls that one process alone makes is not counted twice."""
    program = set_up()
    model = fit_model([corpus.table(program, n) for n in (1, 2, 4)])
    for n in (1, 2, 4, 8):
        rows = generate(model, n)
        found = rank_work(
            model, rows.grid, {c: getattr(rows, c) for c in ("rank", "item", "nbytes", "repeat")}
        )
        assert found.work.sum() == pytest.approx(truth(program, n).sum(), rel=0.02), n


def test_messages_that_nobody_sends_to_itself_are_not_there_at_one_process() -> None:
    """Two relations lead to the rank itself there: neither has messages where none were traced."""

    def program(rec: corpus.Recorder) -> None:
        p = dims_balanced(rec.n, 2)
        c = [int(x) for x in np.unravel_index(rec.rank, p)]
        for _ in range(9):
            for d in range(2):
                to = list(c)
                to[d] = (to[d] + 1) % p[d]
                if p[d] > 1:
                    rec("Isend", peer=int(np.ravel_multi_index(to, p)), nbytes=80, work=1e5 / rec.n)
            rec("Allreduce", nbytes=8, work=1e5 if rec.n == 1 else 40)

    model = fit_model(
        [corpus.table(program, n) for n in (1, 2, 4)], known=Statement(ndims=2, by_user=True)
    )
    for n in (1, 2, 4):
        rows = generate(model, n)
        ops = [model.items[i].op for i in rows.item.tolist()]
        assert ("MPI_Isend" in ops) == (n > 1)
        assert predicted(model, n) == pytest.approx(truth(program, n), rel=TOLERANCE), n


@pytest.mark.parametrize("counts", [(1, 2, 4), (2, 4), (2, 4, 8)])
def test_work_that_is_not_sure_does_not_go_with_bytes_that_grow(counts: tuple[int, ...]) -> None:
    """A few microseconds behind an Allgather of n numbers are no law that grows with n."""
    took = {1: 4000.0, 2: 5600.0, 4: 9700.0, 8: 11300.0}

    def program(rec: corpus.Recorder) -> None:
        rec("Allgather", nbytes=4 * rec.n, work=1e5 / rec.n)
        rec("Barrier", work=took.get(rec.n, 0.0))

    model = fit_model([corpus.table(program, n) for n in counts])
    rows = generate(model, 1024, np.array([0, 500]))
    after = [model.items[i].op == "MPI_Barrier" for i in rows.item.tolist()]
    assert (rows.work[after] < 3 * took[counts[-1]]).all()


def test_below_the_traced_counts_is_as_unsure_as_above_them() -> None:
    """Each doubling adds half of the error at the traced counts, on either side of them."""

    def program(rec: corpus.Recorder) -> None:
        for _ in range(9):
            rec("Allreduce", nbytes=8, work=4e4 * (1 + 0.04 * (rec.n % 3)))

    model = fit_model([corpus.table(program, n) for n in (4, 8, 16)])
    share = {}
    for n in (1, 2, 4, 16, 64):
        rows = generate(model, n)
        found = rank_work(
            model, rows.grid, {c: getattr(rows, c) for c in ("rank", "item", "nbytes", "repeat")}
        )
        share[n] = float(found.half_width.sum() / found.work.sum())
    assert share[16] == pytest.approx(share[4]) and share[4] > 0
    assert share[2] == pytest.approx(1.5 * share[4], rel=0.05)
    assert share[1] == pytest.approx(2 * share[4], rel=0.05) == share[64]


@pytest.mark.parametrize("make", [halo, chain])
def test_some_ranks_alone_have_the_work_they_have_among_all(make: Callable[[], Program]) -> None:
    model = fit_model([corpus.table(make(), n) for n in (2, 4, 8)])
    whole, some = predicted(model, 36), generate(model, 36, np.array([0, 7, 35]))
    part = np.bincount(some.rank, weights=some.work * some.repeat, minlength=36)
    assert part[[0, 7, 35]] == pytest.approx(whole[[0, 7, 35]])
