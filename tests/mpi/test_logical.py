"""Logical time respects what happened before what, on every message and every collective."""

from __future__ import annotations

from pathlib import Path

import corpus
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from order import traced, violations
from paths import EXAMPLES
from sketch import irecv, isend, rank_file, recv, send, sketched, wait
from tracer_helpers import PROGRAMS, compile_c, the_mpi, trace

from p3s.base.errors import P3SError
from p3s.capture import read_run
from p3s.methods.pas2p.logical import logical_time

CORPUS = {
    "jacobi2d": corpus.jacobi2d(iters=4),
    "ring": corpus.ring(steps=2),
    "halo3d": corpus.halo3d(iters=2),
    "halo3d-one-tag": corpus.halo3d(iters=2, tags=False),
    "cg": corpus.cg(),
    "wavefront": corpus.wavefront(),
    "halo9": corpus.halo9(),
    "fft2d": corpus.fft2d(),
    "hypercube": corpus.hypercube(),
    "dissemination": corpus.dissemination(),
    "gather": corpus.gather_to_root(),
    "every-tenth": corpus.every_tenth(),
    "binomial": corpus.binomial_broadcast(),
    "packed-halo": corpus.packed_halo(),
    "steps": corpus.shares_of_steps(),
}


def ticks(run):
    """Return the ticks of every rank as lists."""
    return [each.tolist() for each in logical_time(run)]


def holds(run) -> None:
    """Check every rule; no receive that is not cancelled may be without its send."""
    matching, bad = violations(run)
    assert not any(bad.values()), bad
    assert matching.messages == len(matching.partner)


# ---- the rules, one by one -------------------------------------------------------------------


def test_a_send_moves_the_clock_on_and_a_receive_does_not(tmp_path: Path) -> None:
    run = sketched(
        tmp_path, [send(1), send(1), send(1), recv(1)], [recv(0), recv(0), recv(0), send(0)]
    )
    assert ticks(run) == [[0, 1, 2, 4, 4], [1, 2, 3, 3, 4]]


def test_a_receive_of_an_old_message_keeps_the_order_of_its_rank(tmp_path: Path) -> None:
    run = sketched(tmp_path, [send(1)], [send(1, tag=3), send(1, tag=3), recv(0)])
    assert ticks(run)[1][2] == 2, "the clock of the rank, not one more than the send's 0"


def test_all_callers_of_a_collective_share_the_largest_clock(tmp_path: Path) -> None:
    barrier = ("Barrier",)
    run = sketched(
        tmp_path,
        [barrier, barrier],
        [send(2), send(2), barrier, barrier],
        [recv(1), recv(1), barrier, barrier],
    )
    assert ticks(run) == [[2, 3, 4], [0, 1, 2, 3, 4], [1, 2, 2, 3, 4]]


def test_a_nonblocking_receive_takes_effect_where_it_is_completed(tmp_path: Path) -> None:
    run = sketched(
        tmp_path,
        [send(1, tag=1), send(1), send(1)],
        [irecv(0), irecv(0), recv(0, tag=1), wait(0, 1)],
    )
    assert ticks(run) == [[0, 1, 2, 3], [0, 0, 1, 3, 3]]


def test_messages_to_nobody_do_not_count(tmp_path: Path) -> None:
    assert ticks(sketched(tmp_path, [send(-3), recv(-3), send(0), recv(0)])) == [[0, 0, 0, 1, 1]]


def test_a_nonblocking_collective_ends_after_all_posts(tmp_path: Path) -> None:
    """Legal, since the post does not wait: rank 1 joins only when it has heard from rank 0."""
    run = sketched(tmp_path, [("Ibarrier",), send(1), wait(0)], [recv(0), ("Ibarrier",), wait(1)])
    assert ticks(run) == [[0, 1, 3, 3], [2, 2, 3, 3]]
    holds(run)


def test_threads_have_clocks_of_their_own(tmp_path: Path) -> None:
    """A send that began first but returned last: in one order of returns it would be a circle."""
    run = sketched(tmp_path, [recv(1, thread=1), send(1, thread=0)], [recv(0), send(0)])
    assert ticks(run) == [[2, 0, 1], [1, 1, 2]]


# ---- contradictions -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ranks",
    [
        # a circle of messages; a root that leaves MPI_Bcast before the others are in it
        ([recv(1), send(1), ("Barrier",)], [recv(0), send(0), ("Barrier",)]),
        ([("Bcast", {"root": 0}), send(1)], [recv(0), ("Bcast", {"root": 0})]),
    ],
)
def test_contradictions_are_one_line(ranks, tmp_path: Path) -> None:
    run = sketched(tmp_path, *ranks)
    with pytest.raises(P3SError, match="contradict each other") as caught:
        logical_time(run)
    assert "\n" not in str(caught.value) and "p3s check" in str(caught.value)


def test_partial_and_empty_captures_have_an_order(tmp_path: Path) -> None:
    rank_file(0, 3, [send(1), recv(1), ("Barrier",)]).save(tmp_path)
    rank_file(1, 3, [recv(0), send(0), recv(2)]).save(tmp_path)
    run = read_run(tmp_path)
    assert ticks(run) == [[0, 2, 2], [1, 1, 2], []]
    for folder in (tmp_path / "one", tmp_path / "none"):
        folder.mkdir()
    assert ticks(sketched(tmp_path / "one", [("Barrier",)])) == [[0, 1]]
    rank_file(0, 1, []).save(tmp_path / "none")
    assert ticks(read_run(tmp_path / "none")) == [[]]


