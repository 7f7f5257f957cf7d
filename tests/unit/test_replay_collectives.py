"""Collectives as messages: proof by data flow, against Open MPI itself, and as steps."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
from collective_proof import Proving, prove
from paths import PROGRAMS
from steps_builder import Builder

from p3s.base.errors import P3SError
from p3s.program.collectives.choose import (
    MPICH,
    OPENMPI,
    Library,
    Rule,
    choose_algorithm,
    division,
    element_of,
    library_of,
    most_common,
    schedule,
)
from p3s.program.collectives.expand import FIRST_TAG, expand
from p3s.program.collectives.registry import COLLECTIVES, CREATIONS
from p3s.program.order.pairs import pair
from p3s.simulate.steps import Op, Steps

LIBRARY = Library(OPENMPI, (4, 1))
#: Calls that move what the program has; those that make communicators are several others in turn.
MOVING = tuple(call for call in COLLECTIVES if call not in CREATIONS)
#: Algorithms whose messages can be cut into segments.
CUT = {"pipeline", "binary", "binomial", "knomial", "in_order_binary", "linear_sync"}


def sizes_of(call: str, nbytes: int, p: int) -> np.ndarray:
    if COLLECTIVES[call].varying and not call.startswith("alltoall"):
        return np.array([nbytes * (r % 3) for r in range(p)])
    if call == "barrier":
        return np.zeros(p, dtype=np.int64)
    return np.full(
        p, nbytes * p if COLLECTIVES[call].shared or call.startswith("alltoall") else nbytes
    )


def prove_by_node(library: Library, node: np.ndarray, nbytes: int) -> None:
    """What a library does over nodes, and what it does for nonblocking calls."""
    p = len(node)
    for call in MOVING:
        sizes = sizes_of(call, nbytes, p)
        element = element_of(call, library, most_common(sizes))
        at = division(call, p, sizes, element).tolist()
        for blocking in (True, False):
            if call == "scan" and library.family == MPICH:
                continue  # keeps two results apart that the proof does not
            for root in {0, 1, p - 1} if COLLECTIVES[call].rooted else {0}:
                made = schedule(
                    library, call, sizes, root, node=node, blocking=blocking, writer=Proving
                )
                prove(call, made, sizes.tolist(), root, at)


def test_over_nodes_the_right_data_moves() -> None:
    for library in (Library(OPENMPI, (5, 0)), Library(MPICH, (5, 0))):
        prove_by_node(library, np.arange(6) % 2, 70000)
        prove_by_node(library, np.array([0, 0, 0, 1, 1, 2, 2]), 240)


def test_over_nodes_few_messages_leave_a_node() -> None:
    node = np.arange(16) // 4
    flat = schedule(Library(OPENMPI, (4, 1)), "allreduce", np.full(16, 8), node=node)
    by_node = schedule(Library(OPENMPI, (5, 0)), "allreduce", np.full(16, 8), node=node)

    def leaving(made) -> int:
        member = np.repeat(np.arange(16), np.diff(made.start))
        sends = made.to >= 0
        return int((node[member[sends]] != node[made.peer[sends]]).sum())

    assert leaving(flat) == 32 and leaving(by_node) == 6


def prove_one(call: str, name: str, p: int, nbytes: int, root: int, segment: int = 0) -> None:
    library = Library(MPICH if "blocks" in name else OPENMPI, (4, 1), (Rule(call, name, segment),))
    sizes = sizes_of(call, nbytes, p)
    made = schedule(library, call, sizes, root, writer=Proving)
    element = element_of(call, library, most_common(sizes))
    prove(call, made, sizes.tolist(), root, division(call, p, sizes, element).tolist())


def prove_all(counts: list[int], nbytes: tuple[int, ...], segments: bool) -> None:
    for call, names in ((name, COLLECTIVES[name].algorithms) for name in MOVING):
        for name in names:
            for p in counts:
                for size in nbytes:
                    if name == "rabenseifner_blocks" and size // 8 < p:
                        continue  # MPICH takes it for at least one element per member only
                    for root in {0, p - 1, p // 2} if COLLECTIVES[call].rooted else {0}:
                        prove_one(call, name, p, size, root)
                        if name in CUT and segments:
                            prove_one(call, name, p, size, root, 16)


def test_every_algorithm_moves_the_right_data() -> None:
    prove_all([3, 6, 8], (3 * 13 * 8 + 8,), segments=True)


@pytest.mark.slow
def test_every_algorithm_moves_the_right_data_up_to_40_members() -> None:
    prove_all(list(range(2, 41)), (3, 8, 24 * 40 + 16), segments=True)


def test_choices_of_open_mpi() -> None:
    # Switch points of coll_tuned_decision_fixed.c, one side and the other.
    assert choose_algorithm("allreduce", 16, 4095) == "recursive_doubling"
    assert choose_algorithm("allreduce", 16, 4096) == "rabenseifner"
    assert choose_algorithm("bcast", 2047, 524287) == "knomial"
    assert choose_algorithm("bcast", 2047, 524288) == "scatter_doubling"
    assert (
        choose_algorithm("barrier", 7, 0) == "linear"
        and choose_algorithm("barrier", 8, 0) == "recursive_doubling"
    )
    assert choose_algorithm("alltoall", 4096, 1 << 30) == "linear_sync"


def peers(made, member: int) -> list[tuple[str, int, int]]:
    told = []
    for i in range(made.start[member], made.start[member + 1]):
        receive = (int(made.peer2[i]), int(made.bytes2[i]))
        if made.op[i] != Op.SENDRECV:
            receive = (int(made.peer[i]), int(made.bytes[i]))
        if made.source[i] >= 0:
            told.append(("r", *receive))
        if made.to[i] >= 0:
            told.append(("s", int(made.peer[i]), int(made.bytes[i])))
    return told


def test_choices_of_mpich() -> None:
    library = Library(MPICH, (5, 0))
    small, big = (schedule(library, "bcast", np.full(16, n)) for n in (12288, 12289))
    assert len(peers(small, 0)) == 4 and len(peers(big, 0)) == 4 + 2 * 4
    barrier = schedule(library, "barrier", np.zeros(6, dtype=np.int64))
    assert peers(barrier, 0) == [
        ("r", 5, 0),
        ("s", 1, 0),
        ("r", 4, 0),
        ("s", 2, 0),
        ("r", 2, 0),
        ("s", 4, 0),
    ]


def program(n: int) -> Steps:
    builder = Builder(n)
    for rank in range(n):
        builder.add(rank, "MPI_Isend", (rank + 1) % n, 100, work_ns=5)
        builder.add(rank, "MPI_Irecv", (rank - 1) % n, 100)
        builder.add(rank, "MPI_Allreduce", nbytes=8, work_ns=1000 + rank, row=7, weight=3)
        builder.add(rank, "MPI_Waitall", work_ns=10)
        builder.add(rank, "MPI_Ibcast", peer=2, nbytes=64, work_ns=20)
        builder.add(rank, "MPI_Barrier")
        builder.add(rank, "MPI_Wait", work_ns=30)
        builder.add(rank, "MPI_Gather", peer=0, nbytes=16)
        builder.add(rank, "REST", work_ns=40)
    return builder.build()


def test_steps_of_collectives() -> None:
    before = program(6)
    made = expand(before, LIBRARY)
    after = made.steps
    assert not after.is_op(Op.COLLECTIVE, Op.ICOLLECTIVE).any() and made.notes == ()
    # Partners are those that pairing in program order finds.
    again = pair(after)
    to, source = (again.to, again.source) if isinstance(again, Steps) else again[:2]
    assert (to == after.to).all() and (source == after.source).all()
    sends = after.to >= 0
    assert (
        after.bytes[sends]
        == np.where(
            after.op[after.to[sends]] == Op.SENDRECV,
            after.bytes2[after.to[sends]],
            after.bytes[after.to[sends]],
        )
    ).all()
    # Nothing is lost: computation, rows, weights, and every request is completed once.
    for rank in range(6):
        assert after.work_ns[after.of(rank)].sum() == before.work_ns[before.of(rank)].sum()
        assert (np.diff(made.origin[after.of(rank)]) != 0).any()
    assert set(after.row[made.origin == 2].tolist()) == {7}
    assert set(after.weight[made.origin == 2].tolist()) == {3.0}
    requests = np.flatnonzero(after.is_op(Op.ISEND, Op.IRECV))
    assert sorted(after.done.tolist()) == requests.tolist()
    tags = after.tag[after.is_op(Op.SEND, Op.RECV, Op.SENDRECV)]
    assert tags.min() >= FIRST_TAG and set((tags - FIRST_TAG).tolist()) == {0, 1, 2, 3}


def test_a_nonblocking_collective_goes_on_where_it_is_completed() -> None:
    before = program(6)
    made = expand(before, LIBRARY)
    after, origin = made.steps, made.origin
    for rank in range(6):
        mine = origin[after.of(rank)].tolist()
        bcast, barrier, wait = (before.start[rank] + k for k in (4, 5, 6))
        # The broadcast's steps stand on both sides of the barrier, none behind its Wait.
        first, last = mine.index(bcast), len(mine) - 1 - mine[::-1].index(bcast)
        assert first < mine.index(barrier) and last < mine.index(wait)
        if rank != 2:  # all but the root must wait for data
            assert last > mine.index(barrier)


def test_only_some_collectives() -> None:
    before = program(4)
    which = before.is_op(Op.COLLECTIVE) & np.isin(before.call, [before.calls.index("MPI_Barrier")])
    made = expand(before, LIBRARY, which)
    kept = made.steps.is_op(Op.COLLECTIVE, Op.ICOLLECTIVE)
    assert kept.sum() == 3 * 4 and len(made.used) == 1
    # The third call on the communicator keeps its number, whatever is expanded.
    tags = made.steps.tag[made.steps.tag >= FIRST_TAG]
    assert set(tags.tolist()) == {FIRST_TAG + 2}


def test_sub_communicators_and_what_stays() -> None:
    builder = Builder(5, {3: [4, 0, 2]})
    for rank in (0, 2, 4):
        builder.add(rank, "MPI_Bcast", peer=2, nbytes=1000, comm=3)
    for rank in range(5):
        builder.add(rank, "MPI_Alltoall", nbytes=50)
        builder.add(rank, "MPI_Barrier" if rank else "MPI_Allreduce")
    made = expand(builder.build(), LIBRARY, most_steps=40)
    assert sorted(made.used, key=lambda u: u.members)[0].members == 3
    in_bcast = made.steps.comm == 3
    assert set(made.steps.rank[in_bcast].tolist()) == {0, 2, 4}
    assert set(made.steps.peer[in_bcast & (made.steps.to >= 0)].tolist()) == {0, 4}
    assert len(made.notes) == 2 and all("\n" not in note for note in made.notes)
    assert "50 steps would be too many" in " ".join(made.notes)
    assert "different calls" in " ".join(made.notes)


def test_libraries_and_rules(tmp_path: Path) -> None:
    library = library_of("openmpi", "4.1.4", "allreduce=ring,bcast=pipeline:65536")
    assert library.version == (4, 1) and library.rules[1] == Rule("bcast", "pipeline", 65536)
    ring = schedule(library, "allreduce", np.full(4, 1024))
    assert {peer for _, peer, _ in peers(ring, 0)} == {1, 3}
    chain = schedule(library, "bcast", np.full(3, 1 << 20))
    assert len(peers(chain, 2)) == 16 and peers(chain, 2)[0] == ("r", 1, 65536)
    table = tmp_path / "c.toml"
    table.write_text('barrier = "tree"\n[[allgather]]\nalgorithm = "ring"\nbytes_below = 100\n')
    rules = library_of("mpich", "5.0.2", str(table)).rules
    assert rules == (Rule("barrier", "tree"), Rule("allgather", "ring", bytes_below=100))
    (tmp_path / "c.json").write_text('{"scan": "linear"}')
    assert library_of("mpich", "5", tmp_path / "c.json").rules == (Rule("scan", "linear"),)
    (tmp_path / "bad.toml").write_text("bcast = 3")
    for family, version, rules in (
        ("intel", "1", ""),
        ("openmpi", "main", ""),
        ("openmpi", "4.1", "bcast=best"),
        ("openmpi", "4.1", "broadcast=ring"),
        ("openmpi", "4.1", "bcast=pipeline:big"),
        ("openmpi", "4.1", str(tmp_path / "bad.toml")),
        ("openmpi", "4.1", str(tmp_path / "none.toml")),
    ):
        with pytest.raises(P3SError) as told:
            library_of(family, version, rules)
        assert "\n" not in str(told.value)


#: Sizes on both sides of switch points.
SIZES = (8, 24, 136, 1000, 4096, 16384, 65536, 300000)


def calls_to_try(p: int, sizes: tuple[int, ...]) -> list[tuple[str, int, int]]:
    tried = [("barrier", 0, 0)]
    for call in MOVING:
        for nbytes in sizes if call != "barrier" else ():
            total = (
                nbytes * p if call.startswith("alltoall") or COLLECTIVES[call].shared else nbytes
            )
            tried += [
                (call, total, root) for root in ((0, p - 1) if COLLECTIVES[call].rooted else (0,))
            ]
    return tried


def messages_of_open_mpi(
    folder: Path, p: int, tried: list[tuple[str, int, int]], twin: str
) -> list[list[str]]:
    """Run the calls for real; return what each rank did, a line per call."""
    source = PROGRAMS / "replay" / "collective_messages.c"
    program = folder / "messages"
    if not program.exists():
        subprocess.run(["mpicc.openmpi", "-O1", "-o", program, source], check=True, timeout=120)
    (folder / "list").write_text("".join(f"{twin}{c} {n} {r}\n" for c, n, r in tried))
    env = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    command = [
        "mpiexec.openmpi",
        "--oversubscribe",
        "--mca",
        "mpi_yield_when_idle",
        "1",
        "-n",
        str(p),
        program,
        folder / "list",
        folder / "out",
    ]
    with open(folder / "log", "w") as log:
        job = subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)
        try:
            assert job.wait(timeout=120) == 0, (folder / "log").read_text()[-500:]
        finally:
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
                job.wait()
    return [(folder / f"out.{rank}").read_text().split("\n") for rank in range(p)]


def compare_with_open_mpi(
    folder: Path, p: int, sizes: tuple[int, ...], blocking: bool = True
) -> None:
    tried = calls_to_try(p, sizes)
    told = messages_of_open_mpi(folder, p, tried, "" if blocking else "i")
    for k, (call, total, root) in enumerate(tried):
        per_member = np.array([total * (r % 3) for r in range(p)])
        varies = COLLECTIVES[call].varying and not call.startswith("alltoall")
        made = schedule(
            LIBRARY, call, per_member if varies else np.full(p, total), root, blocking=blocking
        )
        for rank in range(p):
            words = [(word[0], *map(int, word[1:].split(":"))) for word in told[rank][k].split()]
            real = [
                ("s" if what in "si" else "r", peer, n) for what, peer, n in words if peer != rank
            ]
            mine = peers(made, rank)
            # The bytes of a receive are those of its buffer, and it may take any source.
            if any(peer < 0 for _, peer, _ in real):
                real, mine = ([w for w in seq if w[0] == "s"] for seq in (real, mine))
            if not blocking:  # its rounds are posted in an order of their own
                real, mine = sorted(real), sorted(mine)
            assert [w if w[0] == "s" else w[:2] for w in real] == [
                w if w[0] == "s" else w[:2] for w in mine
            ], (call, total, root, rank)


needs_openmpi = pytest.mark.skipif(
    not (shutil.which("mpiexec.openmpi") and shutil.which("mpicc.openmpi")),
    reason="no Open MPI under its own name",
)


@pytest.mark.mpi
@needs_openmpi
def test_open_mpi_sends_the_same_messages(tmp_path: Path) -> None:
    compare_with_open_mpi(tmp_path, 6, SIZES)
    compare_with_open_mpi(tmp_path, 5, SIZES, blocking=False)


@pytest.mark.mpi
@needs_openmpi
@pytest.mark.parametrize("p", [2, 5, 8])
def test_open_mpi_agrees_on_a_communicator_by_the_same_messages(tmp_path: Path, p: int) -> None:
    tried = [
        (call, 0, 0)
        for call in (
            "comm_dup",
            "comm_split",
            "comm_split_type",
            "comm_create",
            "cart_create",
            "graph_create",
            "dist_graph_create_adjacent",
        )
    ]
    told = messages_of_open_mpi(tmp_path, p, tried, "")
    for k, (call, _, _) in enumerate(tried):
        made = schedule(LIBRARY, call, np.zeros(p, dtype=np.int64))
        for rank in range(p):
            words = [(word[0], *map(int, word[1:].split(":"))) for word in told[rank][k].split()]
            real = sorted(
                (peer, n) for what, peer, n in words if what in "si" and peer not in (rank, -2)
            )
            mine = sorted((peer, n) for what, peer, n in peers(made, rank) if what == "s")
            assert real == mine, (call, rank)


@pytest.mark.mpi
@pytest.mark.slow
@needs_openmpi
@pytest.mark.parametrize("p", range(2, 17))
def test_open_mpi_sends_the_same_messages_everywhere(tmp_path: Path, p: int) -> None:
    switches = tuple(n for k in range(3, 21) for n in (2**k - 8, 2**k) if n >= 8)
    compare_with_open_mpi(tmp_path, p, switches)
    compare_with_open_mpi(tmp_path, p, switches[::3], blocking=False)