def test_a_receive_that_is_never_completed_orders_nothing(tmp_path: Path) -> None:
    run = sketched(tmp_path, [send(1), send(1)], [irecv(0), irecv(0), wait(1)])
    assert ticks(run)[1] == [0, 0, 2, 2]


def test_clocks_that_go_backwards_change_nothing(tmp_path: Path) -> None:
    events = [send(1), send(1)], [recv(0), recv(0)]
    backwards = [
        [(name, {**told, "start": 1000 - 400 * k}) for k, (name, told) in enumerate(rank)]
        for rank in events
    ]
    for name, ranks in (("a", events), ("b", backwards)):
        (tmp_path / name).mkdir()
        assert ticks(sketched(tmp_path / name, *ranks)) == [[0, 1, 2], [1, 2, 2]]


# ---- every trace of the corpus --------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 4, 9, 16])
@pytest.mark.parametrize("name", CORPUS)
def test_the_corpus_of_event_lists(name: str, n: int) -> None:
    if name == "hypercube" and n & (n - 1) or name == "cg" and n & (n - 1):
        pytest.skip("powers of two only")
    holds(traced(corpus.run(CORPUS[name], n)))


@st.composite
def traffic(draw):
    """Events of a run that happened: made in one global order, nonblocking or not."""
    size = draw(st.integers(1, 4))
    rng = draw(st.randoms(use_true_random=False))
    events: list[list] = [[] for _ in range(size)]
    flying: list[tuple[int, int, int]] = []
    open_: list[list[int]] = [[] for _ in range(size)]
    for _ in range(draw(st.integers(0, 60))):
        what, rank = rng.randrange(5), rng.randrange(size)
        if what == 0:
            for r in range(size):
                events[r].append(("Allreduce", {"nbytes": 8}))
        elif what in (1, 2):
            to, tag = rng.randrange(size), rng.randrange(2)
            flying.append((rank, to, tag))
            events[rank].append(send(to, tag) if what == 1 else isend(to, tag))
        elif flying:
            source, to, tag = flying.pop(rng.randrange(len(flying)))
            if what == 3:
                events[to].append(recv(-2, -1, found=(source, tag)))
            else:  # posted now, completed at once or later
                open_[to].append(len(events[to]))
                events[to].append(irecv(-2, -1, found=(source, tag)))
                if rng.random() < 0.5:
                    events[to].append(wait(*open_[to]))
                    open_[to] = []
    for source, to, tag in flying:
        events[to].append(recv(source, tag))
    for rank in range(size):
        events[rank].append(wait(*open_[rank]))
    return events


@settings(max_examples=60, deadline=None)
@given(traffic())
def test_any_run_that_can_happen_has_an_order(tmp_path_factory, events) -> None:
    holds(sketched(tmp_path_factory.mktemp("run"), *events))


REAL = [
    ("jacobi2d", ["--nx", "83", "--ny", "51", "--iterations", "4"], (1, 4, 9)),
    ("ring", ["--bodies", "103", "--steps", "2"], (5,)),
    ("halo3d", ["--nx", "21", "--ny", "17", "--nz", "19", "--iterations", "2"], (8, 12)),
    ("cg", ["--n", "403", "--iterations", "2", "--inner", "3"], (8,)),
    ("wavefront", ["--nx", "37", "--ny", "23", "--iterations", "2"], (9,)),
]
CONFORMING = (
    "blocking waits persistent sendrecv wildcards null_and_zero in_place polling comms topologies"
    " intercomm nonblocking_collectives requests threads matched vector_collectives"
).split()


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the programs write their files beside the run."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    install = the_mpi()
    if install is None:
        pytest.skip("no MPI that works with ranks sharing cores")
    return tmp_path_factory.mktemp("built")


@pytest.mark.parametrize(
    ("program", "words", "n"), [(p, w, n) for p, w, counts in REAL for n in counts]
)
def test_real_examples(program: str, words: list[str], n: int, built: Path, tmp_path: Path) -> None:
    binary = built / program
    if not binary.exists():
        compile_c(EXAMPLES / f"{program}.c", binary, f"-I{EXAMPLES}", "-lm")
    holds(trace([str(binary), *words], n, tmp_path / "run"))


@pytest.mark.parametrize("program", CONFORMING)
def test_real_programs_of_every_kind_of_call(program: str, built: Path, tmp_path: Path) -> None:
    folder = PROGRAMS / "conformance"
    binary = compile_c(folder / f"{program}.c", built / program, f"-I{folder}", "-pthread", "-lm")
    holds(trace([str(binary)], 3, tmp_path / "run"))


def test_cancelled_requests_are_all_that_is_left_over(built: Path, tmp_path: Path) -> None:
    folder = PROGRAMS / "conformance"
    binary = compile_c(folder / "cancel.c", built / "cancel", f"-I{folder}", "-pthread", "-lm")
    matching, bad = violations(trace([str(binary)], 3, tmp_path / "run"))
    assert not any(bad.values())
    assert matching.messages == len(matching.partner) == 6
